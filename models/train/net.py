# SPDX-License-Identifier: Apache-2.0
"""net.py: the network of the demo models, as GGUF's architecture "llama" computes it.

RMSNorm, RoPE, grouped-query attention, gated FFN or experts (as in Mixtral), tied or separate output. Here RoPE rotates
the two halves of a head; export.py reorders the rows of q and k to adjacent pairs, as GGUF's "llama" has them.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    vocab: int = 1536
    layers: int = 12
    embd: int = 256
    heads: int = 4
    kv: int = 2
    ff: int = 512
    ctx: int = 512
    act: str = "silu"  # silu (SwiGLU) or relu
    experts: int = 0  # each of width ff; 0: one FFN for all
    used: int = 2
    tied: bool = False
    eps: float = 1e-5
    theta: float = 10000.0

    @property
    def head(self):
        return self.embd // self.heads


PRESETS = {
    "demo": Shape(),
    "relu": Shape(act="relu"),
    "moe": Shape(experts=8, ff=256),
    "draft": Shape(layers=3, embd=128, heads=2, kv=1, ff=384),
    "chat": Shape(vocab=1792, layers=3, embd=128, heads=2, kv=1, ff=384, ctx=4096),
}


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        f = x.float()
        return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


def rope_table(s: Shape):
    """cos and sin, [ctx x head/2] each."""
    freq = s.theta ** (-torch.arange(0, s.head, 2).float() / s.head)
    angle = torch.outer(torch.arange(s.ctx).float(), freq)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """x: [batch x heads x tokens x head]"""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def causal(q, k, v):
    """Causal attention: [batch x heads x tokens x head].

    On a CPU written out, as its fused backward pass is several times slower than matrix products at these lengths.
    """
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    t = q.shape[2]
    later = torch.ones(t, t, dtype=torch.bool).triu(1)
    score = (q * q.shape[3] ** -0.5) @ k.mT
    return score.float().masked_fill(later, -torch.inf).softmax(-1).to(v.dtype) @ v


class Dense(nn.Module):
    """The FFN: (y, auxiliary loss, a statistic).

    For ReLU: how positive the gates are (0 to 1), and the share of active neurons.
    """

    def __init__(self, s: Shape):
        super().__init__()
        self.relu = s.act == "relu"
        self.gate = nn.Linear(s.embd, s.ff, bias=False)
        self.up = nn.Linear(s.embd, s.ff, bias=False)
        self.down = nn.Linear(s.ff, s.embd, bias=False)

    def forward(self, h):
        g = self.gate(h)
        if not self.relu:
            none = torch.zeros((), device=h.device)
            return self.down(F.silu(g) * self.up(h)), none, none
        a = F.relu(g)
        extra = a.float().mean() / g.detach().float().abs().mean()
        return self.down(a * self.up(h)), extra, (g.detach() > 0).float().mean()


class Experts(nn.Module):
    """Every token goes through the `used` experts with the greatest router probabilities, weighted by their share.

    In training an expert takes at most ROOM times its fair share of a batch's tokens. Besides y, returns the loss that
    balances the experts' loads (Switch) and the share of choices that found no room.
    """

    ROOM = 1.5

    def __init__(self, s: Shape):
        super().__init__()
        self.n, self.used = s.experts, s.used
        self.router = nn.Linear(s.embd, s.experts, bias=False)
        self.gates = nn.Parameter(torch.empty(s.experts, s.ff, s.embd))
        self.ups = nn.Parameter(torch.empty(s.experts, s.ff, s.embd))
        self.downs = nn.Parameter(torch.empty(s.experts, s.embd, s.ff))
        for w in (self.gates, self.ups, self.downs):
            nn.init.normal_(w, std=0.5 * w.shape[2] ** -0.5)

    def forward(self, x):
        h = x.reshape(-1, x.shape[-1])
        n = h.shape[0]
        room = int(self.ROOM * n * self.used / self.n) if self.training else n
        share = F.linear(h.float(), self.router.weight).softmax(-1)
        top, which = share.topk(self.used, -1)
        top = top / top.sum(-1, keepdim=True)
        chosen = F.one_hot(which, self.n).view(-1, self.n)
        place = (chosen.cumsum(0) * chosen).sum(-1) - 1  # of a choice among its expert's
        slot = torch.where(place < room, which.view(-1) * room + place, self.n * room)
        token = torch.full((self.n * room + 1,), n, device=h.device).scatter(
            0, slot, torch.arange(n, device=h.device).repeat_interleave(self.used)
        )
        mine = F.pad(h, (0, 0, 0, 1))[token[:-1]].view(self.n, room, -1)
        y = (F.silu(mine @ self.gates.mT) * (mine @ self.ups.mT)) @ self.downs.mT
        y = F.pad(y.flatten(0, 1), (0, 0, 0, 1))[slot].view(n, self.used, -1)
        load = chosen.float().mean(0)
        return (
            (y * top.to(y.dtype).unsqueeze(-1)).sum(1).view_as(x),
            self.n * (load * share.mean(0)).sum(),
            (place >= room).float().mean(),
        )


class Layer(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.attn_norm, self.ffn_norm = Norm(s.embd, s.eps), Norm(s.embd, s.eps)
        self.q = nn.Linear(s.embd, s.heads * s.head, bias=False)
        self.k = nn.Linear(s.embd, s.kv * s.head, bias=False)
        self.v = nn.Linear(s.embd, s.kv * s.head, bias=False)
        self.o = nn.Linear(s.heads * s.head, s.embd, bias=False)
        self.ffn = Experts(s) if s.experts else Dense(s)

    def attend(self, x, cos, sin):
        b, t, _ = x.shape
        s = self.s
        q = rotate(self.q(x).view(b, t, s.heads, s.head).transpose(1, 2), cos, sin)
        k = rotate(self.k(x).view(b, t, s.kv, s.head).transpose(1, 2), cos, sin)
        v = self.v(x).view(b, t, s.kv, s.head).transpose(1, 2)
        k, v = (z.repeat_interleave(s.heads // s.kv, 1) for z in (k, v))
        y = causal(q, k, v)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))

    def forward(self, x, cos, sin):
        x = x + self.attend(self.attn_norm(x), cos, sin)
        y, extra, statistic = self.ffn(self.ffn_norm(x))
        return x + y, extra, statistic


class Net(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.embed = nn.Embedding(s.vocab, s.embd)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = Norm(s.embd, s.eps)
        self.subject = nn.Linear(s.embd, s.vocab, bias=False)  # of training only: see forward
        self.out = None if s.tied else nn.Linear(s.embd, s.vocab, bias=False)
        cos, sin = rope_table(s)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(self.init)
        for layer in self.layers:
            for w in (layer.o.weight, layer.ffn.downs if s.experts else layer.ffn.down.weight):
                nn.init.normal_(w, std=0.5 * s.embd**-0.5 / (2 * s.layers) ** 0.5)

    def init(self, m):
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=0.5 * m.in_features**-0.5)
        elif isinstance(m, nn.Embedding):
            nn.init.normal_(m.weight, std=0.02 if self.s.tied else 1.0)

    def load(self, weights):
        """Those of export.weights(): all but `subject`."""
        missing, unknown = self.load_state_dict(weights, strict=False)
        assert missing == ["subject.weight"] and not unknown, (missing, unknown)

    def forward(self, ids, positions=None, keep=None, states=None):
        """ids, positions (None: from 0) [batch x tokens] -> logits [batch x tokens x vocab].

        keep: logits of these tokens alone, [n x vocab]. Also returned: the mean auxiliary loss and statistic of the
        FFNs, and after a third of the layers logits of the subject of the sentence. The input of each layer and the
        output of the last are appended to the list `states`.
        """
        x = self.embed(ids)
        cos, sin = (c[: ids.shape[1]] if positions is None else c[positions].unsqueeze(1) for c in (self.cos, self.sin))
        extra = statistic = 0
        subject = None
        n = len(self.layers)
        for i, layer in enumerate(self.layers):
            if states is not None:
                states.append(x)
            x, e, s = layer(x, cos, sin)
            extra, statistic = extra + e, statistic + s
            if i == n // 3 and keep is None:
                subject = self.subject(F.rms_norm(x, x.shape[-1:]))
        if states is not None:
            states.append(x)
        x = self.norm(x if keep is None else x[keep])
        return (
            F.linear(x, self.embed.weight if self.out is None else self.out.weight),
            extra / n,
            statistic / n,
            subject,
        )


def shape_dict(s):
    return asdict(s)
