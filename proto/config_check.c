/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/config_check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/util.h"
#include "proto/frame.h"

#define MOST_ERRORS 200u /* that an exit status can tell */

static void say_error(const char *text) { fprintf(stderr, "%s\n", text); }

struct checking {
    const struct ntx_config *c;
    const struct ntx_config_checks *checks;
    struct ntx_config_errors *e;
};

#define LINE(k, section, key) ntx_config_line((k)->c, section, key)
#define REFUSE(k, line, ...)  ntx_config_refuse((k)->e, line, __VA_ARGS__)

static bool is_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return !strncmp(path, dir, n) && path[n] == '/';
}

static bool is_hidden(const struct checking *k, const char *path)
{
    static const char *const homes[] = {"/home", "/root", "/run/user"};
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++)
        if (k->checks->homes_hidden && is_below(path, homes[i]))
            return true;
    return false;
}

/* Opens a regular file; -1 after an error was reported. */
static int open_file(const struct checking *k, unsigned line, const char *key, const char *path)
{
    struct stat st;
    if (is_hidden(k, path)) {
        REFUSE(k, line,
               "%s: %s: the service does not see folders of users (ProtectHome=yes in its unit); move the file", key,
               path);
        return -1;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        REFUSE(k, line, "%s: %s: %s", key, path, strerror(errno));
    } else if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        REFUSE(k, line, "%s: %s: not a regular file", key, path);
        close(fd);
        fd = -1;
    }
    return fd;
}

static void check_gguf(const struct checking *k, unsigned line, const char *key, const char *path)
{
    char magic[4];
    int fd = open_file(k, line, key, path);
    if (fd >= 0 && (ntx_read_at(fd, magic, sizeof magic, 0) || memcmp(magic, "GGUF", 4)))
        REFUSE(k, line, "%s: %s: not a GGUF file", key, path);
    if (fd >= 0)
        close(fd);
}

static void check_lora(const struct checking *k)
{
    char name[NTX_LORA_NAME], path[NTX_OPTION_MAX];
    unsigned line = LINE(k, "model", "lora");
    struct ntx_err err = {0};
    for (unsigned i = 0; i < ntx_lora_files(k->c->load.lora); i++) {
        if (ntx_lora_file(k->c->load.lora, i, name, sizeof name, path, sizeof path, &err)) {
            REFUSE(k, line, "%s", err.text);
            return;
        }
        check_gguf(k, line, "lora", path);
    }
}

static void check_drafters(const struct checking *k)
{
    char path[NTX_OPTION_MAX];
    unsigned line = LINE(k, "model", "draft");
    struct ntx_err err = {0};
    for (unsigned i = 0; i < ntx_draft_files(k->c->load.draft); i++) {
        if (ntx_draft_file(k->c->load.draft, i, path, sizeof path, &err)) {
            REFUSE(k, line, "%s", err.text);
            return;
        }
        if (ntx_draft_self(path)) /* its path follows from the model's; the load says if it is missing */
            continue;
        int fd = open_file(k, line, "draft", path);
        if (fd >= 0)
            close(fd);
    }
}

/* A directory that is made at need: the nearest folder that exists counts, but systemd makes /var/lib/ntx. */
static void check_state(const struct checking *k)
{
    char path[NTX_OPTION_MAX + 1], *slash;
    const char *state = k->c->load.state;
    struct stat st;
    unsigned line = LINE(k, "prefix", "state");
    if (is_hidden(k, state)) {
        REFUSE(k, line, "state: %s: the service does not see folders of users (ProtectHome=yes in its unit)", state);
        return;
    }
    snprintf(path, sizeof path, "%s", state);
    while (stat(path, &st) && errno == ENOENT && (slash = strrchr(path, '/')) && slash != path)
        *slash = 0;
    if (is_below(state, "/var/lib/ntx") && strlen(path) < strlen("/var/lib/ntx"))
        return;
    if (!stat(path, &st) && !S_ISDIR(st.st_mode))
        REFUSE(k, line, "state: %s: not a directory", path);
    else if (access(path, W_OK | X_OK))
        REFUSE(k, line, "state: %s: no directory can be made or written there: %s", path, strerror(errno));
    else if (!strcmp(path, state) && st.st_mode & 077)
        REFUSE(k, line, "state: %s: other users have access to it; chmod 700 it", path);
}

static void check_known(const struct checking *k, unsigned line, const char *path)
{
    struct stat st;
    if (*path != '/')
        REFUSE(k, line, "models: '%s' is no absolute path; write [NAME=]PATH, several with commas between", path);
    else if (stat(path, &st) || !S_ISDIR(st.st_mode))
        check_gguf(k, line, "models", path);
    else if (is_hidden(k, path) || access(path, R_OK | X_OK))
        REFUSE(k, line, "models: %s: the service cannot look into this folder", path);
}

static void check_models(const struct checking *k)
{
    const unsigned line = LINE(k, "model", "models");
    char *list = strdup(k->c->models), *save;
    for (char *p = list ? strtok_r(list, ",", &save) : NULL; p; p = strtok_r(NULL, ",", &save)) {
        const char *equals = strchr(p, '='), *slash = strchr(p, '/');
        const char *path = equals && (!slash || equals < slash) ? equals + 1 : p + strspn(p, " ");
        if (*path)
            check_known(k, line, path);
    }
    free(list);
}

/* Files and settings of [model] and [prefix]. */
static void check_model(const struct checking *k)
{
    const struct ntx_config *c = k->c;
    if (access(k->e->path, R_OK))
        REFUSE(k, 0, "the service's user cannot read it: %s", strerror(errno));
    if (*c->model)
        check_gguf(k, LINE(k, "model", "path"), "path", c->model);
    if (*c->also && !*c->model)
        REFUSE(k, LINE(k, "model", "also"), "also: a copy of [model] path, which is not set");
    else if (*c->also)
        check_gguf(k, LINE(k, "model", "also"), "also", c->also);
    check_models(k);
    check_lora(k);
    check_drafters(k);
    if (*c->prefix_file) {
        int fd = open_file(k, LINE(k, "prefix", "file"), "file", c->prefix_file);
        if (fd >= 0)
            close(fd);
    }
    if (*c->load.state)
        check_state(k);
    else if (c->load.kv_ram)
        REFUSE(k, LINE(k, "prefix", "kv_ram"), "kv_ram: older keys and values need a directory: set state, too");
    if (c->max_per_user > c->max_clients)
        REFUSE(k, LINE(k, "clients", "per_user"), "per_user: %u are more than max, which is %u", c->max_per_user,
               c->max_clients);
    if (k->checks->model)
        k->checks->model(c, k->e);
}

static void check_gateway(const struct checking *k)
{
    if (k->checks->gateway)
        k->checks->gateway(k->c, k->e);
}

/* Runs a part of the check as another user, in a process of its own, where root calls it and that user exists. */
static void run_as(const char *user, void (*part)(const struct checking *k), const struct checking *k)
{
    const struct passwd *p = geteuid() ? NULL : getpwnam(user);
    int status;
    if (!p) {
        part(k);
        return;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        REFUSE(k, 0, "no process for the check: %s", strerror(errno));
    } else if (!pid) {
        k->e->n = 0;
        if (initgroups(p->pw_name, p->pw_gid) || setgid(p->pw_gid) || setuid(p->pw_uid))
            REFUSE(k, 0, "cannot check as user %s: %s", user, strerror(errno));
        else
            part(k);
        fflush(NULL);
        _exit((int)NTX_MIN(k->e->n, MOST_ERRORS));
    } else if (waitpid(pid, &status, 0) == pid) {
        k->e->n += WIFEXITED(status) ? (unsigned)WEXITSTATUS(status) : 1;
    }
}

/* Files are checked as the caller where he is not root: that may not be what the service may read. */
static void note_user(void)
{
    const struct passwd *service = getpwnam(NTX_CONF_USER);
    if (service && geteuid() && geteuid() != service->pw_uid)
        fprintf(stderr, "note: as root, this also checks that the user " NTX_CONF_USER " may read the files\n");
}

unsigned ntx_config_check(const char *path, const struct ntx_config_checks *checks)
{
    struct ntx_config_errors e = {.say = say_error};
    struct ntx_config c;
    struct ntx_err err = {0};
    if (ntx_config_read(path, &c, &e, &err)) {
        say_error(err.text);
        return 1;
    }
    const struct checking k = {&c, checks, &e};
    run_as(NTX_CONF_USER, check_model, &k);
    run_as(NTX_CONF_GATEWAY_USER, check_gateway, &k);
    ntx_config_free(&c);
    note_user();
    if (!e.n)
        printf("%s: ok\n", path);
    else
        fprintf(stderr, "%s: %u error%s\n", path, e.n, e.n > 1 ? "s" : "");
    return e.n;
}
