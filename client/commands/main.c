/* SPDX-License-Identifier: Apache-2.0 */
/* ntx: the command line. One table of commands; each takes groups of options (options.c). */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "client/commands/commands.h"
#include "client/commands/trace.h"
#include "common/util.h"
#include "ntx_version.h"

enum { CAPTIVE = NTX_OPT_LOAD | NTX_OPT_OUTPUT };

static const struct ntx_command commands[] = {
    {"run", "MODEL [PROMPT] [-]",
     "One answer from a private pipeline of the three daemons.\vWith '-' standard input is read and put after PROMPT, "
     "and without PROMPT it is the "
     "prompt; so it is without '-' when it is piped. The newline at its end is dropped. With neither a prompt nor a "
     "pipe it becomes a chat; --resume NAME goes on with one. The model may be far bigger than --ram: what does not "
     "fit is read from its drive for every token.",
     CAPTIVE | NTX_OPT_GEN | NTX_OPT_TRACED | NTX_OPT_CHAT, 1, 3, ntx_cmd_run},
    {"up", "[MODEL]", "The three daemons in this terminal, on a socket that the other commands find.",
     NTX_OPT_LOAD | NTX_OPT_QUIET | NTX_OPT_UP, 0, 1, ntx_cmd_up},
    {"serve", "[MODEL]",
     "The three daemons in this terminal, and ntx-gateway: HTTP as other programs speak it.\vPrograms that know "
     "OpenAI's API are told http://127.0.0.1:8080/v1; `man ntx-gateway` names what there is. Other commands find the "
     "daemons, as with `ntx up`.",
     NTX_OPT_LOAD | NTX_OPT_QUIET | NTX_OPT_SERVE, 0, 1, ntx_cmd_serve},
    {"generate", "[PROMPT] [-]", "One answer through the running daemons.",
     NTX_OPT_GEN | NTX_OPT_OUTPUT | NTX_OPT_SOCKET, 0, 2, ntx_cmd_generate},
    {"chat", "[NAME]",
     "A conversation through the running daemons, which keep its KV.\vOn a terminal lines are edited, and found again "
     "in later runs; /help tells the rest. Ctrl-C stops an answer, Ctrl-D ends "
     "the conversation. From a pipe each line is a message, or what stands between two \"\"\". When it outgrows the "
     "context the oldest turns are left out, which is told. "
     "With --resume it goes on where NAME, saved by /save NAME, has ended; of a daemon with --state nothing of it is "
     "computed again.",
     NTX_OPT_GEN | NTX_OPT_OUTPUT | NTX_OPT_SOCKET | NTX_OPT_CHAT, 0, 1, ntx_cmd_chat},
    {"load", "MODEL", "Loads a model into the running daemons.", NTX_OPT_LOAD | NTX_OPT_QUIET | NTX_OPT_SOCKET, 1, 1,
     ntx_cmd_load},
    {"unload", "", "Unloads the model of the running daemons.", NTX_OPT_SOCKET, 0, 0, ntx_cmd_unload},
    {"prefix", "FILE",
     "The running daemons compute a text that conversations begin with, and keep it before all else.\vFILE ('-': "
     "standard input) is what the system message of "
     "conversations will be. Those of this user that begin with it compute only what comes behind. [prefix] in "
     "ntx.conf does it for all users, at each start.",
     NTX_OPT_QUIET | NTX_OPT_SOCKET, 1, 1, ntx_cmd_prefix},
    {"status", "",
     "State and statistics of the running daemons; exits with 0 when they answer.\vWithout --socket: those of `ntx "
     "up`, else the service's, else a private `ntx run` of yours. Of several private runs, NTX_RUNTIME names one by "
     "its directory.",
     NTX_OPT_SOCKET | NTX_OPT_JSON, 0, 0, ntx_cmd_status},
    {"trace", "",
     "Records what the running daemons do, as a trace for Perfetto: reads, ring slots, layers, waits, decisions, "
     "tokens.\vThey are those of `ntx up`, else the service's, else a private `ntx run` of yours. Of several private "
     "runs, NTX_RUNTIME names one by its directory.",
     NTX_OPT_TRACE, 0, 0, ntx_cmd_trace},
    {"stop", "", "Ends the running daemons after their generations.", NTX_OPT_SOCKET, 0, 0, ntx_cmd_stop},
    {"tokenize", "MODEL", "Text on standard input to a JSON array of token ids.", NTX_OPT_TOK, 1, 1, ntx_cmd_tokenize},
    {"detokenize", "MODEL", "A JSON array of token ids on standard input to text.", 0, 1, 1, ntx_cmd_detokenize},
    {"logits", "MODEL",
     "The logits of each given token, as float32.\vntx logits MODEL --tokens IDS --steps FILE tells what each step of "
     "each layer gave; two such files, of two back ends, "
     "budgets, builds or models, are held against each other by ntx logits --compare FILE OTHER, which names the first "
     "step that differs.",
     NTX_OPT_LOAD | NTX_OPT_QUIET | NTX_OPT_LOGITS, 1, 1, ntx_cmd_logits},
    {"perplexity", "MODEL FILE",
     "Perplexity of a text, in windows of --ctx tokens (default 512), the second half of each scored.\vWith --skip, "
     "which prompts never do, the scored half is fed token by token as if it were being written. Two models, or two "
     "ways of running one, are compared in "
     "two runs over the same text: the first with --save-logits BASE, the second with --kl BASE. The divergence is "
     "that of the second run's "
     "probabilities from the first's, in nats per token: mean, median, 99th percentile, largest.",
     CAPTIVE | NTX_OPT_PPL, 2, 2, ntx_cmd_perplexity},
    {"eval", "MODEL",
     "Share of questions that a model answers exactly, from --questions FILE.\vEach line of FILE is {\"prompt\": "
     "\"...\", \"answer\": \"...\"}. The prompt goes in as it "
     "is, unless --chat-template names a form. The continuation is greedy, unless --temp is given, up to a newline, "
     "the first '.' or an end token; without the "
     "space around it, it must equal the answer (whose own closing '.' does not count). Several questions share each "
     "pass. -n defaults to "
     "16 more than the answer has bytes, and --ctx and --sessions to what the questions need. --verbose shows each "
     "wrong answer.",
     CAPTIVE | NTX_OPT_GEN | NTX_OPT_EVAL, 1, 1, ntx_cmd_eval},
    {"bench", "MODEL",
     "Prefill and decode rates, mean and spread over runs.\vA row for each test: pp512 reads a prompt of 512 tokens, "
     "tg32 @ d512 writes 32 behind it. -p and -n take "
     "lists; the first of each go together, then the second, and so on. --json prints the statistics of each pair, "
     "with medians, least and greatest. Nothing is guessed (--draft off) unless --draft says how.",
     CAPTIVE | NTX_OPT_BENCH, 1, 1, ntx_cmd_bench},
    {"plan", "MODEL",
     "Whether a model fits, how fast it would be, what limits, and what to change for the most gain; loads "
     "nothing.\vMODEL is a GGUF, or one by name that nobody "
     "needs to have: llama-70b@q4_k_m (--list shows the names). The machine is this one as `ntx doctor` measured it, "
     "one by words (--machine), or the one in "
     "--profile. --ram is the budget, on any of them.",
     NTX_OPT_LOAD | NTX_OPT_PLAN | NTX_OPT_JSON, 0, 1, ntx_cmd_plan},
    {"doctor", "", "Measures this machine for `ntx plan`: drive, memory, kernels; says what to fix.",
     NTX_OPT_DOCTOR | NTX_OPT_JSON, 0, 0, ntx_cmd_doctor},
    {"calibrate", "MODEL",
     "Learns from a text which layers may be skipped, and writes a sidecar for --skip; with --ffn also which neurons "
     "are used.\vThe model is run over the text once (streamed where it is bigger than "
     "--ram); then a small network learns to tell, from a token's state after the first layers, which later layers "
     "will hardly change it. A part of the text is held "
     "out of the training, and judges the result.",
     NTX_OPT_LOAD | NTX_OPT_CALIBRATE | NTX_OPT_QUIET | NTX_OPT_JSON, 1, 1, ntx_cmd_calibrate},
    {"pack", "MODEL OUT",
     "Rewrites a model so that --ffn-sparse can read the neurons of its FFNs that a token uses.\vThe gate matrix stays "
     "in one piece; of each neuron the up row and the down "
     "column lie together, in groups that are worth a read on this machine's drive. Down matrices are quantised anew, "
     "along the other axis, which is the only thing "
     "that changes: the relative error is printed. OUT is a GGUF that only ntx runs. With --share I/N nothing is "
     "changed: OUT is what one of several machines needs of the model. With --delta it is for models whose layers "
     "share what they are made of (refused where that is not so): a base for all of them, and small differences, of "
     "which the errors are printed; and, with --base, what a fine-tune differs by from its base.",
     NTX_OPT_PACK | NTX_OPT_JSON | NTX_OPT_QUIET, 2, 2, ntx_cmd_pack},
    {"analyze", "MODEL",
     "How alike a model's layers are, and whether it would pay to keep one in memory and stream what the others differ "
     "by.\vEach matrix is compared with that of the layer before: cosine, size of the difference, "
     "DOCS index (do they have the same neurons, in any order?), and what deltas of few vectors or few bits would "
     "leave. Then the bytes per token that would follow (of experts those that a token uses), and a verdict. "
     "Of ordinary models it is no. Nothing is loaded; the file is read four times, piece by piece.",
     NTX_OPT_ANALYZE | NTX_OPT_JSON | NTX_OPT_QUIET, 1, 1, ntx_cmd_analyze},
    {"imatrix", "MODEL TEXT",
     "Learns from a text which weights are multiplied by large numbers, for ntx quantize --imatrix.\vThe model is run "
     "over the text, streamed where it is bigger than --ram, in windows of "
     "--ctx tokens (default 512), by the CPU. The file is a GGUF of the form that llama.cpp's tools read and write, "
     "too. Some hundred thousand tokens of the kind of text that the model is for "
     "are enough; with experts more, so that each is chosen.",
     NTX_OPT_LOAD | NTX_OPT_IMATRIX | NTX_OPT_QUIET, 2, 2, ntx_cmd_imatrix},
    {"quantize", "MODEL OUT TYPE",
     "Rewrites a model in types of fewer bits.\vTYPE is a mix by the name that files go by (Q4_K_M, Q5_K_S, IQ4_XS, "
     "IQ3_M, Q2_K, F16, ...; a wrong one lists all), or fit:SIZE, which "
     "chooses a type for each tensor so that the file takes at most SIZE and as little as possible is lost. The model "
     "may be far bigger than memory: it is read, and written, "
     "piece by piece. Best from F16, BF16 or F32; from a quantised model both losses add up, which is said. With an "
     "importance matrix (--imatrix) "
     "files of under 4 bits become much better, and those of under 3 need one. OUT appears when all of it is on the "
     "drive; a failure, or a kill, leaves nothing of it (but OUT.PID.tmp after SIGKILL, where the file system has no "
     "files without names).",
     NTX_OPT_QUANTIZE | NTX_OPT_JSON | NTX_OPT_QUIET, 3, 3, ntx_cmd_quantize},
    {"draft-index", "MODEL FILE...",
     "Makes of texts a file that guesses, for --draft.\vWhat came in them behind the like of a text's end is guessed "
     "to come again: of the documents that answers quote, the code that "
     "they change, the answers that were given before. The texts are kept in it, as tokens of MODEL's vocabulary; any "
     "model with the same one may use it. It takes 8 bytes a token, "
     "of the file and, with --draft, of --ram.",
     NTX_OPT_INDEX | NTX_OPT_QUIET, 2, 1000, ntx_cmd_draft_index},
    {"pull", "NAME",
     "Fetches a model: hf:OWNER/REPO, hf:OWNER/REPO:TYPE, or the address of a GGUF; all parts of a split one.\vIts "
     "header is read first, which tells whether ntx runs it and how fast it would be here. "
     "What was interrupted goes on where it was. A file has its name when it is whole, and its SHA-256 right where "
     "that is known. Models lie under $XDG_DATA_HOME/ntx/models "
     "(~/.local/share without it), root's under /var/lib/ntx/models. HF_TOKEN, or a file, may hold a token; NTX_HUB "
     "names a mirror of the hub.",
     NTX_OPT_PULL | NTX_OPT_QUIET, 1, 1, ntx_cmd_pull},
    {"list", "", "The models that were pulled, by the names that stand for MODEL in every command.",
     NTX_OPT_JSON | NTX_OPT_QUIET, 0, 0, ntx_cmd_list},
    {"rm", "NAME", "Removes a model of `ntx list`.", NTX_OPT_QUIET, 1, 1, ntx_cmd_rm},
    {"inspect", "MODEL", "Metadata and tensors of a GGUF.", NTX_OPT_JSON, 1, 1, ntx_cmd_inspect},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

const char *argp_program_version = "ntx " NTX_BUILD;

static const struct ntx_command *find_command(const char *name)
{
    for (unsigned i = 0; i < N_COMMANDS; i++)
        if (!strcmp(name, commands[i].name))
            return &commands[i];
    return NULL;
}

static void usage(FILE *to)
{
    fputs("Usage: ntx COMMAND [OPTION...]\nRuns language models bigger than memory, streamed from the drive through "
          "three daemons.\n\n",
          to);
    for (unsigned i = 0; i < N_COMMANDS; i++) {
        const char *doc = commands[i].doc;
        fprintf(to, "  ntx %-10s %-16s %.*s\n", commands[i].name, commands[i].args, (int)strcspn(doc, "\v"), doc);
    }
    fputs("\nntx help COMMAND tells a command's options. Sizes are written 512M, 3G (binary), rates 3.3G (bytes per "
          "second).\n"
          "Exit codes: 0 done, 100 wrong usage, 111 run-time failure.\n",
          to);
}

/* What a command printed must have arrived before it may be called done. */
static int printed(int code)
{
    errno = 0;
    bool bad = fflush(stdout) || ferror(stdout);
    if (!bad || code)
        return code;
    ntx_say("standard output: %s", errno ? strerror(errno) : "not all of it could be written");
    return NTX_EXIT_FAILED;
}

/* A signal that interrupted a command ends the program the way the shell expects: by that signal, after cleaning up. */
static int finish(int code)
{
    int sig = ntx_client_signalled();
    if (code != 128 + sig || !sig)
        return code;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    signal(sig, SIG_DFL);
    fflush(NULL);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(sig);
    return code;
}

int main(int argc, char **argv)
{
    struct ntx_options o;
    struct ntx_err err = {0};
    char path[1400];
    ntx_stdio_init();
    argp_err_exit_status = NTX_EXIT_USAGE;
    ntx_log_init("ntx", NTX_LOG_INFO);
    if (argc < 2)
        return usage(stderr), NTX_EXIT_USAGE;
    if (!strcmp(argv[1], "help") && argc > 2 && find_command(argv[2])) { /* ntx help run */
        argv[1] = argv[2];
        argv[2] = (char *)"--help";
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "-?") ||
        (!strcmp(argv[1], "help") && argc == 2))
        return usage(stdout), printed(0);
    if (!strcmp(argv[1], "help"))
        argv[1] = argv[2]; /* which is told not to be a command */
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
        return puts(argp_program_version), printed(0);
    const struct ntx_command *c = find_command(argv[1]);
    if (c) {
        ntx_options_parse(c, argc - 1, argv + 1, &o);
        if (ntx_command_takes_model(c) && o.n_args && ntx_model_by_name(&o.args[0], path, &err))
            return ntx_fail(&err);
        if (ntx_check_output_guard(c, &o, &err) || ntx_check_writable(o.stats, &err) ||
            ntx_check_writable(o.trace, &err))
            return ntx_fail(&err);
        return finish(printed(c->run(&o)));
    }
    ntx_say("'%s' is not a command; `ntx --help` lists them", argv[1]);
    return NTX_EXIT_USAGE;
}
