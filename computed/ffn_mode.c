#include "computed/ffn_mode.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* "NAME=NUMBER" with a number in [least, most]. */
static bool number(const char *text, const char *name, float least, float most, float *out)
{
    size_t n = strlen(name);
    char *end;
    if (strncmp(text, name, n) || text[n] != '=')
        return false;
    float v = strtof(text + n + 1, &end);
    if (end == text + n + 1 || *end || !(v >= least && v <= most))
        return false;
    *out = v;
    return true;
}

static bool parse(const char *text, struct ntx_ffn_mode *m)
{
    *m = (struct ntx_ffn_mode){.kind = NTX_FFN_ALL};
    if (!text || !*text || !strcmp(text, "off"))
        return true;
    if (number(text, "threshold", 0, 1e30f, &m->value))
        m->kind = NTX_FFN_THRESHOLD;
    else if (number(text, "topk", 1e-6f, 1, &m->value))
        m->kind = NTX_FFN_TOPK;
    return m->kind != NTX_FFN_ALL;
}

int ntx_ffn_mode_parse(const char *text, const struct ntx_model *m, struct ntx_ffn_mode *out, struct ntx_err *err)
{
    struct ntx_ffn_mode mode;
    if (!parse(text, &mode))
        return ntx_err_set(err, -EINVAL, "--ffn-sparse %.60s: there are off, threshold=T (T not negative) and topk=F (F up to 1)", text);
    if (mode.kind != NTX_FFN_ALL && !m->pack)
        return ntx_err_set(err, -EINVAL, "--ffn-sparse needs a packed model: make one with `ntx pack MODEL OUT`");
    if (mode.kind != NTX_FFN_ALL && ntx_pack_has_gate(m->pack))
        return ntx_err_set(err, -EINVAL, "--ffn-sparse %.60s needs the gate matrix in one piece: pack the model without --gate-in-bundle", text);
    *out = mode;
    return 0;
}

bool ntx_ffn_mode_lossy(const struct ntx_ffn_mode *m)
{
    return m->kind == NTX_FFN_THRESHOLD ? m->value > 0 : m->kind == NTX_FFN_TOPK && m->value < 1;
}
