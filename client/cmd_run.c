#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cmd_trace.h"
#include "client/prompt.h"
#include "client/supervise.h"

void ntx_fill_generate(const struct ntx_options *o, Ntx__Generate *m, Ntx__Sampling *s)
{
    ntx_options_sampling(o, s);
    m->sampling = s;
    m->raw = o->raw;
    m->chat_template = (char *)(o->chat_template ? o->chat_template : "");
    m->stop = (char **)o->stops;
    m->n_stop = o->n_stops;
    m->ignore_eos = o->ignore_eos;
    m->max_tokens = o->n;
}

/* A system message where there is one, then the user's: what a conversation begins with. */
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

static int one_answer(struct ntx_client *c, const struct ntx_options *o, char *prompt, size_t len, struct ntx_err *err)
{
    Ntx__Generate m = NTX__GENERATE__INIT;
    Ntx__Sampling s = NTX__SAMPLING__INIT;
    struct turn turn;
    ntx_fill_generate(o, &m, &s);
    if (o->raw) {
        m.prompt.data = (uint8_t *)prompt;
        m.prompt.len = len;
    } else {
        fill_turn(&turn, &m, o->system, prompt, len);
    }
    return ntx_answer(c, o, &m, NULL, err);
}

int ntx_cmd_run(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct ntx_client *c = NULL;
    struct ntx_tracer *tracer = NULL;
    struct ntx_prompt p = {0};
    int rc = ntx_supervisor_check(&err); /* before somebody types a prompt for nothing */
    if (!rc)
        rc = ntx_prompt_read(o, o->args + 1, o->n_args - 1, &p, &err);
    ntx_prompt_tell_left(o, &p);
    if (!rc)
        rc = ntx_model_files_open(o->args[0], &f, &err);
    if (!rc)
        rc = ntx_prompt_check_form(o, &f, !p.text, &err);
    if (!rc)
        rc = ntx_captive_start(o, &f, &c, &err);
    ntx_prompt_tell_left(o, &p); /* what feeds the pipe may have been slow */
    if (!rc && o->trace)
        rc = ntx_tracer_start(ntx_client_dir(c), &tracer, &err);
    if (!rc)
        rc = p.text ? one_answer(c, o, p.text, p.len, &err) : ntx_chat_loop(c, o, &err);
    if (!rc && tracer)
        rc = ntx_trace_finish(tracer, o, o->trace, &err);
    ntx_tracer_free(tracer);
    ntx_client_free(c);
    ntx_model_files_close(&f);
    ntx_prompt_free(&p);
    return rc ? ntx_fail(&err) : 0;
}

int ntx_cmd_generate(struct ntx_options *o)
{
    static const char *const input[] = {"-"};
    struct ntx_err err = {0};
    struct ntx_client *c = NULL;
    struct ntx_prompt p = {0};
    bool given = o->n_args || o->prompt_file;
    int rc = ntx_prompt_check_form(o, NULL, false, &err);
    if (!rc)
        rc = ntx_client_there(o->socket, &err);
    if (!rc)
        rc = ntx_prompt_read(o, given ? o->args : input, given ? o->n_args : 1, &p, &err);
    ntx_prompt_tell_left(o, &p);
    if (!rc)
        rc = ntx_client_connect(o->socket, &c, &err);
    if (!rc)
        rc = one_answer(c, o, p.text, p.len, &err);
    ntx_client_free(c);
    ntx_prompt_free(&p);
    return rc ? ntx_fail(&err) : 0;
}

int ntx_cmd_chat(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_client *c = NULL;
    int rc = ntx_prompt_check_form(o, NULL, true, &err);
    if (!rc)
        rc = ntx_client_connect(o->socket, &c, &err);
    if (!rc)
        rc = ntx_chat_loop(c, o, &err);
    ntx_client_free(c);
    return rc ? ntx_fail(&err) : 0;
}
