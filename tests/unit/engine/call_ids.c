/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of calls in nine letters and digits, for templates that refuse others. */
#include <ctype.h>
#include <jansson.h>

#include "computed/engine/call_ids.h"
#include "tests/lib/check.h"

static struct ntx_chat_msg message(const char *role, const char *fields)
{
    return (struct ntx_chat_msg){.role = role, .text = "", .fields = fields, .n_fields = fields ? strlen(fields) : 0};
}

static const char *id_of(const struct ntx_chat_msg *m, size_t call, char out[16])
{
    json_t *j = json_loadb(m->fields, m->n_fields, 0, NULL),
           *id = strcmp(m->role, "tool") ? json_object_get(json_array_get(json_object_get(j, "tool_calls"), call), "id")
                                         : json_object_get(j, "tool_call_id");
    CHECK_MSG(json_is_string(id) && json_string_length(id) < 16, "%.*s", (int)m->n_fields, m->fields);
    strcpy(out, json_string_value(id));
    json_decref(j);
    return out;
}

static void check_form(const char *id)
{
    size_t n = 0;
    while (isalnum((unsigned char)id[n]))
        n++;
    CHECK_MSG(n == 9 && !id[9], "'%s'", id);
}

static void with_ids(void)
{
    struct ntx_chat_msg m[] = {message("user", NULL),
                               message("assistant",
                                       "{\"tool_calls\":[{\"id\":\"call_1\",\"function\":{\"name\":\"f\",\"arguments\":"
                                       "{\"id\":\"kept\"}}},{\"id\":\"abcDEF123\",\"function\":{\"name\":\"g\"}}]}"),
                               message("tool", "{\"tool_call_id\":\"call_1\",\"name\":\"f\"}"),
                               message("tool", "{\"tool_call_id\":\"abcDEF123\"}"), message("assistant", NULL)};
    struct ntx_call_ids made;
    char a[16], b[16];
    CHECK(ntx_call_ids_shorten(m, 5, &made));
    check_form(id_of(&m[1], 0, a));
    CHECK_STR(id_of(&m[2], 0, b), a);
    CHECK_STR(id_of(&m[1], 1, a), "abcDEF123");
    CHECK_STR(id_of(&m[3], 0, b), a);
    CHECK(strstr(m[1].fields, "\"kept\"") && strstr(m[2].fields, "\"name\":\"f\"") && !m[0].fields && !m[4].fields);
    ntx_call_ids_free(&made);
}

static void without_ids(void)
{
    struct ntx_chat_msg m[] = {
        message("assistant", "{\"tool_calls\":[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\"}}]}"),
        message("tool", NULL), message("tool", "{\"name\":\"g\"}"),
        message("assistant", "{\"tool_calls\":[{\"id\":\"\",\"function\":{\"name\":\"f\"}}]}"), message("tool", NULL)};
    struct ntx_call_ids made;
    char id[5][16];
    CHECK(ntx_call_ids_shorten(m, 5, &made));
    CHECK_STR(id_of(&m[1], 0, id[1]), id_of(&m[0], 0, id[0]));
    CHECK_STR(id_of(&m[2], 0, id[3]), id_of(&m[0], 1, id[2]));
    CHECK_STR(id_of(&m[4], 0, id[1]), id_of(&m[3], 0, id[4]));
    check_form(id[0]), check_form(id[2]), check_form(id[4]);
    CHECK(strcmp(id[0], id[2]) && strcmp(id[0], id[4]));
    ntx_call_ids_free(&made);
    struct ntx_chat_msg none[] = {message("user", NULL), message("assistant", "{\"reasoning_content\":\"x\"}")};
    CHECK(!ntx_call_ids_shorten(none, 2, &made));
    ntx_call_ids_free(&made);
}

int main(void)
{
    with_ids();
    without_ids();
    return 0;
}
