#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layer skip and sparse FFNs on a published model, before anything of it is built; PyTorch, F32.

    bench/real/lossy.py MODEL.gguf CALIBRATION.txt HELD_OUT.txt [--part skip,token,ffn] [--tokens N] [--fit N]

MODEL is of the qwen2 or llama architecture; its weights are dequantised. Needs Python with torch and gguf, and `ntx` in
NTX_BIN for the tokens. Everything is chosen and fitted on CALIBRATION, and measured on HELD_OUT, in windows of 128
tokens, of which the second half is scored. KL is from the whole model, bytes are of one token's weights (embedding: 0).

skip: static choices by greedy search over the KL: whole layers; attention and FFN apart (AdaSkip); each replaced by an
  affine map of its input, fitted by ridge regression (free of bytes: the map stays in memory).
token: attention and FFN left out per token where their result is smallest beside the state (an oracle: no predictor can
  know it before it is computed).
ffn: CATS, TEAL, a gate by ridge regression, an oracle; each neuron or channel by itself.
"""

import argparse
import json
import math
import os
import subprocess
import sys

import numpy as np
import torch
from gguf import GGUFReader, dequantize

LEVELS = (0.005, 0.02, 0.05)
WINDOW = 128


def tokens_of(model, path, n):
    tool = os.path.join(os.environ.get('NTX_BIN', 'build/bin'), 'ntx')
    with open(path, 'rb') as f:
        r = subprocess.run([tool, 'tokenize', model], stdin=f, stdout=subprocess.PIPE, check=True)
    ids = json.loads(r.stdout)
    n = min(n, len(ids)) // WINDOW * WINDOW
    if not n:
        sys.exit('%s: fewer than %d tokens' % (path, WINDOW))
    return torch.tensor(ids[:n]).view(-1, WINDOW)


class Model:
    def __init__(self, path):
        r = GGUFReader(path)
        self.w, self.bytes = {}, {}
        for t in r.tensors:
            self.w[t.name] = torch.from_numpy(dequantize(t.data, t.tensor_type).astype(np.float32))
            self.bytes[t.name] = int(t.n_bytes)
        arch = bytes(r.fields['general.architecture'].parts[-1]).decode()
        if arch not in ('qwen2', 'llama'):
            sys.exit('%s: the architecture is %s, not qwen2 or llama' % (path, arch))

        def key(name):
            return r.fields[arch + '.' + name].parts[-1][0].item()

        self.layers, self.heads, self.kv = (
            key('block_count'),
            key('attention.head_count'),
            key('attention.head_count_kv'),
        )
        self.eps, self.base, self.pairs = (
            key('attention.layer_norm_rms_epsilon'),
            key('rope.freq_base'),
            arch == 'llama',
        )
        self.head = 'output.weight' if 'output.weight' in self.w else 'token_embd.weight'
        self.unit_bytes = {}
        for name, n in self.bytes.items():
            if name.startswith('blk.'):
                _, at, rest = name.split('.', 2)
                unit = ('ffn' if rest.startswith('ffn') else 'attn', int(at))
                self.unit_bytes[unit] = self.unit_bytes.get(unit, 0) + n
        self.all_bytes = sum(self.unit_bytes.values()) + self.bytes[self.head]

    def t(self, at, name):
        return self.w['blk.%d.%s' % (at, name)]

    def norm(self, x, w):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * w

    def rope(self, x):
        n, d = x.shape[-2], x.shape[-1]
        angle = torch.outer(torch.arange(n).float(), self.base ** (-torch.arange(0, d, 2).float() / d))
        c, s = angle.cos(), angle.sin()
        a, b = (x[..., 0::2], x[..., 1::2]) if self.pairs else (x[..., : d // 2], x[..., d // 2 :])
        y = (a * c - b * s, a * s + b * c)
        return torch.stack(y, -1).flatten(-2) if self.pairs else torch.cat(y, -1)

    def attn_in(self, at, x):
        return self.norm(x, self.t(at, 'attn_norm.weight'))

    def attn(self, at, h):
        def part(which, heads):
            y = h @ self.t(at, 'attn_%s.weight' % which).T
            bias = self.w.get('blk.%d.attn_%s.bias' % (at, which))
            y = y if bias is None else y + bias
            return y.view(*h.shape[:2], heads, -1).transpose(1, 2)

        q, k, v = self.rope(part('q', self.heads)), self.rope(part('k', self.kv)), part('v', self.kv)
        k, v = (z.repeat_interleave(self.heads // self.kv, 1) for z in (k, v))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).flatten(2) @ self.t(at, 'attn_output.weight').T

    def ffn_in(self, at, x):
        return self.norm(x, self.t(at, 'ffn_norm.weight'))

    def hidden(self, at, h):
        gate = torch.nn.functional.silu(h @ self.t(at, 'ffn_gate.weight').T)
        return gate, gate * (h @ self.t(at, 'ffn_up.weight').T)

    def ffn(self, at, h):
        return self.hidden(at, h)[1] @ self.t(at, 'ffn_down.weight').T

    def embed(self, ids):
        return self.w['token_embd.weight'][ids]

    def run(self, x, do, first=0):
        """do(kind, at, x): what the unit adds to the state x."""
        for at in range(first, self.layers):
            x = x + do('attn', at, x)
            x = x + do('ffn', at, x)
        return x

    def plain(self, kind, at, x):
        return self.attn(at, self.attn_in(at, x)) if kind == 'attn' else self.ffn(at, self.ffn_in(at, x))

    def log_p(self, x):
        y = self.norm(x[:, WINDOW // 2 :: 2], self.w['output_norm.weight']) @ self.w[self.head].T
        return torch.log_softmax(y, -1)


def kl(base, other):
    return (base.exp() * (base - other)).sum(-1).mean().item()


class Text:
    """Windows with the state before each layer, and the whole model's distribution."""

    def __init__(self, m, ids):
        self.state, self.unit, x = [], {}, m.embed(ids)
        for at in range(m.layers):
            self.state.append(x)
            for kind in ('attn', 'ffn'):
                x = x + m.plain(kind, at, x)
        self.base = m.log_p(x)

    def distance(self, m, do, first=0):
        return kl(self.base, m.log_p(m.run(self.state[first], do, first)))


def fit_maps(m, ids):
    """An affine map for each unit, from its input after the norm to what it adds."""
    maps, x = {}, m.embed(ids)
    for at in range(m.layers):
        for kind in ('attn', 'ffn'):
            h = m.attn_in(at, x) if kind == 'attn' else m.ffn_in(at, x)
            y = m.attn(at, h) if kind == 'attn' else m.ffn(at, h)
            maps[kind, at] = ridge(h.flatten(0, 1), y.flatten(0, 1))
            x = x + y
    return maps


def ridge(a, b, strength=0.03):
    mean_a, mean_b = a.mean(0), b.mean(0)
    a, b = a - mean_a, b - mean_b
    c = a.T @ a
    c += strength * c.diagonal().mean() * torch.eye(len(c))
    w = torch.linalg.solve(c, a.T @ b)
    return w, mean_b - mean_a @ w


def with_units(m, out, maps):
    def do(kind, at, x):
        if (kind, at) not in out:
            return m.plain(kind, at, x)
        if not maps:
            return torch.zeros_like(x)
        w, b = maps[kind, at]
        return (m.attn_in(at, x) if kind == 'attn' else m.ffn_in(at, x)) @ w + b

    return do


def greedy(m, name, search, held, units, maps, tries=5):
    """units: lists of (kind, layer) that go together."""

    def cost(chosen):
        out = {u for group in chosen for u in group}
        return search.distance(m, with_units(m, out, maps), min(at for _, at in out))

    single = sorted((cost([u]) / sum(m.unit_bytes[v] for v in u), u) for u in units)
    chosen, rows = [], []
    while True:
        rest = [u for _, u in single if u not in chosen][:tries]
        if not rest:
            break
        _, add = min((cost([*chosen, u]) / sum(m.unit_bytes[v] for g in [*chosen, u] for v in g), u) for u in rest)
        chosen.append(add)
        out = {u for g in chosen for u in g}
        far = held.distance(m, with_units(m, out, maps), min(at for _, at in out))
        rows.append(
            (sum(m.unit_bytes[u] for u in out) / m.all_bytes, far, ' '.join('%s%d' % u for g in chosen for u in g))
        )
        print('%s: %.3f of the bytes, KL %.4f (%s)' % (name, *rows[-1]), flush=True)
        if far > LEVELS[-1] * 1.2:
            break
    for level in LEVELS:
        print('%s: KL %.3f: %.3f of the bytes' % (name, level, max([r[0] for r in rows if r[1] <= level], default=0)))


def skip(m, search, held, fit):
    whole = [[('attn', at), ('ffn', at)] for at in range(m.layers)]
    apart = [[u] for g in whole for u in g]
    maps = fit_maps(m, fit)
    greedy(m, 'layers', search, held, whole, None)
    greedy(m, 'attention and FFN apart', search, held, apart, None)
    greedy(m, 'layers by maps', search, held, whole, maps)
    greedy(m, 'attention and FFN apart, by maps', search, held, apart, maps)


def token(m, search, held, _):
    """The share of (token, unit) pairs whose result is smallest beside the state."""
    sizes = {'attn': [], 'ffn': []}

    def note(kind, at, x):
        y = m.plain(kind, at, x)
        sizes[kind].append((y.norm(dim=-1) / x.norm(dim=-1)).flatten())
        return y

    m.run(search.state[0], note)
    for kinds in (('attn', 'ffn'), ('ffn',), ('attn',)):
        small = torch.cat([v for k in kinds for v in sizes[k]])
        for share in (0.02, 0.05, 0.1, 0.2):
            limit = torch.quantile(small, share).item()
            gone = [0.0]

            def do(kind, at, x):
                y = m.plain(kind, at, x)
                if kind not in kinds:
                    return y
                keep = (y.norm(dim=-1) / x.norm(dim=-1) > limit).unsqueeze(-1)
                gone[0] += m.unit_bytes[kind, at] * (1 - keep.float().mean().item())
                return y * keep

            far = held.distance(m, do)
            print(
                'per token, %s: %.3f of the bytes, KL %.4f' % ('+'.join(kinds), gone[0] / m.all_bytes, far), flush=True
            )


def top(v, share):
    """The largest `share` of each row, as 0 and 1."""
    n = max(1, round(share * v.shape[-1]))
    return (v >= v.topk(n, -1).values[..., -1:]).float()


def ffn(m, search, held, fit):
    gates, big, x = [], {}, m.embed(fit)
    lengths = [m.t(at, 'ffn_down.weight').norm(dim=0) for at in range(m.layers)]
    for at in range(m.layers):
        x = x + m.plain('attn', at, x)
        h = m.ffn_in(at, x)
        gate, mid = m.hidden(at, h)
        gates.append(ridge(h.flatten(0, 1), (mid.abs() * lengths[at] + 1e-6).log().flatten(0, 1)))
        big[at] = [np.sort(v.abs().flatten()[::7].numpy()) for v in (h, gate, mid)]
        x = x + mid @ m.t(at, 'ffn_down.weight').T

    def limit(at, which, keep):
        v = big[at][which]
        return float(v[min(len(v) - 1, int((1 - keep) * len(v)))])

    for share in (0.9, 0.75, 0.6, 0.5):
        for name in ('CATS', 'TEAL', 'TEAL, down less', 'ridge gate', 'oracle'):
            used = []
            less = 0.1 if name.endswith('less') else 0
            lone = max(0.0, (3 * share - 1) / 2)

            def do(kind, at, x):
                if kind == 'attn':
                    return m.plain(kind, at, x)
                h = m.ffn_in(at, x)
                if name.startswith('TEAL'):
                    keep_in = (h.abs() >= limit(at, 0, min(1, share + less / 2))).float()
                    mid = m.hidden(at, h * keep_in)[1]
                    keep = (mid.abs() >= limit(at, 2, share - less)).float()
                    used.append((2 * keep_in.mean() + keep.mean()).item() / 3)
                else:
                    gate, mid = m.hidden(at, h)
                    if name == 'CATS':
                        keep = (gate.abs() >= limit(at, 1, lone)).float()
                        used.append((1 + 2 * keep.mean().item()) / 3)
                    else:
                        w, b = gates[at]
                        keep = top(h @ w + b if name == 'ridge gate' else mid.abs() * lengths[at], share)
                        used.append(keep.mean().item())
                return (mid * keep) @ m.t(at, 'ffn_down.weight').T

            far = held.distance(m, do)
            print('%s, %g: %.3f of the FFNs\' bytes, KL %.4f' % (name, share, sum(used) / len(used), far), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('model')
    p.add_argument('calibration')
    p.add_argument('held')
    p.add_argument('--part', default='skip,token,ffn')
    p.add_argument('--tokens', type=int, default=512, help='of the held-out text')
    p.add_argument('--search', type=int, default=256, help='of the calibration text, for the search')
    p.add_argument('--fit', type=int, default=4096, help='of the calibration text, for maps and thresholds')
    a = p.parse_args()
    torch.set_grad_enabled(False)
    m = Model(a.model)
    ids = tokens_of(a.model, a.calibration, a.search + a.fit)
    held_ids = tokens_of(a.model, a.held, a.tokens)
    n = a.search // WINDOW
    search, held, fit = Text(m, ids[:n]), Text(m, held_ids), ids[n:]
    nll = -held.base.gather(-1, held_ids.roll(-1, 1)[:, WINDOW // 2 :: 2, None])[:, :-1].mean().item()
    print(
        '%d tokens to search, %d to fit, %d held out; perplexity %.3f; layers are %.3f of the bytes'
        % (ids[:n].numel(), fit.numel(), held_ids.numel(), math.exp(nll), 1 - m.bytes[m.head] / m.all_bytes),
        flush=True,
    )
    for part in a.part.split(','):
        {'skip': skip, 'token': token, 'ffn': ffn}[part](m, search, held, fit)


if __name__ == '__main__':
    main()
