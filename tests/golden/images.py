#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""images.py: logits of llama.cpp for texts with images, whose rows are made up: tests/golden/images.json.

  images.py BIN              writes images.json, which the test engine-images-golden reads

A text is a list of parts: so many tokens, or a grid [columns, rows] of an image. Rows are fed as embeddings: with
M-RoPE at the places of mtmd_helper_image_get_decoder_pos, for Gemma 3 and DeepSeek V4 without a causal mask, as mtmd
does it. It needs llama-cpp-python, as make.py does.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile

import llama_cpp as L
import numpy as np

import make

N_VALUES = 8

PLAIN = '--layers 4 --embd 128 --ff 192 --heads 4 --kv 2 --type F32'
SECTIONED = PLAIN + ' --head-dim 48'
POOLED = (
    '--layers 4 --embd 128 --heads 4 --kv 1 --head-dim 64 --rotated 32 --q-lora 96 --o-parts 2 --o-lora 48 --window 8 '
    '--hashed 1 --index-heads 12 --index-most 9 --experts 8 --experts-used 3 --expert-ff 96 --shared-ff 192 --biases '
    '--type F32 --seed 5'
)
TEXTS = {
    'between': [5, [4, 3], 6],
    'first': [[3, 5], 4],
    'last': [7, [5, 2]],
    'two': [2, [2, 3], 3, [4, 1], 5],
    'joined': [1, [3, 3], [2, 2], 2],
}
CASES = [
    ('qwen3vl', SECTIONED, 3, 1),
    ('qwen3vlmoe', SECTIONED + ' --experts 6 --experts-used 2 --expert-ff 64', 2, 1),
    ('qwen2vl', PLAIN, 0, 1),
    ('qwen35', PLAIN + ' --attention-every 2 --delta-head 32', 0, 1),
    ('gemma3', PLAIN + ' --head-dim 32 --window 16', 0, 0),
    ('llama', PLAIN, 0, 0),
    ('deepseek4', POOLED, 0, 0),
]
WHOLE = 'gemma3', 'deepseek4'  # whose rows of an image see one another


def token(i, n_vocab):
    return 3 + (i * 7919 + 5) % (n_vocab - 3)


def values(n):
    """As images_golden.c makes them."""
    x = np.arange(n, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(1 << 32)
    return (x % np.uint64(1009)).astype(np.float32) / np.float32(1009) - np.float32(0.5)


def load(path, arch, deep):
    p = L.llama_model_default_params()
    p.n_gpu_layers = 0
    if deep:
        over = (L.llama_model_kv_override * 2)()
        over[0].key = f'{arch}.n_deepstack_layers'.encode()
        over[0].tag = 0  # an integer
        over[0].value.val_i64 = deep
        p.kv_overrides = over
        p.over = over  # keeps it alive
    model = L.llama_model_load_from_file(path.encode(), p)
    assert model, path
    return model


def decode(ctx, ids, rows, pos, n_vocab):
    n = len(ids) if ids is not None else len(rows)
    b = L.llama_batch_init(n, 0 if rows is None else rows.shape[1], 1)
    own, place = ctypes.cast(b.pos, ctypes.c_void_p).value, (ctypes.c_int32 * len(pos))(*pos)
    b.n_tokens = n
    for i in range(n):
        if rows is None:
            b.token[i] = ids[i]
        b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = 1, 0, 1
    if rows is not None:
        ctypes.memmove(b.embd, rows.ctypes.data, rows.nbytes)
    b.pos = ctypes.cast(place, ctypes.POINTER(ctypes.c_int32))
    assert L.llama_decode(ctx, b) == 0
    out = [np.ctypeslib.as_array(L.llama_get_logits_ith(ctx, i), (n_vocab,)).copy() for i in range(n)]
    b.pos = ctypes.cast(own, ctypes.POINTER(ctypes.c_int32))
    L.llama_batch_free(b)
    return out


def logits(model, parts, deep, mrope, whole):
    p = L.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = 256, 128, 128, 1, 1
    p.flash_attn_type, p.type_k, p.type_v, p.swa_full = 0, 0, 0, True
    ctx = L.llama_init_from_model(model, p)
    assert ctx
    n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    width = L.llama_model_n_embd(model) * (1 + deep)
    out, pos, i = [], 0, 0
    for part in parts:
        if isinstance(part, int):
            ids = [token(i + k, n_vocab) for k in range(part)]
            out += decode(ctx, ids, None, [pos + k for k in range(part)], n_vocab)
            i, pos = i + part, pos + part
            continue
        columns, rows = part
        n = columns * rows
        x = values(n * width).reshape(n, width)
        if mrope:
            place = [pos] * n + [pos + k // columns for k in range(n)] + [pos + k % columns for k in range(n)] + [0] * n
        else:
            place = [pos + k for k in range(n)]
        L.llama_set_causal_attn(ctx, not whole)
        out += decode(ctx, None, np.ascontiguousarray(x), place, n_vocab)
        L.llama_set_causal_attn(ctx, True)
        i, pos = i + n, pos + (max(columns, rows) if mrope else n)
    L.llama_free(ctx)
    return np.array(out)


def main():
    L.llama_log_set(make.quiet, None)
    L.llama_backend_init()
    cases = []
    with tempfile.TemporaryDirectory() as tmp:
        for arch, options, deep, mrope in CASES:
            options = f'--arch {arch} {options}'
            path = os.path.join(tmp, 'm.gguf')
            subprocess.run([os.path.join(sys.argv[1], 'ntx-mkmodel'), *options.split(), path], check=True)
            model = load(path, arch, deep)
            for name, parts in TEXTS.items():
                got = logits(model, parts, deep, mrope, arch in WHOLE)
                n_vocab = got.shape[1]
                picked = [k * n_vocab // N_VALUES for k in range(N_VALUES)]
                cases.append(
                    {
                        'name': f'{arch} {name}',
                        'options': options,
                        'deep': deep,
                        'mrope': bool(mrope),
                        'whole': arch in WHOLE,
                        'parts': parts,
                        'sd': round(float(got.std()), 5),
                        'logits': [[round(float(v), 5) for v in row[picked]] for row in got],
                    }
                )
            L.llama_model_free(model)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'images.json'), 'w') as f:
        f.write('[\n' + ',\n'.join(json.dumps(c) for c in cases) + '\n]\n')
    print(len(cases), 'cases')


if __name__ == '__main__':
    main()
