/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c: peer MODEL.gguf THREADS HOW [PROMPT TOKENS]: llama.cpp or ik_llama.cpp decodes random tokens.
 *
 * With PROMPT and TOKENS: a prompt of PROMPT tokens in one batch, then TOKENS tokens; prints 'decode,prompt' in tokens
 * a second. Without: decodes without end, 900 at a time from an empty context, and writes '[' for each.
 *
 * HOW: mmap; dio (llama.cpp: the whole file by O_DIRECT); repack (ik: at run time), prefetch (ik: experts that the
 * router has chosen are read ahead); stream-SLOTS (llama.cpp's pull request 25294: a cache of SLOTS experts a layer,
 * O_DIRECT). Built by hand, since the project holds no code of the peers:
 *
 *   cc -O2 [-DIK | -DSTREAM] -I PEER/include -I PEER/ggml/include peer.c -L ... -lllama -lggml [-lggml-base] -o peer */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "llama.h"

enum { AT_A_TIME = 900, CTX = 1024, PASS = 256, TOKENS = 32000 };
enum { NAMES = 260, N_NAMES = 288 }; /* tokens of capped.sh's prompts */

static int decode(struct llama_context *c, llama_token *t, int n, int at)
{
#ifdef IK
    return llama_decode(c, llama_batch_get_one(t, n, at, 0));
#else
    (void)at;
    return llama_decode(c, llama_batch_get_one(t, n));
#endif
}

static int decode_any(struct llama_context *c, int at)
{
    llama_token t = rand() % TOKENS;
    int r = decode(c, &t, 1, at);
    llama_synchronize(c);
    return r;
}

static void forget(struct llama_context *c)
{
#ifdef IK
    llama_kv_cache_clear(c);
#else
    llama_memory_clear(llama_get_memory(c), true);
#endif
}

static int set_how(const char *how, struct llama_model_params *mp, struct llama_context_params *cp)
{
    if (!strcmp(how, "mmap"))
        return 0;
#ifdef IK
    if (!strcmp(how, "prefetch"))
        return cp->prefetch_experts = true, 0;
    if (!strcmp(how, "repack"))
        return mp->repack_tensors = true, mp->use_mmap = false, 0;
#elif defined STREAM
    if (!strncmp(how, "stream-", 7)) {
        mp->moe_stream = mp->moe_stream_direct = true;
        mp->moe_stream_slots = (uint32_t)atoi(how + 7);
        mp->use_mmap = false;
        return 0;
    }
#else
    if (!strcmp(how, "dio"))
        return mp->load_mode = LLAMA_LOAD_MODE_DIRECT_IO, 0;
#endif
    (void)cp;
    return -1;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int rates(struct llama_context *c, int prompt, int n)
{
    llama_token *t = malloc((prompt + 1) * sizeof(*t));
    double at[3] = {seconds()};
    for (int i = 0; t && i < prompt; i++)
        t[i] = NAMES + rand() % N_NAMES;
    if (!t || (prompt && decode(c, t, prompt, 0)))
        return 111;
    llama_synchronize(c);
    at[1] = seconds();
    for (int i = 0; i < n; i++)
        if (decode_any(c, prompt + i))
            return 111;
    at[2] = seconds();
    printf("%.3f,%.2f\n", n / (at[2] - at[1]), prompt / (at[1] - at[0]));
    free(t);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 6)
        return fprintf(stderr, "usage: peer MODEL.gguf THREADS HOW [PROMPT TOKENS]\n"), 100;
    llama_backend_init();
    struct llama_model_params mp = llama_model_default_params();
    struct llama_context_params cp = llama_context_default_params();
    if (set_how(argv[3], &mp, &cp))
        return fprintf(stderr, "peer: this peer has no '%s'\n", argv[3]), 100;
    mp.n_gpu_layers = 0;
#ifndef IK
    mp.use_extra_bufts = false; /* weights stay as the file has them */
#endif
    cp.n_ctx = CTX;
    cp.n_ubatch = PASS; /* a pass's buffer has a row of the vocabulary for each position */
    cp.n_threads = cp.n_threads_batch = atoi(argv[2]);
    struct llama_model *m = llama_model_load_from_file(argv[1], mp);
    struct llama_context *c = m ? llama_init_from_model(m, cp) : NULL;
    if (!c)
        return 111;
    if (argc == 6)
        return rates(c, atoi(argv[4]), atoi(argv[5]));
    for (int i = 0;; i = (i + 1) % AT_A_TIME) {
        if (!i)
            forget(c);
        if (decode_any(c, i) || write(1, "[", 1) != 1)
            return 111;
    }
}
