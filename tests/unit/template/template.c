/* SPDX-License-Identifier: Apache-2.0 */
/* Templates rendered as transformers renders them: the cases of cases.json, whose outputs Jinja made (make_cases.py).
 * With arguments TEMPLATE VARIABLES (files) it renders these instead: the text goes to standard output, an error to
 * standard error with exit 1; with a third, VARIABLES has an object per line, and for each a line of JSON goes to
 * standard output. */
#include <jansson.h>

#include "model/template/template.h"
#include "tests/lib/check.h"

#define NOW 1767225600 /* 2026-01-01 00:00 UTC, as in oracle.py */

static char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f, "%s", path);
    char *text = NULL;
    size_t n = 0, k;
    do {
        text = realloc(text, n + 65537);
        k = fread(text + n, 1, 65536, f);
        n += k;
    } while (k);
    fclose(f);
    text[n] = 0;
    *len = n;
    return text;
}

static int render(const char *text, size_t len, const char *variables, size_t n, struct ntx_template_text *out,
                  struct ntx_err *err)
{
    struct ntx_template_limits limits = {.now = NOW};
    struct ntx_template *t;
    int rc = ntx_template_parse(text, len, &t, err);
    if (rc)
        return rc;
    rc = ntx_template_render(t, variables, n, &limits, out, err);
    ntx_template_free(t);
    return rc;
}

static int by_hand(char **argv)
{
    struct ntx_err err = {0};
    struct ntx_template_text out;
    size_t len, n;
    char *text = read_file(argv[1], &len), *variables = read_file(argv[2], &n);
    int rc = render(text, len, variables, n, &out, &err);
    if (rc) {
        fprintf(stderr, "%s\n", err.text);
    } else {
        fwrite(out.text, 1, out.len, stdout);
        free(out.text);
    }
    free(text);
    free(variables);
    return rc ? 1 : 0;
}

static int by_lines(char **argv)
{
    size_t len, n;
    char *text = read_file(argv[1], &len), *lines = read_file(argv[2], &n), *save = NULL;
    for (char *l = strtok_r(lines, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        struct ntx_err err = {0};
        struct ntx_template_text out = {0};
        int rc = render(text, len, l, strlen(l), &out, &err);
        json_t *j = rc ? json_pack("{s:s}", "error", err.text) : json_pack("{s:s%}", "text", out.text, out.len);
        char *shown = json_dumps(j, 0);
        puts(shown ? shown : "{\"error\": \"not UTF-8\"}");
        free(shown);
        json_decref(j);
        free(out.text);
    }
    free(text);
    free(lines);
    return 0;
}

static bool run_case(json_t *c, const char *variables)
{
    struct ntx_err err = {0};
    struct ntx_template_text out = {0};
    const char *text = json_string_value(json_object_get(c, "template")),
               *want = json_string_value(json_object_get(c, "want"));
    int rc = render(text, strlen(text), variables, strlen(variables), &out, &err);
    bool right = want ? !rc && !strcmp(out.text, want) : rc < 0 && err.text[0];
    if (!right)
        fprintf(stderr, "template: %s\nwanted: %s\ngot:    %s\n\n", text, want ? want : "(an error)",
                rc ? err.text : out.text);
    if (!rc)
        free(out.text);
    return right;
}

int main(int argc, char **argv)
{
    char path[4096];
    json_error_t bad;
    setenv("TZ", "UTC", 1);
    if (argc == 4)
        return by_lines(argv);
    if (argc == 3)
        return by_hand(argv);
    CHECK(getenv("NTX_SOURCE"));
    snprintf(path, sizeof path, "%s/tests/unit/template/cases.json", getenv("NTX_SOURCE"));
    json_t *all = json_load_file(path, 0, &bad), *cases = json_object_get(all, "cases");
    CHECK_MSG(json_is_array(cases), "%s: %s", path, bad.text);
    char *variables = json_dumps(json_object_get(all, "variables"), 0);
    size_t wrong = 0, i;
    json_t *c;
    json_array_foreach(cases, i, c)
        wrong += !run_case(c, variables);
    printf("%zu cases, %zu wrong\n", json_array_size(cases), wrong);
    CHECK(json_array_size(cases) > 100 && !wrong);
    free(variables);
    json_decref(all);
    return 0;
}
