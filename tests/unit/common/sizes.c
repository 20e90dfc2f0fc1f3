/* SPDX-License-Identifier: Apache-2.0 */
/* A size that is printed for a command line is read back as the same size. */
#include "common/util.h"
#include "tests/lib/check.h"

static void check_back(uint64_t bytes)
{
    char text[32];
    uint64_t back = ~bytes;
    ntx_format_exact(bytes, text, sizeof text);
    CHECK_MSG(!ntx_parse_size(text, &back) && back == bytes, "%llu became '%s', and that %llu",
              (unsigned long long)bytes, text, (unsigned long long)back);
    CHECK_MSG(strlen(text) <= 20 && strspn(text, "0123456789KMGT") == strlen(text), "'%s'", text);
}

static void test_words(void)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } some[] = {{0, "0"},           {1023, "1023"},           {1024, "1K"},
                {3ull << 30, "3G"}, {2765ull << 20, "2765M"}, {14863117, "14863117"},
                {5ull << 40, "5T"}, {5000ull << 40, "5000T"}};
    char text[32];
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        CHECK_STR(ntx_format_exact(some[i].bytes, text, sizeof text), some[i].text);
}

int main(void)
{
    test_words();
    for (uint64_t mib = 0; mib < 100000; mib++)
        check_back(mib << 20);
    for (unsigned shift = 0; shift < 53; shift++)
        for (uint64_t near = 0; near < 64; near++)
            check_back((1ull << shift) + near - 32 * (shift > 5));
    uint64_t some = 1;
    for (unsigned i = 0; i < 100000; i++) { /* any number of bytes up to 2^50 */
        some = some * 6364136223846793005u + 1442695040888963407u;
        check_back(some >> 14);
    }
    return 0;
}
