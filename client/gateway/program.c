/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/program.h"

#include "common/programs.h"

static const struct argp_option options[] = {
    {"listen", 'l', "WHERE", 0, "127.0.0.1:8080, [::1]:8080 or unix:/path (default: 127.0.0.1:8080)", 0},
    {"api-key-file", 'k', "FILE", 0,
     "require the key in this file (mode 0600) of each request; needed where other machines reach WHERE", 0},
    {"cors", 'o', "ORIGINS", 0,
     "pages of these origins may ask, too (CORS): https://example.org, several with blanks between them, or *; pages "
     "of "
     "localhost may always, except with none",
     0},
    {"hosts", 'n', "NAMES", 0,
     "without a key, requests by these names (Host headers) are answered, too, beside localhost and loopback "
     "addresses: example.org, several with blanks between them",
     0},
    {"image-hosts", NTX__GATEWAY_IMAGES, "HOSTS", 0,
     "hosts from which pictures in requests (image_url) are fetched: example.org, *.example.org, example.org:8443, "
     "several with blanks between them; * for all names (default: none). Addresses of this machine and of private "
     "networks must be written",
     0},
    {"stall", NTX__GATEWAY_STALL, "SECONDS", 0,
     "for a client to send more of a request, and to take more of an answer; then its connection is closed "
     "(default: 30). After one second, a stalled stream gives its slot to a waiting request",
     0},
    {"stable-prompts", NTX__GATEWAY_STABLE, "yes|no", 0,
     "leave out parts of system prompts that clients change with each request and that mean nothing to a model, so "
     "that the rest is found in the prefix cache (default: yes)",
     0},
    {"keep-alive", NTX__GATEWAY_KEEP, "TIME", 0,
     "unload a known model after so long without requests: 5m, 30s, 2h; -1: never (default). A request's keep_alive "
     "overrides it",
     0},
    {"manage", NTX__GATEWAY_MANAGE, "yes|no", 0,
     "requests may pull, name and delete models (/api/pull, /api/copy, /api/create, /api/delete); where other machines "
     "reach WHERE, it takes --manage-key-file (default: no)",
     0},
    {"manage-key-file", NTX__GATEWAY_MANAGE_KEY, "FILE", 0,
     "only requests with the key in this file (mode 0600) may do so; it is also an API key", 0},
    {"config", 'c', "FILE", 0, "defaults from [gateway] of this ntx.conf; without its key listen, nothing is served",
     0},
    {"runtime", 'r', "DIR", 0, "the daemons' runtime directory (default: those of `ntx up`, else the service's)", 0},
    {"fields", NTX__GATEWAY_FIELDS, NULL, 0, "print how each field of each API's requests is handled, and exit", 0},
    {"check-config", NTX__GATEWAY_CHECK, NULL, 0,
     "check the file of --config (default: /etc/ntx/ntx.conf), print each error with its line, and exit: 0 good, 1 bad",
     0},
    {"beside", NTX__GATEWAY_BESIDE, "DIR", OPTION_HIDDEN,
     "further daemons, for another model at the same time, from `ntx serve --at-once`", 0},
    {"listen-fd", NTX__GATEWAY_FD, "N", OPTION_HIDDEN, "a socket that listens at WHERE, from `ntx serve`", 0},
    {NULL, 'h', NULL, OPTION_HIDDEN, NULL, -1},
    {0},
};

const struct ntx_program ntx_gateway_program = {
    .name = "ntx-gateway",
    .section = 1,
    .brief = "serve ntx over HTTP, with the APIs of other servers",
    .doc = "ntx over HTTP: a chat page at /, OpenAI's API (/v1/models, /v1/chat/completions, /v1/completions, "
           "/v1/responses, /v1/embeddings), Anthropic's (/v1/messages, /v1/messages/count_tokens), "
           "Ollama's (/api/chat, /api/generate, /api/embed, /api/tags, /api/ps, /api/show, /api/version, and with "
           "--manage "
           "/api/pull, /api/delete, /api/create, /api/copy); "
           "llama-server's /infill, /tokenize and /detokenize; /health, /metrics.",
    .options = options,
    .examples = "  ntx-gateway --listen 127.0.0.1:8080\n"
                "  ntx-gateway --listen 0.0.0.0:8080 --api-key-file key",
    .files = "/etc/ntx/ntx.conf\tThe service's configuration, section [gateway]: ntx.conf(5).\n"
             "/run/ntx/ntx.sock\tThe service's socket.\n",
    .environment = "NTX_RUNTIME\tThe daemons' runtime directory, unless --runtime names it.\n",
    .exits = "1\t--check-config found an error.\n",
    .see = "ntx(1), ntx-serve(1), ntx-computed(8), ntx.conf(5)",
};
