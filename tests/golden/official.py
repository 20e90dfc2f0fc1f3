#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""official.py BIN CONVERTER [--keep DIR] [FAMILY ...]: models as they are published, beside two other engines.

For each family a small random model of transformers' own class is saved as published models are, converted to GGUF by
llama.cpp's converter (CONVERTER is its convert_hf_to_gguf.py), and computed by transformers, by llama.cpp and by ntx,
1 token and 300. Heads, widths and windows are unusual on purpose, and windows are shorter than the texts. ntx computes
it twice, with all of the model in memory and with as little memory as it accepts; both must have the same bits.

A line says how far ntx's rows are from both, and these from each other, by the spread of all logits: the median row and
the worst one. A median beyond TOLERANCE fails. The worst row may be a near-tie of a router.

Not here, since a random configuration does not get through the converter and llama.cpp: qwen3vlmoe, bailingmoe2 and
cohere2moe, which golden.json has.

It needs numpy, torch, transformers 5.24 and llama-cpp-python 0.3.36 (make.py says how that is built); official_test.py
runs it in tests/run --long. Only two things of the converter are replaced: the name of the pre-tokenizer, which it
finds by a checksum of published vocabularies, and reading a vocabulary that is not in tokenizer.json.
"""

import json
import os
import random
import re
import runpy
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers

import make
import shapes

N_VOCAB, LENGTHS, TOLERANCE = 320, (1, 300), 2e-3
COMMON = dict(
    vocab_size=N_VOCAB,
    hidden_size=192,
    num_hidden_layers=5,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=64,
    intermediate_size=160,
    max_position_embeddings=512,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)


def default_rope(theta, **more):
    return {'rope_type': 'default', 'rope_theta': float(theta), **more}


def vision(**more):
    """The smallest tower, which is not converted."""
    return dict(depth=1, hidden_size=32, intermediate_size=32, num_heads=2, out_hidden_size=192, **more)


# name: the class (or its configuration's), the configuration's numbers, the name of its pre-tokenizer, and keys that
# published configurations have instead (None: they do not have it)
FAMILIES = {
    'granitehybrid': (
        'GraniteMoeHybridForCausalLM',
        dict(
            {k: v for k, v in COMMON.items() if k != 'head_dim'},
            layer_types=['mamba', 'mamba', 'attention', 'mamba', 'attention'],
            mamba_n_heads=12,
            mamba_d_head=32,
            mamba_expand=2,
            mamba_d_state=48,
            mamba_n_groups=1,
            mamba_d_conv=4,
            num_local_experts=6,
            num_experts_per_tok=3,
            shared_intermediate_size=96,
            position_embedding_type='nope',
            embedding_multiplier=3.0,
            residual_multiplier=0.4,
            attention_multiplier=0.1,
            logits_scaling=2.0,
            attention_bias=False,
        ),
        'refact',
        {'layer_types': ['mamba', 'mamba', 'attention', 'mamba', 'attention']},
    ),
    'falcon-h1': (
        'FalconH1ForCausalLM',
        dict(
            COMMON,
            num_hidden_layers=4,
            mamba_d_ssm=256,
            mamba_n_heads=8,
            mamba_d_head=32,
            mamba_n_groups=2,
            mamba_d_state=48,
            mamba_d_conv=4,
            mamba_rms_norm=True,
            mamba_norm_before_gate=False,
            embedding_multiplier=2.0,
            lm_head_multiplier=0.5,
            ssm_in_multiplier=1.2,
            ssm_out_multiplier=0.8,
            attention_in_multiplier=1.1,
            attention_out_multiplier=0.7,
            key_multiplier=0.9,
            mlp_multipliers=[0.8, 1.2],
            ssm_multipliers=[0.5, 1.1, 0.9, 1.2, 0.8],
        ),
        'falcon-h1',
    ),
    'nemotron_h_moe': (
        'NemotronHForCausalLM',
        dict(
            {k: v for k, v in COMMON.items() if k != 'num_hidden_layers'},
            ssm_state_size=48,
            mamba_num_heads=12,
            mamba_head_dim=32,
            n_groups=3,
            conv_kernel=4,
            layer_norm_epsilon=1e-5,
            use_mamba_kernels=False,
            layers_block_type=['linear_attention', 'moe', 'full_attention', 'linear_attention', 'moe'],
            n_routed_experts=9,
            num_experts_per_tok=4,
            moe_intermediate_size=96,
            moe_shared_expert_intermediate_size=160,
            moe_latent_size=64,
            routed_scaling_factor=2.5,
        ),
        'pixtral',
        {'hybrid_override_pattern': 'ME*ME', 'layers_block_type': None, 'num_hidden_layers': 5},
    ),
    'jamba': (
        'JambaForCausalLM',
        dict(
            {k: v for k, v in COMMON.items() if k not in ('head_dim', 'rms_norm_eps')},
            num_hidden_layers=6,
            rms_norm_eps=1e-5,
            attn_layer_period=3,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
            num_experts=5,
            num_experts_per_tok=2,
            mamba_d_state=12,
            mamba_dt_rank=20,
            use_mamba_kernels=False,
        ),
        'refact',
    ),
    'lfm2': (
        'Lfm2ForCausalLM',
        dict(
            COMMON,
            head_dim=32,
            layer_types=['conv', 'conv', 'full_attention', 'conv', 'full_attention'],
            conv_L_cache=3,
            norm_eps=1e-5,
            block_auto_adjust_ff_dim=False,
        ),
        'lfm2',
    ),
    'lfm2moe': (
        'Lfm2MoeForCausalLM',
        dict(
            {**COMMON, 'tie_word_embeddings': True},
            head_dim=32,
            layer_types=['conv', 'conv', 'full_attention', 'conv', 'full_attention'],
            conv_L_cache=3,
            norm_eps=1e-5,
            num_experts=9,
            num_experts_per_tok=3,
            moe_intermediate_size=96,
            num_dense_layers=2,
            norm_topk_prob=True,
            use_expert_bias=True,
        ),
        'lfm2',
    ),
    'qwen3vl': (
        'Qwen3VLForConditionalGeneration',
        {
            'text_config': dict(
                COMMON, rope_parameters=default_rope(5e6, mrope_section=[12, 10, 10], mrope_interleaved=True)
            ),
            'vision_config': vision(deepstack_visual_indexes=[0]),
        },
        'qwen2',
    ),
    'glm4v_moe': (
        'Glm4vMoeForConditionalGeneration',
        {
            'text_config': dict(
                COMMON,
                n_routed_experts=9,
                num_experts_per_tok=3,
                moe_intermediate_size=64,
                n_shared_experts=2,
                first_k_dense_replace=1,
                routed_scaling_factor=1.5,
                rope_parameters=default_rope(1e4, mrope_section=[6, 5, 5], partial_rotary_factor=0.5),
            ),
            'vision_config': vision(),
        },
        'glm4',
    ),
    'hunyuan-moe': (
        'HunYuanMoEV1ForCausalLM',
        dict(
            COMMON,
            head_dim=32,  # as wide as the model: the converter asks for that
            num_experts=9,
            moe_topk=[3] * 5,
            moe_intermediate_size=[160] * 5,
            num_shared_expert=[1] * 5,
        ),
        'hunyuan',
    ),
    'hy_v3': (
        'HYV3ForCausalLM',
        dict(COMMON, num_experts=9, num_experts_per_tok=3, moe_intermediate_size=96, num_shared_experts=2),
        'hunyuan-dense',
    ),
    'dots1': (
        'Dots1ForCausalLM',
        dict(
            COMMON,
            num_key_value_heads=6,
            n_routed_experts=9,
            num_experts_per_tok=3,
            moe_intermediate_size=96,
            n_shared_experts=2,
            first_k_dense_replace=2,
            scoring_func='sigmoid',
            norm_topk_prob=True,
            routed_scaling_factor=2.5,
            sliding_window=None,
        ),
        'qwen2',
    ),
    'ernie4_5-moe': (
        'Ernie4_5_MoeForCausalLM',
        dict(
            COMMON,
            head_dim=32,
            moe_num_experts=9,
            moe_k=3,
            moe_intermediate_size=80,
            moe_num_shared_experts=1,
            moe_layer_start_index=1,
        ),
        'qwen2',
    ),
    'seed_oss': ('SeedOssForCausalLM', dict(COMMON, num_attention_heads=10, head_dim=32), 'seed-coder'),
    'afmoe': (
        'AfmoeForCausalLM',
        dict(
            COMMON,
            num_hidden_layers=6,
            num_experts=9,
            num_experts_per_tok=3,
            moe_intermediate_size=96,
            num_shared_experts=2,
            num_dense_layers=2,
            route_scale=2.826,
            route_norm=True,
            score_func='sigmoid',
            sliding_window=24,
            mup_enabled=True,
        ),
        'afmoe',
    ),
    'exaone-moe': (
        'ExaoneMoeForCausalLM',
        dict(
            COMMON,
            num_hidden_layers=6,
            num_experts=9,
            num_experts_per_tok=3,
            moe_intermediate_size=96,
            num_shared_experts=2,
            sliding_window=24,
            rope_parameters=default_rope(1e6),
            scoring_func='sigmoid',
        ),
        'exaone-moe',
    ),
    'laguna': (
        'LagunaForCausalLM',
        dict(
            COMMON,
            num_hidden_layers=6,
            layer_types=['full_attention', *['sliding_attention'] * 3, 'full_attention', 'sliding_attention'],
            num_attention_heads_per_layer=[6, 8, 8, 8, 6, 8],
            num_experts=9,
            num_experts_per_tok=3,
            moe_intermediate_size=96,
            shared_expert_intermediate_size=128,
            moe_routed_scaling_factor=2.5,
            sliding_window=24,
            rope_parameters={
                'full_attention': {
                    'rope_type': 'yarn',
                    'rope_theta': 500000.0,
                    'factor': 4.0,
                    'original_max_position_embeddings': 128,
                    'beta_fast': 64.0,
                    'beta_slow': 1.0,
                    'attention_factor': 1.0,
                    'partial_rotary_factor': 0.5,
                },
                'sliding_attention': default_rope(1e4, partial_rotary_factor=1.0),
            },
        ),
        'laguna',
    ),
    'laguna-element': (
        'LagunaForCausalLM',
        dict(
            COMMON,
            layer_types=['full_attention'] * 5,
            gating='per-element',
            num_experts=9,
            num_experts_per_tok=3,
            moe_intermediate_size=96,
            shared_expert_intermediate_size=64,
            sliding_window=0,
            rope_parameters={'full_attention': default_rope(1e4, partial_rotary_factor=1.0)},
        ),
        'laguna',
    ),
    'apertus': ('ApertusForCausalLM', dict(COMMON, head_dim=32, num_attention_heads=6), 'tekken'),
    'cohere2': (
        'Cohere2ForCausalLM',
        dict(
            {k: v for k, v in COMMON.items() if k != 'rms_norm_eps'},
            head_dim=32,  # the converter asks for heads as wide as the model
            tie_word_embeddings=True,
            logit_scale=0.25,
            sliding_window=24,
            layer_norm_eps=1e-5,
            rope_parameters=default_rope(5e4),
        ),
        'command-r',
        {'rotary_pct': 1.0},
    ),
    'bailingmoe3': (
        'BailingHybridForCausalLM',
        dict(
            COMMON,
            rms_norm_eps=1e-6,  # transformers has this constant for lengths of q and k
            num_hidden_layers=6,
            num_key_value_heads=6,
            layer_group_size=3,
            head_dim=48,
            kv_lora_rank=64,
            q_lora_rank=None,
            qk_rope_head_dim=32,
            qk_nope_head_dim=64,
            v_head_dim=64,
            num_local_experts=12,
            num_experts_per_tok=3,
            n_group=4,
            topk_group=2,
            moe_intermediate_size=96,
            n_shared_experts=1,
            first_k_dense_replace=2,
            routed_scaling_factor=2.5,
            num_mtp_layers=0,
        ),
        'bailingmoe2',
        {
            'architectures': ['BailingMoeV3ForCausalLM'],
            'model_type': None,
            'no_kda_lora': True,
            'n_group': 4,
            'gated_attention_proj_granularity_type': 'head_wise',
            'head_dim': 48,
            'short_conv_kernel_size': 4,
            'moe_shared_expert_intermediate_size': 96,
            'num_shared_experts': 1,
            'num_experts': 12,
            'norm_topk_prob': True,
            'score_function': 'sigmoid',
            'num_nextn_predict_layers': 0,
        },
    ),
    'mimo2': (
        'MiMoV2FlashForCausalLM',
        dict(
            COMMON,
            num_hidden_layers=6,
            num_attention_heads=8,
            head_dim=96,
            v_head_dim=64,
            layer_types=['full_attention', *['sliding_attention'] * 3, 'full_attention', 'sliding_attention'],
            n_routed_experts=9,
            num_experts_per_tok=3,
            moe_intermediate_size=96,
            sliding_window=24,
            rope_parameters={
                'full_attention': default_rope(5e6, partial_rotary_factor=0.334),
                'sliding_attention': default_rope(1e4, partial_rotary_factor=0.334),
            },
        ),
        'qwen2',
        {
            'model_type': None,
            'rope_parameters': None,
            'rope_theta': 5e6,
            'swa_rope_theta': 1e4,
            'partial_rotary_factor': 0.334,
            'hybrid_layer_pattern': [0, 1, 1, 1, 0, 1],
            'swa_head_dim': 96,
            'swa_num_attention_heads': 8,
            'swa_num_key_value_heads': 4,
            'swa_v_head_dim': 64,
            'topk_method': 'noaux_tc',
            'scoring_func': 'sigmoid',
            'layernorm_epsilon': 1e-5,
        },
    ),
    'dbrx': (
        'DbrxForCausalLM',
        dict(
            vocab_size=N_VOCAB,
            d_model=192,
            n_heads=6,
            n_layers=5,
            max_seq_len=512,
            attn_config=dict(clip_qkv=1.5, kv_n_heads=2, rope_theta=5e5),
            ffn_config=dict(ffn_hidden_size=96, moe_num_experts=9, moe_top_k=3),
            rope_parameters=default_rope(5e5),
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        ),
        'dbrx',
        {'attn_config': {'clip_qkv': 1.5, 'kv_n_heads': 2, 'rope_theta': 5e5}},
    ),
    'grovemoe': (  # by its authors' formula, below; llama.cpp computes the smaller experts otherwise
        'Qwen3MoeForCausalLM',
        dict(COMMON, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=96, norm_topk_prob=True),
        'qwen2',
        {'architectures': ['GroveMoeForCausalLM'], 'model_type': None},
    ),
    'glm4': (
        'Glm4ForCausalLM',
        dict(
            COMMON,
            attention_bias=True,
            rope_parameters=default_rope(1e4, partial_rotary_factor=0.5),
            partial_rotary_factor=0.5,
        ),
        'glm4',
    ),
    'glm4v': (
        'Glm4vForConditionalGeneration',
        {
            'text_config': dict(
                {k: v for k, v in COMMON.items() if k != 'head_dim'},
                num_attention_heads=3,
                num_key_value_heads=1,
                rope_parameters=default_rope(1e4, mrope_section=[6, 5, 5], partial_rotary_factor=0.5),
            ),
            'vision_config': vision(),
        },
        'glm4',
    ),
}


def draw(name, shape, generator):
    """Values of a size that keeps all layers at work."""
    x = torch.randn(shape, generator=generator)
    if name.endswith(('A_log', 'dt_bias')):
        return 0.5 * x - 0.5
    if name.endswith(('alpha_p', 'alpha_n')):
        return 0.3 * x
    if name.endswith('sinks'):
        return 1 + x
    if 'bias' in name:
        return 0.2 * x
    if 'norm' in name:
        return 1 + 0.1 * x
    if 'embed_tokens' in name or 'word_embeddings' in name:
        return x
    return x / shape[-1] ** 0.5


class GroveExperts(torch.nn.Module):
    """Experts of GroveMoE (arXiv:2508.07785): each of the chosen ones, with its weight, and 0.05 times the smaller one
    that it shares with its neighbour. The converter has the numbers 2 and 0.05, and the width of a head."""

    def __init__(self, config):
        from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeMLP as Mlp

        super().__init__()
        n, self.used = config.num_experts, config.num_experts_per_tok
        self.gate = torch.nn.Linear(config.hidden_size, n, bias=False)
        self.experts = torch.nn.ModuleList(Mlp(config, config.moe_intermediate_size) for _ in range(n))
        self.chunk_experts = torch.nn.ModuleList(Mlp(config, config.head_dim) for _ in range(n // 2))

    def forward(self, hidden):
        x = hidden.flatten(0, -2)
        weights, chosen = self.gate(x).softmax(-1).topk(self.used)
        weights = weights / weights.sum(-1, keepdim=True)
        made = torch.stack([e(x) + 0.05 * self.chunk_experts[i // 2](x) for i, e in enumerate(self.experts)], 1)
        picked = made.gather(1, chosen[..., None].expand(-1, -1, x.shape[-1]))
        return (picked * weights[..., None]).sum(1).view(hidden.shape)


def random_model(name):
    cls, numbers = FAMILIES[name][:2]
    cls = getattr(transformers, cls)
    config = (cls if issubclass(cls, transformers.PreTrainedConfig) else cls.config_class)(**numbers)
    config.dtype = torch.float32
    torch.manual_seed(1)
    model = cls(config) if cls is not type(config) else transformers.AutoModelForCausalLM.from_config(config)
    if name == 'grovemoe':
        for layer in model.model.layers:
            layer.mlp = GroveExperts(config)
    model = model.float().eval()
    generator = torch.Generator().manual_seed(int.from_bytes(name.encode(), 'little') % 2**31)
    with torch.no_grad():
        for part, p in [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if 'bias' in n)]:
            p.copy_(draw(part, p.shape, generator))
    model.set_attn_implementation('eager')
    return model


def write_vocabulary(folder, named={}):
    """Each byte a token, a merge, and words to fill the rest, some of which have names."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokens = ['<pad>', '<s>', '</s>'] + list(bytes_to_unicode().values()) + ['th']
    tokens += [named.get(i, '<%d>' % i) for i in range(len(tokens), N_VOCAB)]
    added = [
        {'id': i, 'content': t, 'special': True, 'normalized': False, 'lstrip': False, 'rstrip': False}
        | {'single_word': False}
        for i, t in enumerate(tokens)
        if len(t) > 2 and t[0] == '<'
    ]
    bpe = {'type': 'BPE', 'vocab': {t: i for i, t in enumerate(tokens)}, 'merges': [['t', 'h']]}
    byte_level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True}
    whole = {'version': '1.0', 'added_tokens': added, 'pre_tokenizer': byte_level, 'decoder': byte_level, 'model': bpe}
    with open(os.path.join(folder, 'tokenizer.json'), 'w') as f:
        json.dump(whole, f)
    with open(os.path.join(folder, 'tokenizer_config.json'), 'w') as f:
        json.dump(
            {'tokenizer_class': 'PreTrainedTokenizerFast', 'bos_token': '<s>', 'eos_token': '</s>'}
            | {'pad_token': '<pad>'},
            f,
        )


def publish(folder, keys):
    """Rewrites config.json as it is published."""
    path = os.path.join(folder, 'config.json')
    with open(path) as f:
        config = json.load(f) | keys
    with open(path, 'w') as f:
        json.dump({k: v for k, v in config.items() if keys.get(k, k) is not None}, f)


def convert(converter, folder, pre, out, *options):
    """Runs the converter in this process. Next-token blocks, which transformers lacks, are left out."""
    home = os.path.dirname(converter)
    for path in (home, os.path.join(home, 'gguf-py')):
        if path not in sys.path:
            sys.path.insert(1, path)
    import conversion
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    with open(os.path.join(folder, 'config.json')) as f:
        arch = json.load(f)['architectures'][0]
    cls = conversion.get_model_class(arch)
    cls.set_vocab = lambda self: self._set_vocab_gpt2()
    argv, sys.argv = sys.argv, [converter, folder, '--outfile', out, '--outtype', 'f32']
    sys.argv += ['--no-mtp'] if cls.supports_mtp_export and '--mmproj' not in options else []
    sys.argv += options
    try:
        runpy.run_path(converter, run_name='__main__')
    finally:
        sys.argv = argv


def by_transformers(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def by_ntx(binaries, path, ids, out, *options):
    command = [os.path.join(binaries, 'ntx'), 'logits', path, '--tokens', ','.join(map(str, ids)), '-o', out]
    r = subprocess.run(command + ['--ctx', '512', *options], capture_output=True, text=True)
    if r.returncode:
        return None, r.stderr.strip()
    return np.fromfile(out, np.float32).reshape(len(ids), -1), ''


def least_memory(binaries, path, ids, out):
    """The smallest --ram in bytes, which ntx names where 1 MiB is not enough."""
    _, said = by_ntx(binaries, path, ids, out, '--ram', '1M')
    return re.search(r'would do is .*\((\d+) bytes\), of which', said).group(1)


def distances(a, b, spread):
    rows = np.sqrt(((a.astype(np.float64) - b) ** 2).mean(1)) / spread
    return float(np.median(rows)), float(rows.max())


def compare(binaries, name, model, path, tmp):
    """Prints the distances; true if they are near enough."""
    good, llama = True, make.load(path)
    for n in LENGTHS:
        r = random.Random(name)
        ids = [1] + [r.randrange(3, N_VOCAB) for _ in range(n - 1)]
        hf, cpp = by_transformers(model, ids), make.logits(llama, ids, batch=True)
        got, said = by_ntx(binaries, path, ids, os.path.join(tmp, 'logits'), '--ram', '1G')
        if got is None:
            print('FAIL  %-16s %s' % (name, said))
            good = False
            break
        least = least_memory(binaries, path, ids, os.path.join(tmp, 'x'))
        streamed, said = by_ntx(binaries, path, ids, os.path.join(tmp, 'x'), '--ram', least)
        same = streamed is not None and streamed.tobytes() == got.tobytes()
        far = [distances(a, b, hf.std()) for a, b in ((got, hf), (got, cpp), (cpp, hf))]
        ok = same and min(far[0][0], far[1][0]) < TOLERANCE and far[0][0] < max(TOLERANCE, 3 * far[2][0])
        good &= ok
        print(
            '%s  %-16s %3d tokens: ntx beside transformers %.2g (worst %.2g), beside llama.cpp %.2g (%.2g), these'
            ' %.2g (%.2g); with %s bytes %s'
            % (
                'ok  ' if ok else 'FAIL',
                name,
                n,
                *far[0],
                *far[1],
                *far[2],
                least,
                'the same' if same else said or 'OTHER',
            ),
            flush=True,
        )
    make.L.llama_model_free(llama)
    return good


def run(binaries, converter, name, keep):
    with tempfile.TemporaryDirectory() as tmp:
        folder, path = os.path.join(tmp, 'model'), os.path.join(keep or tmp, name + '.gguf')
        model = random_model(name)
        model.save_pretrained(folder)
        write_vocabulary(folder)
        publish(folder, *FAMILIES[name][3:] or ({},))
        convert(converter, folder, FAMILIES[name][2], path)
        return compare(binaries, name, model, path, tmp)


def run_apart(binaries, converter, name, keep):
    """In a process of its own, since llama.cpp ends the process where it refuses a graph."""
    child = os.fork()
    if not child:
        good = False
        try:
            good = run(binaries, converter, name, keep)
        except (Exception, SystemExit) as e:
            print('FAIL  %-16s %s: %s' % (name, type(e).__name__, str(e)[:600]), flush=True)
        os._exit(0 if good else 1)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended < 0:
        print('FAIL  %-16s signal %d' % (name, -ended), flush=True)
    return ended == 0


def main():
    argv, keep = sys.argv[1:], None
    if '--keep' in argv:
        at = argv.index('--keep')
        keep = argv[at + 1]
        del argv[at : at + 2]
    if len(argv) < 2 or set(argv[2:]) - set(FAMILIES):
        print(__doc__, file=sys.stderr)
        return 100
    warnings.simplefilter('ignore')
    transformers.logging.set_verbosity_error()
    make.L.llama_log_set(make.quiet, None)
    make.L.llama_backend_init()
    bad = [name for name in argv[2:] or FAMILIES if not run_apart(argv[0], os.path.abspath(argv[1]), name, keep)]
    print('%d families, %d failed%s' % (len(argv[2:] or FAMILIES), len(bad), ''.join(' ' + b for b in bad)))
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
