/* SPDX-License-Identifier: Apache-2.0 */
#include "computed/engine/run_stats.h"

#include "common/util.h"

void ntx_counts_now(const struct ntx_counters *c, struct ntx_counts *out)
{
    const uint64_t all = ntx_counter_get(c, NTX_C_iod_bytes_read),
                   others = ntx_counter_get(c, NTX_C_iod_bytes_host) + ntx_counter_get(c, NTX_C_iod_bytes_projector);
    *out = (struct ntx_counts){
        .passes = ntx_counter_get(c, NTX_C_comp_passes),
        .bytes_read = all > others ? all - others : 0,
        .reads = ntx_counter_get(c, NTX_C_iod_reads),
        .busy_ns = ntx_counter_get(c, NTX_C_iod_busy_ns),
        .stall_ns = ntx_counter_get(c, NTX_C_comp_stall_ns),
        .pass_ns = ntx_counter_get(c, NTX_C_comp_pass_ns),
        .expert_hits = ntx_counter_get(c, NTX_C_comp_expert_hits),
        .expert_misses = ntx_counter_get(c, NTX_C_comp_expert_misses),
        .prefetch_wanted = ntx_counter_get(c, NTX_C_comp_prefetch_wanted),
        .prefetch_right = ntx_counter_get(c, NTX_C_comp_prefetch_right),
        .prefetch_hits = ntx_counter_get(c, NTX_C_comp_prefetch_hits),
        .prefetch_bytes = ntx_counter_get(c, NTX_C_comp_prefetch_bytes),
        .prefetch_used_bytes = ntx_counter_get(c, NTX_C_comp_prefetch_used_bytes),
        .ffn_neurons = ntx_counter_get(c, NTX_C_comp_ffn_neurons),
        .ffn_active = ntx_counter_get(c, NTX_C_comp_ffn_active),
        .ffn_groups = ntx_counter_get(c, NTX_C_comp_ffn_groups),
        .ffn_groups_used = ntx_counter_get(c, NTX_C_comp_ffn_groups_used),
        .ffn_predicted = ntx_counter_get(c, NTX_C_comp_ffn_predicted),
        .ffn_predicted_wanted = ntx_counter_get(c, NTX_C_comp_ffn_predicted_wanted),
        .ffn_predicted_right = ntx_counter_get(c, NTX_C_comp_ffn_predicted_right),
        .ffn_between = ntx_counter_get(c, NTX_C_comp_ffn_between),
        .skip_early = ntx_counter_get(c, NTX_C_comp_skip_early),
        .skip_late = ntx_counter_get(c, NTX_C_comp_skip_late),
        .skip_wasted = ntx_counter_get(c, NTX_C_comp_skip_wasted),
        .rank_bytes = ntx_counter_get(c, NTX_C_comp_rank_bytes),
        .rank_wait_ns = ntx_counter_get(c, NTX_C_comp_rank_wait_ns),
    };
}

void ntx_run_admitted(struct ntx_run_stats *r, const struct ntx_counters *c)
{
    r->admitted_ns = ntx_now_ns();
    ntx_counts_now(c, &r->at_start);
}

void ntx_run_token(struct ntx_run_stats *r, const struct ntx_counters *c)
{
    r->last_ns = ntx_now_ns();
    if (!r->generated++) {
        r->first_ns = r->last_ns;
        ntx_counts_now(c, &r->at_first);
    }
}

void ntx_run_ended(struct ntx_run_stats *r, const struct ntx_counters *c)
{
    ntx_counts_now(c, &r->at_end);
    if (!r->admitted_ns)
        r->at_start = r->at_end;
    if (!r->last_ns)
        r->last_ns = ntx_now_ns();
}
