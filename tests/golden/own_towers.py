# SPDX-License-Identifier: Apache-2.0
"""Vision towers that transformers has no class for, for towers.py: the arithmetic alone, in PyTorch.

A class has its tensors under their published names, writes them and a configuration as published models have them, and
sees a picture. Sources: the published configurations and tensors, and llama.cpp's converter.
"""

import json
import os

import numpy as np
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional as F


def rms(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def turn(x, angles):
    """Halves of a head turn with one another. x: [rows, heads, width]; angles: [rows, width / 2]."""
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def angles_of(rows, columns, width):
    """Half of the pairs turn by the row, the others by the column, with the same frequencies."""
    each = 10000 ** -(torch.arange(0, width // 2, 2) / (width // 2))
    return torch.cat([rows[:, None] * each, columns[:, None] * each], -1)


def attend(q, k, v, seen=None, sinks=None):
    """q: [rows, heads, width]; several neighbouring heads share one of K and V. seen: [rows, rows]. A sink is a score
    without a value."""
    shared = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(shared, 1) for x in (k, v))
    scores = torch.einsum('ihd,jhd->hij', q, k) / q.shape[-1] ** 0.5
    if seen is not None:
        scores = scores.masked_fill(~seen, float('-inf'))
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(-1, len(q), 1)], -1)
    return torch.einsum('hij,jhd->ihd', scores.softmax(-1)[..., : len(k)], v).flatten(1)


class Tower(nn.Module):
    """Its parameters are called as published ones, with '/' for '.'."""

    def add(self, name, *shape):
        self.register_parameter(name.replace('.', '/'), nn.Parameter(torch.zeros(shape)))

    def linear(self, name, x):
        bias = self._parameters.get((name + '.bias').replace('.', '/'))
        return F.linear(x, self.w(name + '.weight'), bias)

    def w(self, name):
        return self._parameters[name.replace('.', '/')]

    def published(self):
        return {name.replace('/', '.'): p.detach().contiguous() for name, p in self.named_parameters()}

    def save_pretrained(self, folder):
        os.makedirs(folder)
        safetensors.torch.save_file(self.published(), os.path.join(folder, 'model.safetensors'))
        with open(os.path.join(folder, 'config.json'), 'w') as f:
            json.dump(self.config, f)

    def set_attn_implementation(self, _):
        pass


class MiMoVL(Tower):
    """The tower of MiMo-V2.5. The audio tower, which the converter wants too, is as small as it may be."""

    HIDDEN, FF, HEADS, KV, HEAD, PATCH, BAND, OUT = 72, 104, 6, 2, 20, 16, 9, 192
    VIEWS = [-1, 0, 1, 1, 0, 1]  # all; bands by rows; bands by columns

    def __init__(self):
        super().__init__()
        n = len(self.VIEWS)
        audio = dict(n_mels=8, d_model=16, encoder_layers=1, encoder_ffn_dim=16, encoder_attention_heads=1)
        self.audio = audio | dict(encoder_attn_window_size=[4, 4])
        self.config = {
            'architectures': ['MiMoV2ForCausalLM'],
            'hidden_size': self.OUT,
            'num_hidden_layers': 1,
            'vision_config': dict(
                depth=n,
                hidden_size=self.HIDDEN,
                intermediate_size=self.FF,
                num_heads=self.HEADS,
                num_key_value_heads=self.KV,
                qk_channels=self.HEAD,
                patch_size=self.PATCH,
                spatial_merge_size=2,
                temporal_patch_size=2,
                out_hidden_size=self.OUT,
                visual_token_window_size=self.BAND,
                vit_window_attn_types=self.VIEWS,
                fullatt_block_indexes=[i for i in range(n) if self.VIEWS[i] < 0],
                use_sink=True,
            ),
            'audio_config': dict(input_local_layers=1, group_size=4, audio_channels=1),
        }
        self.add('visual.patch_embed.proj.weight', self.HIDDEN, 3, 2, self.PATCH, self.PATCH)
        for i in range(n):
            self.add_block(f'visual.blocks.{i}.', self.VIEWS[i] >= 0)
        self.add('visual.merger.ln_q.weight', self.HIDDEN)
        self.add('visual.merger.mlp.0.weight', 4 * self.HIDDEN, 4 * self.HIDDEN)
        self.add('visual.merger.mlp.2.weight', self.OUT, 4 * self.HIDDEN)

    def add_block(self, block, sinks):
        wide = self.HEADS * self.HEAD
        for name, n_out, n_in in (
            ('attn.qkv', wide + 2 * self.KV * self.HEAD, self.HIDDEN),
            ('attn.proj', self.HIDDEN, wide),
            ('mlp.gate_proj', self.FF, self.HIDDEN),
            ('mlp.up_proj', self.FF, self.HIDDEN),
            ('mlp.down_proj', self.HIDDEN, self.FF),
        ):
            self.add(block + name + '.weight', n_out, n_in)
            self.add(block + name + '.bias', n_out)
        self.add(block + 'norm1.weight', self.HIDDEN)
        self.add(block + 'norm2.weight', self.HIDDEN)
        if sinks:
            self.add(block + 'attn.sinks', self.HEADS)

    def save_pretrained(self, folder):
        super().save_pretrained(folder)
        more = os.path.join(folder, 'audio_tokenizer')
        os.makedirs(more)
        with open(os.path.join(more, 'config.json'), 'w') as f:
            json.dump(self.audio, f)
        codes = {'encoder.quantizer.vq.layers.0._codebook.embed': torch.zeros(4, 16)}
        safetensors.torch.save_file(codes, os.path.join(more, 'model.safetensors'))

    def block(self, i, x, angles, seen):
        name = f'visual.blocks.{i}.'
        qkv = self.linear(name + 'attn.qkv', rms(x, self.w(name + 'norm1.weight'))).unflatten(-1, (-1, self.HEAD))
        q, k, v = qkv.split([self.HEADS, self.KV, self.KV], 1)
        whole = self.VIEWS[i] < 0
        a = attend(
            turn(q, angles),
            turn(k, angles),
            v,
            None if whole else seen,
            None if whole else self.w(name + 'attn.sinks'),
        )
        x = x + self.linear(name + 'attn.proj', a)
        y = rms(x, self.w(name + 'norm2.weight'))
        gate, up = (self.linear(name + f'mlp.{part}_proj', y) for part in ('gate', 'up'))
        return x + self.linear(name + 'mlp.down_proj', F.silu(gate) * up)

    def see(self, pixels):
        p = self.PATCH
        rows, columns = pixels.shape[1] // p // 2, pixels.shape[2] // p // 2
        squares = pixels.reshape(3, rows, 2, p, columns, 2, p).permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, 3, p, p)
        x = squares.flatten(1) @ self.w('visual.patch_embed.proj.weight').sum(2).flatten(1).T
        at = torch.cartesian_prod(torch.arange(rows), torch.arange(columns), torch.arange(2), torch.arange(2))
        angles = angles_of(2 * at[:, 0] + at[:, 2], 2 * at[:, 1] + at[:, 3], self.HEAD)
        number = torch.arange(len(x))
        by_columns = torch.argsort((at[:, 1] * rows + at[:, 0]) * 4 + at[:, 2] * 2 + at[:, 3])
        seen = (number[:, None] - number).abs() <= self.BAND
        for i, view in enumerate(self.VIEWS):
            order = by_columns if view > 0 else number
            x = self.block(i, x[order], angles[order], seen)[torch.argsort(order)]
        x = F.layer_norm(x, x.shape[-1:], self.w('visual.merger.ln_q.weight'), eps=1e-6).reshape(-1, 4 * self.HIDDEN)
        return self.linear('visual.merger.mlp.2', F.gelu(self.linear('visual.merger.mlp.0', x)))


class DeepSeek4V(Tower):
    """The tower of DeepSeek-V4-Flash-Vision, its projector, and the learned rows around a picture's."""

    HIDDEN, FF, HEADS, PATCH, MERGE, OUT, LAYERS = 96, 104, 4, 14, 3, 192, 3

    def __init__(self):
        super().__init__()
        self.config = {
            'architectures': ['DeepseekV4ForCausalLM'],
            'hidden_size': self.OUT,
            'num_hidden_layers': 1,
            'vision_n_layers': self.LAYERS,
            'vision_dim': self.HIDDEN,
            'vision_n_heads': self.HEADS,
            'vision_inter_dim': self.FF,
            'vision_patch_size': self.PATCH,
            'vision_downsample_ratio': self.MERGE,
            'vision_min_pixels': 14 * 14 * 9,
            'vision_max_n_token': 384,
            'vision_max_wh_ratio': 8,
        }
        self.add('vision.patch_embed.proj.weight', self.HIDDEN, 3 * self.PATCH**2)
        for i in range(self.LAYERS):
            block = f'vision.blocks.{i}.'
            self.add(block + 'norm1.weight', self.HIDDEN)
            self.add(block + 'norm2.weight', self.HIDDEN)
            self.add(block + 'attn.wqkv.weight', 3 * self.HIDDEN, self.HIDDEN)
            self.add(block + 'attn.wo.weight', self.HIDDEN, self.HIDDEN)
            self.add(block + 'mlp.w1.weight', 2 * self.FF, self.HIDDEN)
            self.add(block + 'mlp.w2.weight', self.HIDDEN, self.FF)
        self.add('vision.norm.weight', self.HIDDEN)
        for name, n_out, n_in in (('w1', 100, 9 * self.HIDDEN), ('w2', self.OUT, 100)):
            self.add(f'aligner.{name}.weight', n_out, n_in)
            self.add(f'aligner.{name}.bias', n_out)
        for name in ('newline', 'start', 'end', 'pad'):
            self.add('image_' + name, self.OUT)

    def block(self, i, x, angles):
        name = f'vision.blocks.{i}.'
        qkv = self.linear(name + 'attn.wqkv', rms(x, self.w(name + 'norm1.weight')))
        q, k, v = (part.unflatten(-1, (self.HEADS, -1)) for part in qkv.chunk(3, -1))
        x = x + self.linear(name + 'attn.wo', attend(turn(q, angles), turn(k, angles), v))
        gate, up = self.linear(name + 'mlp.w1', rms(x, self.w(name + 'norm2.weight'))).chunk(2, -1)
        return x + self.linear(name + 'mlp.w2', F.silu(gate) * up)

    def is_learned(self, rows):
        marks = [self.w('image_' + name).detach().numpy() for name in ('newline', 'start', 'end', 'pad')]
        return np.any([(rows == mark).all(1) for mark in marks], axis=0)

    def weave(self, rows):
        """rows: [lines, columns, width]. Three rows of padding, as at position 0; lines in pairs, column by column."""
        mark = {name: self.w('image_' + name) for name in ('newline', 'start', 'end', 'pad')}
        out = [mark['pad']] * 3 + [mark['start']]
        lines = [[*line, mark['newline']] for line in rows]
        if len(lines) % 2:
            lines.append([mark['pad']] * len(lines[0]))
        for above, below in zip(lines[::2], lines[1::2]):
            for pair in zip(above, below):
                out += pair
        if len(lines) // 2 * len(lines[0]) % 2:
            out += [mark['pad']] * 2
        return torch.stack([*out, mark['end']])

    def see(self, pixels):
        p = self.PATCH
        rows, columns = pixels.shape[1] // p, pixels.shape[2] // p
        x = pixels.reshape(3, rows, p, columns, p).permute(1, 3, 0, 2, 4).reshape(rows * columns, -1)
        x = self.linear('vision.patch_embed.proj', x)
        at = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
        angles = angles_of(at[:, 0], at[:, 1], self.HIDDEN // self.HEADS)
        for i in range(self.LAYERS):
            x = self.block(i, x, angles)
        x = rms(x, self.w('vision.norm.weight')).reshape(rows, columns, -1).permute(2, 0, 1)
        down, across = -(-rows // 3), -(-columns // 3)
        x = F.pad(x, (0, 3 * across - columns, 0, 3 * down - rows))
        x = F.unfold(x[None], 3, stride=3)[0].T
        x = self.linear('aligner.w2', F.gelu(self.linear('aligner.w1', x)))
        return self.weave(x.reshape(down, across, -1))
