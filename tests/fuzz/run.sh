#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh NAME SECONDS: runs one fuzzer for a while on inputs made on the spot. A crash leaves its input and fails.
# NTX_FUZZ_CORPUS=DIR: starts from the inputs in DIR, and keeps new ones there.
# NTX_FUZZ_TIMEOUT=SECONDS: time limit of one input; raise it where the machine pauses this process.
set -eu
name=$1 seconds=$2
fuzzer=$NTX_BUILD/tests/fuzz_$name
if [ ! -x "$fuzzer" ]; then
    echo "skipped: no clang with libFuzzer, so fuzz_$name was not built"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
corpus=${NTX_FUZZ_CORPUS:-$dir/found}
mkdir -p "$dir/corpus" "$corpus"

seeds_gguf() {
    # the whole header and a piece of data each; then a header of two keys and a tensor, for short inputs
    n=0
    for options in "--arch llama --rope-freqs --type IQ3_S --embd 256 --ff 256" "--arch qwen2 --tied --type IQ4_NL" \
        "--arch qwen3 --type Q8_0 --head-dim 32" \
        "--arch llama --type NVFP4 --embd 64 --ff 64 --scales" "--arch qwen3moe --experts 3 --expert-ff 32 --scales" \
        "--arch deepseek2 --kv-lora 32 --q-lora 32 --head-dim 32 --rotated 16 --scales" \
        "--arch qwen2moe --experts 3" "--arch gpt-oss --experts 3" "--arch glm4moe --experts 3 --nextn 1" \
        "--arch qwen35 --nextn 1" "--arch qwen3next --experts 3" "--arch minimax-m2 --experts 3" \
        "--arch step35 --experts 3 --window 7 --nextn 1 --qk-norms" "--arch olmoe --experts 3" "--arch smollm3" \
        "--arch mistral3 --rope-scaling yarn --rope-factor 4" "--arch granite" "--arch deepseek --experts 3" \
        "--arch deepseek2 --kv-lora 32 --q-lora 32 --head-dim 32 --rotated 16 --experts 4 --expert-groups 2 \
            --expert-groups-used 1 --nextn 1" "--arch deepseek2 --kv-lora 32 --head-dim 32 --rotated 16 \
            --kv-joined" "--arch deepseek32 --kv-lora 32 --q-lora 32 --head-dim 32 --rotated 16 --experts 4 \
            --index-head 16" "--arch glm-dsa --kv-lora 32 --q-lora 32 --head-dim 32 --rotated 16 --experts 4 \
            --index-head 16 --index-every 1" "--arch kimi-linear --layers 2 --attention-every 2 --kv-lora 32 \
            --head-dim 32 --rotated 16 --experts 3 --delta-head 16" "--arch glm5-next --layers 2 --attention-every 2 \
            --kv-lora 32 --q-lora 16 --head-dim 32 --experts 3 --delta-head 16 --index-head 16 --index-heads 2 \
            --nextn 1" "--arch qwen4exp --layers 2 --attention-every 2 --head-dim 16 --experts 3 --delta-head 16 \
            --index-head 16 --index-heads 2 --low-rank 4 --gram-layer 1" "--arch deepseek4 --layers 3 --heads 2 --kv 1 \
            --head-dim 16 --rotated 8 --q-lora 16 --experts 4 --expert-ff 32 --shared-ff 32 --hashed 1 --o-lora 16 \
            --index-head 16 --index-heads 2" "--arch hy_v4 --kv-lora 32 --q-lora 32 --head-dim 32 --rotated 16 \
            --experts 4 --index-heads 4 --index-head 16" "--arch mistral4 --kv-lora 32 --q-lora 32 --head-dim 32 \
            --rotated 16 --experts 4 --fused --temperature-length 9" "--arch dbrx --experts 3" \
        "--arch grok --experts 3" "--arch grovemoe --experts 4 --shared-ff 32" "--arch kimi-k3 --layers 3 \
            --attention-every 2 --kv-lora 32 --q-lora 32 --head-dim 32 --rotated 16 --experts 3 --delta-head 16 \
            --latent 16" "--arch gemma2" "--arch gemma3 --layers 6" \
        "--arch phi3 --rope-freqs --rope-orig 64" "--arch llama4 --experts 3" "--arch gemma4 \
            --layers 3 --layer-input 32" "--arch gemma4 --layers 3 --experts 3 --fused" "--arch eagle3 --taps 0,1,2 \
            --draft-vocab 40 --norm-before-fc" "--arch eagle3 --taps 0,1,2 --bare" \
        "--arch mmproj-qwen2vl_merger --state-width 16" \
        "--arch mmproj-qwen2.5vl_merger --state-width 16" "--arch mmproj-qwen3vl_merger --layers 3 --state-width 16" \
        "--arch mmproj-glm4v --state-width 16" "--arch mmproj-glm5v --state-width 16" \
        "--arch mmproj-kimik25 --state-width 16" "--arch mmproj-gemma4v --state-width 16" \
        "--arch mmproj-gemma3 --state-width 16" "--arch mmproj-pixtral --state-width 16" \
        "--arch mmproj-llama4 --state-width 16" "--arch mmproj-minimax_m3 --state-width 16" \
        "--arch mmproj-mimovl --layers 3 --state-width 16" "--arch mmproj-deepseek4v --state-width 16" \
        "--arch dflash --taps 0,1 --window 7"; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        "$NTX_BIN/ntx-mkmodel" --layers 1 --embd 32 --ff 32 --heads 2 --kv 1 $options "$dir/m.gguf" >"$dir/log"
        head -c 24000 "$dir/m.gguf" >"$dir/corpus/model$n"
    done
    for type in $("$NTX_BIN/ntx-mkmodel" --help | sed -n 's/^ *--type TYPE *(F32) //p'); do
        "$NTX_BIN/ntx-mkmodel" --layers 1 --embd 256 --ff 256 --heads 2 --kv 1 --type "$type" "$dir/m.gguf" >"$dir/log"
        head -c 24000 "$dir/m.gguf" >"$dir/corpus/type-$type"
    done
    for type in Q4_K Q5_K Q6_K Q5_0 Q8_0; do
        "$NTX_BIN/ntx-mkmodel" --layers 1 --embd 256 --ff 256 --heads 2 --kv 1 --type $type "$dir/m.gguf" >"$dir/log"
        "$NTX_BIN/ntx" pack "$dir/m.gguf" "$dir/p.gguf" --planes --quiet
        head -c 24000 "$dir/p.draft.gguf" >"$dir/corpus/high-$type"
        { head -c 16000 "$dir/p.gguf"; head -c 16000 "$dir/p.draft.gguf"; } >"$dir/corpus/pair-$type"
    done
    printf \
        'GGUF\3\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a\4\0\0\0\7\0\0\0\1\0\0\0\0\0\0\0b\11\0\0\0'\
'\10\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0x\2\0\0\0\0\0\0\0yz\1\0\0\0\0\0\0\0t\2\0\0\0\40\0\0\0\0\0\0\0\2\0\0\0\0'\
'\0\0\0\10\0\0\0\0\0\0\0\0\0\0\0' >"$dir/corpus/small"
    for word in GGUF general.architecture general.alignment llama qwen2 qwen3 .block_count .expert_count \
        .expert_used_count \
        clip clip.projector_type clip.use_silu qwen3vl_merger pixtral .image_size .patch_size .projection_dim \
        .spatial_merge_size .projector.scale_factor .image_max_pixels .n_wa_pattern v.patch_embd.weight mm.0.weight \
        v.position_embd.weight v.deepstack.1.fc1.weight mm.patch_merger.weight gemma4v \
        glm5v kimik25 .swiglu_clamp .image_min_pixels v.blk.0.attn_q.input_min v.std_scale mm.input_projection.weight \
        eagle3 dflash .target_layers .target_hidden_size .norm_before_residual .block_size \
        tokenizer.ggml.mask_token_id d2t qwen2moe qwen3moe gpt-oss glm4moe minimax-m2 step35 hy_v4 \
        .hyper_connection.magnitude .swiglu_clamp_shexp .rope.dimension_count_swa blk.0.attn_gate.weight olmoe smollm3 \
        mistral3 granite deepseek32 glm-dsa .attention.indexer.head_count .attention.indexer.key_length \
        .attention.indexer.top_k .attention.indexer.types indexer.k_norm.bias deepseek4 .attention.compress_ratios \
        .attention.output_group_count .attention.output_lora_rank .hyper_connection.count .hash_layer_count \
        .swiglu_clamp_exp blk.0.ffn_gate_tid2eid.weight output_hc_fn.weight attn_output_a.weight glm5-next \
        .attention.indexer.kpool .attention.indexer.kpool_select_tail .kda.gate_lower_bound \
        indexer_compressor_ape.weight kimi-linear .kda.head_dim ssm_conv1d_q.weight qwen4exp \
        .hyper_connection.low_rank .ple.layers .ple.ngram_size .ple.heads_per_ngram .ple.conv_kernel .ple.eos_token_id \
        .ple.layer_multipliers .ple.head_offsets .ple.head_vocab_sizes per_layer_token_embd.weight ple_conv1d.weight \
        hc_attn_inject.weight indexer.k_proj.weight output_hc_up.weight qwen35 qwen3next .ssm.conv_kernel \
        .ssm.state_size .ssm.time_step_rank .ssm.group_count .ssm.inner_size .full_attention_interval \
        .attention.recurrent_layers .rope.dimension_sections ssm_conv1d.weight deepseek2 .attention.kv_lora_rank \
        .attention.key_length_mla .attention.value_length_mla .expert_group_count .expert_group_used_count \
        attn_kv_b.weight attn_k_b.weight mistral4 .attention.temperature_length gemma2 gemma3 gemma4 phi3 llama4 \
        blk.0.attn_qkv.weight rope_factors_long.weight .interleave_moe_layer_step .attention.shared_kv_layers \
        .attention.key_length_swa .embedding_length_per_layer_input blk.0.ffn_gate_up_exps.weight \
        per_layer_model_proj.weight .rope.freq_base_swa .final_logit_softcapping .attention.sliding_window_pattern \
        post_ffw_norm.weight .residual_scale .attention.temperature_scale .rope.scaling.yarn_log_multiplier \
        .leading_dense_block_count .nextn_predict_layers .expert_shared_count exp_probs_b.bias nextn.eh_proj.weight \
        .attention.sliding_window attn_sinks.weight ffn_up_exps.bias .expert_feed_forward_length \
        blk.0.ffn_gate_exps.weight .rope.scaling.type yarn \
        .attention.head_count_kv tokenizer.ggml.tokens token_embd.weight blk.0.attn_q.weight blk.0.attn_q.scale \
        blk.0.ffn_down_exps.scale blk.0.attn_output.input_scale output.scale split.count; do
        echo "\"$word\""
    done >"$dir/words"
}

seeds_body() {
    printf \
        '\0{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"n":2,"stop":["x"],"stream":true,'\
'"stream_options":{"include_usage":true},"seed":-5}' >"$dir/corpus/chat"
    printf '\1{"prompt":["a",[1,2]],"max_tokens":5,"temperature":0.5,"top_p":0.9,"logit_bias":{}}' >"$dir/corpus/text"
    printf \
        '\2{"max_tokens":5,"system":"s","messages":[{"role":"user","content":"a"}],"stop_sequences":["x"],'\
'"thinking":{"type":"disabled"}}' >"$dir/corpus/messages"
    printf '\4{"messages":[{"role":"user","content":"a"}],"options":{"num_predict":-1,"top_k":3}}' >"$dir/corpus/ollama"
    printf '\5{"prompt":"a","raw":true,"stream":false}' >"$dir/corpus/generate"
    for word in messages role content user assistant system developer type text prompt stop n stream temperature \
        max_tokens options num_predict response_format tool_choice; do
        echo "\"\\\"$word\\\"\""
    done >"$dir/words"
}

seeds_grammar() {
    printf '\1root ::= "a" x? [b-d]{2,40} # c\nx ::= ~"<e>" @"<e>" | %%json {"type":"integer"}\0a1bcd' \
        >"$dir/corpus/text"
    printf \
        '\0{"type":"object","properties":{"a":{"$ref":"#/$defs/d"},"b":{"enum":[1,"x"]}},"required":["a"],'\
'"additionalProperties":{},"$defs":{"d":{"type":"string","pattern":"^a+$"}}}\0{"a":"aa"}' >"$dir/corpus/object"
    printf \
        '\0{"anyOf":[{"type":"array","items":{"type":"number","minimum":-1.5},"maxItems":30},'\
'{"type":"string","format":"date"},{"allOf":[{"type":"null"}]}]}\0[1,2]' >"$dir/corpus/union"
    for word in type object array string integer number properties required additionalProperties items prefixItems \
        minItems maxItems enum const anyOf oneOf allOf '$ref' '#/$defs/d' \
        pattern format minLength maxLength minimum maximum exclusiveMinimum multipleOf '::=' '%json' root; do
        echo "\"$word\""
    done >"$dir/words"
}

seeds_frame() {
    # a stream of two frames, a request of each kind with a body, a reply, and the peers' messages
    printf '\0\3\4\0\0\0\10\1\62\0\4\0\0\0\10\2\62\0' >"$dir/corpus/stream"
    printf '\1\10\1\22\16\12\6a.gguf\20\200\200\4\30\40' >"$dir/corpus/load"
    printf '\1\10\2\42\25\20\1\32\3abc\60\1\102\1\n\132\7\15\315\314\114\77\20\50' >"$dir/corpus/generate"
    printf '\1\10\1\22\22\12\1a\252\1\2/b\142\1c\342\2\4hole' >"$dir/corpus/copies"
    long=$(printf '%05000d' 0) # what is too long, or too many
    printf '\1\10\1\22\213\47\12\210\47%s' "$long" >"$dir/corpus/name"
    printf '\1\10\1\22\214\47\252\1\210\47%s' "$long" >"$dir/corpus/copy"
    printf '\1\10\3\42\316\1\42\313\1\12\310\1%.200s' "$long" >"$dir/corpus/role"
    { printf '\1\10\3\42\214\1'; printf '\102\0%.0s' $(seq 70); } >"$dir/corpus/stops"
    printf '\1\10\3\42\14\42\12\12\4user\22\2hi' >"$dir/corpus/chat"
    printf '\1\10\4\102\5\12\3\1\2\3' >"$dir/corpus/logits"
    printf '\1\10\5\112\7\12\3\1\2\3\20\1' >"$dir/corpus/score"
    printf '\2\10\1\52\5\10\7\22\1a' >"$dir/corpus/token"
    printf '\2\10\1\102\6\22\4\0\0\200\77' >"$dir/corpus/row"
    printf '\3\10\7\20\1\32\16\12\3iod\20\1\32\5build' >"$dir/corpus/hello"
    printf '\3\10\7\20\2\42\13\20\200\200\200\4\30\200\200\40\42\0' >"$dir/corpus/config"
    printf '\3\10\7\20\3\112\13\10\1\20\2\30\3\40\0\52\1\50' >"$dir/corpus/decision"
    printf '"iod"\n"predictor"\n"\\x08\\x01"\n"\\x32\\x00"\n"\\xff\\xff\\xff\\x7f"\n' >"$dir/words"
}

seeds_config() {
    # the shipped file with all its keys made real, and a few lines for short inputs
    sed 's/^#\([a-z]\)/\1/' "$NTX_SOURCE/deploy/ntx.conf" >"$dir/corpus/shipped"
    printf '[model]\nram = 3G\nctx = 5\n' >"$dir/corpus/small"
    printf '[links]\nnvme = 3.3G\n[clients]\nqueue_wait = no\nmax = 7\n' >"$dir/corpus/links"
    for word in '[model]' '[links]' '[clients]' '[metrics]' path ram ctx threads sessions rows backend kernel source \
        skip nvme max per_user idle stall admin group queue_wait stop_grace listen auto cuda; do
        echo "\"$word\""
    done >"$dir/words"
}

made_seeds() { # by the fuzzer itself
    NTX_FUZZ_SEEDS=$dir/corpus "$fuzzer" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
    echo '"ntx"' >"$dir/words" # libFuzzer takes no empty dictionary
}
seeds_attach() { made_seeds; }
seeds_region() { made_seeds; }
seeds_ring() { made_seeds; }
seeds_monitor() { made_seeds; }
seeds_drafts() { made_seeds; }
seeds_drafters() { made_seeds; }
seeds_prefixes() { (cd "$dir" && made_seeds); }

seeds_pictures() { # small ones of each kind
    python3 - "$NTX_SOURCE/tests/golden/pictures.json" "$dir/corpus" <<'END'
import base64, json, sys
for n, one in enumerate(json.load(open(sys.argv[1]))["decode"]):
    open("%s/%d" % (sys.argv[2], n), "wb").write(base64.b64decode(one["file"]))
END
    for word in IHDR IDAT IEND PLTE tRNS eXIf VP8 VP8L VP8X ANIM ANMF ALPH EXIF GIF89a GIF87a Exif 'II*' 'MM' BM; do
        echo "\"$word\""
    done >"$dir/words"
}

seeds_adapter() {
    made_seeds
    for word in GGUF general.architecture general.type adapter adapter.type lora adapter.lora.alpha ntx.delta.of \
        ntx.delta.base ntx.delta.error .lora_a .lora_b .delta \
        ntx.pack.version ntx.pack.group ntx.pack.down_rows ntx.pack.up_type ntx.pack.up_delta_type \
        ntx.pack.down_delta_type ntx_ffn.weight ntx_ffn_delta.weight blk.1.ffn_up.weight.delta \
        blk.0.attn_q.weight.lora_a; do
        echo "\"$word\""
    done >"$dir/words"
}

seeds_files() {
    made_seeds
    for word in ntx.skip.version ntx.skip.layers ntx.skip.embd ntx.skip.hidden ntx.skip.first ntx.skip.last \
        ntx.skip.tokens ntx.skip.threshold ntx.skip.similarity \
        ntx.skip.mean ntx.skip.model ntxlogit layer step width name buffer digests values null \
        general.type imatrix imatrix.datasets imatrix.chunk_count blk.0.attn_q.weight.in_sum2 \
        blk.0.attn_q.weight.counts; do
        echo "\"$word\""
    done >"$dir/words"
}

seeds_pull() {
    printf \
        '\0HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-99/1000\r\ncontent-length: 100\r\nETag: "abc"\r\n'\
'link: <x>; rel="next"\r\nX-Linked-ETag: "%064d"\r\n' 7 >"$dir/corpus/lines"
    "$NTX_BIN/ntx-mkmodel" --layers 1 --embd 32 --ff 32 --heads 2 --kv 1 --arch llama "$dir/m.gguf" >"$dir/log"
    { printf '\1'; head -c 22000 "$dir/m.gguf"; } >"$dir/corpus/gguf"
    printf \
        '\1GGUF\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a\4\0\0\0\7\0\0\0\1\0\0\0\0\0\0\0t\1\0\0\0\40'\
'\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0' >"$dir/corpus/small"
    printf '\2httphost.org:80/a/b-Q4_K_M-00001-of-00003.gguf?x=1' >"$dir/corpus/address"
    printf '\2https://host/a%%2Fb.gguf' >"$dir/corpus/name"
    printf '\3[{"type":"file","path":"x/Big-Q4_0-00001-of-00002.gguf","size":7,"lfs":{"oid":"%064d","size":7}},'\
'{"type":"file","path":"Big-Q4_0-00002-of-00002.gguf","size":9}]' 7 >"$dir/corpus/list"
    printf '\3{"siblings":[{"rfilename":"a/../b-Q8_0.gguf","size":72057594037927937},{"rfilename":"b-Q8_0.gguf"}]}' \
        >"$dir/corpus/siblings"
    printf '\4[{"id":"some/Tiny","downloads":7},{"modelId":"a/b"},{"id":"../x","downloads":-1}]' >"$dir/corpus/results"
    printf '\4{"gguf":{"total":7,"architecture":"llama"},"gated":"auto","siblings":[{"rfilename":"b-Q8_0.gguf"}]}' \
        >"$dir/corpus/information"
    for word in 'content-range: bytes ' 'content-length: ' 'etag: ' 'x-linked-etag: ' 'link: ' 'rel=\"next\"' \
        'HTTP/1.1 ' GGUF .gguf -00001-of-00002 http '://' localhost %2F siblings rfilename size lfs oid path type \
        file id modelId downloads gguf architecture total gated ../ mmproj; do
        echo "\"$word\""
    done >"$dir/words"
}

seeds_vocab() {
    # small vocabularies of both kinds with a text behind them, and each template that is known by its shape
    n=0
    for options in "--arch llama --chat-template llama-2" "--arch llama --chat-template mistral" \
        "--arch qwen2 --chat-template chatml" \
        "--arch llama --chat-template llama-3" "--arch llama --chat-template harmony"; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        "$NTX_BIN/ntx-mkmodel" --layers 1 --embd 32 --ff 32 --heads 2 --kv 1 $options "$dir/m.gguf" >"$dir/log"
        { head -c 22000 "$dir/m.gguf"; printf '<|im_start|>user\nOnce upon <0x41> \303\244 1234\020'; \
            } >"$dir/corpus/vocab$n"
    done
    for word in tokenizer.ggml.model tokenizer.ggml.pre tokenizer.ggml.tokens tokenizer.ggml.scores \
        tokenizer.ggml.token_type tokenizer.ggml.merges llama gpt2 \
        llama-bpe qwen2 tokenizer.ggml.bos_token_id tokenizer.ggml.add_bos_token tokenizer.chat_template \
        '<|im_start|>' '[INST]' '<|eot_id|>' '<<SYS>>' \
        gpt-4o '<|start|>' '<|channel|>' '<|message|>' '<|end|>' '<|return|>' '<|call|>'; do
        echo "\"$word\""
    done >"$dir/words"
}

seeds_template() {
    # the templates of the test, one a file
    python3 - "$NTX_SOURCE/tests/unit/template/cases.json" "$dir/corpus" <<'PYTHON'
import json, sys
for i, c in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cases"]):
    open("%s/%d" % (sys.argv[2], i), "w", encoding="utf-8", newline="").write(c["template"])
PYTHON
    printf '{{ a }}{{ b.c[0] }}\000{"a": 1, "b": {"c": ["x"]}}' >"$dir/corpus/variables"
    for word in '{{' '}}' '{%' '%}' '{#' '#}' '{%-' '-%}' ' if ' ' else ' ' endif ' ' for ' ' in ' ' endfor ' ' set ' \
        ' endset ' ' macro ' ' endmacro ' ' call ' ' endcall ' \
        ' filter ' ' endfilter ' ' with ' ' endwith ' ' raw ' ' endraw ' ' break ' ' continue ' ' recursive ' ' is ' \
        ' not ' ' and ' ' or ' '|tojson' '|map(' '|selectattr(' '|sort' \
        '|indent' '|join' '|default' '|replace(' '|dictsort' '|unique' '|batch(' '|groupby(' '.split(' '.format(' \
        '.append(' '.pop(' '.items()' '.get(' 'messages' 'namespace(' 'loop' \
        'range(' 'varargs' 'caller()' 'xs' '[::-1]' '**' '//' '~' 'true' 'none'; do
        echo "\"$word\""
    done >"$dir/words"
}

seeds_reply() {
    # a reply of each format: its number, the size of the pieces, the text
    printf \
        '\000\003<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary '\
'to=functions.f<|message|>{}<|call|>' >"$dir/corpus/harmony"
    printf \
        '\003\003x<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>'\
'{"a": 1}<|tool_call_end|>' >"$dir/corpus/kimi"
    printf \
        '\004\003<minimax:tool_call><invoke name="f"><parameter name="a">1</parameter></invoke></minimax:tool_call>' \
        >"$dir/corpus/minimax"
    printf '\005\003<think>t</think><tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value></tool_call>' \
        >"$dir/corpus/glm"
    printf '\006\003<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>' \
        >"$dir/corpus/coder"
    printf '\007\003[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS][{"name": "g", "arguments": {}}]' >"$dir/corpus/mistral"
    printf \
        '\010\003<think>\nx\n</think>\n\nOk.\n<tool_call>\n{"name": "f", "arguments": {"a": [1, null]}}\n</tool_call>' \
        >"$dir/corpus/hermes"
    printf '\011\003{"name": "f", "parameters": {"a": "b"}}' >"$dir/corpus/llama"
    for word in '<think>' '</think>' '<tool_call>' '</tool_call>' '<function=f>' '</function>' '<parameter=a>' \
        '</parameter>' '<arg_key>' '</arg_value>' '[TOOL_CALLS]' '[ARGS]' \
        '<|channel|>' '<|message|>' '<|end|>' 'to=functions.' '</invoke>' '</minimax:tool_call>' '<|tool_call_end|>' \
        '[THINK]' '<|python_tag|>'; do
        echo "\"$word\""
    done >"$dir/words"
}

seeds_words() {
    printf '\000eio@chunk=9,count=3;delay=5ms@every=4;kill@state=READY,nth=2;reorder=3;seed=4' >"$dir/corpus/iod"
    printf '\001delay=50ms@every=2;kill@probe=3,start=1;mute' >"$dir/corpus/predictor"
    printf '\002script:3,5-7@0;9' >"$dir/corpus/script"
    printf '\002random:0.5,3-9,7' >"$dir/corpus/random"
    printf '\0033.3G' >"$dir/corpus/rate"
    printf '\003512MiB' >"$dir/corpus/size"
    printf '\005iod:eio@chunk=9,predictor:mute' >"$dir/corpus/load"
    printf '\006a=int:5,b.c=float:1e3,d=bool:true,e=str:x, y,a=str:z' >"$dir/corpus/override"
    for f in "$NTX_SOURCE"/bench/profiles/*.json; do
        { printf '\004'; cat "$f"; } >"$dir/corpus/$(basename "$f")"
    done
    for word in eio short delay stall kill chunk every nth count start demand state FILLING done reorder seed mute \
        probe decision script random static \
        ntx_profile drive reads bytes gb_s kernels type rows gflops gpu gib iod: ,predictor: =int: =float: =bool:true \
        =str:; do
        echo "\"$word\""
    done >"$dir/words"
}

"seeds_$name"
cd "$dir"
if ! "$fuzzer" -max_total_time="$seconds" -max_len=24000 -rss_limit_mb=1024 -timeout="${NTX_FUZZ_TIMEOUT:-10}" \
    -dict="$dir/words" -print_final_stats=1 \
    -artifact_prefix="$NTX_BUILD/tests/fuzz_$name-" "$corpus" "$dir/corpus" >"$dir/log" 2>&1; then
    tail -n 60 "$dir/log"
    echo "fuzz_$name failed; its input is kept as $NTX_BUILD/tests/fuzz_$name-*"
    exit 1
fi
sed \
    -n \
    -e 's/^INFO: Loaded .*(\([0-9]*\) inline.*/edges in the target: \1/p' \
    -e 's/^stat::number_of_executed_units: */executions: /p' "$dir/log"
grep -o 'cov: [0-9]* ft: [0-9]* corp: [0-9]*' "$dir/log" | tail -n 1
