/* SPDX-License-Identifier: Apache-2.0 */
/* names.c: lists the names that a template reads. */
#include "model/template/tpl.h"

struct walk {
    void (*each)(void *arg, const char *p, size_t n);
    void *arg;
};

/* Nodes deeper than a rendering can go are skipped. */
static void visit(const struct walk *w, const struct node *n, unsigned depth)
{
    if (!n || depth > NTX__TPL_DEPTH)
        return;
    if (n->kind == E_NAME && n->name)
        w->each(w->arg, n->name->p, n->name->n);
    visit(w, n->a, depth + 1);
    visit(w, n->b, depth + 1);
    visit(w, n->c, depth + 1);
    for (uint32_t i = 0; i < n->n; i++)
        visit(w, n->list[i], depth + 1);
    for (uint32_t i = 0; i < n->n_args; i++)
        visit(w, n->args[i].value, depth + 1);
}

void ntx_template_names(const struct ntx_template *t, void (*each)(void *arg, const char *p, size_t n), void *arg)
{
    const struct walk w = {each, arg};
    visit(&w, t->root, 0);
}
