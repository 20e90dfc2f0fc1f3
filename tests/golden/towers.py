#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""towers.py TESTS CONVERTER [--keep DIR] [FAMILY ...]: vision towers as they are published, beside two other engines.
towers.py --make MKMODEL: writes towers.json, some of llama.cpp's values for towers that ntx-mkmodel makes, for the test
vision-towers.

For each family a small random model of transformers' own class (own_towers.py has those that it lacks) is saved as
published models are. llama.cpp's converter
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
import typing

import numpy as np
import safetensors.torch
import torch
import transformers

import official
import own_towers

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'lib'))
import gguf_edit  # noqa: E402

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


def grids(patch, squares=((3, 3), (1, 8), (7, 2), (9, 5))):
    """Pictures of so many squares."""
    return [(w * patch, h * patch) for w, h in squares]


class Family(typing.NamedTuple):
    cls: str  # of transformers, or of own_towers.py
    text: dict
    vision: dict
    sizes: list  # of pictures, in pixels
    see: typing.Callable  # (model, pixels, the whole picture beside tiles or None): rows
    more: dict = {}  # of the configuration
    processor: dict = {}  # of the preprocessor's
    kind: str = None  # of the projector; None: the family's name
    published: str = None  # class in published files, if it is not `cls`; a plain text model stands for its text
    as_saved: bool = False  # published files have the names that transformers saves
    turned: bool = False  # llama.cpp has a picture's rows column by column
    side: int = 0  # of tiles
    deaf: bool = False  # the file has a part of a tower for sounds, which llama.cpp cannot open
    renamed: tuple = ()  # parts of tensors' names that llama.cpp expects otherwise than its converter writes them


# ---- how transformers' models see


def unfold(pixels, patch, merge, moments):
    """Patches of squares, as the processors of Qwen models make them: [patches, channels x moments x patch x patch]."""
    c, h, w = pixels.shape
    x = pixels.reshape(c, h // patch // merge, merge, patch, w // patch // merge, merge, patch)
    x = x.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, c, 1, patch, patch)
    return x.expand(-1, c, moments, patch, patch).reshape(len(x), -1)


def grid_of(model, pixels):
    patch = model.config.vision_config.patch_size
    return torch.tensor([[1, pixels.shape[1] // patch, pixels.shape[2] // patch]])


def by_qwen(model, pixels, _):
    v = model.config.vision_config
    x = unfold(pixels, v.patch_size, v.spatial_merge_size, 2)
    out = model.model.visual(x, grid_thw=grid_of(model, pixels))
    rows = [out.pooler_output, *(getattr(out, 'deepstack_features', None) or [])]
    return torch.cat(rows, dim=1)


def by_minimax(model, pixels, _):
    v = model.config.vision_config
    x = unfold(pixels, v.patch_size, v.spatial_merge_size, 2)
    return torch.cat(list(model.model.get_image_features(x, grid_of(model, pixels)).pooler_output))


def by_gemma4(model, pixels, _):
    p = model.config.vision_config.patch_size
    c, h, w = pixels.shape
    x = (pixels + 1) / 2  # the model has its own range
    x = x.reshape(c, h // p, p, w // p, p).permute(1, 3, 2, 4, 0).reshape(1, h // p * (w // p), -1)
    y, x_ = np.mgrid[0 : h // p, 0 : w // p]
    at = torch.tensor(np.stack([x_, y], -1).reshape(1, -1, 2))
    out = model.model.get_image_features(pixel_values=x, image_position_ids=at).pooler_output
    return torch.cat(list(out)) if isinstance(out, (list, tuple)) else out


def by_kimi(model, pixels, _):
    v = model.config.vision_config
    x = unfold(pixels, v.patch_size, 1, 1).reshape(-1, pixels.shape[0], v.patch_size, v.patch_size)
    return torch.cat(list(model.model.get_image_features(x, image_grid_thw=grid_of(model, pixels)).pooler_output))


def by_tiles(model, pixels, whole):
    side = model.config.vision_config.image_size
    c, h, w = pixels.shape
    x = pixels.reshape(c, h // side, side, w // side, side).permute(1, 3, 0, 2, 4).reshape(-1, c, side, side)
    x = x if whole is None else torch.cat([x, whole[None]])
    seen = model.vision_model(x).last_hidden_state
    return model.multi_modal_projector(seen).reshape(-1, model.config.text_config.hidden_size)


def by_features(model, pixels, _, **more):
    out = model.model.get_image_features(pixel_values=pixels[None], **more).pooler_output
    return (out[0] if isinstance(out, (list, tuple)) else out).reshape(-1, model.config.text_config.hidden_size)


def by_own(model, pixels, _):
    return model.see(pixels)


def by_sizes(model, pixels, _):
    return by_features(model, pixels, _, image_sizes=torch.tensor([pixels.shape[1:]]))


# ---- the families. Widths are even multiples of the patch.

ONE_LAYER = dict(TEXT, num_hidden_layers=1)
MROPE = official.default_rope(1e6, mrope_section=[8, 12, 12])
QWEN3_VISION = dict(
    hidden_size=72,
    intermediate_size=104,
    num_heads=3,
    patch_size=16,
    spatial_merge_size=2,
    temporal_patch_size=2,
    out_hidden_size=192,
    num_position_embeddings=36,
)
GLM_TEXT = dict(
    QWEN2,
    num_key_value_heads=3,
    rope_parameters=official.default_rope(1e4, mrope_section=[8, 12, 12], partial_rotary_factor=1.0),
)
GLM_VISION = dict(
    depth=3,
    hidden_size=72,
    intermediate_size=100,
    num_heads=3,
    patch_size=14,
    image_size=84,
    out_hidden_size=192,
    hidden_act='silu',
)
GEMMA3_VISION = dict(
    hidden_size=72,
    intermediate_size=104,
    num_hidden_layers=3,
    num_attention_heads=3,
    patch_size=14,
    image_size=168,
    vision_use_head=False,
)
GEMMA4_TEXT = dict(
    global_head_dim=96,
    hidden_size_per_layer_input=0,
    sliding_window=24,
    layer_types=['sliding_attention', 'full_attention'] * 2,
)
GEMMA4_VISION = dict(
    hidden_size=96,
    intermediate_size=400,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=24,
    patch_size=16,
    pooling_kernel_size=3,
    position_embedding_size=900,
    use_clipped_linears=True,
    standardize=True,
)
# the tower of Qwen3-VL without deep states; of their texts, one layer that nothing asks
QWEN35 = dict(
    vision=dict(QWEN3_VISION, depth=4),
    sizes=grids(32, [(3, 3), (7, 2)]),
    see=by_qwen,
    kind='qwen3vl_merger',
    as_saved=True,
)
FAMILIES = {
    'qwen3vl': Family(
        'Qwen3VLForConditionalGeneration',
        dict(TEXT, rope_parameters=official.default_rope(5e6, mrope_section=[12, 10, 10], mrope_interleaved=True)),
        dict(QWEN3_VISION, depth=5, deepstack_visual_indexes=[1, 3]),
        grids(32),
        by_qwen,
        kind='qwen3vl_merger',
    ),
    'qwen3.5': Family(
        'Qwen3_5ForConditionalGeneration', ONE_LAYER, published='Qwen3_5ForConditionalGeneration', **QWEN35
    ),
    'qwen3.5moe': Family(
        'Qwen3_5MoeForConditionalGeneration',
        dict(ONE_LAYER, num_experts=2, num_experts_per_tok=1),
        published='Qwen3_5MoeForConditionalGeneration',
        **QWEN35,
    ),
    'qwen4exp': Family(
        'Qwen4ExpForConditionalGeneration', ONE_LAYER, published='Qwen4ExpForConditionalGeneration', **QWEN35
    ),
    'qwen2vl': Family(
        'Qwen2VLForConditionalGeneration',
        dict(QWEN2, rope_parameters=MROPE),
        dict(depth=3, embed_dim=96, hidden_size=192, num_heads=4, patch_size=14),
        grids(28),
        by_qwen,
        kind='qwen2vl_merger',
    ),
    'qwen2.5vl': Family(
        'Qwen2_5_VLForConditionalGeneration',
        dict(QWEN2, rope_parameters=MROPE),
        dict(
            depth=6,
            hidden_size=72,
            intermediate_size=100,
            num_heads=3,
            patch_size=14,
            window_size=112,
            fullatt_block_indexes=[2, 5],
            out_hidden_size=192,
        ),
        grids(28, [(3, 3), (1, 8), (7, 6), (9, 5)]),
        by_qwen,
        kind='qwen2.5vl_merger',
    ),
    'glm4v': Family('Glm4vForConditionalGeneration', GLM_TEXT, GLM_VISION, grids(28), by_qwen),
    'glm4v_moe': Family(
        'Glm4vMoeForConditionalGeneration',
        dict(
            GLM_TEXT,
            moe_intermediate_size=64,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_shared_experts=1,
            first_k_dense_replace=1,
        ),
        GLM_VISION,
        grids(28),
        by_qwen,
        kind='glm4v',
    ),
    'glm5v': Family(
        'Glm5NextForConditionalGeneration',
        dict(
            ONE_LAYER,
            num_attention_heads=2,
            num_key_value_heads=2,
            n_routed_experts=2,
            num_experts_per_tok=1,
            moe_intermediate_size=16,
            layer_types=['linear_attention'],
        ),
        {k: v for k, v in GLM_VISION.items() if k != 'image_size'} | {'swiglu_limit': 0.6},
        grids(28),
        by_qwen,
        processor={'min_image_tokens': 1, 'max_image_tokens': 100, 'patch_size': 14, 'merge_size': 2},
        published='Glm5NextForConditionalGeneration',
        as_saved=True,
    ),
    'gemma3': Family(
        'Gemma3ForConditionalGeneration',
        dict(TEXT, sliding_window=24, rope_local_base_freq=1e4),
        GEMMA3_VISION,
        [(168, 168)],
        by_features,
        more={'mm_tokens_per_image': 9},
        processor={'image_seq_length': 9},
    ),
    'gemma4': Family(
        'Gemma4ForConditionalGeneration',
        dict(TEXT, num_global_key_value_heads=1, **GEMMA4_TEXT),
        GEMMA4_VISION,
        grids(48),
        by_gemma4,
        more={'audio_config': None},
        processor={'image_mean': [0.0] * 3, 'image_std': [1.0] * 3},
        kind='gemma4v',
        as_saved=True,
    ),
    'llama4': Family(
        'Llama4ForConditionalGeneration',
        dict(ONE_LAYER, num_local_experts=2, intermediate_size_mlp=64),
        dict(
            hidden_size=72,
            intermediate_size=288,
            num_hidden_layers=3,
            num_attention_heads=3,
            patch_size=14,
            image_size=84,
            projector_input_dim=80,
            projector_output_dim=80,
            vision_output_dim=80,
        ),
        [(84, 84), (168, 84), (84, 420), (252, 168)],
        by_tiles,
        published='Llama4ForConditionalGeneration',
        as_saved=True,
        turned=True,
        side=84,
        renamed=('attn_post_norm', 'ln2'),
    ),
    'minimax_m3': Family(
        'MiniMaxM3SparseForConditionalGeneration',
        dict(ONE_LAYER, num_local_experts=2, num_experts_per_tok=1),
        dict(hidden_size=160, intermediate_size=104, num_hidden_layers=3, num_attention_heads=2, patch_size=14),
        grids(28),
        by_minimax,
        more={'projector_hidden_size': 100, 'merged_hidden_size': 4 * 192},
        published='MiniMaxM3SparseForConditionalGeneration',
    ),
    'mimovl': Family(
        'MiMoVL',
        {},
        {},
        grids(32, [(3, 3), (1, 8), (7, 2), (9, 5)]),
        by_own,
        processor={'min_pixels': 1024, 'max_pixels': 1024 * 1024},
        published='MiMoV2ForCausalLM',
        as_saved=True,
        deaf=True,
    ),
    'deepseek4v': Family(
        'DeepSeek4V',
        {},
        {},
        grids(14, [(9, 6), (2, 8), (14, 5), (7, 7)]),
        by_own,
        published='DeepseekV4ForCausalLM',
        as_saved=True,
    ),
    'kimik25': Family(
        'Kimi_K25ForConditionalGeneration',
        dict(ONE_LAYER, model_type='mistral'),
        dict(
            hidden_size=96,
            intermediate_size=104,
            num_hidden_layers=3,
            num_attention_heads=4,
            patch_size=14,
            pos_emb_height=6,
            pos_emb_width=6,
        ),
        grids(28),
        by_kimi,
        more={'projection_hidden_size': 96},
        published='KimiK25ForConditionalGeneration',
        as_saved=True,
    ),
    'mistral3': Family(
        'Mistral3ForConditionalGeneration',
        dict(TEXT, model_type='mistral'),
        dict(PIXTRAL, model_type='pixtral'),
        grids(28, [(3, 3), (1, 6), (5, 2)]),
        by_sizes,
        more={'spatial_merge_size': 2, 'multimodal_projector_bias': False},
        kind='pixtral',
    ),
    'pixtral': Family(
        'LlavaForConditionalGeneration',
        dict(TEXT, model_type='mistral'),
        dict(PIXTRAL, model_type='pixtral'),
        grids(14, [(3, 3), (1, 6), (5, 2), (11, 9)]),
        by_sizes,
        more={'vision_feature_layer': -1, 'vision_feature_select_strategy': 'full'},
    ),
}


def fill_buffer(name, b, generator):
    """Gemma 4's bounds, which some values exceed, and what it makes of a mean state."""
    x = torch.randn(b.shape, generator=generator)
    if name.endswith(('put_min', 'put_max')):
        b.copy_((x.abs() * 0.2 + 1.5) * (1 if name.endswith('max') else -1))
    elif name.endswith(('std_bias', 'std_scale')):
        b.copy_(x * 0.2 + (1 if name.endswith('scale') else 0))


def model_of_class(f):
    cls = getattr(transformers, f.cls)
    config = cls.config_class(text_config=f.text, vision_config=f.vision, **f.more)
    config.dtype = torch.float32
    torch.manual_seed(1)
    return cls(config).float().eval()


def random_model(name):
    f = FAMILIES[name]
    model = getattr(own_towers, f.cls)() if hasattr(own_towers, f.cls) else model_of_class(f)
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


def publish_tensors(folder, name):
    """Tensors as they are called in published files."""
    siglip = 'vision_tower.embeddings.', 'vision_tower.encoder.', 'vision_tower.post_layernorm.'

    def published(part):
        part = part.removeprefix('model.') if 'vision_tower' in part or 'multi_modal_projector' in part else part
        return part.replace('vision_tower.', 'vision_tower.vision_model.') if part.startswith(siglip) else part

    if name == 'kimik25':
        rename(folder, lambda part: part.replace('model.mm_', 'mm_').replace('encoder.patch_embed', 'patch_embed'))
    if not FAMILIES[name].as_saved:
        rename(folder, published)


def publish(folder, name):
    """The same, and control tokens of pictures."""
    publish_tensors(folder, name)
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


def by_transformers(f, model, pixels, whole):
    with torch.no_grad():
        return f.see(model, torch.tensor(pixels), None if whole is None else torch.tensor(whole)).float().numpy()


def by_llama(text, projector, rgb, columns, rows, turned=False):
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
    if rows and len(out) != rows:  # [IMG_BREAK] is behind each row of the grid but the last
        out = np.vstack([out, out[:1]]).reshape(-1, columns + 1, width)[:, :-1].reshape(-1, width)
    if turned:
        out = out.reshape(columns, -1, width).transpose(1, 0, 2).reshape(-1, width)
    M.mtmd_free(ctx)
    L.llama_model_free(llama)
    return out


def by_ntx(tests, projector, pixels, whole, tmp, threads):
    """Rows, and the columns of their grid."""
    source, rows = os.path.join(tmp, 'pixels'), os.path.join(tmp, 'rows')
    with open(source, 'wb') as f:
        for planes in (pixels,) if whole is None else (pixels, whole):
            f.write(planes.astype(np.float32).tobytes())
    command = [os.path.join(tests, 'see'), projector, str(pixels.shape[2]), str(pixels.shape[1]), source, rows]
    command += [str(threads)] + ([] if whole is None else [str(whole.shape[1])])
    r = subprocess.run(command, capture_output=True, text=True)
    assert not r.returncode, r.stderr
    n, width, columns = map(int, r.stdout.split())
    return np.fromfile(rows, np.float32).reshape(n, width), columns


# ---- the comparison


def picture(w, h):
    """8-bit samples, and the planes that the models see."""
    rgb = np.random.default_rng(w * 1000 + h).integers(0, 256, (h, w, 3), np.uint8)
    return rgb, ((rgb.astype(np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1).copy()


def compare_one(tests, name, model, text, projector, tmp, size):
    f = FAMILIES[name]
    rgb, pixels = picture(*size)
    cut = f.side and size != (f.side, f.side)
    whole = picture(f.side, f.side)[1] if cut else None
    hf = by_transformers(f, model, pixels, whole)
    got, columns = by_ntx(tests, projector, pixels, whole, tmp, 1)
    same = by_ntx(tests, projector, pixels, whole, tmp, 3)[0].tobytes() == got.tobytes()
    seen = ~model.is_learned(hf) if hasattr(model, 'is_learned') else slice(None)
    far = [official.distances(got[seen], hf[seen], hf.std())]
    if not cut:  # llama.cpp cuts in another way
        cpp = by_llama(text, as_expected(f, projector), rgb, columns, len(got), f.turned)
        assert cpp.shape == got.shape == hf.shape, 'other rows'
        assert isinstance(seen, slice) or (got[~seen] == hf[~seen]).all(), 'other learned rows'
        cpp, got, hf = cpp[seen], got[seen], hf[seen]
        far += [official.distances(a, b, hf.std()) for a, b in ((got, cpp), (cpp, hf))]
    ok = same and far[0][0] < TOLERANCE and (cut or far[1][0] < AGAINST)
    beside = 'transformers', 'llama.cpp', 'these'
    print(
        '%s  %-12s %4d x %-4d %4d rows: ntx beside %s; threads: %s'
        % (
            'ok  ' if ok else 'FAIL',
            name,
            *size,
            len(got),
            ', '.join('%s %.2g (worst %.2g)' % (b, *d) for b, d in zip(beside, far)),
            'the same' if same else 'OTHER',
        ),
        flush=True,
    )
    return ok


def check_kind(name, projector):
    import gguf

    g = gguf.GGUFReader(projector)
    kind = (g.get_field('clip.projector_type') or g.get_field('clip.vision.projector_type')).contents()
    assert kind == (FAMILIES[name].kind or name), kind


def as_expected(f, projector):
    """The projector with the names that llama.cpp expects, and without sounds."""
    if not f.renamed and not f.deaf:
        return projector
    g = gguf_edit.Gguf(projector)
    if f.renamed:
        g.tensors = {k.replace(*(x.encode() for x in f.renamed)): v for k, v in g.tensors.items()}
    if f.deaf:
        g.keys[b'clip.has_audio_encoder'] = (gguf_edit.BOOL, False)
    g.write(projector + '.expected')
    return projector + '.expected'


def convert_text(converter, folder, name, text):
    """A text model as wide as the rows."""
    published = FAMILIES[name].published
    if not published:
        official.convert(converter, folder, 'qwen2', text)
        return
    config = transformers.LlamaConfig(**ONE_LAYER)
    transformers.LlamaForCausalLM(config).save_pretrained(folder + '-text')
    official.write_vocabulary(folder + '-text')
    official.convert(converter, folder + '-text', 'qwen2', text)
    path = os.path.join(folder, 'config.json')
    with open(path) as f:
        config = json.load(f)
    config['architectures'] = [published]
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
            json.dump({'image_mean': [0.5] * 3, 'image_std': [0.5] * 3} | FAMILIES[name].processor, f)
        convert_text(converter, folder, name, text)
        if not FAMILIES[name].as_saved:
            rename(folder, lambda n: 'model.embed_tokens.weight' if 'embed_tokens' in n else n)  # else it is not found
        convert(converter, folder, projector, '--mmproj')
        check_kind(name, projector)
        given = tests, name, model, text, projector, tmp
        return all([compare_one(*given, size) for size in FAMILIES[name].sizes])


# ---- towers.json

MADE = {
    'qwen2vl_merger': (40, 24),
    'qwen2.5vl_merger': (136, 24),  # windows are 112 wide
    'qwen3vl_merger': (40, 56),
    'glm4v': (56, 40),
    'glm5v': (40, 56),
    'kimik25': (72, 24),
    'gemma3': (24, 24),
    'llama4': (24, 24),
    'minimax_m3': (56, 40),
    'mimovl': (56, 40),
    'deepseek4v': (44, 28),
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
            rows = None if kind == 'deepseek4v' else (w // 8) * (h // 8)
            rows = by_llama(text, projector, made_picture(w, h), w // 8, rows, kind == 'llama4')
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
