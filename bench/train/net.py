"""net.py: the Llama-shaped network of the demo models, as GGUF's architecture "llama" computes it: RMSNorm, RoPE, grouped-query
attention, gated FFN, tied or separate output. Heads are rotated in halves here; export.py reorders the rows of q and k to the
adjacent pairs that GGUF's "llama" means."""
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
    tied: bool = True
    eps: float = 1e-5
    theta: float = 10000.0

    @property
    def head(self):
        return self.embd // self.heads


PRESETS = {
    "demo": Shape(),
    "relu": Shape(act="relu"),
    "draft": Shape(layers=3, embd=128, heads=2, kv=1, ff=384),
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


class Layer(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.attn_norm, self.ffn_norm = Norm(s.embd, s.eps), Norm(s.embd, s.eps)
        self.q = nn.Linear(s.embd, s.heads * s.head, bias=False)
        self.k = nn.Linear(s.embd, s.kv * s.head, bias=False)
        self.v = nn.Linear(s.embd, s.kv * s.head, bias=False)
        self.o = nn.Linear(s.heads * s.head, s.embd, bias=False)
        self.gate = nn.Linear(s.embd, s.ff, bias=False)
        self.up = nn.Linear(s.embd, s.ff, bias=False)
        self.down = nn.Linear(s.ff, s.embd, bias=False)

    def attend(self, x, cos, sin):
        b, t, _ = x.shape
        s = self.s
        q = rotate(self.q(x).view(b, t, s.heads, s.head).transpose(1, 2), cos, sin)
        k = rotate(self.k(x).view(b, t, s.kv, s.head).transpose(1, 2), cos, sin)
        v = self.v(x).view(b, t, s.kv, s.head).transpose(1, 2)
        k, v = (z.repeat_interleave(s.heads // s.kv, 1) for z in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))

    def forward(self, x, cos, sin):
        x = x + self.attend(self.attn_norm(x), cos, sin)
        h = self.ffn_norm(x)
        act = F.silu if self.s.act == "silu" else F.relu
        return x + self.down(act(self.gate(h)) * self.up(h))


class Net(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.embed = nn.Embedding(s.vocab, s.embd)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = Norm(s.embd, s.eps)
        self.out = None if s.tied else nn.Linear(s.embd, s.vocab, bias=False)
        cos, sin = rope_table(s)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(self.init)
        for layer in self.layers:
            for w in (layer.o, layer.down):
                nn.init.normal_(w.weight, std=0.5 * s.embd ** -0.5 / (2 * s.layers) ** 0.5)

    def init(self, m):
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=0.5 * m.in_features ** -0.5)
        elif isinstance(m, nn.Embedding):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, ids):
        """ids: [batch x tokens] -> logits [batch x tokens x vocab]"""
        x = self.embed(ids)
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x, cos, sin)
        x = self.norm(x)
        return F.linear(x, self.embed.weight if self.out is None else self.out.weight)


def shape_dict(s):
    return asdict(s)
