#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""towers.py TESTS CONVERTER [--keep DIR] [FAMILY ...]: vision towers as they are published, beside two other engines.
towers.py --make MKMODEL: writes towers.json, some of llama.cpp's values for towers that ntx-mkmodel makes, for the test
vision-towers.

For each family a small random model of transformers' own class is saved as published models are. llama.cpp's converter
(CONVERTER is its convert_hf_to_gguf.py) makes a text model and a projector file of it. Pictures of fitted sizes are
seen by transformers' tower, by llama.cpp's mtmd and by ntx (TESTS/see). Heads, widths, grids and windows are unusual on
purpose. ntx computes each picture with one thread and with three; both must have the same bits.

A line says how far ntx's rows are from both, and these from each other, by the spread of transformers' values: the
median row and the worst one. A median beyond TOLERANCE fails. llama.cpp has no exact GELU in projectors, and rounds
what goes into matrices of F16.

It needs what official.py needs, and libmtmd, which llama-cpp-python has (MTMD_CPP_LIB: another folder of it).
official_test.py runs it in tests/run --long.
"""

import ctypes
import json
import os
import runpy
import subprocess
import sys
import tempfile

import numpy as np
import safetensors.torch
import torch
import transformers

import official

TOLERANCE, AGAINST = 2e-3, 2e-2
TEXT = {k: v for k, v in official.COMMON.items() if k != 'num_hidden_layers'} | {'num_hidden_layers': 4}
QWEN2 = {k: v for k, v in TEXT.items() if k not in ('head_dim', 'num_attention_heads')} | {'num_attention_heads': 3}
QWEN2['num_key_value_heads'] = 1
PIXTRAL = dict(
    hidden_size=96,
    intermediate_size=100,
    num_hidden_layers=3,
    num_attention_heads=4,
    head_dim=24,
    patch_size=14,
    image_size=168,
    hidden_act='silu',
    rope_parameters=official.default_rope(1e4),
)


def grids(patch, squares):
    """Pictures of so many squares."""
    return [(w * patch, h * patch) for w, h in squares]


# name: the class, its configuration, its preprocessor's, and sizes of pictures. Widths are even multiples of the patch.
FAMILIES = {
    'qwen3vl': (
        'Qwen3VLForConditionalGeneration',
        {
            'text_config': dict(
                TEXT, rope_parameters=official.default_rope(5e6, mrope_section=[12, 10, 10], mrope_interleaved=True)
            ),
            'vision_config': dict(
                depth=5,
                hidden_size=72,
                intermediate_size=104,
                num_heads=3,
                patch_size=16,
                spatial_merge_size=2,
                temporal_patch_size=2,
                out_hidden_size=192,
                num_position_embeddings=36,
                deepstack_visual_indexes=[1, 3],
            ),
        },
        {},
        grids(32, [(3, 3), (1, 8), (7, 2), (9, 5)]),
    ),
    'qwen2vl': (
        'Qwen2VLForConditionalGeneration',
        {
            'text_config': dict(QWEN2, rope_parameters=official.default_rope(1e6, mrope_section=[8, 12, 12])),
            'vision_config': dict(depth=3, embed_dim=96, hidden_size=192, num_heads=4, patch_size=14),
        },
        {},
        grids(28, [(3, 3), (1, 8), (7, 2), (9, 5)]),
    ),
    'qwen2.5vl': (
        'Qwen2_5_VLForConditionalGeneration',
        {
            'text_config': dict(QWEN2, rope_parameters=official.default_rope(1e6, mrope_section=[8, 12, 12])),
            'vision_config': dict(
                depth=6,
                hidden_size=72,
                intermediate_size=100,
                num_heads=3,
                patch_size=14,
                window_size=112,
                fullatt_block_indexes=[2, 5],
                out_hidden_size=192,
            ),
        },
        {},
        grids(28, [(3, 3), (1, 8), (7, 6), (9, 5)]),
    ),
    'glm4v': (
        'Glm4vForConditionalGeneration',
        {
            'text_config': dict(
                QWEN2,
                num_key_value_heads=3,
                rope_parameters=official.default_rope(1e4, mrope_section=[8, 12, 12], partial_rotary_factor=1.0),
            ),
            'vision_config': dict(
                depth=3,
                hidden_size=72,
                intermediate_size=100,
                num_heads=3,
                patch_size=14,
                image_size=84,
                out_hidden_size=192,
                hidden_act='silu',
            ),
        },
        {},
        grids(28, [(3, 3), (1, 8), (7, 2), (9, 5)]),
    ),
    'gemma3': (
        'Gemma3ForConditionalGeneration',
        {
            'text_config': dict(TEXT, sliding_window=24, rope_local_base_freq=1e4),
            'vision_config': dict(
                hidden_size=72, intermediate_size=104, num_hidden_layers=3, num_attention_heads=3, patch_size=14
            )
            | dict(image_size=168, vision_use_head=False),
            'mm_tokens_per_image': 9,
        },
        {'image_seq_length': 9},
        [(168, 168)],
    ),
    'gemma4': (
        'Gemma4ForConditionalGeneration',
        {
            'text_config': dict(
                TEXT,
                num_global_key_value_heads=1,
                global_head_dim=96,
                hidden_size_per_layer_input=0,
                sliding_window=24,
                layer_types=['sliding_attention', 'full_attention'] * 2,
            ),
            'vision_config': dict(
                hidden_size=96,
                intermediate_size=104,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=4,
                head_dim=24,
                patch_size=16,
                pooling_kernel_size=3,
                position_embedding_size=900,
                use_clipped_linears=True,
                standardize=True,
            ),
            'audio_config': None,
        },
        {'image_mean': [0.0] * 3, 'image_std': [1.0] * 3},
        grids(48, [(3, 3), (1, 8), (7, 2), (9, 5)]),
    ),
    'glm4v_moe': (
        'Glm4vMoeForConditionalGeneration',
        {
            'text_config': dict(
                QWEN2,
                num_key_value_heads=3,
                moe_intermediate_size=64,
                n_routed_experts=4,
                num_experts_per_tok=2,
                n_shared_experts=1,
                first_k_dense_replace=1,
                rope_parameters=official.default_rope(1e4, mrope_section=[8, 12, 12], partial_rotary_factor=1.0),
            ),
            'vision_config': dict(
                depth=3,
                hidden_size=72,
                intermediate_size=100,
                num_heads=3,
                patch_size=14,
                image_size=84,
                out_hidden_size=192,
                hidden_act='silu',
            ),
        },
        {},
        grids(28, [(3, 3), (1, 8), (7, 2), (9, 5)]),
    ),
    'kimik25': (
        'Kimi_K25ForConditionalGeneration',
        {
            'text_config': dict(TEXT, model_type='mistral', num_hidden_layers=1),
            'vision_config': dict(
                hidden_size=96,
                intermediate_size=104,
                num_hidden_layers=3,
                num_attention_heads=4,
                patch_size=14,
                pos_emb_height=6,
                pos_emb_width=6,
            ),
            'projection_hidden_size': 96,
        },
        {},
        grids(28, [(3, 3), (1, 8), (7, 2), (9, 5)]),
    ),
    'glm5v': (
        'Glm5NextForConditionalGeneration',
        {
            'text_config': dict(
                TEXT,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=2,
                n_routed_experts=2,
                num_experts_per_tok=1,
                moe_intermediate_size=16,
                layer_types=['linear_attention'],
            ),
            'vision_config': dict(
                depth=3,
                hidden_size=72,
                intermediate_size=100,
                num_heads=3,
                patch_size=14,
                out_hidden_size=192,
                hidden_act='silu',
                swiglu_limit=0.6,
            ),
        },
        {'min_image_tokens': 1, 'max_image_tokens': 100, 'patch_size': 14, 'merge_size': 2},
        grids(28, [(3, 3), (1, 8), (7, 2), (9, 5)]),
    ),
    'mistral3': (
        'Mistral3ForConditionalGeneration',
        {
            'text_config': dict(TEXT, model_type='mistral'),
            'vision_config': dict(PIXTRAL, model_type='pixtral'),
            'spatial_merge_size': 2,
            'multimodal_projector_bias': False,
        },
        {},
        grids(28, [(3, 3), (1, 6), (5, 2)]),
    ),
    'pixtral': (
        'LlavaForConditionalGeneration',
        {
            'text_config': dict(TEXT, model_type='mistral'),
            'vision_config': dict(PIXTRAL, model_type='pixtral'),
            'vision_feature_layer': -1,
            'vision_feature_select_strategy': 'full',
        },
        {},
        grids(14, [(3, 3), (1, 6), (5, 2), (11, 9)]),
    ),
}


def fill_buffer(name, b, generator):
    """Gemma 4's bounds, which some values exceed, and what it makes of a mean state."""
    x = torch.randn(b.shape, generator=generator)
    if name.endswith(('put_min', 'put_max')):
        b.copy_((x.abs() * 0.2 + 1.5) * (1 if name.endswith('max') else -1))
    elif name.endswith(('std_bias', 'std_scale')):
        b.copy_(x * 0.2 + (1 if name.endswith('scale') else 0))


# published files have the names that transformers saves
AS_SAVED = ('gemma4', 'kimik25', 'glm5v', 'qwen3.5', 'qwen3.5moe', 'qwen4exp')
# names of classes in published files; a plain text model stands for theirs
PUBLISHED = {
    'kimik25': 'KimiK25ForConditionalGeneration',
    'glm5v': 'Glm5NextForConditionalGeneration',
    'qwen3.5': 'Qwen3_5ForConditionalGeneration',
    'qwen3.5moe': 'Qwen3_5MoeForConditionalGeneration',
    'qwen4exp': 'Qwen4ExpForConditionalGeneration',
}


VISION_35 = dict(
    depth=4,
    hidden_size=72,
    intermediate_size=104,
    num_heads=3,
    patch_size=16,
    spatial_merge_size=2,
    temporal_patch_size=2,
    out_hidden_size=192,
    num_position_embeddings=36,
)
# Models with the tower of Qwen3-VL; of their texts, one layer that nothing asks
FAMILIES |= {
    'qwen3.5': (
        'Qwen3_5ForConditionalGeneration',
        {'text_config': dict(TEXT, num_hidden_layers=1), 'vision_config': VISION_35},
        {},
        grids(32, [(3, 3), (7, 2)]),
    ),
    'qwen3.5moe': (
        'Qwen3_5MoeForConditionalGeneration',
        {
            'text_config': dict(TEXT, num_hidden_layers=1, num_experts=2, num_experts_per_tok=1),
            'vision_config': VISION_35,
        },
        {},
        grids(32, [(3, 3), (7, 2)]),
    ),
    'qwen4exp': (
        'Qwen4ExpForConditionalGeneration',
        {'text_config': dict(TEXT, num_hidden_layers=1), 'vision_config': VISION_35},
        {},
        grids(32, [(3, 3), (7, 2)]),
    ),
}
KIND = {'qwen3.5': 'qwen3vl_merger', 'qwen3.5moe': 'qwen3vl_merger', 'qwen4exp': 'qwen3vl_merger'}


def random_model(name):
    cls, numbers = FAMILIES[name][:2]
    cls = getattr(transformers, cls)
    config = cls.config_class(**numbers)
    config.dtype = torch.float32
    torch.manual_seed(1)
    model = cls(config).float().eval()
    generator = torch.Generator().manual_seed(int.from_bytes(name.encode(), 'little') % 2**31)
    with torch.no_grad():
        for part, p in model.named_parameters():
            x = official.draw(part, p.shape, generator)
            if 'patch_embed' in part and 'weight' in part:
                x = x * 3 / p[0].numel() ** 0.5 * p.shape[-1] ** 0.5
            p.copy_(x * 4 if 'norm' in part and 'bias' in part else x)
        for part, b in model.named_buffers():
            fill_buffer(part, b, generator)
    model.set_attn_implementation('eager')
    return model


def rename(folder, name):
    path = os.path.join(folder, 'model.safetensors')
    safetensors.torch.save_file({name(n): x for n, x in safetensors.torch.load_file(path).items()}, path)


def publish(folder, name):
    """Tensors as they are called in published files, and control tokens of pictures."""
    siglip = 'vision_tower.embeddings.', 'vision_tower.encoder.', 'vision_tower.post_layernorm.'

    def published(part):
        part = part.removeprefix('model.') if 'vision_tower' in part or 'multi_modal_projector' in part else part
        return part.replace('vision_tower.', 'vision_tower.vision_model.') if part.startswith(siglip) else part

    if name == 'kimik25':
        rename(folder, lambda part: part.replace('model.mm_', 'mm_').replace('encoder.patch_embed', 'patch_embed'))
    if name not in AS_SAVED:
        rename(folder, published)
    path = os.path.join(folder, 'tokenizer.json')
    with open(path) as f:
        whole = json.load(f)
    for last, token in (('<319>', '[IMG_BREAK]'), ('<318>', '[IMG_END]'), ('<317>', '[IMG]')):
        whole['model']['vocab'][token] = whole['model']['vocab'].pop(last)
        for added in whole['added_tokens']:
            added['content'] = token if added['content'] == last else added['content']
    with open(path, 'w') as f:
        json.dump(whole, f)


def convert(converter, folder, out, *options):
    home = os.path.dirname(converter)
    for path in (home, os.path.join(home, 'gguf-py')):
        if path not in sys.path:
            sys.path.insert(1, path)
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: 'qwen2'
    argv, sys.argv = sys.argv, [converter, folder, '--outfile', out, '--outtype', 'f32', *options]
    try:
        runpy.run_path(converter, run_name='__main__')
    finally:
        sys.argv = argv


# ---- the three engines


def unfold(pixels, patch, merge, moments):
    """Patches of squares, as the processors of Qwen models make them: [patches, channels x moments x patch x patch]."""
    c, h, w = pixels.shape
    x = pixels.reshape(c, h // patch // merge, merge, patch, w // patch // merge, merge, patch)
    x = x.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, c, 1, patch, patch)
    return x.expand(-1, c, moments, patch, patch).reshape(len(x), -1)


def by_qwen(model, pixels):
    v = model.config.vision_config
    x = unfold(pixels, v.patch_size, v.spatial_merge_size, 2)
    grid = torch.tensor([[1, pixels.shape[1] // v.patch_size, pixels.shape[2] // v.patch_size]])
    out = model.model.visual(x, grid_thw=grid)
    rows = [out.pooler_output, *(getattr(out, 'deepstack_features', None) or [])]
    return torch.cat(rows, dim=1)


def by_gemma4(model, pixels):
    p = model.config.vision_config.patch_size
    c, h, w = pixels.shape
    x = (pixels + 1) / 2  # the model has its own range
    x = x.reshape(c, h // p, p, w // p, p).permute(1, 3, 2, 4, 0).reshape(1, h // p * (w // p), -1)
    y, x_ = np.mgrid[0 : h // p, 0 : w // p]
    at = torch.tensor(np.stack([x_, y], -1).reshape(1, -1, 2))
    out = model.model.get_image_features(pixel_values=x, image_position_ids=at).pooler_output
    return torch.cat(list(out)) if isinstance(out, (list, tuple)) else out


def by_kimi(model, pixels):
    v = model.config.vision_config
    c, h, w = pixels.shape
    grid = torch.tensor([[1, h // v.patch_size, w // v.patch_size]])
    x = unfold(pixels, v.patch_size, 1, 1).reshape(-1, c, v.patch_size, v.patch_size)
    return torch.cat(list(model.model.get_image_features(x, image_grid_thw=grid).pooler_output))


def by_features(model, pixels):
    more = {}
    if model.config.vision_config.model_type == 'kimi_k25_vision':
        return by_kimi(model, pixels)
    if model.config.vision_config.model_type == 'gemma4_vision':
        return by_gemma4(model, pixels)
    if model.config.vision_config.model_type == 'pixtral':
        more = {'image_sizes': torch.tensor([pixels.shape[1:]])}
    out = model.model.get_image_features(pixel_values=pixels[None], **more).pooler_output
    return (out[0] if isinstance(out, (list, tuple)) else out).reshape(-1, model.config.text_config.hidden_size)


def by_transformers(model, pixels):
    with torch.no_grad():
        see = by_qwen if hasattr(model.model, 'visual') else by_features
        return see(model, torch.tensor(pixels)).float().numpy()


def by_llama(text, projector, rgb, columns, rows):
    import llama_cpp as L
    from llama_cpp import mtmd_cpp as M

    h, w = rgb.shape[:2]
    llama = L.llama_model_load_from_file(text.encode(), L.llama_model_default_params())
    params = M.mtmd_context_params_default()
    params.use_gpu = params.print_timings = params.warmup = False
    params.n_threads = 1
    params.flash_attn_type = 0
    params.image_min_tokens, params.image_max_tokens = 1, 4096
    ctx = M.mtmd_init_from_file(projector.encode(), llama, params)
    assert ctx, 'llama.cpp does not open the projector'
    data = rgb.tobytes()
    bitmap = M.mtmd_bitmap_init(w, h, (ctypes.c_uint8 * len(data)).from_buffer_copy(data))
    chunks = M.mtmd_input_chunks_init()
    marker = M.mtmd_default_marker()
    asked = M.mtmd_input_text(marker, len(marker), False, True)
    rc = M.mtmd_tokenize(ctx, chunks, ctypes.byref(asked), (M.mtmd_bitmap_p_ctypes * 1)(bitmap), 1)
    assert not rc, 'llama.cpp cannot read the picture'
    found = [M.mtmd_input_chunks_get(chunks, i) for i in range(M.mtmd_input_chunks_size(chunks))]
    chunk = next(c for c in found if M.mtmd_input_chunk_get_type(c) == 1)
    assert not M.mtmd_encode_chunk(ctx, chunk)
    n, width = M.mtmd_input_chunk_get_n_tokens(chunk), L.llama_model_n_embd_inp(llama)
    out = np.ctypeslib.as_array(M.mtmd_get_output_embd(ctx), (n * width,)).copy().reshape(n, width)
    if len(out) != rows:  # [IMG_BREAK] is behind each row of the grid but the last
        out = np.vstack([out, out[:1]]).reshape(-1, columns + 1, width)[:, :-1].reshape(-1, width)
    M.mtmd_free(ctx)
    L.llama_model_free(llama)
    return out


def by_ntx(tests, projector, pixels, tmp, threads):
    source, rows = os.path.join(tmp, 'pixels'), os.path.join(tmp, 'rows')
    pixels.astype(np.float32).tofile(source)
    command = [os.path.join(tests, 'see'), projector, str(pixels.shape[2]), str(pixels.shape[1]), source, rows]
    r = subprocess.run([*command, str(threads)], capture_output=True, text=True)
    assert not r.returncode, r.stderr
    columns, lines, width, _ = map(int, r.stdout.split())
    return np.fromfile(rows, np.float32).reshape(columns * lines, width), columns


# ---- the comparison


def compare(tests, name, model, text, projector, tmp):
    good, mean, deviation = True, 0.5, 0.5
    for w, h in FAMILIES[name][3]:
        r = np.random.default_rng(w * 1000 + h)
        rgb = r.integers(0, 256, (h, w, 3), np.uint8)
        pixels = ((rgb.astype(np.float32) / 255 - mean) / deviation).transpose(2, 0, 1).copy()
        hf = by_transformers(model, pixels)
        got, columns = by_ntx(tests, projector, pixels, tmp, 1)
        same = by_ntx(tests, projector, pixels, tmp, 3)[0].tobytes() == got.tobytes()
        cpp = by_llama(text, projector, rgb, columns, len(got))
        far = [official.distances(a, b, hf.std()) for a, b in ((got, hf), (got, cpp), (cpp, hf))]
        ok = same and far[0][0] < TOLERANCE and far[1][0] < AGAINST
        good &= ok
        print(
            '%s  %-12s %4d x %-4d %4d rows: ntx beside transformers %.2g (worst %.2g), beside llama.cpp %.2g (%.2g), '
            'these %.2g (%.2g); threads: %s'
            % (
                'ok  ' if ok else 'FAIL',
                name,
                w,
                h,
                len(got),
                *far[0],
                *far[1],
                *far[2],
                'the same' if same else 'OTHER',
            ),
            flush=True,
        )
    return good


def check_kind(name, projector):
    import gguf

    kind = gguf.GGUFReader(projector).get_field('clip.projector_type')
    assert name not in KIND or kind.contents() == KIND[name], kind.contents()


def convert_text(converter, folder, name, text):
    """A text model as wide as the rows."""
    if name not in PUBLISHED:
        official.convert(converter, folder, 'qwen2', text)
        return
    config = transformers.LlamaConfig(**dict(TEXT, num_hidden_layers=1))
    transformers.LlamaForCausalLM(config).save_pretrained(folder + '-text')
    official.write_vocabulary(folder + '-text')
    official.convert(converter, folder + '-text', 'qwen2', text)
    path = os.path.join(folder, 'config.json')
    with open(path) as f:
        config = json.load(f)
    config['architectures'] = [PUBLISHED[name]]
    with open(path, 'w') as f:
        json.dump(config, f)


def run(tests, converter, name, keep):
    with tempfile.TemporaryDirectory() as tmp:
        folder = os.path.join(tmp, 'model')
        text, projector = (os.path.join(keep or tmp, name + end) for end in ('.gguf', '.mmproj.gguf'))
        model = random_model(name)
        model.save_pretrained(folder)
        official.write_vocabulary(folder)
        publish(folder, name)
        with open(os.path.join(folder, 'preprocessor_config.json'), 'w') as f:
            json.dump({'image_mean': [0.5] * 3, 'image_std': [0.5] * 3} | FAMILIES[name][2], f)
        convert_text(converter, folder, name, text)
        if name not in AS_SAVED:
            rename(folder, lambda n: 'model.embed_tokens.weight' if 'embed_tokens' in n else n)  # else it is not found
        convert(converter, folder, projector, '--mmproj')
        check_kind(name, projector)
        return compare(tests, name, model, text, projector, tmp)


# ---- towers.json

MADE = {
    'qwen2vl_merger': (40, 24),
    'qwen2.5vl_merger': (136, 24),  # windows are 112 wide
    'qwen3vl_merger': (40, 56),
    'glm4v': (56, 40),
    'glm5v': (40, 56),
    'kimik25': (72, 24),
    'gemma3': (24, 24),
    'gemma4v': (40, 24),
    'pixtral': (16, 24),
}
OUT, EVERY = 64, 37


def made_picture(w, h):
    """The same as in tests/unit/vision/towers.c."""
    y, x, c = np.mgrid[0:h, 0:w, 0:3]
    return ((x * 37 + y * 101 + c * 61 + x * y * 7) % 256).astype(np.uint8)


def make(mkmodel):
    cases = []
    for kind, (w, h) in MADE.items():
        with tempfile.TemporaryDirectory() as tmp:
            text, projector = os.path.join(tmp, 'text.gguf'), os.path.join(tmp, 'mmproj.gguf')
            width = OUT * (2 if kind == 'qwen3vl_merger' else 1)
            command = [mkmodel, '--layers', '1', '--embd', str(width), '--ff', '64', '--heads', '4', '--kv', '4', text]
            subprocess.run(command, check=True)
            subprocess.run([mkmodel, '--arch', 'mmproj-' + kind, '--embd', str(OUT), projector], check=True)
            rows = by_llama(text, projector, made_picture(w, h), w // 8, (w // 8) * (h // 8))
        some = [round(float(v), 5) for v in rows.reshape(-1)[::EVERY]]
        cases.append({'kind': kind, 'width': w, 'height': h, 'every': EVERY, 'values': some})
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'towers.json'), 'w') as f:
        f.write('[\n' + ',\n'.join(json.dumps(c) for c in cases) + '\n]\n')
    return 0


def main():
    argv, keep = sys.argv[1:], None
    if argv[:1] == ['--make']:
        return make(argv[1])
    if '--keep' in argv:
        at = argv.index('--keep')
        keep = argv[at + 1]
        del argv[at : at + 2]
    if len(argv) < 2 or set(argv[2:]) - set(FAMILIES):
        print(__doc__, file=sys.stderr)
        return 2
    official.run = run
    return 0 if all([official.run_apart(argv[0], argv[1], n, keep) for n in argv[2:] or FAMILIES]) else 1


if __name__ == '__main__':
    sys.exit(main())
