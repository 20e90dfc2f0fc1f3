/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h: the commands of `ntx`, one function each, and their shared parts. */
#ifndef NTX_CLIENT_COMMANDS_COMMANDS_H
#define NTX_CLIENT_COMMANDS_COMMANDS_H

#include <jansson.h>
#include <stdio.h>

#include "client/client.h"
#include "client/options.h"
#include "common/nearest.h"
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
int ntx_cmd_search(struct ntx_options *o);
int ntx_cmd_list(struct ntx_options *o);
int ntx_cmd_rm(struct ntx_options *o);
int ntx_cmd_config(struct ntx_options *o);

/* Prints "ntx: TEXT" and returns NTX_EXIT_FAILED. */
int ntx_fail(const struct ntx_err *err);

/* A model's files, opened before any daemon starts; the header is validated. */
struct ntx_model_files {
    int fds[128];
    char *names[128];
    unsigned n;
    struct ntx_gguf *gguf;
};
/* path: o's first argument, to which --override-kv applies, or the path of another file that is read beside it.
 * Files that are not language models are refused (model/kind.h); _any accepts them. */
int ntx_model_files_open(const struct ntx_options *o, const char *path, struct ntx_model_files *f, struct ntx_err *err);
int ntx_model_files_any(const struct ntx_options *o, const char *path, struct ntx_model_files *f, struct ntx_err *err);
/* The model to load: o's first argument, with the adapters of --lora after its parts. */
int ntx_model_files_load(const struct ntx_options *o, struct ntx_model_files *f, struct ntx_err *err);
/* Opens the files of --also, in order. ntx-computed checks that they are copies; no header is read here. */
int ntx_model_copies_open(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_model_files *out,
                          struct ntx_err *err);
void ntx_model_files_close(struct ntx_model_files *f);
/* If *model is not a file but a name of `ntx list` (client/pull/store.h), it becomes the path, stored in `path`. Any
 * other text stays. */
int ntx_model_by_name(const char **model, char path[1400], struct ntx_err *err);

/* Searches the model that `name` may mean: names of `ntx list`, the GGUF files in its folder, and short names, which
 * `ntx pull` fetches. */
void ntx_model_near(const char *name, struct ntx_near *near);
/* Calls see for each name of `ntx list`. */
void ntx_model_names(void (*see)(void *arg, const char *name), void *arg);

/* The tokens of a text file, malloc'd; *bos: the beginning-of-text token, or -1. */
int ntx_tokens_of_file(const struct ntx_model_files *f, const char *path, int32_t **ids, int *n, int32_t *bos,
                       struct ntx_err *err);

/* Opens the projector of --mmproj, or the one beside the model; *fd -1: there is none. path: the file's. */
int ntx_projector_open(const struct ntx_options *o, const struct ntx_model_files *f, int *fd, char path[4096],
                       struct ntx_err *err);
/* A note that names the projector beside the model, if --mmproj does not decide. */
void ntx_projector_tell(const struct ntx_options *o, const struct ntx_model_files *f);
/* Opens the sidecar of o's skip policy; *fd -1: none is needed. */
int ntx_sidecar_open(const struct ntx_options *o, const struct ntx_model_files *f, int *fd, struct ntx_err *err);
/* Opens the files of --draft FILE,...; with auto, the drafter that the model's card names, if that file exists. */
int ntx_drafters_open(const struct ntx_options *o, const struct ntx_model_files *f, int *fd /* [NTX_DRAFT_FILES] */,
                      unsigned *n, struct ntx_err *err);

/* Sends Load with f's descriptors, shows progress on a terminal, and waits for Loaded. */
int ntx_load_model(struct ntx_client *c, const struct ntx_options *o, const struct ntx_model_files *f,
                   struct ntx_err *err);
/* Likewise a known model of the daemons, by its name or path. */
int ntx_load_named(struct ntx_client *c, const struct ntx_options *o, const char *name, struct ntx_err *err);

/* Starts private daemons and loads the model. `run` opens the files itself and uses _start. */
int ntx_captive_model(const struct ntx_options *o, struct ntx_model_files *f, struct ntx_client **c,
                      struct ntx_err *err);
int ntx_captive_start(const struct ntx_options *o, const struct ntx_model_files *f, struct ntx_client **c,
                      struct ntx_err *err);

/* The result of a request; the caller clears it with ntx_answered_free. */
struct ntx_answered {
    uint64_t session, seed; /* session 0: the request was refused */
    uint32_t context, ctx;  /* tokens of the session with the prompt, and its context length */
    char *text;             /* malloc'd; the answer as far as it came; NULL: none */
    size_t len;
    json_t *stats;        /* NULL: the answer has not ended */
    char note[128];       /* a note on the prompt's form; "": none */
    char think_note[128]; /* the same on --think */
    /* set by the caller: */
    void (*begun)(void *arg); /* or NULL; called when the request was accepted, before anything is printed */
    void *arg;
    bool patient; /* after Ctrl-C wait for the end of the pass, or for another Ctrl-C; else for at most 5 s */
};
void ntx_answered_free(struct ntx_answered *a);

/* Generates one answer: sends m (its id is set), prints the text as it comes, then the statistics that o asks for.
 * Ctrl-C ends the answer, not the client: -EINTR after the text so far was printed. -ESHUTDOWN: likewise, the
 * daemons ended. `a` may be NULL; it is filled in as far as the answer came, whatever is returned. */
int ntx_answer(struct ntx_client *c, const struct ntx_options *o, Ntx__Generate *m, struct ntx_answered *a,
               struct ntx_err *err);

/* Fills a request from the options, without the prompt. s belongs to m. */
void ntx_fill_generate(const struct ntx_options *o, Ntx__Generate *m, Ntx__Sampling *s);

/* The chat: `ntx chat`, and `ntx run` without a prompt on a terminal (chat.c). model: the file that a private run
 * loaded; NULL: the daemons have their own. */
int ntx_chat_loop(struct ntx_client *c, const struct ntx_options *o, const char *model, struct ntx_err *err);
/* `ntx run --resume [NAME]` without a model: the conversation's model becomes the first argument, stored in `path`. A
 * NAME that is also a file or a model's name is the model. */
int ntx_run_resumes(struct ntx_options *o, char path[4096], struct ntx_err *err);

/* Checks, before anything is started, that a file can be written (NULL, "-": yes). Does not create it. */
int ntx_check_writable(const char *path, struct ntx_err *err);
/* Checks, before anything is started, that no output of the command is one of its inputs (output_guard.c). */
int ntx_check_output_guard(const struct ntx_command *c, const struct ntx_options *o, struct ntx_err *err);
/* Checks, before anything is started, that a text can be read. Reads nothing, because it may be a pipe. */
int ntx_check_readable(const char *path, struct ntx_err *err);
/* Writes j to the file of --stats or to standard output, if --stats was given. */
int ntx_write_stats(const struct ntx_options *o, const json_t *j, struct ntx_err *err);

/* Reads a whole stream; malloc'd and terminated. */
int ntx_read_stream(FILE *f, char **text, size_t *len);

/* Clears the progress line on a terminal's stderr. */
void ntx_clear_progress(void);

#endif
