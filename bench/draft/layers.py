#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Some layers of a model as its drafter, before anything of it is built; PyTorch, BF16 products.

    bench/draft/layers.py MODEL.gguf TEXTS [--fit TEXT] [--rank R] [--search PROMPTS] [--held PROMPTS] [--at N,N...]

TEXTS are of `bench_record write`, and those at T 0 are used. The drafter reads the exact keys and values of all tokens
that the model has verified, and its own of the tokens that it drafted. Layers are left out one after another, those
first that cost the least cross entropy of the texts of the prompts --search. Then the prompts --held: the share of
places where the likeliest token is the text's, and the accepted tokens of chains of 1 to 8 drafts.

--fit: the same again with maps in place of the layers: ridge regression from the state before a gap to that behind it,
fitted on that text; and the maps of those layers limited to rank R.

MODEL is of the qwen2 or llama architecture. Needs Python with torch and gguf, and `ntx` in NTX_BIN for the tokens.
"""

import argparse
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'real'))
from lossy import Model, tokens_of

WINDOW = 512
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1, 3)


def texts_of(path):
    """name, tokens of the prompt, all tokens; texts at T 0"""
    with open(path) as f:
        for part in f.read().split(';')[:-1]:
            name, prompt, temp, _, *ids = part.split()
            if float(temp) == 0:
                yield name, int(prompt), [int(i) for i in ids]


class Net(Model):
    def __init__(self, path):
        super().__init__(path)
        self.w = {n: w.bfloat16() if w.dim() == 2 else w for n, w in self.w.items()}

    def mul(self, name, x):
        return (x.bfloat16() @ self.w[name].T).float()

    def qkv(self, at, x, cos, sin):
        h = self.norm(x, self.t(at, 'attn_norm.weight'))

        def part(which, heads):
            y = self.mul('blk.%d.attn_%s.weight' % (at, which), h)
            bias = self.w.get('blk.%d.attn_%s.bias' % (at, which))
            return (y if bias is None else y + bias).view(len(x), heads, -1)

        q, k, v = part('q', self.heads), part('k', self.kv), part('v', self.kv)
        return self.turn(q, cos, sin), self.turn(k, cos, sin), v

    def turn(self, x, c, s):
        d = x.shape[-1]
        a, b = (x[..., 0::2], x[..., 1::2]) if self.pairs else (x[..., : d // 2], x[..., d // 2 :])
        y = (a * c - b * s, a * s + b * c)
        return torch.stack(y, -1).flatten(-2) if self.pairs else torch.cat(y, -1)

    def angles(self, n):
        d = self.w['blk.0.attn_q.weight'].shape[0] // self.heads
        angle = torch.outer(torch.arange(n).float(), self.base ** (-torch.arange(0, d, 2).float() / d))
        return angle.cos().unsqueeze(1), angle.sin().unsqueeze(1)

    def wide(self, x):
        return x.repeat_interleave(self.heads // self.kv, 1).transpose(0, 1)

    def rest(self, at, x, y):
        x = x + self.mul('blk.%d.attn_output.weight' % at, y)
        h = self.norm(x, self.t(at, 'ffn_norm.weight'))
        gate = torch.nn.functional.silu(self.mul('blk.%d.ffn_gate.weight' % at, h))
        return x + self.mul('blk.%d.ffn_down.weight' % at, gate * self.mul('blk.%d.ffn_up.weight' % at, h))

    def layer(self, at, x, cos, sin):
        """A layer of a whole text: the state behind it, keys, values."""
        q, k, v = self.qkv(at, x, cos, sin)
        y = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(0, 1), self.wide(k), self.wide(v), is_causal=True
        )
        return self.rest(at, x, y.transpose(0, 1).flatten(1)), k, v

    def logits(self, x):
        return self.mul(self.head, self.norm(x, self.w['output_norm.weight']))


class Text:
    """A text with the exact keys and values of each layer, and the exact states of its answer's rows."""

    def __init__(self, m, prompt, ids):
        self.from_, self.n = prompt, len(ids) - 1
        self.cos, self.sin = m.angles(self.n)
        self.next = torch.tensor(ids[prompt + 1 :])
        x, self.state, self.kv = m.embed(torch.tensor(ids[:-1])).float(), [], []
        for at in range(m.layers + 1):
            self.state.append(x[prompt:])
            if at < m.layers:
                x, k, v = m.layer(at, x, self.cos, self.sin)
                self.kv.append((k, v))


class Draft:
    """All texts' answers as rows; row p of depth d is the d-th token of a chain that began d - 1 rows before."""

    def __init__(self, m, texts):
        self.m, self.texts = m, texts
        self.at = [0]
        for t in texts:
            self.at.append(self.at[-1] + len(t.next))
        self.next = torch.cat([t.next for t in texts])
        self.cos, self.sin = (torch.cat([getattr(t, n)[t.from_ :] for t in texts]) for n in ('cos', 'sin'))
        self.states = [torch.cat([t.state[at] for t in texts]) for at in range(m.layers + 1)]

    def attend(self, at, q, own):
        """own: the keys and values of the chain, its last token first."""
        out = []
        for i, t in enumerate(self.texts):
            a, b = self.at[i], self.at[i + 1]
            k, v = (self.m.wide(z) for z in t.kv[at])
            rows = torch.arange(t.from_, t.n)
            qi = q[a:b].transpose(0, 1)
            score = qi @ k.transpose(1, 2)
            score.masked_fill_(torch.arange(t.n) > (rows - len(own)).unsqueeze(1), -torch.inf)
            chain = []
            for back, (ck, _) in enumerate(own):
                s = (qi * self.m.wide(ck[a:b]).roll(back, 1)).sum(-1, keepdim=True)
                s[:, :back] = -torch.inf
                chain.append(s)
            p = torch.softmax(torch.cat([score, *chain], -1) * q.shape[-1] ** -0.5, -1)
            y = p[..., : t.n] @ v
            for back, (_, cv) in enumerate(own):
                y += p[..., t.n + back, None] * self.m.wide(cv[a:b]).roll(back, 1)
            out.append(y.transpose(0, 1).flatten(1))
        return torch.cat(out)

    def run(self, out, maps, x=None, first=0, past=None, states=None):
        """The state behind the layers; `past` has each layer's keys and values of the chain so far."""
        at, x = first, self.states[first] if x is None else x
        while at < self.m.layers:
            if states is not None:
                states[at] = x
            if at in out:
                end = at
                while end in out:
                    end += 1
                x = maps(at, end, x) if maps else x
                at = end
                continue
            q, k, v = self.m.qkv(at, x, self.cos, self.sin)
            before = past[at] if past is not None else []
            own = [(k, v), *before]
            x = self.m.rest(at, x, self.attend(at, q, own))
            if past is not None:
                past[at] = own
            at += 1
        return x

    def score(self, x):
        """Mean cross entropy of the text, the places where the likeliest token is the text's."""
        loss, hit = 0.0, []
        for i in range(0, len(x), 128):
            y, want = self.m.logits(x[i : i + 128]), self.next[i : i + 128]
            loss += torch.nn.functional.cross_entropy(y, want, reduction='sum').item()
            hit.append(y.argmax(-1) == want)
        return loss / len(x), torch.cat(hit)

    def chains(self, out, maps, depths):
        """Mean accepted tokens of chains of 1 to `depths` drafts; the hits of the first drafts."""
        past = {at: [] for at in range(self.m.layers)}
        alive, sums, first = None, [], None
        begin = torch.tensor(self.at[:-1])
        for depth in range(depths):
            _, hit = self.score(self.run(out, maps, past=past))
            if alive is None:
                alive = first = hit
            else:
                # Row p continues the chain of row p - 1; a text's first rows have none.
                alive = torch.cat([torch.tensor([False]), alive[:-1]]) & hit
                alive[begin + depth - 1] = False
            chains = len(hit) - depth * len(begin)
            sums.append((sums[-1] if sums else 0) + alive.sum().item() / chains)
        return sums, first


class Maps:
    """For each gap an affine map of the state by its size: ridge regression of what the layers add."""

    def __init__(self, m, ids):
        self.m, self.rank, self.made = m, 0, {}
        ids = ids.flatten()
        windows = ids[: len(ids) // WINDOW * WINDOW].view(-1, WINDOW)
        rows = [[] for _ in range(m.layers + 1)]
        cos, sin = m.angles(WINDOW)
        for w in windows:
            x = m.embed(w).float()
            for at in range(m.layers + 1):
                # The first tokens' states are hundreds of times larger than all others.
                rows[at].append(x[4:])
                if at < m.layers:
                    x = m.layer(at, x, cos, sin)[0]
        self.rows = [torch.cat(r) for r in rows]
        self.n_fit = len(self.rows[0]) * 9 // 10
        self.factor = {}

    def fit(self, first, end):
        """The strength is the one with the least error on the last tenth of the rows."""
        size = self.rows[first].pow(2).mean(-1, keepdim=True).sqrt()
        a, b = self.rows[first] / size, (self.rows[end] - self.rows[first]) / size
        n = self.n_fit
        mean_a, mean_b = a[:n].mean(0), b[:n].mean(0)
        if first not in self.factor:
            c = (a[:n] - mean_a).T @ (a[:n] - mean_a)
            self.factor[first] = torch.linalg.eigh(c)
        e, u = self.factor[first]
        ab = u.T @ ((a[:n] - mean_a).T @ (b[:n] - mean_b))
        far, near = (a[n:] - mean_a) @ u, b[n:] - mean_b
        best = None
        for strength in STRENGTHS:
            w = ab / (e + strength * e.mean()).unsqueeze(1)
            error = (near - far @ w).pow(2).sum() / near.pow(2).sum()
            if best is None or error < best[0]:
                best = error, w
        w = best[1]
        if self.rank:
            # Reduced-rank regression: the directions of what the map says on its own rows.
            said = w * e.clamp(min=0).sqrt().unsqueeze(1)
            v = torch.linalg.svd(said, full_matrices=False)[2][: self.rank]
            w = (w @ v.T) @ v
        return (u @ w).bfloat16(), mean_a, mean_b

    def limit(self, rank):
        self.rank, self.made = rank, {}

    def __call__(self, first, end, x):
        if (first, end) not in self.made:
            self.made[first, end] = self.fit(first, end)
        w, mean_a, mean_b = self.made[first, end]
        size = x.pow(2).mean(-1, keepdim=True).sqrt()
        return x + size * (((x / size - mean_a).bfloat16() @ w).float() + mean_b)


def greedy(d, maps, most, tries, order=None):
    """Yields the layers left out, one more each time, and the cross entropy. Later steps try the best of the first.

    order: layers in the order of what they cost alone, where it is known.
    """
    out, known, order = [], order is not None, order or list(range(d.m.layers))
    while len(out) < most:
        states, costs = {}, []
        d.run(out, maps, states=states)
        for at in [at for at in order if at not in out][: tries if out or known else None]:
            # A gap that begins further down is mapped as a whole.
            first = at
            while maps and first - 1 in out:
                first -= 1
            costs.append((d.score(d.run([*out, at], maps, states[first], first))[0], at))
        costs.sort()
        if not out and not known:
            order = [at for _, at in costs]
        out.append(costs[0][1])
        yield list(out), costs[0][0], order


def report(held, names, out, maps, loss, depths):
    sums, hit = held.chains(out, maps, depths)
    by = (hit[held.at[i] : held.at[i + 1]].float().mean() for i in range(len(names)))
    print(
        '%2d layers out (%s): cross entropy %.3f; same token %.3f (%s); chains %s'
        % (len(out), ','.join(map(str, sorted(out))), loss, hit.float().mean(),
           ', '.join('%s %.2f' % z for z in zip(names, by)), ' '.join('%.2f' % s for s in sums)),
        flush=True,
    )


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('model')
    p.add_argument('texts')
    p.add_argument('--fit', help='a text for the maps')
    p.add_argument('--tokens', type=int, default=10000, help='of that text')
    p.add_argument('--rank', type=int, default=64, help='of the second kind of maps')
    p.add_argument('--search', default='edit-comments,code-c,chat-plan,json-config,translate-fr')
    p.add_argument('--held', default='code-new,chat-why,json,translate-de')
    p.add_argument('--rows', type=int, default=160, help='of each text of the search')
    p.add_argument('--at', default='1,3,6,8,11', help='numbers of layers to measure')
    p.add_argument('--tries', type=int, default=6, help='layers tried in each step after the first')
    p.add_argument('--depths', type=int, default=8, help='drafts of the longest chain')
    a = p.parse_args()
    torch.set_grad_enabled(False)
    m = Net(a.model)
    texts = {n: (prompt, ids) for n, prompt, ids in texts_of(a.texts)}
    names, at = a.held.split(','), [int(n) for n in a.at.split(',')]
    search = Draft(m, [Text(m, texts[n][0], texts[n][1][: texts[n][0] + a.rows]) for n in a.search.split(',')])
    held = Draft(m, [Text(m, *texts[n]) for n in names])
    print('%d rows to search, %d held out' % (len(search.next), len(held.next)), flush=True)
    report(held, names, [], None, search.score(search.states[-1])[0], 1)

    def measure(maps, order, tries):
        sets = []
        for out, loss, order in greedy(search, maps, max(at), tries, order):
            if len(out) in at:
                report(held, names, out, maps, loss, a.depths)
                sets.append(out)
        return sets, order

    sets, order = measure(None, None, a.tries)
    if a.fit:
        maps = Maps(m, tokens_of(a.model, a.fit, a.tokens))
        print('by maps of %d rows:' % len(maps.rows[0]), flush=True)
        sets, _ = measure(maps, order, a.tries)
        maps.limit(a.rank)
        print('the same layers by maps of rank %d:' % a.rank, flush=True)
        for out in sets:
            report(held, names, out, maps, search.score(search.run(out, maps))[0], 1)


if __name__ == '__main__':
    main()
