/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c: peer MODEL.gguf THREADS REPACK: llama.cpp, or with -DIK ik_llama.cpp, decodes random tokens without end,
 * 900 at a time from an empty context, and writes '[' for each. REPACK 1 turns ik's run-time repacking on. Built by
 * hand, since the project holds no code of the peers:
 *
 *   cc -O2 [-DIK] -I PEER/include -I PEER/ggml/include peer.c -L ... -lllama -lggml [-lggml-base] -o peer */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "llama.h"

enum { AT_A_TIME = 900, CTX = 1024, TOKENS = 32000 };

static int decode(struct llama_context *c, int at)
{
    llama_token t = rand() % TOKENS;
#ifdef IK
    return llama_decode(c, llama_batch_get_one(&t, 1, at, 0));
#else
    (void)at;
    return llama_decode(c, llama_batch_get_one(&t, 1));
#endif
}

static void forget(struct llama_context *c)
{
#ifdef IK
    llama_kv_cache_clear(c);
#else
    llama_memory_clear(llama_get_memory(c), true);
#endif
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return fprintf(stderr, "usage: peer MODEL.gguf THREADS REPACK\n"), 100;
    llama_backend_init();
    struct llama_model_params mp = llama_model_default_params();
    struct llama_context_params cp = llama_context_default_params();
    mp.n_gpu_layers = 0;
#ifdef IK
    mp.repack_tensors = atoi(argv[3]);
    mp.use_mmap = !mp.repack_tensors;
#endif
    cp.n_ctx = CTX;
    cp.n_threads = cp.n_threads_batch = atoi(argv[2]);
    struct llama_model *m = llama_model_load_from_file(argv[1], mp);
    struct llama_context *c = m ? llama_init_from_model(m, cp) : NULL;
    for (int i = 0; c; i = (i + 1) % AT_A_TIME) {
        if (!i)
            forget(c);
        if (decode(c, i) || write(1, "[", 1) != 1)
            return 111;
        llama_synchronize(c);
    }
    return 111;
}
