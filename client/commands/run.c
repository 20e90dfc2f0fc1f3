/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/chat.h"
#include "client/commands/pictures.h"
#include "client/commands/prompt.h"
#include "client/commands/trace.h"
#include "client/supervise.h"
#include "common/util.h"

void ntx_fill_generate(const struct ntx_options *o, Ntx__Generate *m, Ntx__Sampling *s)
{
    ntx_options_sampling(o, s);
    m->sampling = s;
    m->raw = o->raw;
    m->no_special = o->no_special;
    m->chat_template = (char *)(o->chat_template ? o->chat_template : "");
    m->think = o->think ? (char *)o->think : m->think;
    m->stop = (char **)o->stops;
    m->n_stop = o->n_stops;
    m->ignore_eos = o->ignore_eos;
    m->adapter = o->adapter ? (char *)o->adapter : m->adapter;
    m->max_tokens = o->n;
}

/* The constraint of the answer, from the file of --grammar or --json-schema. */
struct constraint {
    Ntx__Constraint m;
    char *text;
    bool there;
};

static int constraint_read(const struct ntx_options *o, struct constraint *c, struct ntx_err *err)
{
    const char *path = o->grammar ? o->grammar : o->json_schema;
    size_t len = 0;
    ntx__constraint__init(&c->m);
    if (!path)
        return 0;
    if (o->grammar && o->json_schema)
        return ntx_err_set(err, -EINVAL, "--grammar and --json-schema exclude each other");
    FILE *f = fopen(path, "rb");
    int rc = f ? ntx_read_stream(f, &c->text, &len) : -errno;
    if (f)
        fclose(f);
    if (rc)
        return ntx_err_set(err, rc, "%s: cannot read it: %s", path, strerror(-rc));
    c->m.kind = (char *)(o->grammar ? "grammar" : "schema");
    c->m.text = (ProtobufCBinaryData){len, (uint8_t *)c->text};
    c->there = true;
    return len <= (256u << 10) ? 0 : ntx_err_set(err, -E2BIG, "%s: a grammar or schema may have 256 KiB", path);
}

/* The first messages of a conversation: the system message, if any, then the user's. */
struct turn {
    Ntx__Message msg[2], *list[2];
};

static void fill_turn(struct turn *t, Ntx__Generate *m, const char *system, char *text, size_t len)
{
    unsigned n = 0;
    for (unsigned i = 0; i < 2; i++) {
        ntx__message__init(&t->msg[i]);
        t->list[i] = &t->msg[i];
    }
    if (system) {
        t->msg[n].role = (char *)"system";
        t->msg[n].text.data = (uint8_t *)system;
        t->msg[n++].text.len = strlen(system);
    }
    t->msg[n].role = (char *)"user";
    t->msg[n].text.data = (uint8_t *)text;
    t->msg[n++].text.len = len;
    m->messages = t->list;
    m->n_messages = n;
}

static int one_answer(struct ntx_client *c, const struct ntx_options *o, struct constraint *must,
                      const struct ntx_prompt *p, struct ntx_answered *a, struct ntx_err *err)
{
    Ntx__Generate m = NTX__GENERATE__INIT;
    Ntx__Sampling s = NTX__SAMPLING__INIT;
    struct turn turn;
    ntx_fill_generate(o, &m, &s);
    m.constraint = must->there ? &must->m : NULL;
    if (o->raw) {
        m.prompt.data = (uint8_t *)p->text;
        m.prompt.len = p->len;
        m.images = p->pictures.list;
        m.n_images = p->pictures.n;
    } else {
        fill_turn(&turn, &m, o->system, p->text, p->len);
        ntx_pictures_before(&p->pictures, 0, p->pictures.n, m.messages[m.n_messages - 1]);
    }
    int rc = ntx_answer(c, o, &m, a, err);
    uint32_t used = a->context + (uint32_t)json_integer_value(json_object_get(a->stats, "generated_tokens"));
    if (!rc && !o->quiet && a->ctx && used >= a->ctx)
        ntx_say("the context of %u tokens is full, which cut the answer: --ctx makes it longer", a->ctx);
    return rc;
}

int ntx_run_resumes(struct ntx_options *o, char path[4096], struct ntx_err *err)
{
    char store[1400];
    struct ntx_err ignored = {0};
    const char *name = o->n_args ? o->args[0] : NULL, *model = name;
    if (!o->resume || o->n_args > 1 || (name && !ntx_talk_is_name(name)))
        return 0;
    if (name && (!access(name, F_OK) || (!ntx_model_by_name(&model, store, &ignored) && model != name)))
        return 0; /* a model, whose last conversation is meant */
    int rc = ntx_talk_model(name, path, err);
    if (rc)
        return rc;
    o->args[0] = path;
    o->args[1] = name;
    o->n_args = name ? 2 : 1;
    return 0;
}

int ntx_cmd_run(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct ntx_client *c = NULL;
    struct ntx_tracer *tracer = NULL;
    struct ntx_prompt p = {0};
    struct constraint must = {0};
    struct ntx_answered a = {0};
    int rc = ntx_supervisor_check(&err); /* before the user types a prompt in vain */
    o->talk = o->resume && o->n_args > 1 ? o->args[1] : NULL;
    if (!rc && !o->resume)
        rc = ntx_prompt_read(o, o->args + 1, o->n_args - 1, &p, &err);
    ntx_prompt_tell_left(o, &p);
    if (!rc)
        rc = constraint_read(o, &must, &err);
    if (!rc && must.there && !p.text)
        rc = ntx_err_set(&err, -EINVAL,
                         "--grammar and --json-schema are for one answer, and not for a chat: give a prompt");
    if (!rc)
        rc = ntx_model_files_load(o, &f, &err);
    if (!rc)
        rc = ntx_prompt_check_form(o, &f, !p.text, &err);
    if (!rc)
        rc = ntx_captive_start(o, &f, &c, &err);
    ntx_prompt_tell_left(o, &p); /* the program at the other end of the pipe may have been slow */
    if (!rc && o->trace)
        rc = ntx_tracer_start(ntx_client_dir(c), &tracer, &err);
    if (!rc)
        rc = p.text ? one_answer(c, o, &must, &p, &a, &err) : ntx_chat_loop(c, o, o->args[0], &err);
    if (!rc)
        ntx_prompt_tell_think(o, a.think_note);
    if (!rc && *a.note && !o->quiet)
        ntx_prompt_tell_note(a.note); /* after the answer, so that a failure prints only one line */
    if (!rc && tracer)
        rc = ntx_trace_finish(tracer, o, o->trace, &err);
    ntx_answered_free(&a);
    ntx_tracer_free(tracer);
    ntx_client_free(c);
    ntx_model_files_close(&f);
    ntx_prompt_free(&p);
    free(must.text);
    return rc ? ntx_fail(&err) : 0;
}

int ntx_cmd_generate(struct ntx_options *o)
{
    static const char *const input[] = {"-"};
    struct ntx_err err = {0};
    struct ntx_client *c = NULL;
    struct ntx_prompt p = {0};
    struct constraint must = {0};
    struct ntx_answered a = {0};
    bool given = o->n_args || o->prompt_file;
    int rc = ntx_prompt_check_form(o, NULL, false, &err);
    if (!rc)
        rc = constraint_read(o, &must, &err);
    if (!rc)
        rc = ntx_client_there(o->socket, &err);
    if (!rc)
        rc = ntx_prompt_read(o, given ? o->args : input, given ? o->n_args : 1, &p, &err);
    ntx_prompt_tell_left(o, &p);
    if (!rc)
        rc = ntx_client_connect(o->socket, &c, &err);
    if (!rc)
        rc = one_answer(c, o, &must, &p, &a, &err);
    if (!rc && *a.note && !o->quiet)
        ntx_prompt_tell_note(a.note);
    if (!rc)
        ntx_prompt_tell_think(o, a.think_note);
    ntx_answered_free(&a);
    ntx_client_free(c);
    ntx_prompt_free(&p);
    free(must.text);
    return rc ? ntx_fail(&err) : 0;
}

int ntx_cmd_chat(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_client *c = NULL;
    int rc = ntx_prompt_check_form(o, NULL, true, &err);
    if (o->n_args && !o->resume) {
        ntx_say("unexpected argument '%s': --resume %s goes on with a conversation of that name", o->args[0],
                o->args[0]);
        return NTX_EXIT_USAGE;
    }
    o->talk = o->n_args ? o->args[0] : NULL;
    if (!rc)
        rc = ntx_client_connect(o->socket, &c, &err);
    if (!rc)
        rc = ntx_chat_loop(c, o, NULL, &err);
    ntx_client_free(c);
    return rc ? ntx_fail(&err) : 0;
}
