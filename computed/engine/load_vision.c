/* SPDX-License-Identifier: Apache-2.0 */
/* load_vision.c: the projector of a model that takes pictures (--mmproj FILE): it is opened and checked, its memory is
 * counted in the budget, and pictures go through it into the store of images (images.h). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/util.h"
#include "computed/engine/load.h"
#include "computed/pass/kv_form.h"
#include "computed/picture/picture.h"
#include "computed/vision/need.h"
#include "computed/weights/stage.h"
#include "model/digest.h"
#include "ntx_version.h"

/* Why this model takes no pictures here, or NULL. */
static const char *blind_reason(const struct ntx_loaded *l, const struct ntx_vision *v)
{
    const struct ntx_hparams *hp = &l->model->hp;
    const struct ntx_vision_text *text = ntx_vision_text(v);
    bool pools = hp->index.head > 0;
    for (uint32_t i = 0; i < hp->n_layers; i++)
        pools |= hp->pool[i] > 0;
    if (l->machines)
        return "several machines share it, and pictures need one that computes alone";
    if (text->mrope && pools)
        return "it finds keys by their positions, which pictures of this kind do not have";
    if (text->mrope && l->kv_form && l->kv_form->n_pairs)
        return "this --kv-type keeps biases of K apart by positions, which pictures do not have: use --kv-type f16";
    if (l->back.gpu && (text->bidirectional || ntx_vision_deep(v)))
        return "such pictures are computed by the CPU alone: use --backend cpu";
    return NULL;
}

/* ntx-iod takes the projector as a file of each copy of the model. */
bool ntx__load_vision_stream(struct ntx_loaded *l)
{
    const bool short_of_memory = !l->plan || l->plan->bytes_storage || l->plan->frames.n,
               one_more = l->n_fds + l->n_fds / l->n_files <= NTX_MAX_FILES;
    return l->vision && short_of_memory && one_more && ntx_vision_need_stream(&l->sight);
}

bool ntx__load_vision_shrink(struct ntx_loaded *l) { return l->vision && ntx_vision_need_shrink(&l->sight); }

int ntx__load_vision_no_room(const struct ntx_loaded *l, struct ntx_err *err)
{
    char text[sizeof err->text], size[32];
    memcpy(text, err->text, sizeof text);
    return ntx_err_set(err, err->code, "%s, or --mmproj off: the projector and its pictures take %s of it", text,
                       ntx_format_size(ntx__load_vision_bytes(l), size, sizeof size));
}

static int open_projector(const struct ntx_load_request *r, int *fd, struct ntx_err *err)
{
    *fd = open(r->set.mmproj, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return *fd < 0 ? ntx_err_set(err, -errno, "%s: cannot open the projector: %s", r->set.mmproj, strerror(errno)) : 0;
}

/* The name of all that rows depend on besides the picture. */
static int name_maker(struct ntx_loaded *l, char *of, size_t n, struct ntx_err *err)
{
    const struct ntx_picture_rule *u = ntx_vision_rule(l->vision);
    char digest[NTX_DIGEST_TEXT];
    struct ntx_gguf *g;
    int rc = ntx_gguf_open(&l->projector_fd, 1, NULL, &g, err);
    if (rc)
        return rc;
    if (!(rc = ntx_model_digest(g, &l->projector_fd, digest, err)))
        snprintf(of, n, "%s projector %s-%016" PRIx64 " fit %d %u %u %u %" PRIu64 " %" PRIu64 " %d %a %a %a %a %a %a",
                 NTX_BUILD, digest, ntx_model_keys(g), (int)u->fit, u->factor, u->size, u->tiles, u->min_pixels,
                 u->max_pixels, (int)u->filter, (double)u->mean[0], (double)u->mean[1], (double)u->mean[2],
                 (double)u->deviation[0], (double)u->deviation[1], (double)u->deviation[2]);
    ntx_gguf_free(g);
    return rc;
}

/* look: its header alone. */
static int open_tower(struct ntx_loaded *l, uint32_t threads, bool look, struct ntx_err *err)
{
    const struct ntx_vision_config c = {.fd = l->projector_fd,
                                        .text = l->model,
                                        .threads = threads,
                                        .look = look,
                                        .streams = l->sight.streams,
                                        .ram = l->sight.encode +
                                               (l->sight.streams ? l->sight.streamed : l->sight.resident)};
    ntx_vision_close(l->vision);
    l->vision = NULL;
    const uint32_t *n = l->model->hp.rope_sections;
    int rc = ntx_vision_open(&c, &l->vision, err);
    if (!rc && ntx_vision_text(l->vision)->mrope != (n[0] + n[1] + n[2] > 0))
        rc = ntx_err_set(err, -EINVAL,
                         "it is another model's: this one's pictures are placed by %s (rope.dimension_sections)",
                         n[0] + n[1] + n[2] ? "rows and columns" : "their order alone");
    if (rc)
        ntx_err_prefix(err, "the projector (--mmproj)");
    return rc;
}

int ntx__load_vision_open(struct ntx_load_request *r, struct ntx_loaded *l, uint32_t threads, uint64_t ram,
                          struct ntx_err *err)
{
    struct stat st;
    int rc = r->path && r->projector_fd < 0 && *r->set.mmproj && strcmp(r->set.mmproj, "off")
                 ? open_projector(r, &r->projector_fd, err)
                 : 0;
    if (rc || r->projector_fd < 0)
        return rc;
    l->projector_fd = r->projector_fd;
    l->projector_found = !*r->set.mmproj;
    r->projector_fd = -1;
    if (fstat(l->projector_fd, &st))
        return ntx_err_set(err, -errno, "the projector (--mmproj): %s", strerror(errno));
    l->projector_size = (uint64_t)st.st_size;
    if ((rc = open_tower(l, threads, true, err)) && l->projector_found) {
        ntx__load_vision_drop(l, err->text);
        *err = (struct ntx_err){0};
        return 0;
    }
    if (rc)
        return rc;
    const char *why = blind_reason(l, l->vision);
    if (!why)
        return ntx_vision_need_of(l->vision, ram, &l->sight, err);
    ntx__load_vision_drop(l, why);
    return 0;
}

void ntx__load_vision_drop(struct ntx_loaded *l, const char *why)
{
    snprintf(l->blind, sizeof l->blind, "%s", why);
    l->env.blind = l->blind;
    ntx_log(NTX_LOG_WARN, "the model cannot take pictures: %s", why);
    ntx_vision_close(l->vision);
    l->vision = NULL;
    l->sight = (struct ntx_vision_need){0};
}

uint64_t ntx__load_vision_bytes(const struct ntx_loaded *l) { return l->vision ? ntx_vision_need_bytes(&l->sight) : 0; }

/* ---- from a picture to rows; the reader's thread */

/* The rows must leave room in the context; else the tower would work in vain. */
static int check_rows(const struct ntx_loaded *l, uint32_t width, uint32_t height, const struct ntx_fitted *size,
                      struct ntx_err *err)
{
    const struct ntx_vision_grid grid = ntx_vision_grid_of(l->vision, size);
    const uint64_t tokens = ntx_vision_tokens(l->vision, &grid);
    if (tokens < l->env.ctx)
        return 0;
    return ntx_err_set(err, -E2BIG,
                       "%u x %u pixels become %" PRIu64
                       " tokens, and the context holds %u: make it smaller, or load the model with a larger --ctx",
                       width, height, tokens, l->env.ctx);
}

static int encode_picture(void *ctx, const void *data, size_t n, const atomic_bool *unwanted,
                          struct ntx_vision_rows *rows, struct ntx_err *err)
{
    const struct ntx_loaded *l = ctx;
    const struct ntx_picture_rule *rule = ntx_vision_rule(l->vision);
    struct ntx_picture picture;
    struct ntx_pixels pixels = {0};
    struct ntx_fitted size;
    uint64_t t0 = ntx_now_ns();
    int rc = ntx_picture_decode(data, n, l->sight.encode, &picture, err);
    if (rc)
        return rc;
    rc = ntx_picture_size(rule, picture.width, picture.height, &size, err);
    if (!rc)
        rc = check_rows(l, picture.width, picture.height, &size, err);
    if (!rc)
        rc = ntx_picture_pixels(rule, &picture, &pixels, err);
    if (!rc)
        ntx_log(NTX_LOG_DEBUG, "a picture of %u x %u pixels is encoded as one of %u x %u", picture.width,
                picture.height, size.width, size.height);
    ntx_picture_free(&picture);
    const uint64_t t1 = ntx_now_ns();
    if (!rc)
        rc = ntx_vision_encode(l->vision, &pixels, unwanted, rows, err);
    ntx_pixels_free(&pixels);
    if (!rc)
        ntx_log(NTX_LOG_DEBUG, "%" PRIu64 " rows of it: %.0f ms for its pixels, %.0f ms for its rows",
                ntx_vision_grid_rows(&rows->grid), (double)(t1 - t0) / 1e6, (double)(ntx_now_ns() - t1) / 1e6);
    return rc;
}

int ntx__load_vision_start(struct ntx_loaded *l, struct ntx_err *err)
{
    char of[512];
    int rc = l->vision ? open_tower(l, l->plan->threads, false, err) : 0;
    if (rc || !l->vision)
        return rc;
    const uint64_t state = l->set.state_max ? l->set.state_max : NTX_STATE_MAX;
    struct ntx_images_config c = {.encode = encode_picture,
                                  .ctx = l,
                                  .text = ntx_vision_text(l->vision),
                                  .n_embd = ntx_vision_n_embd(l->vision),
                                  .most = l->sight.store,
                                  .of = of,
                                  .dir = l->set.state,
                                  .most_file = state / NTX_IMAGES_SHARE};
    if ((rc = name_maker(l, of, sizeof of, err)))
        return rc;
    if ((rc = ntx_images_new(&c, &l->images, err)) && *c.dir) {
        ntx_log(NTX_LOG_WARN, "rows of pictures are not kept over restarts: %s", err->text);
        *err = (struct ntx_err){0};
        c.dir = "";
        rc = ntx_images_new(&c, &l->images, err);
    }
    l->env.images = l->images;
    l->env.rows_together = l->plan->max_rows;
    return rc;
}

void ntx__load_vision_build(struct ntx_loaded *l)
{
    if (l->vision && l->sight.streams)
        ntx_vision_stage(l->vision, ntx_stream_stage(l->stream), l->region.hdr->n_files - 1);
}

unsigned ntx_loaded_files(const struct ntx_loaded *l, int fds[NTX_MAX_FILES])
{
    const bool projector = l->region.hdr->n_stage_reads > 0;
    unsigned n = 0;
    for (unsigned i = 0; i < l->n_fds; i++) {
        fds[n++] = l->fds[i];
        if (projector && (i + 1) % l->n_files == 0)
            fds[n++] = l->projector_fd;
    }
    return n;
}

void ntx__load_vision_free(struct ntx_loaded *l)
{
    ntx_images_free(l->images);
    ntx_vision_close(l->vision);
    if (l->projector_fd >= 0)
        close(l->projector_fd);
}
