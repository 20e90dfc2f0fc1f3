/* SPDX-License-Identifier: Apache-2.0 */
/* The time that a template writes is that of its conversation's beginning. */
#include "computed/engine/starts.h"
#include "tests/lib/check.h"

static const struct ntx_chat_msg system_text = {.role = "system", .text = "s", .len = 1},
                                 first = {.role = "user", .text = "a", .len = 1},
                                 other = {.role = "user", .text = "b", .len = 1},
                                 answer = {.role = "assistant", .text = "x", .len = 1},
                                 later = {.role = "user", .text = "y", .len = 1};

static int64_t begins(struct ntx_starts *s, struct ntx_chat_msg m, int64_t now)
{
    const struct ntx_chat_msg msgs[] = {system_text, m};
    return ntx_starts_time(s, msgs, 2, now);
}

static int64_t goes_on(struct ntx_starts *s, struct ntx_chat_msg m, int64_t now)
{
    const struct ntx_chat_msg msgs[] = {system_text, m, answer, later};
    return ntx_starts_time(s, msgs, 4, now);
}

int main(void)
{
    struct ntx_starts s = {.lock = PTHREAD_MUTEX_INITIALIZER};
    CHECK_EQ(ntx_starts_time(NULL, &first, 1, 7), 7);
    CHECK_EQ(begins(&s, first, 1000), 1000);
    CHECK_EQ(begins(&s, other, 1050), 1050);
    CHECK_EQ(goes_on(&s, first, 1100), 1000);
    CHECK_EQ(goes_on(&s, other, 1100), 1050);
    CHECK_EQ(begins(&s, first, 1200), 1200); /* the same words begin another conversation */
    CHECK_EQ(goes_on(&s, first, 1300), 1200);
    CHECK_EQ(goes_on(&s, first, 1200 + NTX_STARTS_LIFE), 1200);
    CHECK_EQ(goes_on(&s, first, 1201 + NTX_STARTS_LIFE), 1201 + NTX_STARTS_LIFE);
    CHECK_EQ(goes_on(&s, first, 1201 + NTX_STARTS_LIFE + 5), 1201 + NTX_STARTS_LIFE);
    CHECK_EQ(goes_on(&s, later, 500000), 500000); /* its beginning was not seen */
    CHECK_EQ(goes_on(&s, later, 500009), 500000);
    CHECK_EQ(goes_on(&s, later, 400000), 400000); /* the clock was set back */
    for (int i = 0; i < (int)NTX_STARTS - 1; i++) {
        char text[8];
        const size_t n = (size_t)snprintf(text, sizeof text, "%d", i);
        begins(&s, (struct ntx_chat_msg){.role = "user", .text = text, .len = n}, 600000 + i);
    }
    CHECK_EQ(goes_on(&s, other, 600500), 600500); /* it gave way */
    return 0;
}
