#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""official_images.py BIN CONVERTER [--keep DIR] [FAMILY ...]: models that see, beside transformers and mtmd.

A small random model of transformers' class (Qwen3-VL, Qwen3.5 with experts, Gemma 3 and 4, whose pictures see both
ways, Llama 4 with pictures in tiles) is saved as published models are; llama.cpp's converter makes the model's GGUF and
the projector's. Texts with pictures (first, last, between, two) are computed by all: the likeliest tokens after the
text, and an answer. The pictures have sizes that no processor changes, and eight rows or more, which mtmd asks for: so
no resizing is compared, but that of the whole picture beside Llama 4's tiles. mtmd has not the text around Gemma's
pictures that transformers has, and cuts otherwise than Llama 4's processor: it is not asked for these.

It needs what official.py needs; official_test.py runs it in tests/run --long.
"""

import ctypes
import json
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
import towers

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START, END, PAD = 317, 318, 319
TOP, ANSWER, TOLERANCE, CTX = 20, 6, 0.02, 1024
PATCH, MERGE = 16, 2
TEXT = dict(official.COMMON, max_position_embeddings=2048)
TILE, WHOLE, TILE_END, LINE_END = 84, 316, 315, 314  # of Llama 4
MORE_MARKS = {'llama4': {WHOLE: '<|image|>', TILE_END: '<|tile_x_separator|>', LINE_END: '<|tile_y_separator|>'}}
QWEN_MARKS = ('<|vision_start|>', '<|vision_end|>', '<|image_pad|>')
QWEN_TOWER = dict(
    depth=4,
    hidden_size=64,
    intermediate_size=96,
    num_heads=4,
    out_hidden_size=192,
    patch_size=PATCH,
    spatial_merge_size=MERGE,
    temporal_patch_size=2,
    num_position_embeddings=64,
)
QWEN_IDS = {'image_token_id': PAD, 'vision_start_token_id': START, 'vision_end_token_id': END}
QWEN_PROCESSOR = {
    'image_mean': [0.5, 0.5, 0.5],
    'image_std': [0.5, 0.5, 0.5],
    'patch_size': 16,
    'merge_size': 2,
    'temporal_patch_size': 2,
    'size': {'shortest_edge': 1024, 'longest_edge': 262144},
    'image_processor_type': 'Qwen2VLImageProcessorFast',
}
# name: the class, its configuration, marks (begin, end, row), text around them, its processor's, sizes of pictures by
# which those of TEXTS are replaced (none: they stay), and whether mtmd is asked
FAMILIES = {
    'qwen3vl': (
        'Qwen3VLForConditionalGeneration',
        {
            'text_config': dict(
                TEXT,
                rope_parameters=official.default_rope(5e6, mrope_section=[12, 10, 10], mrope_interleaved=True),
            ),
            'vision_config': dict(QWEN_TOWER, deepstack_visual_indexes=[1, 2]),
            **QWEN_IDS,
        },
        QWEN_MARKS,
        '',
        QWEN_PROCESSOR,
        [],
        True,
    ),
    'qwen3.5moe': (
        'Qwen3_5MoeForConditionalGeneration',
        {
            'text_config': dict(
                TEXT,
                num_hidden_layers=4,
                layer_types=['linear_attention', 'full_attention'] * 2,
                linear_num_key_heads=2,
                linear_num_value_heads=4,
                linear_key_head_dim=32,
                linear_value_head_dim=32,
                linear_conv_kernel_dim=4,
                num_experts=6,
                num_experts_per_tok=2,
                moe_intermediate_size=64,
                shared_expert_intermediate_size=64,
                rope_parameters=official.default_rope(
                    1e6, mrope_section=[3, 3, 2], mrope_interleaved=True, partial_rotary_factor=0.25
                ),
            ),
            'vision_config': QWEN_TOWER,
            **QWEN_IDS,
        },
        QWEN_MARKS,
        '',
        QWEN_PROCESSOR,
        [],
        True,
    ),
    'gemma3': (
        'Gemma3ForConditionalGeneration',
        {
            'text_config': dict(TEXT, sliding_window=24, rope_local_base_freq=1e4, query_pre_attn_scalar=64),
            'vision_config': towers.GEMMA3_VISION,
            'mm_tokens_per_image': 36,
            'boi_token_index': START,
            'eoi_token_index': END,
            'image_token_index': PAD,
        },
        ('<start_of_image>', '<end_of_image>', '<image_soft_token>'),
        '\n\n',
        {'image_seq_length': 36, 'image_mean': [0.5] * 3, 'image_std': [0.5] * 3},
        [(168, 168)],
        False,
    ),
    'gemma4': (
        'Gemma4ForConditionalGeneration',
        {
            'text_config': dict(
                TEXT,
                **towers.GEMMA4_TEXT,
                num_hidden_layers=4,
                use_bidirectional_attention='vision',
                final_logit_softcapping=30.0,
                tie_word_embeddings=True,
            ),
            'vision_config': towers.GEMMA4_VISION,
            'audio_config': None,
            'boi_token_id': START,
            'eoi_token_id': END,
            'image_token_id': PAD,
        },
        ('<|image>', '<image|>', '<|image|>'),
        '',
        {'image_mean': [0.0] * 3, 'image_std': [1.0] * 3},
        [(960, 672), (672, 960)],
        False,
    ),
    'llama4': (
        'Llama4ForConditionalGeneration',
        {
            'text_config': dict(
                TEXT,
                num_local_experts=4,
                intermediate_size_mlp=144,
                interleave_moe_layer_step=2,
                rope_parameters=official.default_rope(5e5),
            ),
            'vision_config': dict(
                hidden_size=72,
                intermediate_size=288,
                num_hidden_layers=3,
                num_attention_heads=3,
                patch_size=14,
                image_size=TILE,
                projector_input_dim=80,
                projector_output_dim=80,
                vision_output_dim=80,
            ),
            'boi_token_index': START,
            'eoi_token_index': END,
            'image_token_index': PAD,
        },
        ('<|image_start|>', '<|image_end|>', '<|patch|>'),
        '',
        {'image_mean': [0.5] * 3, 'image_std': [0.5] * 3},
        [(2 * TILE, TILE), (TILE, TILE), (3 * TILE, 2 * TILE)],
        False,
    ),
}
TEXTS = {  # a text, or a picture's width and height
    'first': [(128, 96), 'what is it?'],
    'last': ['see this: ', (64, 160)],
    'between': ['a picture ', (160, 128), ' of the sea'],
    'two': ['one ', (96, 96), ' and two ', (256, 32), ' end'],
    'joined': [(96, 96), (64, 128), 'ok'],
}


def parts_of(family, name):
    """The text, with pictures of the family's sizes."""
    sizes, out = FAMILIES[family][5], []
    for part in TEXTS[name]:
        n = sum(not isinstance(x, str) for x in out)
        out.append(part if isinstance(part, str) or not sizes else sizes[n % len(sizes)])
    return out


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


def floats(rgb):
    return (rgb.astype(np.float32) / 255 - 0.5) / 0.5


def see_qwen(pictures):
    """As Qwen2VLImageProcessor cuts pictures, and the rows of each."""
    pixels, grids = [], []
    for rgb in pictures:
        height, width = rgb.shape[:2]
        rows, columns = height // PATCH, width // PATCH
        x = np.repeat(floats(rgb).transpose(2, 0, 1)[None], 2, 0)  # two frames
        x = x.reshape(1, 2, 3, rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH)
        pixels.append(x.transpose(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(rows * columns, -1))
        grids.append((1, rows, columns))
    given = {'pixel_values': torch.tensor(np.concatenate(pixels)), 'image_grid_thw': torch.tensor(grids)}
    return given, [len(x) // MERGE**2 for x in pixels]


def see_gemma3(pictures):
    x = np.stack([floats(rgb).transpose(2, 0, 1) for rgb in pictures])
    return {'pixel_values': torch.tensor(x)}, [36] * len(pictures)


def see_gemma4(pictures):
    """The model has its own range of colours."""
    pixels, places = [], []
    for rgb in pictures:
        height, width = rgb.shape[:2]
        x = rgb.astype(np.float32).reshape(height // PATCH, PATCH, width // PATCH, PATCH, 3) / 255
        pixels.append(x.transpose(0, 2, 1, 3, 4).reshape(height // PATCH * (width // PATCH), -1))
        y, x = np.mgrid[0 : height // PATCH, 0 : width // PATCH]
        places.append(np.stack([x, y], -1).reshape(-1, 2))
    given = {'pixel_values': torch.tensor(np.stack(pixels)), 'image_position_ids': torch.tensor(np.stack(places))}
    return given, [len(x) // 9 for x in pixels]


def see_llama4(pictures):
    """Tiles from the left and then from the top, and behind several the whole picture in their size."""
    tiles, rows = [], []
    for rgb in pictures:
        down, across = rgb.shape[0] // TILE, rgb.shape[1] // TILE
        x = torch.tensor(rgb.transpose(2, 0, 1)[None]).float()
        cut = x.reshape(3, down, TILE, across, TILE).permute(1, 3, 0, 2, 4).reshape(-1, 3, TILE, TILE)
        whole = torch.nn.functional.interpolate(x, (TILE, TILE), mode='bilinear', antialias=True).round()
        tiles.append(torch.cat([cut, whole]) if len(cut) > 1 else cut)
        rows.append((down, across))
    return {'pixel_values': (torch.cat(tiles) / 255 - 0.5) / 0.5}, rows


def rows_of(family, rows):
    """The tokens of a picture."""
    if family != 'llama4':
        return [PAD] * rows
    tile, out = [PAD] * (TILE // 14 // 2) ** 2, []
    if rows != (1, 1):
        for _ in range(rows[0]):
            out += tile + ([TILE_END] + tile) * (rows[1] - 1) + [LINE_END]
    return out + [WHOLE] + tile


def byte_ids(text):
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    order = list(bytes_to_unicode())
    out, i = [], 0
    while i < len(text):
        pair = text[i : i + 2] == 'th'
        out.append(3 + 256 if pair else 3 + order.index(ord(text[i])))
        i += 1 + pair
    return out


def by_transformers(family, model, parts):
    if family == 'llama4':  # transformers 5.24 reads a field that this class lacks
        transformers.modeling_outputs.MoeCausalLMOutputWithPast.image_outputs = None
    see = {'gemma3': see_gemma3, 'gemma4': see_gemma4, 'llama4': see_llama4}.get(family, see_qwen)
    given, rows = see([picture(*part, n) for n, part in enumerate(parts) if not isinstance(part, str)])
    around, ids = byte_ids(FAMILIES[family][3]), []
    for part in parts:
        if isinstance(part, str):
            ids += byte_ids(part)
        else:
            ids += around + [START] + rows_of(family, rows.pop(0)) + [END] + around
    out = []
    with torch.no_grad():
        for _ in range(ANSWER):
            kinds = torch.tensor([[int(i == PAD) for i in ids]])
            key = 'token_type_ids' if family == 'gemma3' else 'mm_token_type_ids'
            more = dict(given, use_cache=False, **({} if family == 'llama4' else {key: kinds}))
            logits = model(input_ids=torch.tensor([ids]), **more).logits[0, -1]
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
    c.n_ctx, c.n_batch, c.n_ubatch, c.n_threads, c.n_threads_batch, c.flash_attn_type = CTX, 512, 512, 1, 1, 0
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
    """The largest difference of a likely token's log-probability, by the spread of all. Answers that part are not
    compared further."""
    most = 0.0
    for step, (mine, theirs) in enumerate(zip(got[0], want[0])):
        most = max([most] + [abs(mine[t] - theirs[t]) / theirs.std() for t in mine])
        if got[1][step] != want[1][step]:
            break
    return most


def prepare(converter, family, folder, where):
    cls, config, marks, _, processor = FAMILIES[family][:5]
    more = {k: v for k, v in config.items() if k not in ('text_config', 'vision_config')}
    saved = family != 'gemma3'
    towers.FAMILIES[family] = towers.Family(
        cls, config['text_config'], config['vision_config'], [], None, more=more, as_saved=saved
    )
    model = towers.random_model(family)
    model.save_pretrained(folder)
    named = dict(zip((START, END, PAD), marks, strict=True)) | MORE_MARKS.get(family, {START - 1: '<|endoftext|>'})
    official.write_vocabulary(folder, named)  # some tokenizers add it elsewhere
    towers.publish_tensors(folder, family)
    with open(os.path.join(folder, 'preprocessor_config.json'), 'w') as f:
        json.dump(processor, f)
    text, projector = (os.path.join(where, family + end) for end in ('.gguf', '-mmproj.gguf'))
    official.convert(converter, folder, 'qwen2', text)
    official.convert(converter, folder, 'qwen2', projector, '--mmproj')
    return model, text, projector


def run_family(client, converter, family, where):
    good, asks_mtmd = True, FAMILIES[family][6]
    with tempfile.TemporaryDirectory() as folder:
        model, text, projector = prepare(converter, family, folder, where)
    llama = make.load(text) if asks_mtmd else None
    fds = [os.open(p, os.O_RDONLY) for p in (text, projector)]
    call(client, 'load', {'names': [text], 'ctx': CTX, 'mmproj': projector, 'projector': 1}, fds)
    for name in TEXTS:
        parts = parts_of(family, name)
        hf, got = by_transformers(family, model, parts), by_ntx(client, parts)
        a, said = far(got, hf), ''
        ok = a < TOLERANCE and got[2] == hf[2]
        if llama:
            cpp = by_llama(llama, projector, parts)
            b, theirs = far(got, cpp), np.abs(hf[0][0] - cpp[0][0]).max() / hf[0][0].std()
            ok = a < max(TOLERANCE, 3 * theirs) and min(a, b) < TOLERANCE and got[2] == hf[2]
            said = ', beside mtmd %.2g, these %.2g' % (b, theirs)
        good &= ok
        print(
            '%s  %-10s %-8s %3d tokens (%d): ntx beside transformers %.2g%s; answers %s %s'
            % ('ok  ' if ok else 'FAIL', family, name, got[2], hf[2], a, said, got[1], hf[1]),
            flush=True,
        )
    return good


def run(binaries, converter, keep, families):
    os.environ.setdefault('NTX_BIN', binaries)
    os.environ.setdefault('NTX_SOURCE', SOURCE)
    sys.path.insert(0, os.path.join(SOURCE, 'tests', 'lib'))
    from daemons import Daemons

    good = True
    with tempfile.TemporaryDirectory() as tmp:
        for family in families or FAMILIES:
            with Daemons() as d:
                good &= run_family(d.client(300), converter, family, keep or tmp)
    return good


def main():
    argv, keep = sys.argv[1:], None
    if '--keep' in argv:
        at = argv.index('--keep')
        keep = argv[at + 1]
        del argv[at : at + 2]
    if len(argv) < 2 or set(argv[2:]) - set(FAMILIES):
        print(__doc__, file=sys.stderr)
        return 100
    warnings.simplefilter('ignore')
    transformers.logging.set_verbosity_error()
    L.llama_log_set(make.quiet, None)
    M.mtmd_helper_log_set(make.quiet, None)
    L.llama_backend_init()
    return 0 if run(os.path.abspath(argv[0]), os.path.abspath(argv[1]), keep, argv[2:]) else 1


if __name__ == '__main__':
    sys.exit(main())
