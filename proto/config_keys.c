/* SPDX-License-Identifier: Apache-2.0 */
/* config_keys.c: the keys of ntx.conf, and the file that shows them all. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/config.h"

#define HEAD                                                                                                           \
    "ntx.conf: the configuration that ntx-computed reads at start, as ntx-computed.service runs it.\n"                 \
    "Every key is here with its default. Sizes: 512M, 3G (binary units). Rates: bytes per second, 3.3G (decimal "      \
    "units).\n"                                                                                                        \
    "An unknown key or a bad value is refused at start, with its line. After a change: systemctl restart ntx.target\n" \
    "\n"                                                                                                               \
    "Memory that the service may use beyond [model] ram is 64 MiB for the three daemons together."

#define ENTRY(s, k, f) .at = offsetof(struct ntx_config, f), .section = s, .in_conf = k
static const struct ntx_setting entries[] = {
    {"path", .kind = NTX_SET_PATH, ENTRY("model", "path", model), .preset = "",
     .about = "The GGUF to load at start, by its full path (the first file of a split model). The user ntx must "
              "be able to read it;\n"
              "the service does not see folders under /home. Empty: none; then `ntx load MODEL` passes in any "
              "model that its caller can\n"
              "read."},
    {"also", .kind = NTX_SET_PATH, ENTRY("model", "also", also), .preset = "",
     .about = "The same model on another drive (a copy, byte for byte): each read is split between the two, whose "
              "rates add up. Empty: none."},
    {"models", .kind = NTX_SET_TEXT, ENTRY("model", "models", models), .preset = "",
     .about = "Models that requests of the gateway may name, which are then loaded in turn: [NAME=]PATH, several with "
              "commas between.\n"
              "A PATH is a GGUF or a folder with some (three folders deep). The user ntx must be able to read them. "
              "Empty: only the\n"
              "loaded model is there, whatever name a request has."},
    {"at_once", .kind = NTX_SET_COUNT, .min = 1, .max = 4, ENTRY("model", "at_once", at_once), .preset = "1",
     .about = "Of these models, how many stay loaded at a time, as long as all of them fit into ram; then the least "
              "recently used\n"
              "one is unloaded. Each beyond the first has daemons of its own (ntx-computed@2.service, ...), and takes "
              "64 MiB of ram more."},
    {"max", .kind = NTX_SET_COUNT, .min = 1, .max = 4096, ENTRY("clients", "max", max_clients), .preset = "32",
     .about = "Connections at once. If all are taken, an idle one makes room for a newcomer. If none is idle, the "
              "newcomer may only\n"
              "ask for the status and stop the service; any other request is refused, since there are too many "
              "clients."},
    {"per_user", .kind = NTX_SET_COUNT, .max = 4096, ENTRY("clients", "per_user", max_per_user), .preset = "0",
     .about = "Most connections of one user. 0: three quarters of max."},
    {"idle", .kind = NTX_SET_SECONDS, .max = 86400, ENTRY("clients", "idle", idle_ms), .preset = "600",
     .about = "Seconds after which a connection that keeps a conversation counts as idle; one without a conversation "
              "does after 10 s."},
    {"stall", .kind = NTX_SET_SECONDS, .min = 1, .max = 3600, ENTRY("clients", "stall", stall_ms), .preset = "60",
     .about = "Seconds for a client to send the rest of a request that it has begun, and to take something of its "
              "answers. Then its connection is closed."},
    {"admin", .kind = NTX_SET_WORD, .choices = "word for who may:owner|group", ENTRY("clients", "admin", admin),
     .preset = "owner",
     .about = "Who may stop the service (`ntx stop`), and load a model with more memory than [model] ram: owner (root "
              "and the user it runs as) or\n"
              "group (whoever may connect). Members may load and unload models in either case."},
    {"share", .kind = NTX_SET_WORD, .choices = "word for whose:user|all", ENTRY("clients", "share", share),
     .preset = "user",
     .about = "Whose prefixes a text may reuse: user (one's own) or all. Sharing between users reveals how "
              "another's text begins, by\n"
              "the time that it saves and in the statistics. All clients of the gateway are one user."},
    {"queue_wait", .kind = NTX_SET_YES, ENTRY("clients", "queue_wait", queue_wait), .preset = "yes",
     .about = "A request for which there is no memory yet: yes, it waits in the queue; no, it is refused with the "
              "reason."},
    {"stop_grace", .kind = NTX_SET_SECONDS, .max = NTX_STOP_GRACE_MOST, ENTRY("clients", "stop_grace", stop_grace_ms),
     .preset = NTX_STOP_GRACE,
     .about = "Seconds that running answers may take after SIGTERM (systemctl stop) or `ntx stop`, over HTTP, too; "
              "then they end where they are.\n"
              "ntx-computed.service gives 45 s before it kills."},
    {"file", .kind = NTX_SET_PATH, ENTRY("prefix", "file", prefix_file), .preset = "",
     .about = "A file with the system prompt with which conversations begin: its state is computed when the model "
              "is loaded, for all\n"
              "users, and is evicted last. (A model without a chat template: a text with which prompts begin.) "
              "The user ntx must be able\n"
              "to read it; 1 MiB at most."},
    {"listen", .kind = NTX_SET_TEXT, ENTRY("metrics", "listen", metrics_listen), .preset = "",
     .about = "Where ntx-metrics.service serves http://.../metrics to Prometheus: 127.0.0.1:9464, [::1]:9464 or "
              "unix:/run/ntx-metrics/metrics.sock\n"
              "Empty: nowhere. Whoever can reach it sees rates and the model's name, no text. After a change: "
              "systemctl restart ntx-metrics"},
    {"listen", .kind = NTX_SET_TEXT, ENTRY("gateway", "listen", gateway_listen), .preset = "",
     .about = "Where ntx-gateway.service serves HTTP (OpenAI's, Anthropic's and Ollama's APIs, a chat page): "
              "127.0.0.1:8080, [::1]:8080 or unix:/run/ntx-gateway/http.sock\n"
              "Empty: nowhere. Whoever can reach it may use the model as a member of the group ntx may. After a "
              "change: systemctl restart ntx-gateway"},
    {"api_key_file", .kind = NTX_SET_PATH, ENTRY("gateway", "api_key_file", gateway_key), .preset = "",
     .about = "A file with the key that callers must send (Authorization: Bearer KEY). Needed where other machines "
              "reach it. Only the user ntx-gateway may read it:\n"
              "install -o ntx-gateway -m 600 KEYFILE /etc/ntx/gateway.key"},
    {"cors", .kind = NTX_SET_TEXT, ENTRY("gateway", "cors", gateway_cors), .preset = "",
     .about = "CORS: web pages of these origins may send requests, too: https://example.org, several separated by "
              "blanks, or *\n"
              "Pages of localhost, at any port, and desktop apps always may; `none` forbids these as well."},
    {"hosts", .kind = NTX_SET_TEXT, ENTRY("gateway", "hosts", gateway_hosts), .preset = "",
     .about = "Without a key, requests with these Host headers are answered, too, beside localhost and loopback "
              "addresses:\n"
              "example.org, several separated by blanks. For a reverse proxy in front of the gateway that passes "
              "such a name on."},
    {"image_hosts", .kind = NTX_SET_TEXT, ENTRY("gateway", "image_hosts", gateway_image_hosts), .preset = "",
     .about = "Hosts from which pictures in requests (image_url) are fetched: example.org, *.example.org, "
              "example.org:8443, several separated\n"
              "by blanks; * for all. Empty: none, pictures come in the request itself. A name with an address of this "
              "machine or of a\n"
              "private network is refused; to allow such an address, write it."},
    {"stable_prompts", .kind = NTX_SET_YES, ENTRY("gateway", "stable_prompts", gateway_stable), .preset = "yes",
     .about = "Leave out parts of system prompts that clients change with each request and that mean nothing to a "
              "model (Claude Code's\n"
              "x-anthropic-billing-header), so that the rest is found in the prefix cache: yes or no. An answer names "
              "what was left out."},
    {"keep_alive", .kind = NTX_SET_TEXT, ENTRY("gateway", "keep_alive", gateway_keep), .preset = "-1",
     .about = "Unload a model of [model] models after so long without requests: 5m, 30s, 2h; -1: never. A request's "
              "keep_alive\n"
              "overrides it for its model."},
    {"stall", .kind = NTX_SET_SECONDS, .min = 1, .max = 3600, ENTRY("gateway", "stall", gateway_stall_ms),
     .preset = NTX_GATEWAY_STALL,
     .about = "Seconds for a client to send more of its request, and to take more of its answer; then its "
              "connection is closed. A\n"
              "stream whose client takes nothing for a second gives its place to a waiting request, and goes on "
              "when its client takes\n"
              "more."},
};
static const struct ntx_settings own_keys = {entries, sizeof entries / sizeof *entries};

const struct ntx_setting *ntx_config_key(unsigned i, struct ntx_config *c, void **to)
{
    const unsigned loads = ntx_load_settings.n;
    if (to)
        *to = i < loads ? (void *)&c->load : c;
    if (i < loads)
        return &ntx_load_settings.entry[i];
    return i - loads < own_keys.n ? &entries[i - loads] : NULL;
}

/* Prints each line after "# ". */
static void print_comment(FILE *to, const char *text)
{
    for (const char *end; *text; text = end + (*end == '\n')) {
        end = text + strcspn(text, "\n");
        fprintf(to, "#%s%.*s\n", end > text ? " " : "", (int)(end - text), text);
    }
}

/* Prints the entries first to last - 1 of a section. */
static void print_rows(FILE *to, const char *section, unsigned first, unsigned last, bool *begun)
{
    for (unsigned i = first; i < last; i++) {
        const struct ntx_setting *s = ntx_config_key(i, NULL, NULL);
        const char *value = s->open ? s->open : s->preset;
        if (!s->section || strcmp(s->section, section))
            continue;
        if (*begun)
            fputc('\n', to);
        else
            fprintf(to, "\n[%s]\n", section);
        print_comment(to, s->about);
        fprintf(to, "#%s =%s%s\n", s->in_conf, *value ? " " : "", value);
        *begun = true;
    }
}

void ntx_config_print(FILE *to)
{
    static const char *const sections[] = {"model", "links", "clients", "prefix", "metrics", "gateway"};
    const unsigned loads = ntx_load_settings.n;
    print_comment(to, HEAD);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        bool begun = false;
        print_rows(to, sections[i], loads, loads + own_keys.n, &begun);
        print_rows(to, sections[i], 0, loads, &begun);
    }
}

void ntx_config_defaults(struct ntx_config *c)
{
    struct ntx_load_settings *l = &c->load;
    *c = (struct ntx_config){0};
    l->backend = l->kernel = l->source = l->fault = l->skip = l->skip_kv = l->kv_type = l->ffn_sparse = l->draft =
        l->state = "";
    ntx_settings_preset(&own_keys, c);
}
