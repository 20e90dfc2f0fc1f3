/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/pass/ffn_mode.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"

/* "NAME=NUMBER" with a number in [least, most], followed by `rest`. */
static bool parse_number(const char *text, const char *name, float least, float most, const char *rest, float *out)
{
    size_t n = strlen(name);
    char *end;
    if (strncmp(text, name, n) || text[n] != '=')
        return false;
    float v = strtof(text + n + 1, &end);
    if (end == text + n + 1 || strcmp(end, rest) || !(v >= least && v <= most))
        return false;
    *out = v;
    return true;
}

#define LEAST 1e-6f /* the least share */

static bool parse_mode(const char *text, bool gate_in_groups, struct ntx_ffn_mode *m)
{
    *m = (struct ntx_ffn_mode){.kind = NTX_FFN_ALL};
    if (!text || !*text || !strcmp(text, "off"))
        return true;
    bool plain = parse_number(text, "predicted", LEAST, 1, "", &m->value),
         all = !strcmp(text, "predicted") || !strcmp(text, "predicted,learned");
    m->learned = all || parse_number(text, "predicted", LEAST, 1, ",learned", &m->value) || (plain && gate_in_groups);
    if (parse_number(text, "threshold", 0, 1e30f, "", &m->value))
        m->kind = NTX_FFN_THRESHOLD;
    else if (parse_number(text, "topk", LEAST, 1, "", &m->value))
        m->kind = NTX_FFN_TOPK;
    else if (parse_number(text, "prompt", LEAST, 1, "", &m->value))
        m->kind = NTX_FFN_PROMPT;
    else if (m->learned || plain || parse_number(text, "predicted", LEAST, 1, ",gate", &m->value))
        m->kind = NTX_FFN_PREDICTED;
    return m->kind != NTX_FFN_ALL;
}

static int refuse_mode(const char *text, struct ntx_err *err)
{
    char word[64];
    struct ntx_near near;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(text, "="), text);
    ntx_near_begin(&near, word, "");
    ntx_near_offer_list(&near, "off|threshold|topk|predicted|prompt");
    return ntx_err_set(err, -EINVAL,
                       "--ffn-sparse %.60s: there are off, threshold=T (T not negative), topk=F (F up to 1), "
                       "predicted[=F][,gate|,learned] and prompt=F%s",
                       text, near.hint);
}

int ntx_ffn_mode_parse(const char *text, const struct ntx_model *m, struct ntx_ffn_mode *out, struct ntx_err *err)
{
    struct ntx_ffn_mode mode;
    bool gate_in_groups = m->pack && ntx_pack_has_gate(m->pack);
    if (!parse_mode(text, gate_in_groups, &mode))
        return refuse_mode(text, err);
    if (mode.kind != NTX_FFN_ALL && !m->pack)
        return ntx_err_set(err, -EINVAL, "--ffn-sparse needs a packed model: make one with `ntx pack MODEL OUT`");
    bool by_gate = mode.kind == NTX_FFN_THRESHOLD || mode.kind == NTX_FFN_TOPK ||
                   (mode.kind == NTX_FFN_PREDICTED && !mode.learned);
    if (by_gate && gate_in_groups)
        return ntx_err_set(
            err, -EINVAL,
            "--ffn-sparse %.60s needs the gate matrix in one piece: pack the model without --gate-in-bundle", text);
    if (mode.kind == NTX_FFN_PREDICTED && !mode.learned && m->pack[0].adds)
        return ntx_err_set(err, -ENOTSUP,
                           "--ffn-sparse %.60s: the layers share their gates, and a gate without what its layer adds "
                           "to it predicts nothing; take threshold, topk, prompt or predicted,learned",
                           text);
    *out = mode;
    return 0;
}

bool ntx_ffn_mode_lossy(const struct ntx_ffn_mode *m)
{
    return m->kind != NTX_FFN_ALL && !(m->kind == NTX_FFN_THRESHOLD ? m->value <= 0 : m->value >= 1);
}
