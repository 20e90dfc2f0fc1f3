/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile pictures: bombs, files that end too early, wrong bytes, and kinds that are not decoded. Each gets an error.
 * A process confined as the one that decodes can only compute. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sandbox.h"
#include "computed/picture/picture.h"
#include "tests/unit/picture/golden.h"

static const json_t *find_file(const json_t *golden, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(golden, "decode"), i, one)
        if (!strcmp(golden_text(one, "name"), name))
            return one;
    CHECK(!"no such picture");
    return NULL;
}

static void refuses(const void *data, size_t n, int code, const char *words)
{
    struct ntx_picture p = {1, 2, NULL};
    struct ntx_err err = {0};
    int rc = ntx_picture_decode(data, n, 0, &p, &err);
    if (rc != code || !strstr(err.text, words))
        printf("%d: %s\n", rc, err.text);
    CHECK_EQ(rc, code);
    CHECK(strstr(err.text, words));
    CHECK(p.width == 1 && p.height == 2);
}

/* Half a file is no picture. */
static void test_cut(const json_t *golden)
{
    static const char *const names[] = {"jpeg", "jpeg progressive", "png", "png interlaced", "webp", "gif", "bmp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n;
        uint8_t *file = golden_bytes(find_file(golden, names[i]), "file", &n);
        refuses(file, n * 3 / 4, -EINVAL, "damaged");
        refuses(file, 12, -EINVAL, "damaged");
        free(file);
    }
}

/* A few bytes that claim many pixels: the size is refused before memory is taken. */
static void test_bombs(const json_t *golden)
{
    size_t n;
    uint8_t *file = golden_bytes(find_file(golden, "gif"), "file", &n);
    memset(file + 6, 255, 4);
    refuses(file, n, -EFBIG, "65535 x 65535 pixels");
    free(file);
    file = golden_bytes(find_file(golden, "bmp"), "file", &n);
    memcpy(file + 18, "\x00\x7d\x00\x00\x00\x7d\x00\x00", 8); /* 32000 x 32000 */
    refuses(file, n, -EFBIG, "32000 x 32000 pixels");
    free(file);
    file = golden_bytes(find_file(golden, "jpeg"), "file", &n);
    for (size_t i = 0; i + 9 < n; i++)
        if (file[i] == 0xff && file[i + 1] == 0xc0) {
            memset(file + i + 5, 0xfa, 4);
            break;
        }
    refuses(file, n, -EFBIG, "64250 x 64250 pixels");
    free(file);
    /* a chunk that claims a gigabyte */
    file = golden_bytes(find_file(golden, "png"), "file", &n);
    memcpy(file + n - 12, "\x40\0\0\0eXIf", 8);
    refuses(file, n, -EINVAL, "ends too early");
    free(file);
}

static size_t make_bmp(uint8_t *file, uint32_t side)
{
    const size_t n = 54 + 3 * (size_t)side * side;
    memset(file, 77, n);
    memset(file, 0, 54);
    memcpy(file, "BM", 2);
    file[10] = 54;
    file[14] = 40;
    memcpy(file + 18, &side, 4);
    memcpy(file + 22, &side, 4);
    file[26] = 1;
    file[28] = 24;
    return n;
}

/* Pixels, and what else a library takes, stay within the bound. */
static void test_memory(const json_t *golden)
{
    enum { SIDE = 1000 };
    struct ntx_picture p = {1, 2, NULL};
    struct ntx_err err = {0};
    uint8_t *file = malloc(54 + 3 * SIDE * SIDE);
    const size_t n = make_bmp(file, SIDE);
    const uint64_t enough = n + 8ull * SIDE * SIDE + 8;
    CHECK_EQ(ntx_picture_decode(file, n, enough - 2000, &p, &err), -ENOMEM);
    CHECK_MSG(strstr(err.text, "1000 x 1000 pixels, and --ram leaves memory for 0 million"), "%s", err.text);
    CHECK_EQ(ntx_picture_decode(file, n, 1, &p, &err), -ENOMEM);
    CHECK_MSG(!ntx_picture_decode(file, n, enough, &p, &err), "%s", err.text);
    CHECK(p.width == SIDE && p.height == SIDE && p.rgb[0] == 77);
    ntx_picture_free(&p);
    free(file);
#ifndef NTX_SANITIZED
    size_t k; /* the rows of a progressive JPEG that claims to be large are wanted at once */
    file = golden_bytes(find_file(golden, "jpeg progressive"), "file", &k);
    for (size_t i = 0; i + 9 < k; i++)
        if (file[i] == 0xff && file[i + 1] == 0xc2) {
            memcpy(file + i + 5, "\x0f\xa0\x0f\xa0", 4); /* 4000 x 4000 */
            break;
        }
    CHECK_EQ(ntx_picture_decode(file, k, k + 8ull * 4000 * 4000 + 8, &p, &err), -EINVAL);
    CHECK_EQ(ntx_picture_decode(file, k, k + 3ull * 4000 * 4000 + 8, &p, &err), -ENOMEM);
    free(file);
#endif
}

static void test_kinds(void)
{
    static const char svg[] = "<svg xmlns=\"http://www.w3.org/2000/svg\"/>";
    refuses("%PDF-1.7\n", 9, -EINVAL, "a PDF");
    refuses("\0\0\0\x18"
            "ftypheic\0\0\0\0",
            16, -EINVAL, "HEIC");
    refuses("\0\0\0\x18"
            "ftypisom\0\0\0\0",
            16, -EINVAL, "video (MP4");
    refuses("RIFF\0\0\0\0WAVEfmt ", 16, -EINVAL, "audio (WAV)");
    refuses(svg, sizeof svg - 1, -EINVAL, "SVG");
    refuses("hello", 5, -EINVAL, "no JPEG, PNG, WebP, GIF or BMP");
    refuses("", 0, -EINVAL, "empty");
}

/* Wrong bytes anywhere: an error or a picture, and never the death of the process. */
static void test_noise(const json_t *golden)
{
    static const char *const names[] = {"jpeg", "png palette", "webp alpha", "gif", "bmp palette"};
    uint32_t x = 7;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int turn = 0; turn < 12; turn++) {
            size_t n;
            struct ntx_picture p;
            struct ntx_err err = {0};
            uint8_t *file = golden_bytes(find_file(golden, names[i]), "file", &n);
            for (int k = 0; k < 3; k++) {
                x = x * 1103515245u + 12345u;
                file[12 + (x >> 8) % (n - 12)] = (uint8_t)(x >> 24);
            }
            int rc = ntx_picture_decode(file, n, 0, &p, &err);
            CHECK(!rc || (err.text[0] && rc != -EIO && rc != -ETIMEDOUT));
            if (!rc)
                ntx_picture_free(&p);
            free(file);
        }
}

#ifndef NTX_SANITIZED /* whose runtimes need more */
/* In a process of its own: 0 if all is refused that decoding does not need. */
static int try_rights(void)
{
    struct ntx_sandbox needs = {.bare = true};
    struct ntx_err err = {0};
    int fds[2];
    if (ntx_sandbox(&needs, "/", &err))
        return 2;
    char *memory = malloc(1 << 20);
    if (!memory)
        return 3;
    if (open("/dev/null", O_RDONLY) >= 0 || socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || !pipe(fds) || fork() >= 0)
        return 4;
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        return 5;
    return kill(1, 0) && errno == EPERM ? 0 : 6;
}

static void test_sandbox(void)
{
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid)
        _exit(try_rights());
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
}
#else
static void test_sandbox(void) {}
#endif

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], NTX_PICTURE_PROCESS))
        return ntx_picture_process();
    json_t *golden = read_golden(argv[1]);
    test_cut(golden);
    test_bombs(golden);
    test_memory(golden);
    test_kinds();
    test_noise(golden);
    test_sandbox();
    json_decref(golden);
    return 0;
}
