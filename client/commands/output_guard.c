/* SPDX-License-Identifier: Apache-2.0 */
/* output_guard.c: no output of a command may be one of its inputs. A model of 40 GB that took a day to fetch must
 * not be overwritten by its own statistics. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/commands/commands.h"
#include "common/util.h"

struct written {
    const char *path;
    struct stat st;
};

static bool is_same_file(const struct written *w, const char *path, size_t n)
{
    struct stat st;
    char *one = path ? strndup(path, n) : NULL;
    const bool same = one && !stat(one, &st) && st.st_dev == w->st.st_dev && st.st_ino == w->st.st_ino;
    free(one);
    return same;
}

/* Searches "lookup,small.gguf" or "poet=poet.gguf": files between commas, some with a name. */
static bool is_in_list(const struct written *w, const char *list)
{
    for (const char *p = list; p && *p; p += strspn(p, ",")) {
        const size_t n = strcspn(p, ",");
        const char *file = memchr(p, '=', n);
        if (is_same_file(w, p, n) || (file && is_same_file(w, file + 1, n - (size_t)(file + 1 - p))))
            return true;
        p += n;
    }
    return false;
}

static bool is_model_part(const struct written *w, const char *model)
{
    struct ntx_err ignored;
    char **paths = NULL;
    bool found = false;
    const int n = ntx_gguf_split_paths(model, &paths, &ignored); /* an error is reported where the model is opened */
    for (int i = 0; i < n; i++) {
        found |= is_same_file(w, paths[i], strlen(paths[i]));
        free(paths[i]);
    }
    free(paths);
    return found;
}

static bool is_input(const struct ntx_options *o, unsigned n_args, const struct written *w)
{
    const char *const given[] = {o->sidecar, o->prompt_file, o->json_schema, o->grammar,   o->questions,
                                 o->kl,      o->text,        o->compare,     o->profile,   o->key_file,
                                 o->imatrix, o->from,        o->order,       o->delta_base};
    bool found = is_in_list(w, o->load.draft) || is_in_list(w, o->load.lora);
    for (unsigned i = 0; i < sizeof given / sizeof *given; i++)
        found |= given[i] && is_same_file(w, given[i], strlen(given[i]));
    for (unsigned i = 0; i < o->n_also; i++)
        found |= is_same_file(w, o->also[i], strlen(o->also[i]));
    for (unsigned i = 0; i < n_args; i++)
        found |= is_same_file(w, o->args[i], strlen(o->args[i]));
    return found;
}

int ntx_check_output_guard(const struct ntx_command *c, const struct ntx_options *o, struct ntx_err *err)
{
    const bool makes = strstr(c->args, " OUT"),
               has_prompt = strstr(c->args, "PROMPT"); /* with MODEL OUT and MODEL PROMPT, no input follows the model */
    unsigned n_args = o->n_args;
    if (makes || has_prompt)
        n_args = NTX_MIN(n_args, (unsigned)ntx_command_takes_model(c));
    const char *const out[] = {o->stats, o->trace,       o->out,
                               o->steps, o->save_logits, makes && o->n_args > 1 ? o->args[1] : NULL};
    for (unsigned i = 0; i < sizeof out / sizeof *out; i++) {
        struct written w = {.path = out[i]};
        if (!w.path || stat(w.path, &w.st) || !S_ISREG(w.st.st_mode))
            continue;
        if (ntx_command_takes_model(c) && o->n_args && is_model_part(&w, o->args[0]))
            return ntx_err_set(err, -EINVAL, "%s: this is the model itself; give another name", w.path);
        if (is_input(o, n_args, &w))
            return ntx_err_set(err, -EINVAL, "%s: ntx %s reads this file; give the output another name", w.path,
                               c->name);
    }
    return 0;
}
