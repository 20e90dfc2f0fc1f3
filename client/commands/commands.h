/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h: the commands of `ntx`, one function each, and what several of them share. */
#ifndef NTX_CLIENT_COMMANDS_COMMANDS_H
#define NTX_CLIENT_COMMANDS_COMMANDS_H

#include <jansson.h>
#include <stdio.h>

#include "client/client.h"
#include "client/options.h"
#include "model/gguf.h"

int ntx_cmd_run(struct ntx_options *o);
int ntx_cmd_generate(struct ntx_options *o);
int ntx_cmd_chat(struct ntx_options *o);
int ntx_cmd_up(struct ntx_options *o);
int ntx_cmd_serve(struct ntx_options *o);
int ntx_cmd_load(struct ntx_options *o);
int ntx_cmd_unload(struct ntx_options *o);
int ntx_cmd_prefix(struct ntx_options *o);
int ntx_cmd_status(struct ntx_options *o);
int ntx_cmd_stop(struct ntx_options *o);
int ntx_cmd_tokenize(struct ntx_options *o);
int ntx_cmd_detokenize(struct ntx_options *o);
int ntx_cmd_logits(struct ntx_options *o);
int ntx_cmd_perplexity(struct ntx_options *o);
int ntx_cmd_eval(struct ntx_options *o);
int ntx_cmd_bench(struct ntx_options *o);
int ntx_cmd_inspect(struct ntx_options *o);
int ntx_cmd_plan(struct ntx_options *o);
int ntx_cmd_doctor(struct ntx_options *o);
int ntx_cmd_pack(struct ntx_options *o);
int ntx_cmd_quantize(struct ntx_options *o);
int ntx_cmd_analyze(struct ntx_options *o);
int ntx_cmd_imatrix(struct ntx_options *o);
int ntx_cmd_draft_index(struct ntx_options *o);
int ntx_cmd_calibrate(struct ntx_options *o);
int ntx_cmd_pull(struct ntx_options *o);
int ntx_cmd_list(struct ntx_options *o);
int ntx_cmd_rm(struct ntx_options *o);

/* Prints "ntx: TEXT" and returns NTX_EXIT_FAILED. */
int ntx_fail(const struct ntx_err *err);

/* A model's files, opened and its header validated, before any daemon starts. */
struct ntx_model_files {
    int fds[128];
    char *names[128];
    unsigned n;
    struct ntx_gguf *gguf;
};
/* path: o's first argument, whose keys --override-kv may give, or the path of another file that is read beside it. What
 * is no language model is refused (model/kind.h); _any takes it. */
int ntx_model_files_open(const struct ntx_options *o, const char *path, struct ntx_model_files *f, struct ntx_err *err);
int ntx_model_files_any(const struct ntx_options *o, const char *path, struct ntx_model_files *f, struct ntx_err *err);
/* A model that is about to be loaded: o's first argument, and the adapters of --lora behind its parts. */
int ntx_model_files_load(const struct ntx_options *o, struct ntx_model_files *f, struct ntx_err *err);
/* The files of --also, in order; whether they are the same bytes is for computed to see. No header is read. */
int ntx_model_copies_open(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_model_files *out,
                          struct ntx_err *err);
void ntx_model_files_close(struct ntx_model_files *f);
/* *model is no file, but a name of `ntx list` (client/pull/store.h): it becomes the path, which lies in `path`. What is
 * neither stays as it is. */
int ntx_model_by_name(const char **model, char path[1400], struct ntx_err *err);

/* The tokens of a text file, malloc'd; *bos: the token that a text begins with, -1 where there is none. */
int ntx_tokens_of_file(const struct ntx_model_files *f, const char *path, int32_t **ids, int *n, int32_t *bos,
                       struct ntx_err *err);

/* The sidecar that o's skip policy needs: its descriptor, or -1 when it needs none. */
int ntx_sidecar_open(const struct ntx_options *o, const struct ntx_model_files *f, int *fd, struct ntx_err *err);
/* Likewise, of --draft FILE,...; with auto, the drafter that the model's card names, where it is there. */
int ntx_drafters_open(const struct ntx_options *o, const struct ntx_model_files *f, int *fd /* [NTX_DRAFT_FILES] */,
                      unsigned *n, struct ntx_err *err);

/* Sends Load with f's descriptors, shows progress on a terminal, waits for Loaded. */
int ntx_load_model(struct ntx_client *c, const struct ntx_options *o, const struct ntx_model_files *f,
                   struct ntx_err *err);

/* captive pipeline + load in one: what logits, perplexity and bench begin with, and run, which looks at the files
 * itself before. */
int ntx_captive_model(const struct ntx_options *o, struct ntx_model_files *f, struct ntx_client **c,
                      struct ntx_err *err);
int ntx_captive_start(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_client **c,
                      struct ntx_err *err);

/* What came of a request; the caller clears it with ntx_answered_free. */
struct ntx_answered {
    uint64_t session, seed; /* session 0: the request was refused */
    uint32_t context, ctx;  /* tokens of the session with the prompt, and how many it can have */
    char *text;             /* malloc'd; what came of it, where it was interrupted, NULL when nothing came */
    size_t len;
    json_t *stats;  /* NULL when it has not ended */
    char note[128]; /* on the form of the prompt; "": there is none */
    /* set by the caller: */
    void (*begun)(void *arg); /* or NULL; called when the request was accepted, before anything is printed */
    void *arg;
    bool patient; /* after Ctrl-C waits for the end of the pass under way, however long, or for another Ctrl-C; else 5 s
                     at most */
};
void ntx_answered_free(struct ntx_answered *a);

/* One answer: sends m (its id is set), prints text as it comes, then statistics as o asks. Ctrl-C ends the answer, not
 * the client: -EINTR is returned after what was generated has been printed. -ESHUTDOWN: the daemons' end cut it,
 * likewise. `a` may be NULL; filled in as far as it went, whatever is returned. */
int ntx_answer(struct ntx_client *c, const struct ntx_options *o, Ntx__Generate *m, struct ntx_answered *a,
               struct ntx_err *err);

/* What options say of a request: all but what is asked. s belongs to m. */
void ntx_fill_generate(const struct ntx_options *o, Ntx__Generate *m, Ntx__Sampling *s);

/* run without a prompt on a terminal, and chat (chat.c). */
int ntx_chat_loop(struct ntx_client *c, const struct ntx_options *o, struct ntx_err *err);

/* Before anything is started: whether a file that is written at the end can be (NULL, "-": yes). Makes nothing. */
int ntx_check_writable(const char *path, struct ntx_err *err);
/* Before anything is started: nothing that the command writes may be a file that it reads (output_guard.c). */
int ntx_check_output_guard(const struct ntx_command *c, const struct ntx_options *o, struct ntx_err *err);
/* Before anything is started: whether a text can be read. Reads nothing, so that a pipe keeps what is in it. */
int ntx_check_readable(const char *path, struct ntx_err *err);
/* Where --stats asks for it: j to a file or standard output. */
int ntx_write_stats(const struct ntx_options *o, const json_t *j, struct ntx_err *err);

/* All of a stream, malloc'd and terminated. */
int ntx_read_stream(FILE *f, char **text, size_t *len);

/* Clears the line of a terminal's stderr, where a command showed how far it is. */
void ntx_clear_progress(void);

#endif
