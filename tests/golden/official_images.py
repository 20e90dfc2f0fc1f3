#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""official_images.py BIN CONVERTER [--keep DIR]: a model that sees, beside transformers and llama.cpp's mtmd.

A small random Qwen3-VL of transformers' class is saved as published models are; llama.cpp's converter makes the model's
GGUF and the projector's. Texts with pictures (first, last, between, two) are computed by all three: the likeliest
tokens after the text, and an answer. The pictures' sides are multiples of 32 pixels, and they have eight rows or more,
which mtmd asks for: so no resizing is compared.

It needs what official.py needs; official_test.py runs it in tests/run --long.
"""

import ctypes
import os
import struct
import sys
import tempfile
import warnings
import zlib

import llama_cpp as L
import llama_cpp.mtmd_cpp as M
import numpy as np
import torch
import transformers

import make
import official

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START, END, PAD = 317, 318, 319
MARKS = {START: '<|vision_start|>', END: '<|vision_end|>', PAD: '<|image_pad|>'}
TOP, ANSWER, TOLERANCE = 20, 6, 0.02
PATCH, MERGE = 16, 2
FAMILY = (
    'Qwen3VLForConditionalGeneration',
    {
        'text_config': dict(
            official.COMMON,
            rope_parameters=official.default_rope(5e6, mrope_section=[12, 10, 10], mrope_interleaved=True),
        ),
        'vision_config': dict(
            depth=4,
            hidden_size=64,
            intermediate_size=96,
            num_heads=4,
            out_hidden_size=192,
            patch_size=PATCH,
            spatial_merge_size=MERGE,
            temporal_patch_size=2,
            num_position_embeddings=64,
            deepstack_visual_indexes=[1, 2],
        ),
        'image_token_id': PAD,
        'vision_start_token_id': START,
        'vision_end_token_id': END,
    },
)
TEXTS = {  # a text, or a picture's width and height
    'first': [(128, 96), 'what is it?'],
    'last': ['see this: ', (64, 160)],
    'between': ['a picture ', (160, 128), ' of the sea'],
    'two': ['one ', (96, 96), ' and two ', (256, 32), ' end'],
    'joined': [(96, 96), (64, 128), 'ok'],
}


def picture(width, height, seed):
    y, x, c = np.mgrid[0:height, 0:width, 0:3]
    return ((x * (3 + seed) + y * (5 + c) + 40 * c * seed) % 256).astype(np.uint8)


def png(rgb):
    height, width = rgb.shape[:2]
    raw = b''.join(b'\0' + row.tobytes() for row in rgb)

    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

    head = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head) + chunk(b'IDAT', zlib.compress(raw)) + chunk(b'IEND', b'')


def patches(rgb):
    """As Qwen2VLImageProcessor cuts a picture."""
    x = (rgb.astype(np.float32) / 255 - 0.5) / 0.5
    height, width = rgb.shape[:2]
    rows, columns = height // PATCH, width // PATCH
    x = np.repeat(x.transpose(2, 0, 1)[None], 2, 0)  # two frames
    x = x.reshape(1, 2, 3, rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH)
    return x.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(rows * columns, -1), (1, rows, columns)


def byte_ids(text):
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    order = list(bytes_to_unicode())
    out, i = [], 0
    while i < len(text):
        pair = text[i : i + 2] == 'th'
        out.append(3 + 256 if pair else 3 + order.index(ord(text[i])))
        i += 1 + pair
    return out


def by_transformers(model, parts):
    ids, pixels, grids = [], [], []
    for n, part in enumerate(parts):
        if isinstance(part, str):
            ids += byte_ids(part)
            continue
        x, grid = patches(picture(*part, n))
        pixels.append(x)
        grids.append(grid)
        ids += [START] + [PAD] * (len(x) // MERGE**2) + [END]
    out = []
    with torch.no_grad():
        for _ in range(ANSWER):
            kinds = torch.tensor([[int(i == PAD) for i in ids]])
            logits = model(
                input_ids=torch.tensor([ids]),
                pixel_values=torch.tensor(np.concatenate(pixels)),
                image_grid_thw=torch.tensor(grids),
                mm_token_type_ids=kinds,
                use_cache=False,
            ).logits[0, -1]
            out.append(logits.double().log_softmax(0).numpy())
            ids.append(int(logits.argmax()))
    return np.array(out), ids[-ANSWER:], len(ids) - ANSWER


def by_llama(model, projector, parts):
    p = M.mtmd_context_params_default()
    p.use_gpu, p.n_threads, p.warmup, p.print_timings, p.flash_attn_type = False, 1, False, False, 0
    p.media_marker = M.mtmd_default_marker()
    ctx = M.mtmd_init_from_file(projector.encode(), model, p)
    assert ctx, projector
    c = L.llama_context_default_params()
    c.n_ctx, c.n_batch, c.n_ubatch, c.n_threads, c.n_threads_batch, c.flash_attn_type = 512, 512, 512, 1, 1, 0
    c.type_k = c.type_v = 0
    lctx = L.llama_init_from_model(model, c)
    text = ''.join(x if isinstance(x, str) else p.media_marker.decode() for x in parts).encode()
    bitmaps = []
    for n, part in enumerate(parts):
        if not isinstance(part, str):
            data = picture(*part, n).tobytes()
            bitmaps.append(M.mtmd_bitmap_init(*part, (ctypes.c_uint8 * len(data)).from_buffer_copy(data)))
    chunks = M.mtmd_input_chunks_init()
    given = M.mtmd_input_text(text, len(text), True, True)
    list_ = (M.mtmd_bitmap_p_ctypes * len(bitmaps))(*bitmaps)
    assert M.mtmd_tokenize(ctx, chunks, ctypes.byref(given), list_, len(bitmaps)) == 0
    past = L.llama_pos(0)
    assert M.mtmd_helper_eval_chunks(ctx, lctx, chunks, 0, 0, 512, True, ctypes.byref(past)) == 0
    n_vocab, out, ids, pos = official.N_VOCAB, [], [], past.value
    b = L.llama_batch_init(1, 0, 1)
    for _ in range(ANSWER):
        logits = np.ctypeslib.as_array(L.llama_get_logits_ith(lctx, -1), (n_vocab,)).astype(np.float64)
        out.append(logits - logits.max() - np.log(np.exp(logits - logits.max()).sum()))
        ids.append(int(logits.argmax()))
        b.n_tokens, b.token[0], b.pos[0], b.n_seq_id[0], b.logits[0] = 1, ids[-1], pos, 1, 1
        b.seq_id[0][0] = 0
        assert L.llama_decode(lctx, b) == 0
        pos += 1
    L.llama_batch_free(b)
    L.llama_free(lctx)
    M.mtmd_free(ctx)
    return np.array(out), ids


def call(client, kind, body, fds=()):
    """The replies to a request."""
    number, said = client.send(kind, body, fds), []
    while not said or not {'done', 'loaded'} & said[-1].keys():
        said.append(client.next(number))
    return said


def by_ntx(client, parts):
    """The log-probabilities of the likeliest tokens, by token, of each step; the answer; the prompt's tokens."""
    text, images = '', []
    for n, part in enumerate(parts):
        if isinstance(part, str):
            text += part
        else:
            images.append({'at': len(text), 'data': png(picture(*part, n))})
    said = call(
        client,
        'generate',
        {
            'prompt': text,
            'images': images,
            'raw': 1,
            'ignore_eos': 1,
            'max_tokens': ANSWER,
            'logprobs': 1,
            'top_logprobs': TOP,
            'sampling': {'temp': 0.0},
        },
    )
    tokens = [r['token'] for r in said if 'token' in r]
    started = next(r['started'] for r in said if 'started' in r)
    return (
        [{t.get('token', 0): t.get('logprob', 0.0) for t in x['top']} for x in tokens],
        [x.get('token', 0) for x in tokens],
        started['prompt_tokens'],
    )


def far(got, want):
    """The largest difference of a likely token's log-probability. Answers that part are not compared further."""
    most = 0.0
    for step, (mine, theirs) in enumerate(zip(got[0], want[0])):
        most = max([most] + [abs(mine[t] - theirs[t]) for t in mine])
        if got[1][step] != want[1][step]:
            break
    return most


def prepare(converter, folder, where):
    official.FAMILIES['qwen3vl-sees'] = FAMILY + ('qwen2',)
    model = official.random_model('qwen3vl-sees')
    model.save_pretrained(folder)
    official.write_vocabulary(folder, MARKS)
    with open(os.path.join(folder, 'preprocessor_config.json'), 'w') as f:
        f.write(
            '{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "patch_size": 16, "merge_size": 2,'
            ' "temporal_patch_size": 2, "size": {"shortest_edge": 1024, "longest_edge": 262144},'
            ' "image_processor_type": "Qwen2VLImageProcessorFast"}'
        )
    text, projector = os.path.join(where, 'sees.gguf'), os.path.join(where, 'sees-mmproj.gguf')
    official.convert(converter, folder, 'qwen2', text)
    official.convert(converter, folder, 'qwen2', projector, '--mmproj')
    return model, text, projector


def run(binaries, converter, keep):
    os.environ.setdefault('NTX_BIN', binaries)
    os.environ.setdefault('NTX_SOURCE', SOURCE)
    sys.path.insert(0, os.path.join(SOURCE, 'tests', 'lib'))
    from daemons import Daemons

    good = True
    with tempfile.TemporaryDirectory() as tmp:
        model, text, projector = prepare(converter, os.path.join(tmp, 'model'), keep or tmp)
        llama = make.load(text)
        with Daemons() as d:
            client, fds = d.client(300), [os.open(p, os.O_RDONLY) for p in (text, projector)]
            call(client, 'load', {'names': [text], 'ctx': 512, 'mmproj': projector, 'projector': 1}, fds)
            for name, parts in TEXTS.items():
                hf, cpp, got = by_transformers(model, parts), by_llama(llama, projector, parts), by_ntx(client, parts)
                a, b = far(got, hf), far(got, cpp)
                theirs = np.abs(hf[0][0] - cpp[0][0]).max()
                ok = a < max(TOLERANCE, 3 * theirs) and min(a, b) < TOLERANCE and got[2] == hf[2]
                good &= ok
                print(
                    '%s  %-8s %3d tokens: ntx beside transformers %.2g, beside mtmd %.2g, these %.2g; answers %s %s %s'
                    % ('ok  ' if ok else 'FAIL', name, got[2], a, b, theirs, got[1], hf[1], cpp[1]),
                    flush=True,
                )
    return good


def main():
    argv, keep = sys.argv[1:], None
    if '--keep' in argv:
        at = argv.index('--keep')
        keep = argv[at + 1]
        del argv[at : at + 2]
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 100
    warnings.simplefilter('ignore')
    transformers.logging.set_verbosity_error()
    L.llama_log_set(make.quiet, None)
    M.mtmd_helper_log_set(make.quiet, None)
    L.llama_backend_init()
    return 0 if run(os.path.abspath(argv[0]), os.path.abspath(argv[1]), keep) else 1


if __name__ == '__main__':
    sys.exit(main())
