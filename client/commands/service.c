/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/commands/serve_list.h"
#include "client/gateway_child.h"
#include "client/machines.h"
#include "client/places.h"
#include "client/out.h"
#include "client/respawn.h"
#include "client/supervise.h"
#include "client/where.h"
#include "common/util.h"

#define PART_MS 10000
#define LIST_MS 600000 /* a scan reads the header of each model */

/* Sends a request that has no body and waits for its last reply. */
static int send_simple(struct ntx_client *c, Ntx__Request *q, int timeout_ms, Ntx__Reply **out, struct ntx_err *err)
{
    uint64_t id;
    Ntx__Reply *r;
    int rc = ntx_client_send(c, q, NULL, 0, &id, err);
    if (!rc)
        rc = ntx_client_next(c, id, timeout_ms, &r, err);
    if (rc)
        return rc;
    if (out)
        *out = r;
    else
        ntx__reply__free_unpacked(r, NULL);
    return 0;
}

/* list: of the models that requests may name, or "". */
static void tell_ready(const struct ntx_model_files *f, const char *list, const struct ntx_gateway_child *gateway)
{
    char url[320];
    const char *with = " without a model", *model = ", `ntx load MODEL` loads one";
    if (*list)
        model = " until a request names one";
    if (f->n) {
        const char *slash = strrchr(f->names[0], '/');
        with = " with ";
        model = slash ? slash + 1 : f->names[0];
    }
    if (!gateway) {
        ntx_say("ready%s%s; Ctrl-C stops", with, model);
        return;
    }
    ntx_gateway_child_url(gateway, url, sizeof url);
    if (strncmp(url, "http", 4))
        ntx_say("ready%s%s: %s, API at /v1; Ctrl-C stops", with, model, url);
    else
        ntx_say("ready%s%s: %s/ (chat page), API at %s/v1; Ctrl-C stops", with, model, url, url);
}

/* Tells ntx-computed which models requests may name, and how they are loaded. */
static int send_list(struct ntx_client *c, const struct ntx_options *o, const char *list, bool on_request,
                     struct ntx_err *err)
{
    Ntx__Load load = NTX__LOAD__INIT;
    Ntx__Models m = NTX__MODELS__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    ntx_options_load(o, &load);
    load.copies = 1;
    m.list = (char *)(uintptr_t)list;
    m.defaults = &load;
    m.each_state = o->at_once > 1;
    m.on_request = on_request;
    q.body_case = NTX__REQUEST__BODY_MODELS;
    q.models = &m;
    return send_simple(c, &q, LIST_MS, NULL, err);
}

/* list: of the known models, or "".
 * The daemons run. Loads MODEL, if given, unless *loaded: then ntx-computed loads again the model that it had before
 * it died (computed/server/keeper.h). Returns at a signal (-EINTR) or when ntx-computed died (-EPIPE). */
static int serve_model(struct ntx_client *c, const struct ntx_options *o, const struct ntx_model_files *f,
                       const struct ntx_gateway_child *gateway, uint32_t rank, const char *list, bool *loaded,
                       struct ntx_err *err)
{
    Ntx__Reply *r;
    int rc = *list ? send_list(c, o, list, !f->n, err) : 0;
    const bool first = !rc && f->n && !*loaded;
    if (first && o->at_once > 1) /* as it will be loaded later */
        rc = ntx_load_named(c, o, o->args[0], err);
    else if (first)
        rc = ntx_load_model(c, o, f, err);
    if (rc)
        return rc;
    if (!o->quiet && !rank && !*loaded)
        tell_ready(f, list, gateway);
    *loaded = true;
    return ntx_client_next(c, UINT64_MAX, -1, &r, err); /* no reply has this id: wait for a signal or the end */
}

static void stop_gracefully(struct ntx_client *c)
{
    Ntx__Stop s = NTX__STOP__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    struct ntx_err ignored;
    q.body_case = NTX__REQUEST__BODY_STOP;
    q.stop = &s;
    send_simple(c, &q, 35000, NULL, &ignored);
}

struct greeting {
    const struct ntx_options *o;
    const char *list;
};

static int greet_place(void *arg, struct ntx_client *c, struct ntx_err *err)
{
    const struct greeting *g = arg;
    return send_list(c, g->o, g->list, true, err);
}

/* Further daemons for `ntx serve --at-once N`. */
static int start_places(struct greeting *g, const char *dir, struct ntx_gateway_child *gateway, struct ntx_places **out,
                        struct ntx_err *err)
{
    int rc = ntx_places_start(dir, g->o->at_once - 1, greet_place, g, out, err);
    for (unsigned i = 0; !rc && i + 1 < g->o->at_once; i++)
        ntx_gateway_child_beside(gateway, i, ntx_places_dir(*out, i));
    return rc;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* gateway: serves HTTP, or NULL. list: of the known models, or "". */
static int run_daemons(struct ntx_options *o, struct ntx_gateway_child *gateway, const char *list)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct ntx_client *c = NULL;
    struct ntx_places *places = NULL;
    struct greeting greeting = {o, list};
    char dir[200];
    uint32_t rank = 0;
    bool loaded = false;
    const bool among = ntx_among_machines(&rank);
    int rc = ntx_supervisor_check(&err);
    if (among)
        ntx_machine_unbind();
    if (!rc && among && !o->n_args)
        rc = ntx_err_set(&err, -EINVAL, "machines that share a model are started with it: mpirun ... ntx up MODEL");
    if (isatty(STDERR_FILENO))
        setenv(NTX_LOG_ERASES, "yes", 1); /* the daemons' lines stand where the progress of a load was */
    if (!rc && !rank)
        rc = ntx_runtime_dir(false, dir, sizeof dir, &err);
    if (!rc && o->n_args && !(*list && is_folder(o->args[0])))
        rc = ntx_model_files_load(o, &f, &err);
    if (!rc)
        rc = rank ? ntx_client_among(&c, &err) : ntx_client_up(dir, among, &c, &err);
    if (!rc && gateway && o->at_once > 1)
        rc = start_places(&greeting, dir, gateway, &places, &err);
    if (!rc && gateway && !rank)
        rc = ntx_gateway_child_start(gateway, dir, &err);
    while (!rc) {
        char how[320];
        rc = serve_model(c, o, &f, gateway, rank, among ? "" : list, &loaded, &err);
        if (rc == -EPIPE && among) /* the connections close before this rank has left the other machines */
            ntx_client_wait(ntx_supervisor_fd(ntx_client_supervisor(c)), PART_MS);
        if (rc != -EPIPE || !ntx_supervisor_lost(ntx_client_supervisor(c), how, sizeof how))
            break;
        if (!strcmp(how, "exit code 0")) { /* after `ntx stop` */
            rc = 0;
            break;
        }
        if (among) {
            ntx_err_set(
                &err, -EPIPE,
                "ntx-computed ended (%s): the machines that share this model have to be started again, all of them",
                how);
            break;
        }
        ntx_log(NTX_LOG_ERR, "ntx-computed ended (%s); starting it again", how);
        rc = ntx_supervisor_revive(ntx_client_supervisor(c), &err);
        if (!rc)
            rc = ntx_client_reconnect(c, &err);
    }
    if (rc == -EINTR && ntx_client_signalled()) {
        ntx_places_stop(places, stop_gracefully);
        stop_gracefully(c);
        rc = 0;
    }
    ntx_gateway_child_free(gateway); /* while the daemons still run, so that clients get the end of their answers */
    ntx_places_free(places);
    ntx_client_free(c);
    ntx_model_files_close(&f);
    return rc ? ntx_fail(&err) : 0;
}

int ntx_cmd_up(struct ntx_options *o)
{
    struct ntx_err err = {0};
    static char list[NTX_KNOWN_LIST];
    if (!o->respawn && ntx_serve_list(o, list, &err)) {
        if (o->alias)
            return ntx_fail(&err);
        *list = 0; /* a path that no list can have; opening it reports any other error */
        err = (struct ntx_err){0};
    }
    if (!o->respawn)
        return run_daemons(o, NULL, list);
    int rc = o->n_args ? ntx_err_set(&err, -EINVAL,
                                     "--respawn 'mpirun ... ntx up MODEL ...' starts all machines, this one, too: the "
                                     "model and its options belong into that command")
                       : ntx_respawn(o->respawn, &err);
    return rc ? ntx_fail(&err) : 0;
}

int ntx_cmd_serve(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_gateway_child *g = NULL;
    static char list[NTX_KNOWN_LIST];
    int rc = ntx_serve_list(o, list, &err);
    uint32_t rank;
    if (!rc && o->at_once > 1 && ntx_among_machines(&rank))
        rc = ntx_err_set(&err, -ENOTSUP, "--at-once: machines that share a model have one at a time");
    if (!rc)
        rc = ntx_gateway_child_new(&(struct ntx_gateway_options){o->listen,
                                                                 o->key_file,
                                                                 o->cors,
                                                                 o->hosts,
                                                                 o->stable,
                                                                 o->http_stall,
                                                                 o->keep_alive,
                                                                 o->manage,
                                                                 o->manage_key_file,
                                                                 o->image_hosts,
                                                                 {NULL}},
                                   &g, &err);
    return rc ? ntx_fail(&err) : run_daemons(o, g, list);
}

int ntx_cmd_load(struct ntx_options *o)
{
    struct ntx_err err = {0};
    struct ntx_model_files f = {0};
    struct ntx_client *c = NULL;
    int rc = ntx_model_files_load(o, &f, &err);
    if (!rc)
        rc = ntx_client_connect(o->socket, &c, &err);
    if (!rc)
        rc = ntx_load_model(c, o, &f, &err);
    ntx_client_free(c);
    ntx_model_files_close(&f);
    return rc ? ntx_fail(&err) : 0;
}

/* Connects, sends one request and returns the reply. */
static int request_once(const char *socket, Ntx__Request *q, int timeout_ms, Ntx__Reply **out)
{
    struct ntx_err err = {0};
    struct ntx_client *c = NULL;
    int rc = ntx_client_connect(socket, &c, &err);
    if (!rc)
        rc = send_simple(c, q, timeout_ms, out, &err);
    ntx_client_free(c);
    return rc ? ntx_fail(&err) : 0;
}

int ntx_cmd_unload(struct ntx_options *o)
{
    Ntx__Unload u = NTX__UNLOAD__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    q.body_case = NTX__REQUEST__BODY_UNLOAD;
    q.unload = &u;
    return request_once(o->socket, &q, 60000, NULL);
}

int ntx_cmd_stop(struct ntx_options *o)
{
    Ntx__Stop s = NTX__STOP__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    q.body_case = NTX__REQUEST__BODY_STOP;
    q.stop = &s;
    return request_once(o->socket, &q, 60000, NULL);
}

static void print_value(const char *key, const json_t *v)
{
    char *s = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(4)),
         name[64], line[1024];
    printf("%-22s %s\n", ntx_out_line(key, name, sizeof name),
           ntx_out_line(s ? s : json_string_value(v), line, sizeof line));
    free(s);
}

/* Also accepts a private run, whose daemons answer like others. */
static int request_status(const struct ntx_options *o, Ntx__Request *q, Ntx__Reply **out)
{
    struct ntx_err err = {0};
    struct ntx_where w;
    char path[256];
    if (o->socket)
        return request_once(o->socket, q, 5000, out);
    if (ntx_where(true, &w, &err))
        return ntx_fail(&err);
    snprintf(path, sizeof path, "%s/ntx.sock", w.dir);
    int code = request_once(path, q, 5000, out);
    if (!code && w.run && !o->json)
        printf("%-22s process %d, in %s\n", "private run", (int)w.run, w.dir);
    return code;
}

int ntx_cmd_status(struct ntx_options *o)
{
    Ntx__StatusReq s = NTX__STATUS_REQ__INIT;
    Ntx__Request q = NTX__REQUEST__INIT;
    Ntx__Reply *r = NULL;
    q.body_case = NTX__REQUEST__BODY_STATUS;
    q.status = &s;
    int code = request_status(o, &q, &r);
    if (code)
        return code;
    if (r->body_case != NTX__REPLY__BODY_STATUS) {
        ntx__reply__free_unpacked(r, NULL);
        return ntx_fail(
            &(struct ntx_err){-EPROTO, "the daemon's answer is no status; are ntx and the daemons of one version?"});
    }
    json_t *j = json_loads(r->status->json, 0, NULL);
    const char *key;
    json_t *v;
    if (o->json)
        ntx_out_json_text(r->status->json);
    else
        json_object_foreach(j, key, v)
            print_value(key, v);
    json_decref(j);
    ntx__reply__free_unpacked(r, NULL);
    return 0;
}
