# SPDX-License-Identifier: Apache-2.0
"""qwen4.py: logits of a qwen4exp model by transformers, the reference for it.

llama.cpp says that its own implementation is no reference. Used by make.py, and by itself:

  qwen4.py MODEL.gguf ID [ID ...]     prints the logits of the last token, one per line

It needs torch, transformers 5.23 or later, and gguf. What the file's converter did to the weights is undone: value
heads are ordered by key head again, and 1 is taken off the scales of norms.
"""

import sys

import gguf
import numpy as np
import torch
import transformers


class File:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}
        self.arch = self.reader.fields['general.architecture'].contents()

    def key(self, suffix, default=None):
        f = self.reader.fields.get(self.arch + '.' + suffix)
        return default if f is None else f.contents()

    def __getitem__(self, name):
        t = self.tensors[name]
        x = gguf.quants.dequantize(t.data, t.tensor_type)
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32).reshape([int(n) for n in reversed(t.shape)]))


def config(f):
    layers, ratios = f.key('block_count'), f.key('attention.compress_ratios')
    heads = f.key('ple.head_vocab_sizes', [])
    return transformers.models.qwen4_exp.Qwen4ExpTextConfig(
        vocab_size=int(f.tensors['token_embd.weight'].shape[1]),
        hidden_size=f.key('embedding_length'),
        num_hidden_layers=layers,
        num_attention_heads=f.key('attention.head_count'),
        num_key_value_heads=f.key('attention.head_count_kv'),
        head_dim=f.key('attention.key_length'),
        rms_norm_eps=f.key('attention.layer_norm_rms_epsilon'),
        layer_types=['indexed_attention' if r else 'linear_attention' for r in ratios[:layers]],
        hidden_act='silu',
        output_gate_type='sigmoid',
        tie_word_embeddings=False,
        linear_conv_kernel_dim=f.key('ssm.conv_kernel'),
        linear_key_head_dim=f.key('ssm.state_size'),
        linear_value_head_dim=f.key('ssm.state_size'),
        linear_num_key_heads=f.key('ssm.group_count'),
        linear_num_value_heads=f.key('ssm.time_step_rank'),
        moe_intermediate_size=f.key('expert_feed_forward_length'),
        shared_expert_intermediate_size=f.key('expert_shared_feed_forward_length'),
        num_experts=f.key('expert_count'),
        num_experts_per_tok=f.key('expert_used_count'),
        norm_topk_prob=True,
        rope_parameters={
            'rope_type': 'default',
            'rope_theta': f.key('rope.freq_base'),
            'partial_rotary_factor': f.key('rope.dimension_count') / f.key('attention.key_length'),
            'mrope_section': f.key('rope.dimension_sections')[:3],
            'mrope_interleaved': True,
        },
        hc_count=f.key('hyper_connection.count'),
        hc_lowrank=f.key('hyper_connection.low_rank'),
        indexer_n_heads=f.key('attention.indexer.head_count'),
        indexer_kv_heads=1,
        indexer_head_dim=f.key('attention.indexer.key_length'),
        indexer_budget=f.key('attention.indexer.top_k'),
        indexer_compress_ratio=max(ratios),
        ple_layer_ids=[n + 1 for n in f.key('ple.layers', [])],
        ple_conv_kernel_size=f.key('ple.conv_kernel', 4),
        ngram_size=f.key('ple.ngram_size', 3),
        heads_per_ngram=f.key('ple.heads_per_ngram', 8),
        ngram_vocab_size_base=heads[0] if heads else 2,
        eos_token_id=f.key('ple.eos_token_id', 2),
        max_position_embeddings=f.key('context_length'),
    )


def by_key_head(x, c, width, dim=0):
    """Heads of values, which lie one of each key head after the other, so that those of a key head are neighbours."""
    keys, each = c.linear_num_key_heads, c.linear_num_value_heads // c.linear_num_key_heads
    x = x.transpose(0, dim)
    return x.reshape(each, keys, width, *x.shape[1:]).transpose(0, 1).reshape(x.shape).transpose(0, dim).contiguous()


def streams(f, to, at, name, head=False):
    to[at + 'hc_norm.weight'] = f[name + '_norm.weight'].flatten() - 1
    to[at + 'input_mix_weight_down.weight'] = f[name + '_down.weight']
    to[at + 'input_mix_weight_up.weight'] = f[name + '_up.weight']
    if not head:
        to[at + 'block_inject_weight.weight'] = f[name + '_inject.weight']


def delta(f, c, to, at, b):
    width, keys = c.linear_value_head_dim, 2 * c.linear_num_key_heads * c.linear_key_head_dim
    for name, mine in (('in_proj_qkv', 'attn_qkv'), ('conv1d', 'ssm_conv1d')):
        x = f[b + mine + '.weight']
        x = torch.cat([x[:keys], by_key_head(x[keys:], c, width)])
        to[at + name + '.weight'] = x.unsqueeze(1) if name == 'conv1d' else x
    to[at + 'in_proj_z.weight'] = by_key_head(f[b + 'attn_gate.weight'], c, width)
    to[at + 'in_proj_b.weight'] = by_key_head(f[b + 'ssm_beta.weight'], c, 1)
    to[at + 'in_proj_a.weight'] = by_key_head(f[b + 'ssm_alpha.weight'], c, 1)
    to[at + 'dt_bias'] = by_key_head(f[b + 'ssm_dt.bias'], c, 1)
    to[at + 'A_log'] = by_key_head(torch.log(-f[b + 'ssm_a'].flatten()), c, 1)
    to[at + 'norm.weight'] = f[b + 'ssm_norm.weight']
    to[at + 'out_proj.weight'] = by_key_head(f[b + 'ssm_out.weight'], c, width, 1)


def attention(f, to, at, b):
    for name, mine in (('q_proj', 'attn_q'), ('k_proj', 'attn_k'), ('v_proj', 'attn_v'), ('o_proj', 'attn_output')):
        to[at + name + '.weight'] = f[b + mine + '.weight']
    for name in 'q', 'k':
        to[at + name + '_norm.weight'] = f[b + 'attn_%s_norm.weight' % name] - 1
        to[at + 'indexer.%s_layernorm.weight' % name] = f[b + 'indexer.%s_norm.weight' % name] - 1
    to[at + 'indexer.index_qk_proj.weight'] = torch.cat(
        [f[b + 'indexer.q_proj.weight'], f[b + 'indexer.k_proj.weight']]
    )


def experts(f, to, at, b):
    gate_up = (
        f[b + 'ffn_gate_up_exps.weight']
        if b + 'ffn_gate_up_exps.weight' in f.tensors
        else torch.cat([f[b + 'ffn_gate_exps.weight'], f[b + 'ffn_up_exps.weight']], 1)
    )
    to[at + 'gate.weight'] = f[b + 'ffn_gate_inp.weight']
    to[at + 'experts.gate_up_proj'] = gate_up
    to[at + 'experts.down_proj'] = f[b + 'ffn_down_exps.weight']
    to[at + 'shared_expert_gate.weight'] = f[b + 'ffn_gate_inp_shexp.weight'].reshape(1, -1)
    for name in 'gate', 'up', 'down':
        to[at + 'shared_expert.%s_proj.weight' % name] = f[b + 'ffn_%s_shexp.weight' % name]


def grams(f, to, at, b):
    for name in 'key', 'value':
        to[at + name + '_proj.weight'] = f[b + 'ple_%s.weight' % name]
    for name in 'key', 'query', 'conv':
        to[at + 'norm_%s.weight' % name] = f[b + 'ple_norm_%s.weight' % name].flatten() - 1
    to[at + 'conv1d.weight'] = f[b + 'ple_conv1d.weight'].unsqueeze(1)
    e = at + 'ple_embedding.'
    to[e + 'ngram_embedding.weight'] = f['per_layer_token_embd.weight']
    to[e + 'layer_multipliers'] = torch.tensor(f.key('ple.layer_multipliers'), dtype=torch.long)
    to[e + 'ngram_heads_offsets'] = torch.tensor(f.key('ple.head_offsets'), dtype=torch.long)
    to[e + 'ngram_heads_vocab_sizes'] = torch.tensor(f.key('ple.head_vocab_sizes'), dtype=torch.long)


def load(path):
    f = File(path)
    c = config(f)
    c._attn_implementation = 'eager'
    to = {
        'model.embed_tokens.weight': f['token_embd.weight'],
        'lm_head.weight': f['output.weight' if 'output.weight' in f.tensors else 'token_embd.weight'],
    }
    streams(f, to, 'model.hyper_connection_mixer.', 'output_hc', head=True)
    for l, kind in enumerate(c.layer_types):
        at, b = 'model.layers.%d.' % l, 'blk.%d.' % l
        streams(f, to, at + 'attn_hyper_connection.', b + 'hc_attn')
        streams(f, to, at + 'mlp_hyper_connection.', b + 'hc_ffn')
        if kind == 'linear_attention':
            delta(f, c, to, at + 'linear_attn.', b)
        else:
            attention(f, to, at + 'self_attn.', b)
        experts(f, to, at + 'mlp.', b)
        if l + 1 in c.ple_layer_ids:
            grams(f, to, at + 'ple.', b)
    model = transformers.models.qwen4_exp.Qwen4ExpForCausalLM(c).eval()
    table = (
        to.get('model.layers.%d.ple.ple_embedding.ngram_embedding.weight' % (c.ple_layer_ids[0] - 1))
        if c.ple_layer_ids
        else None
    )
    if table is not None:  # heads of the file need not be primes that follow one another
        model.model.layers[c.ple_layer_ids[0] - 1].ple.ple_embedding.ngram_embedding = torch.nn.Embedding(*table.shape)
    model.load_state_dict(to, strict=True)
    return model


def q8_0(x):
    """As blocks of 32 values with a scale in F16 have them."""
    b = x.reshape(*x.shape[:-1], -1, 32)
    d = b.abs().amax(-1, keepdim=True) / 127
    return (torch.round(b / torch.where(d == 0, 1, d)) * d.half().float()).reshape(x.shape)


def round_inputs(model):
    """Rounds inputs of a quantised model's matrices, except of those in F32, and of experts' down matrices."""
    for name, m in model.named_modules():
        small = name.endswith(('block_inject_weight', 'in_proj_a', 'in_proj_b', 'shared_expert_gate'))
        if (isinstance(m, torch.nn.Linear) and not small) or name.endswith('.experts'):
            m.register_forward_pre_hook(lambda module, args: (q8_0(args[0]),) + args[1:])


def logits(model, ids):
    """[n_tokens x n_vocab] float32, in one pass"""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


if __name__ == '__main__':
    for v in logits(load(sys.argv[1]), [int(i) for i in sys.argv[2:]])[-1]:
        print('%.7g' % v)
