#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sees.py BIN: the answers of llama.cpp's mtmd that tests/system/server/images_test.py expects.

Models and projectors are ntx-mkmodel's. It needs llama-cpp-python, as make.py does.
"""

import ctypes
import os
import sys
import tempfile

import llama_cpp as L
import llama_cpp.mtmd_cpp as M
import numpy as np

import make

AROUND = {'gemma3': '\n\n%s\n\n'}  # as transformers has it; mtmd has none
BEGIN = {'deepseek4v': '<s>'}  # mtmd aligns pictures as if there were no BOS, unless the text has it
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'system', 'server'))
import images_cases as cases  # noqa: E402


def answer(model, projector, parts, around, begin):
    p = M.mtmd_context_params_default()
    p.use_gpu, p.n_threads, p.warmup, p.print_timings, p.flash_attn_type = False, 1, False, False, 0
    p.media_marker = M.mtmd_default_marker()
    ctx = M.mtmd_init_from_file(projector.encode(), model, p)
    c = L.llama_context_default_params()
    c.n_ctx, c.n_batch, c.n_ubatch, c.n_threads, c.n_threads_batch, c.flash_attn_type = 512, 512, 512, 1, 1, 0
    c.type_k = c.type_v = 0
    lctx = L.llama_init_from_model(model, c)
    text = (begin + cases.text_of(parts, around % p.media_marker.decode())).encode()
    pictures = [x for x in parts if not isinstance(x, str)]
    bitmaps = [
        M.mtmd_bitmap_init(w, h, (ctypes.c_uint8 * len(rgb)).from_buffer_copy(rgb))
        for w, h, rgb in (cases.pixels(*p) for p in pictures)
    ]
    chunks, given = M.mtmd_input_chunks_init(), M.mtmd_input_text(text, len(text), not begin, True)
    all_bitmaps = (M.mtmd_bitmap_p_ctypes * len(bitmaps))(*bitmaps)
    assert M.mtmd_tokenize(ctx, chunks, ctypes.byref(given), all_bitmaps, len(bitmaps)) == 0
    past, out, gaps = L.llama_pos(0), [], []
    assert M.mtmd_helper_eval_chunks(ctx, lctx, chunks, 0, 0, 512, True, ctypes.byref(past)) == 0
    n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    b = L.llama_batch_init(1, 0, 1)
    for i in range(cases.ANSWER):
        logits = np.ctypeslib.as_array(L.llama_get_logits_ith(lctx, -1), (n_vocab,))
        out.append(int(logits.argmax()))
        best = np.sort(logits)[-2:]
        gaps.append(float((best[1] - best[0]) / logits.std()))
        b.n_tokens, b.token[0], b.pos[0], b.n_seq_id[0], b.logits[0] = 1, out[-1], past.value + i, 1, 1
        b.seq_id[0][0] = 0
        assert L.llama_decode(lctx, b) == 0
    L.llama_free(lctx)
    M.mtmd_free(ctx)
    return out, min(gaps)


def main():
    L.llama_log_set(make.quiet, None)
    M.mtmd_helper_log_set(make.quiet, None)
    L.llama_backend_init()
    for kind in cases.MODELS:
        with tempfile.TemporaryDirectory() as tmp:
            text, projector = os.path.join(tmp, 'm.gguf'), os.path.join(tmp, 'p.gguf')
            cases.make(sys.argv[1], kind, text, projector)
            over = (L.llama_model_kv_override * 2)()
            p = L.llama_model_default_params()
            p.n_gpu_layers = 0
            if kind == 'qwen3vl_merger':  # it has one deep state
                over[0].key, over[0].tag, over[0].value.val_i64 = b'qwen3vl.n_deepstack_layers', 0, 1
                p.kv_overrides = over
            model = L.llama_model_load_from_file(text.encode(), p)
            around = AROUND.get(kind, '%s')
            for name in cases.texts_of(kind):
                got, gap = answer(model, projector, cases.parts_of(kind, name), around, BEGIN.get(kind, ''))
                print('%-16s "%s": %s, a gap of %.2g of the spread' % (kind, name, got, gap), flush=True)


if __name__ == '__main__':
    main()
