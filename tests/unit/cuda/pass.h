/* SPDX-License-Identifier: Apache-2.0 */
/* pass.h: the parts of test_cuda_pass that are in other files. */
#ifndef NTX_TESTS_UNIT_CUDA_PASS_H
#define NTX_TESTS_UNIT_CUDA_PASS_H

#include "tests/unit/cuda/device_rig.h"

/* ---- pass_kinds.c. Other files use its checks of models by kind, and of one model in all mixtures, with a bound on
 * the error of prompts relative to the largest logit. */
void pass_experts(struct world *w);
void pass_crowds(struct world *w);
void pass_architectures(struct world *w);
void pass_pooled(struct world *w);
struct mk_options pass_mla(const char *type, bool joined, uint32_t q_lora);
struct mk_options pass_choosing(const char *arch, const char *type, uint32_t most, uint32_t every);
struct mk_options pass_streamed(void);
void pass_mixtures(struct world *w, const struct mk_options *make, enum ntx_kv_type kv_type, const struct way *ways,
                   size_t n_ways, double prompts_off);

/* ---- pass_state.c */
void pass_skips(struct world *w);
void pass_trees(struct world *w);
void pass_windows(struct world *w);

#endif
