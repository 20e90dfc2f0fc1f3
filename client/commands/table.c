/* SPDX-License-Identifier: Apache-2.0 */
/* table.c: the commands of `ntx`, for the command line, its help, its completion and its man pages (deploy/pages). */
#include "client/commands/table.h"

#include <string.h>

enum { CAPTIVE = NTX_OPT_LOAD | NTX_OPT_OUTPUT };

const struct ntx_command ntx_commands[] = {
    {NTX_KIND_RUN, "run", "MODEL [PROMPT] [-]", "Answer one prompt, or start a chat",
     "The three daemons are started for this command alone. With '-' standard input is read and put after "
     "PROMPT; without PROMPT it is the prompt. A pipe is read without '-', too. The newline at its end is "
     "dropped. With neither a prompt nor a pipe the command is a chat; --resume NAME continues one, "
     "with its own model where MODEL is left out. The model may be far bigger than --ram: the part that does not fit "
     "is read from the drive for every token (offload).",
     "  ntx run model.gguf \"Why is the sky blue?\" --ram 8G\n"
     "  ntx run model.gguf --ctx 16384   # a chat\n"
     "  git diff | ntx run model.gguf \"Review this change.\" -",
     CAPTIVE | NTX_OPT_GEN | NTX_OPT_TRACED | NTX_OPT_CHAT, 1, 3},
    {NTX_KIND_RUN, "chat", "[NAME]", "Chat with the running daemons",
     "The daemons keep the conversation's KV cache. On a terminal, lines are edited and kept for later runs; "
     "/help lists the chat's commands. Ctrl-C stops an answer, Ctrl-D ends the conversation. From a pipe, "
     "each line is a message, or the text between two \"\"\". When the conversation outgrows the context, the "
     "oldest turns are left out, and a note says so. With --resume it continues where NAME, saved by /save "
     "NAME, has ended; a daemon with --state computes nothing of it again.",
     "  ntx chat --system \"Answer in one sentence.\"\n"
     "  ntx chat --resume physics",
     NTX_OPT_GEN | NTX_OPT_OUTPUT | NTX_OPT_SOCKET | NTX_OPT_CHAT, 0, 1},
    {NTX_KIND_RUN, "generate", "[PROMPT] [-]", "Answer one prompt by the running daemons", NULL,
     "  ntx generate \"Name three rivers.\" --temp 0 -n 64\n"
     "  git diff | ntx generate \"Review this change.\" -",
     NTX_OPT_GEN | NTX_OPT_OUTPUT | NTX_OPT_SOCKET, 0, 2},
    {NTX_KIND_SERVE, "up", "[MODEL]", "Start the three daemons in this terminal",
     "The other commands find the daemons' socket.",
     "  ntx up model.gguf --ram 16G --sessions 4\n"
     "  mpirun -n 2 --hostfile HOSTS ntx up model.gguf --ram 12G",
     NTX_OPT_LOAD | NTX_OPT_FORM | NTX_OPT_QUIET | NTX_OPT_UP, 0, 1},
    {NTX_KIND_SERVE, "serve", "[MODEL]...", "Start the daemons and the HTTP gateway",
     "With several MODELs, NAME=MODELs, or a folder of GGUFs, a request's model is loaded when it is asked for; one is "
     "loaded at a time, or --at-once N. Set the base URL of programs that use OpenAI's API to "
     "http://127.0.0.1:8080/v1; `man "
     "ntx-gateway` lists "
     "the other APIs. Other commands find the daemons, as with `ntx up`.",
     "  ntx serve model.gguf --ram 16G\n"
     "  ntx serve small=small.gguf big.gguf --keep-alive 30m\n"
     "  ntx serve /models --cors https://example.org",
     NTX_OPT_LOAD | NTX_OPT_FORM | NTX_OPT_QUIET | NTX_OPT_SERVE, 0, 64},
    {NTX_KIND_SERVE, "load", "MODEL", "Load a model into the running daemons", NULL,
     "  ntx load model.gguf --ram 16G\n"
     "  ntx load OWNER/REPO:Q4_K_M --ctx 16384 --drain",
     NTX_OPT_LOAD | NTX_OPT_FORM | NTX_OPT_QUIET | NTX_OPT_SOCKET | NTX_OPT_WHEN, 1, 1},
    {NTX_KIND_SERVE, "unload", "", "Unload the model of the running daemons", NULL,
     "  ntx unload\n"
     "  ntx unload --socket /run/ntx/ntx.sock",
     NTX_OPT_SOCKET, 0, 0},
    {NTX_KIND_SERVE, "prefix", "FILE", "Compute a system prompt before it is used",
     "FILE ('-': standard input) holds the system prompt of later conversations. The daemons compute it and "
     "keep it longer than other prefixes. This user's conversations that begin with it compute only the text "
     "after it. [prefix] in ntx.conf does this for all users, at each start.",
     "  ntx prefix system.txt\n"
     "  cat rules.txt notes.txt | ntx prefix -",
     NTX_OPT_QUIET | NTX_OPT_SOCKET, 1, 1},
    {NTX_KIND_SERVE, "status", "", "Show the daemons' state and statistics",
     "The exit code is 0 when the daemons answer. Without --socket these are the daemons of `ntx up`, else "
     "the service's, else those of a private `ntx run` of yours. With several private runs, NTX_RUNTIME names "
     "one by its directory.",
     "  ntx status\n"
     "  ntx status --json | jq .sessions",
     NTX_OPT_SOCKET | NTX_OPT_JSON, 0, 0},
    {NTX_KIND_SERVE, "stop", "", "Stop the running daemons", "The daemons finish the answers under way first.",
     "  ntx stop\n"
     "  ntx stop --socket /run/ntx/ntx.sock",
     NTX_OPT_SOCKET, 0, 0},
    {NTX_KIND_SERVE, "config", "check [FILE]", "Check the service's configuration",
     "Checks each key, value and file of ntx.conf (default: /etc/ntx/ntx.conf), and settings that do not go together, "
     "such as a ram that is too small for the model. All errors are printed, as FILE:LINE: TEXT. Root checks as the "
     "service's users, others as themselves. The exit code is 0 without an error, 1 with errors.",
     "  ntx config check\n"
     "  ntx config check new.conf && cp new.conf /etc/ntx/ntx.conf",
     0, 1, 2},
    {NTX_KIND_MODELS, "pull", "NAME", "Download a model (short name, hub or URL)",
     "NAME is a short name (--list), hf:OWNER/REPO, or the URL of a GGUF; NAME:TYPE picks a type. Without a type, the "
     "command shows the types with sizes, the speed that `ntx plan` predicts for this machine, and the recommended "
     "one: the largest, up to 8 bits, that writes at least 5 tokens a second here. On a terminal it asks; elsewhere it "
     "ends with code 100 and says the command. All parts of a split model are fetched. Free space on the drive is "
     "checked first, then the header is read, and the command says whether ntx runs the model. An interrupted download "
     "continues where it was. A file gets its name when it is whole and its SHA-256, where that is known, is right. "
     "Models are stored in $XDG_DATA_HOME/ntx/models (~/.local/share without it), root's in /var/lib/ntx/models. "
     "HF_TOKEN, or a file, may hold a token; NTX_HUB names a mirror of the hub. ~/.config/ntx/models.ini adds short "
     "names: lines 'NAME = OWNER/REPO' below [models].",
     "  ntx pull qwen3-8b\n"
     "  ntx pull hf:OWNER/REPO:Q4_K_M",
     NTX_OPT_PULL | NTX_OPT_HUB | NTX_OPT_QUIET, 0, 1},
    {NTX_KIND_MODELS, "search", "WORD...", "Search the hub for models",
     "The result has the downloads, as the hub counts them, the sizes of the smallest and largest type, and whether "
     "ntx runs the architecture. Only repositories with GGUFs are listed.",
     "  ntx search qwen3 coder\n"
     "  ntx search gemma --limit 20 --json",
     NTX_OPT_SEARCH | NTX_OPT_HUB | NTX_OPT_JSON, 1, 16},
    {NTX_KIND_MODELS, "list", "", "List the downloaded models", "Every command takes these names in place of MODEL.",
     "  ntx list\n"
     "  ntx list --json | jq -r .[].path",
     NTX_OPT_JSON | NTX_OPT_QUIET, 0, 0},
    {NTX_KIND_MODELS, "rm", "NAME", "Remove a downloaded model", NULL,
     "  ntx rm OWNER/REPO:Q4_K_M\n"
     "  ntx rm REPO",
     NTX_OPT_QUIET, 1, 1},
    {NTX_KIND_MODELS, "inspect", "MODEL", "Show metadata and tensors of a GGUF file", NULL,
     "  ntx inspect model.gguf\n"
     "  ntx inspect model.gguf --json | jq .metadata",
     NTX_OPT_JSON, 1, 1},
    {NTX_KIND_MODELS, "quantize", "MODEL OUT TYPE", "Convert to smaller types (quantization)",
     "TYPE is the name of a mix (Q4_K_M, Q5_K_S, IQ4_XS, IQ3_M, Q2_K, F16, ...; a wrong name lists all), or "
     "fit:SIZE, which chooses a type for each tensor so that the file takes at most SIZE and the loss is "
     "small. The model may be far bigger than memory: it is read and written piece by piece. F16, BF16 or F32 "
     "sources are best; from a quantised model both losses add up, and a note says so. An importance matrix "
     "(--imatrix) makes files of under 4 bits much better, and types of under 3 bits need one. OUT appears "
     "when all of it is on the drive; a failure or a kill leaves nothing of it (except OUT.PID.tmp after "
     "SIGKILL, where the file system has no unnamed files).",
     "  ntx quantize big-f16.gguf small.gguf Q4_K_M\n"
     "  ntx quantize big-f16.gguf small.gguf fit:6G --imatrix big.imatrix",
     NTX_OPT_QUANTIZE | NTX_OPT_JSON | NTX_OPT_QUIET, 3, 3},
    {NTX_KIND_MODELS, "imatrix", "MODEL TEXT", "Compute an importance matrix for quantize",
     "The CPU runs the model over the text in windows of --ctx tokens (default 512), streamed where the model "
     "is bigger than --ram. The file is a GGUF in the form of llama.cpp's tools. Some hundred thousand tokens "
     "of the kind of text that the model is for are enough; a mixture of experts needs more, so that each "
     "expert is routed to.",
     "  ntx imatrix model.gguf text.txt -o model.imatrix\n"
     "  ntx imatrix big.gguf text.txt -o big.imatrix --ram 8G --limit 100000",
     NTX_OPT_LOAD | NTX_OPT_IMATRIX | NTX_OPT_QUIET, 2, 2},
    {NTX_KIND_MODELS, "pack", "MODEL OUT", "Regroup FFN neurons for --ffn-sparse",
     "The packed file lets --ffn-sparse read only the FFN neurons that a token uses. The gate matrix stays in "
     "one piece; each neuron's up row and down values are stored together, in groups that are worth a read on "
     "this machine's drive. No weight is changed: groups have whole blocks of the down matrix, so at least 32 "
     "neurons in Q4_0 to Q8_0 and 256 in K-quants. First the command counts which groups a token touches; where "
     "reading sparse would not read less (nearly all SwiGLU models), it writes nothing without --force. OUT is a GGUF "
     "that only ntx runs. With --share I/N, nothing is changed: "
     "OUT has the part of the model that one of several machines needs. --delta is for models whose layers "
     "resemble each other (others are refused): a base for all layers and small differences, whose errors are "
     "printed; with --base, the difference of a fine-tune from its base. --planes writes two files, the low bits of "
     "the weights (OUT) and the high bits (OUT.draft.gguf): the high bits stay in memory and draft while the low bits "
     "are read, which gives the same text; --join makes the model whole again.",
     "  ntx pack model.gguf packed.gguf\n"
     "  ntx pack model.gguf split.gguf --planes\n"
     "  ntx pack model.gguf part.gguf --share 1/2\n"
     "  ntx run packed.gguf \"Hello\" --ffn-sparse threshold=0",
     NTX_OPT_PACK | NTX_OPT_JSON | NTX_OPT_QUIET, 2, 2},
    {NTX_KIND_MODELS, "calibrate", "MODEL", "Train predictors of layer skip, sparse FFN",
     "The command learns from a text which layers may be skipped, and writes a sidecar for --skip; with --ffn "
     "it also learns which neurons are used. The model runs over the text once (streamed where it is bigger "
     "than --ram). Then a small network learns to predict, from a token's hidden state after the first "
     "layers, which later layers will hardly change it. On the end of the text, which nothing is learned from, "
     "the command measures the KL divergence at several thresholds, and of a static choice. It writes the "
     "threshold that keeps 0.02, or nothing (without --force) if that saves less than a tenth of the bytes.",
     "  ntx calibrate model.gguf --text text.txt -o model.skip.gguf\n"
     "  ntx calibrate packed.gguf --text text.txt -o packed.skip.gguf --ffn",
     NTX_OPT_LOAD | NTX_OPT_CALIBRATE | NTX_OPT_QUIET | NTX_OPT_JSON, 1, 1},
    {NTX_KIND_MODELS, "draft-index", "MODEL FILE...", "Index texts for speculative decoding",
     "The index is a drafter for --draft (prompt lookup): where an answer repeats a passage of the texts, the "
     "next tokens are drafted from there. Useful texts are documents that answers quote, code that they "
     "change, and earlier answers. The texts are stored as tokens of MODEL's vocabulary; any model with the "
     "same vocabulary may use the index. It takes 8 bytes a token, of the file and, with --draft, of --ram.",
     "  ntx draft-index model.gguf notes/*.txt -o notes.index\n"
     "  ntx draft-index model.gguf src/*.c -o code.index\n"
     "  ntx run model.gguf \"Summarize my notes.\" --draft notes.index",
     NTX_OPT_INDEX | NTX_OPT_QUIET, 2, 1000},
    {NTX_KIND_MEASURE, "doctor", "", "Measure drive, memory and kernels",
     "`ntx plan` uses the measurements. The command also says what to fix on this machine.",
     "  ntx doctor --dir /models\n"
     "  ntx doctor --seconds 60 --json",
     NTX_OPT_DOCTOR | NTX_OPT_JSON, 0, 0},
    {NTX_KIND_MEASURE, "plan", "MODEL", "Predict fit, speed and bottleneck",
     "The command predicts whether a model fits, how fast it would be, what limits it, and which change gains "
     "most: what can be done now first, then at most one line on what could be bought. It loads nothing. MODEL is a "
     "GGUF, or a name of a known model, whose file is not needed: llama-70b, or llama-70b@q8_0 for another type than "
     "the usual q4_k_m (--list shows the names). The machine is this one as `ntx doctor` measured it, one by words "
     "(--machine), or the one in --profile. --ram is the budget on any of them.",
     "  ntx plan model.gguf --ram 8G\n"
     "  ntx plan llama-70b@q4_k_m --machine gpu=3090,ram=64G,drive=7G",
     NTX_OPT_LOAD | NTX_OPT_PLAN | NTX_OPT_JSON, 0, 1},
    {NTX_KIND_MEASURE, "bench", "MODEL", "Measure prefill and decode rates",
     "The command prints mean and spread over the runs, a row for each test: pp512 reads a prompt of 512 "
     "tokens, tg32 @ d512 generates 32 after it. -p and -n take lists; their first values go together, then "
     "the second, and so on. --json prints the statistics of each pair, with median, least and greatest. "
     "Speculative decoding is off (--draft off) unless --draft turns it on.",
     "  ntx bench model.gguf -p 512 -n 32 --ram 8G\n"
     "  ntx bench model.gguf -p 128,1024 -n 32,32 -o csv",
     CAPTIVE | NTX_OPT_BENCH, 1, 1},
    {NTX_KIND_MEASURE, "perplexity", "MODEL FILE", "Measure perplexity and KL divergence",
     "The text is read in windows of --ctx tokens (default 512); the second half of each is scored. With "
     "--skip, which never applies to prompts, the scored half is fed token by token, as in generation. To "
     "compare two models, or two ways of running one, run twice over the same text: first with --save-logits "
     "BASE, then with --kl BASE. The divergence of the second run's probabilities from the first's is in nats "
     "per token: mean, median, 99th percentile, largest.",
     "  ntx perplexity model.gguf text.txt --save-logits base\n"
     "  ntx perplexity other.gguf text.txt --kl base",
     CAPTIVE | NTX_OPT_PPL, 2, 2},
    {NTX_KIND_MEASURE, "eval", "MODEL", "Score exact answers to questions",
     "The command prints the share of questions that a model answers exactly. Each line of --questions FILE "
     "is {\"prompt\": \"...\", \"answer\": \"...\"}. The prompt is used as it is, unless --chat-template names a "
     "form. The continuation is greedy, unless --temp is given, up to a newline, the first '.' or an end "
     "token; without surrounding space it must equal the answer (whose own final '.' does not count). Several "
     "questions share each pass. -n defaults to 16 more than the answer has bytes, and --ctx and --sessions "
     "to the questions' needs. --verbose shows each wrong answer.",
     "  ntx eval model.gguf --questions questions.jsonl\n"
     "  ntx eval model.gguf --questions questions.jsonl --verbose --ram 8G",
     CAPTIVE | NTX_OPT_GEN | NTX_OPT_EVAL, 1, 1},
    {NTX_KIND_MEASURE, "trace", "", "Record a Perfetto trace of the daemons",
     "The trace has reads, ring slots, layers, waits, decisions and tokens. It records the daemons of `ntx "
     "up`, else the service's, else those of a private `ntx run` of yours. With several private runs, "
     "NTX_RUNTIME names one by its directory.",
     "  ntx trace -o ntx.trace --seconds 10\n"
     "  NTX_RUNTIME=/run/user/1000/ntx-run-a1B2c3 ntx trace -o run.trace",
     NTX_OPT_TRACE, 0, 0},
    {NTX_KIND_MEASURE, "analyze", "MODEL", "Compare layers (are low-rank deltas small?)",
     "The command finds out whether it would pay to keep one layer in memory and stream only the differences "
     "of the others. It compares each matrix with that of the layer before: cosine, size of the difference, "
     "DOCS index (do they have the same neurons, in any order?), and the error of deltas of few vectors or "
     "few bits. It then prints the bytes per token that would follow (for experts, of those that a token "
     "uses) and a verdict. For ordinary models the verdict is no. Nothing is loaded; the file is read four "
     "times, piece by piece.",
     "  ntx analyze model.gguf\n"
     "  ntx analyze model.gguf --ranks 16,64 --apart 2 --json",
     NTX_OPT_ANALYZE | NTX_OPT_JSON | NTX_OPT_QUIET, 1, 1},
    {NTX_KIND_TOOLS, "tokenize", "MODEL", "Convert text on stdin to token ids (JSON)", NULL,
     "  echo -n Hello | ntx tokenize model.gguf\n"
     "  ntx tokenize model.gguf --no-bos <text.txt",
     NTX_OPT_TOK, 1, 1},
    {NTX_KIND_TOOLS, "detokenize", "MODEL", "Convert token ids on stdin (JSON) to text", NULL,
     "  echo \"[1, 15043]\" | ntx detokenize model.gguf\n"
     "  ntx tokenize model.gguf <text.txt | ntx detokenize model.gguf",
     0, 1, 1},
    {NTX_KIND_TOOLS, "logits", "MODEL", "Write logits, or the values of each layer",
     "The logits of each given token are written as float32. ntx logits MODEL --tokens IDS --steps FILE "
     "writes the result of each operation of each layer. ntx logits --compare FILE OTHER compares two such "
     "files, of two back ends, budgets, builds or models, and names the first operation that differs.",
     "  ntx logits model.gguf --tokens 1,15043 -o logits.f32\n"
     "  ntx logits model.gguf --tokens 1,15043 --steps steps.json",
     NTX_OPT_LOAD | NTX_OPT_QUIET | NTX_OPT_LOGITS, 1, 1},
};
const unsigned ntx_n_commands = sizeof ntx_commands / sizeof *ntx_commands;

const char *const ntx_command_kinds[NTX_N_KINDS] = {
    [NTX_KIND_RUN] = "Run",         [NTX_KIND_SERVE] = "Serve", [NTX_KIND_MODELS] = "Models",
    [NTX_KIND_MEASURE] = "Measure", [NTX_KIND_TOOLS] = "Tools",
};

const struct ntx_command *ntx_command_find(const char *name)
{
    for (unsigned i = 0; i < ntx_n_commands; i++)
        if (!strcmp(name, ntx_commands[i].name))
            return &ntx_commands[i];
    return NULL;
}
