/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/facts.h"

#include <stdio.h>
#include <string.h>

#include "common/util.h"
#include "model/digest.h"
#include "model/mix.h"

void ntx_facts_id(char *name)
{
    for (char *p = name; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == ',' || *p == '"' || *p == '\\' || *p == 0x7f)
            *p = '-';
}

static void type_of(const struct ntx_gguf *g, char out[16])
{
    char names[1024];
    uint64_t number;
    if (ntx_gguf_u64(g, "general.file_type", &number))
        return;
    ntx_mix_names(names, sizeof names);
    for (char *save, *name = strtok_r(names, ", ", &save); name; name = strtok_r(NULL, ", ", &save)) {
        const struct ntx_mix *mix = ntx_mix_named(name);
        if (mix && ntx_mix_file_type(mix) == number && !*out)
            snprintf(out, 16, "%.15s", name);
    }
}

static uint64_t parameters_of(const struct ntx_gguf *g)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ntx_gguf_n_tensors(g); i++) {
        const struct ntx_gguf_tensor *t = ntx_gguf_tensor_at(g, i);
        sum += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    }
    return sum;
}

void ntx_facts_read(const struct ntx_gguf *g, const int *fds, struct ntx_facts *out)
{
    struct ntx_str arch;
    char key[64];
    struct ntx_err ignored;
    *out = (struct ntx_facts){0};
    if (!ntx_gguf_str(g, "general.architecture", &arch))
        snprintf(out->arch, sizeof out->arch, "%.*s", (int)NTX_MIN(arch.n, sizeof out->arch - 1), arch.p);
    snprintf(key, sizeof key, "%s.context_length", out->arch);
    ntx_gguf_u64(g, key, &out->ctx);
    type_of(g, out->type);
    out->parameters = parameters_of(g);
    if (ntx_model_digest(g, fds, out->digest, &ignored))
        out->digest[0] = 0;
}
