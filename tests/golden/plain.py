# SPDX-License-Identifier: Apache-2.0
"""plain.py: logits by transformers of models that llama.cpp computes otherwise than they are defined.

That is llama, mistral3, deepseek2 and mistral4 with their own YaRN magnitude (yarn_attn_factor, which llama.cpp does
not read), gpt-oss with YaRN (llama.cpp rounds the ends of its ramp) and DeepSeek-V2 with groups of experts (llama.cpp
chooses them as DeepSeek-V3 does). Used by make.py and shapes.py, and by itself:

  plain.py MODEL.gguf ID [ID ...]               prints the logits of the last token, one per line
  plain.py MODEL.gguf --routers ID [ID ...]     per layer and token, the gap between the last chosen expert and the next

It needs torch, transformers 5.23 or later, and gguf. No biases, no groups that differ between the two, F32.
"""

import sys

import torch
import transformers

import qwen4
from qwen4 import File, logits


def rope(f, **more):
    r = {'rope_type': f.key('rope.scaling.type', 'default'), 'rope_theta': f.key('rope.freq_base'), **more}
    if r['rope_type'] == 'yarn':
        r.update(
            factor=f.key('rope.scaling.factor'),
            original_max_position_embeddings=f.key('rope.scaling.original_context_length'),
        )
        if f.key('rope.scaling.yarn_attn_factor') is not None:
            r['attention_factor'] = f.key('rope.scaling.yarn_attn_factor')
    return r


def common(f):
    return dict(
        vocab_size=int(f.tensors['token_embd.weight'].shape[1]),
        hidden_size=f.key('embedding_length'),
        num_hidden_layers=f.key('block_count') - f.key('nextn_predict_layers', 0),
        num_attention_heads=f.key('attention.head_count'),
        rms_norm_eps=f.key('attention.layer_norm_rms_epsilon'),
        intermediate_size=f.key('feed_forward_length'),
        max_position_embeddings=f.key('context_length'),
        tie_word_embeddings=False,
        attention_bias=False,
    )


def halves(x, heads, rotated=0):
    """Rows of heads whose rotated part lies in adjacent pairs, as in halves."""
    y = x.reshape(heads, -1, x.shape[-1]).clone()
    r = rotated or y.shape[1]
    part = y[:, -r:].reshape(heads, r // 2, 2, x.shape[-1])
    y[:, -r:] = part.transpose(1, 2).reshape(heads, r, x.shape[-1])
    return y.reshape(x.shape)


def llama(f, to):
    c = transformers.LlamaConfig if f.arch == 'llama' else transformers.Ministral3Config
    more = {'head_dim': f.key('attention.key_length', f.key('embedding_length') // f.key('attention.head_count'))}
    scaled = f.key('attention.temperature_scale')
    config = c(
        **common(f),
        **more,
        num_key_value_heads=f.key('attention.head_count_kv'),
        hidden_act='silu',
        rope_parameters=rope(
            f,
            **({'llama_4_scaling_beta': scaled} if scaled else {}),
            **({'mscale': 1.0, 'mscale_all_dim': f.key('rope.scaling.yarn_log_multiplier')} if scaled else {}),
        ),
    )
    for l in range(config.num_hidden_layers):
        at, b = 'model.layers.%d.' % l, 'blk.%d.' % l
        for name, heads in ('q', config.num_attention_heads), ('k', config.num_key_value_heads):
            to[at + 'self_attn.%s_proj.weight' % name] = halves(f[b + 'attn_%s.weight' % name], heads)
        to[at + 'self_attn.v_proj.weight'] = f[b + 'attn_v.weight']
        to[at + 'self_attn.o_proj.weight'] = f[b + 'attn_output.weight']
        for name in 'gate', 'up', 'down':
            to[at + 'mlp.%s_proj.weight' % name] = f[b + 'ffn_%s.weight' % name]
    return (transformers.LlamaForCausalLM if f.arch == 'llama' else transformers.Ministral3ForCausalLM)(config)


def expert_bias(f):
    return any(name.endswith('exp_probs_b.bias') for name in f.tensors)


def is_v2(f):
    return f.arch == 'deepseek2' and f.key('expert_gating_func', 1) == 1 and not expert_bias(f)


def experts_config(f):
    groups = f.key('expert_group_count', 1)
    if not is_v2(f):
        return dict(
            n_group=groups,
            topk_group=f.key('expert_group_used_count', 1),
            norm_topk_prob=bool(f.key('expert_weights_norm', False)),
        )
    assert not f.key('expert_weights_norm')
    return dict(
        n_group=groups,
        topk_group=f.key('expert_group_used_count', 1),
        topk_method='group_limited_greedy' if groups > 1 else 'greedy',
    )


def gpt_oss(f, to):
    config = transformers.GptOssConfig(
        **{**common(f), 'attention_bias': True, 'intermediate_size': f.key('expert_feed_forward_length')},
        num_key_value_heads=f.key('attention.head_count_kv'),
        head_dim=f.key('attention.key_length'),
        num_local_experts=f.key('expert_count'),
        num_experts_per_tok=f.key('expert_used_count'),
        sliding_window=f.key('attention.sliding_window'),
        rope_parameters=rope(f, truncate=False),
    )
    for l in range(config.num_hidden_layers):
        at, b = 'model.layers.%d.' % l, 'blk.%d.' % l
        for what in 'weight', 'bias':
            for name, mine in ('q', 'attn_q'), ('k', 'attn_k'), ('v', 'attn_v'), ('o', 'attn_output'):
                to[at + 'self_attn.%s_proj.%s' % (name, what)] = f[b + '%s.%s' % (mine, what)]
            to[at + 'mlp.router.' + what] = f[b + 'ffn_gate_inp.' + what]
            both = torch.stack([f[b + 'ffn_gate_exps.' + what], f[b + 'ffn_up_exps.' + what]], 2).flatten(
                1, 2
            )  # [experts x 2 ff ...], by turns
            to[at + 'mlp.experts.gate_up_proj' + ('' if what == 'weight' else '_bias')] = (
                both.transpose(1, 2) if what == 'weight' else both
            )
        to[at + 'mlp.experts.down_proj'] = f[b + 'ffn_down_exps.weight'].transpose(1, 2)
        to[at + 'mlp.experts.down_proj_bias'] = f[b + 'ffn_down_exps.bias']
        to[at + 'self_attn.sinks'] = f[b + 'attn_sinks.weight']
    return transformers.GptOssForCausalLM(config)


def latent(f, to):
    four, two = f.arch == 'mistral4', is_v2(f)
    nope = f.key('attention.key_length_mla', f.key('attention.key_length')) - f.key('rope.dimension_count')
    value, heads = f.key('attention.value_length_mla', f.key('attention.value_length')), f.key('attention.head_count')
    r = rope(
        f, partial_rotary_factor=f.key('rope.dimension_count') / (nope + f.key('rope.dimension_count')) if four else 1.0
    )
    if f.key('rope.scaling.yarn_log_multiplier'):
        by = 10 * f.key('rope.scaling.yarn_log_multiplier')
        r.update(mscale=by if two else 1.0, mscale_all_dim=by)  # V2's are alike
    if four:
        r.update(llama_4_scaling_beta=f.key('attention.temperature_scale', 0.0))
        steps = f.key('attention.temperature_length', r.get('original_max_position_embeddings', 8192))
        if r['rope_type'] == 'default':  # transformers turns whole heads then: a factor of 1 says the same as none
            r.update(rope_type='yarn', factor=1.0, original_max_position_embeddings=steps)
        assert not r['llama_4_scaling_beta'] or r['original_max_position_embeddings'] == steps, (
            'transformers has one length for steps and for YaRN'
        )
    if two:
        transformers.DeepseekV2Config.validate_architecture = lambda self: (
            None
        )  # it wants heads to fill the width, though nothing depends on that
    config = (
        transformers.Mistral4Config if four else transformers.DeepseekV2Config if two else transformers.DeepseekV3Config
    )(
        **common(f),
        num_key_value_heads=heads,
        n_routed_experts=f.key('expert_count'),
        num_experts_per_tok=f.key('expert_used_count'),
        n_shared_experts=f.key('expert_shared_count'),
        moe_intermediate_size=f.key('expert_feed_forward_length'),
        first_k_dense_replace=f.key('leading_dense_block_count'),
        routed_scaling_factor=f.key('expert_weights_scale', 1.0),
        **experts_config(f),
        kv_lora_rank=f.key('attention.kv_lora_rank'),
        q_lora_rank=f.key('attention.q_lora_rank'),
        qk_nope_head_dim=nope,
        qk_rope_head_dim=f.key('rope.dimension_count'),
        v_head_dim=value,
        rope_parameters=r,
    )
    for l in range(config.num_hidden_layers):
        at, b = 'model.layers.%d.' % l, 'blk.%d.' % l
        a = at + 'self_attn.'
        if config.q_lora_rank:
            to[a + 'q_a_proj.weight'], to[a + 'q_a_layernorm.weight'] = (
                f[b + 'attn_q_a.weight'],
                f[b + 'attn_q_a_norm.weight'],
            )
            to[a + 'q_b_proj.weight'] = f[b + 'attn_q_b.weight']
        else:
            to[a + 'q_proj.weight'] = f[b + 'attn_q.weight']
        to[a + 'kv_a_proj_with_mqa.weight'], to[a + 'kv_a_layernorm.weight'] = (
            f[b + 'attn_kv_a_mqa.weight'],
            f[b + 'attn_kv_a_norm.weight'],
        )
        if b + 'attn_kv_b.weight' in f.tensors:
            to[a + 'kv_b_proj.weight'] = f[b + 'attn_kv_b.weight']
        else:  # [heads x kv_lora x nope] and [heads x value x kv_lora]
            to[a + 'kv_b_proj.weight'] = torch.cat(
                [f[b + 'attn_k_b.weight'].transpose(1, 2), f[b + 'attn_v_b.weight']], 1
            ).reshape(-1, config.kv_lora_rank)
        to[a + 'o_proj.weight'] = f[b + 'attn_output.weight']
        if l < config.first_k_dense_replace:
            for name in 'gate', 'up', 'down':
                to[at + 'mlp.%s_proj.weight' % name] = f[b + 'ffn_%s.weight' % name]
            continue
        m = at + 'mlp.'
        to[m + 'gate.weight'] = f[b + 'ffn_gate_inp.weight']
        if not four and not two:
            bias = b + 'exp_probs_b.bias'
            to[m + 'gate.e_score_correction_bias'] = (
                f[bias] if bias in f.tensors else torch.zeros(config.n_routed_experts)
            )
        to[m + 'experts.gate_up_proj'] = (
            f[b + 'ffn_gate_up_exps.weight']
            if b + 'ffn_gate_up_exps.weight' in f.tensors
            else torch.cat([f[b + 'ffn_gate_exps.weight'], f[b + 'ffn_up_exps.weight']], 1)
        )
        to[m + 'experts.down_proj'] = f[b + 'ffn_down_exps.weight']
        for name in 'gate', 'up', 'down':
            to[m + 'shared_experts.%s_proj.weight' % name] = f[b + 'ffn_%s_shexp.weight' % name]
    return (
        transformers.Mistral4ForCausalLM
        if four
        else transformers.DeepseekV2ForCausalLM
        if two
        else transformers.DeepseekV3ForCausalLM
    )(config)


def load(path):
    f = File(path)
    to = {
        'model.embed_tokens.weight': f['token_embd.weight'],
        'model.norm.weight': f['output_norm.weight'],
        'lm_head.weight': f['output.weight' if 'output.weight' in f.tensors else 'token_embd.weight'],
    }
    model = (llama if f.arch in ('llama', 'mistral3') else gpt_oss if f.arch == 'gpt-oss' else latent)(f, to).eval()
    model.config._attn_implementation = 'eager'
    for l in range(model.config.num_hidden_layers):
        to['model.layers.%d.input_layernorm.weight' % l] = f['blk.%d.attn_norm.weight' % l]
        to['model.layers.%d.post_attention_layernorm.weight' % l] = f[
            ('blk.%d.post_attention_norm.weight' if f.arch == 'gpt-oss' else 'blk.%d.ffn_norm.weight') % l
        ]
    model.load_state_dict(to, strict=True)
    return model


def logits_f16kv(model, ids):
    """K and V rounded to F16, as caches have them."""
    module = sys.modules[type(model).__module__]
    plain = module.eager_attention_forward
    module.eager_attention_forward = lambda m, q, k, v, *a, **kw: plain(
        m, q, k.half().float(), v.half().float(), *a, **kw
    )
    try:
        return logits(model, ids)
    finally:
        module.eager_attention_forward = plain


def round_inputs(model):
    """As qwen4.round_inputs, and inputs of gpt-oss's last matrices of experts."""
    qwen4.round_inputs(model)
    for m in model.modules():
        if hasattr(m, '_apply_gate'):
            m._apply_gate = lambda x, plain=m._apply_gate: qwen4.q8_0(plain(x))


def margins(model, ids):
    """{layer: of each token}"""
    out = {}

    def look(l):
        def hook(module, args, result):
            score = torch.sort(
                result[0].float().softmax(-1) if 'Mistral4' in type(module).__name__ else result[0].float().sigmoid(),
                descending=True,
            )[0]
            out[l] = (
                (score[:, module.top_k - 1] - score[:, module.top_k])
                if module.top_k < score.shape[1]
                else torch.full(score.shape[:1], float('inf'))
            )

        return hook

    for l, layer in enumerate(model.model.layers):
        if hasattr(layer.mlp, 'gate'):
            layer.mlp.gate.register_forward_hook(look(l))
    logits(model, ids)
    return out


if __name__ == '__main__':
    model = load(sys.argv[1])
    if sys.argv[2] == '--routers':
        for l, m in margins(model, [int(i) for i in sys.argv[3:]]).items():
            print(l, ' '.join('%.2g' % v for v in m))
    else:
        for v in logits(model, [int(i) for i in sys.argv[2:]])[-1]:
            print('%.7g' % v)
