#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make.py MKMODEL [CASE ...]: writes golden.json, llama.cpp's logits of tiny models made by ntx-mkmodel.

With names of cases only those are made again, and the others stay as they are. The tests only read golden.json. Run it
when ntx-mkmodel's output changes or a case is added. It needs llama-cpp-python (and numpy, which that needs), built
from source for the CPU without repacking of weights, so that all arithmetic is llama.cpp's plain one:

  CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_CPU_REPACK=OFF -DGGML_OPENMP=OFF" \\
      pip install --no-binary llama-cpp-python llama-cpp-python

Per case, `main` is llama.cpp on the model itself, a token at a time, one thread, KV in F32, no flash attention. `ref`
is the same on the model expanded to F32 (by llama.cpp's own dequantisation), the nearest to the exact values. The
stored logits are ref's. The tolerance is made of the distances of main from ref, and of main in one batch or with KV in
F16 from main.

qwen4exp's logits are from transformers (qwen4.py): ref on the expanded weights in F32, main with inputs of matrices
rounded to Q8_0 where these have such a type. So are those of models with their own YaRN magnitude, of gpt-oss with YaRN
and of DeepSeek-V2 with groups of experts (plain.py). These alone do not need llama-cpp-python.
"""

import ctypes
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import llama_cpp as L
except ImportError:
    L = None
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPE = '--layers 3 --embd 256 --ff 512 --heads 8 --kv 2'
N_TOKENS, POSITIONS, N_INDICES = 96, [0, 1, 5, 17, 40, 66, 95], 64
FAR = {
    'deepseek4.far.f32': [0, 3, 4, 126, 127, 128, 254, 255, 256, 300, 511, 620],
    'llama4.far.f32': [0, 4095, 8190, 8191, 8192, 8193, 12000, 16382, 16383, 16384, 16399],
}  # positions of longer texts, in one batch after the other

FLASH = {'minimax-m3.blocks.f32'}  # llama.cpp chooses blocks with flash attention alone

CASES = {
    'qwen2.f16': '--arch qwen2 --type F16 --seed 11',
    'qwen2.tied.q4_k_m': '--arch qwen2 --type Q4_K_M --tied --seed 12',
    'qwen3.f32': '--arch qwen3 --head-dim 64 --type F32 --seed 13',
    'qwen3.q8_0': '--arch qwen3 --type Q8_0 --rope-base 1000000 --seed 14',
    'linear.f32': '--rope-scaling linear --rope-factor 4 --seed 15',
    'yarn.f32': '--rope-scaling yarn --rope-factor 4 --rope-orig 64 --ctx 256 --seed 16',
    'yarn.qwen2.f32': '--arch qwen2 --rope-scaling yarn --rope-factor 8 --rope-orig 32 --ctx 256 --seed 17',
    'llama31.f32': '--rope-freqs --rope-factor 8 --rope-orig 64 --rope-base 500000 --seed 18',
    'bf16': '--type BF16 --seed 19',
    'q4_1': '--type Q4_1 --seed 20',
    'q5_0': '--type Q5_0 --seed 21',
    'q5_1': '--type Q5_1 --seed 22',
    'q2_k': '--type Q2_K --seed 23',
    'q3_k': '--type Q3_K --seed 24',
    'iq4_nl': '--type IQ4_NL --seed 37',
    'iq4_xs': '--type IQ4_XS --seed 38',
    'iq3_xxs': '--type IQ3_XXS --seed 39',
    'iq3_s': '--type IQ3_S --seed 40',
    'iq2_xxs': '--type IQ2_XXS --seed 41',
    'iq2_xs': '--type IQ2_XS --seed 42',
    'iq2_s': '--type IQ2_S --seed 43',
    'iq1_s': '--type IQ1_S --seed 44',
    'iq1_m': '--type IQ1_M --seed 45',
    'tq1_0': '--type TQ1_0 --seed 46',
    'tq2_0': '--type TQ2_0 --seed 47',
    'nvfp4': '--type NVFP4 --seed 48',
    'nvfp4.scales': '--type NVFP4 --scales --seed 70',
    'nvfp4.scales.moe': '--arch qwen3moe --experts 8 --experts-used 3 --expert-ff 128 --type NVFP4 --scales --seed 71',
    'scales.delta.f32': (
        '--arch qwen35moe --layers 4 --experts 8 --experts-used 3 --expert-ff 96 --shared-ff 128 --head-dim 64'
        ' --rotated 16 --delta-head 32 --delta-heads 4 --delta-keys 4 --type F32 --scales --seed 72'
    ),
    'q1_0': '--type Q1_0 --seed 49',
    'q2_0': '--type Q2_0 --seed 50',
    'v2.f32': '--gguf-version 2 --seed 25',
    'split.q8_0': '--split 3 --type Q8_0 --seed 26',
    'moe.f32': '--experts 8 --expert-ff 192 --type F32 --seed 28',
    'moe.q8_0': '--experts 8 --experts-used 3 --expert-ff 256 --type Q8_0 --seed 29',
    'qwen2moe.f32': (
        '--arch qwen2moe --experts 12 --experts-used 4 --expert-ff 128 --shared-ff 320 --type F32 --seed 30'
    ),
    'qwen2moe.q4_k_m': '--arch qwen2moe --experts 6 --expert-ff 256 --shared-ff 256 --type Q4_K_M --seed 31',
    'qwen3moe.f32': '--arch qwen3moe --experts 16 --experts-used 5 --expert-ff 96 --head-dim 64 --type F32 --seed 32',
    'qwen3moe.q6_k': '--arch qwen3moe --experts 8 --expert-ff 256 --type Q6_K --seed 33',
    'gptoss.f32': (
        '--arch gpt-oss --experts 8 --experts-used 3 --expert-ff 96 --head-dim 64 --window 24 --rope-scaling yarn'
        ' --rope-factor 8 --rope-orig 64 --ctx 512 --rope-base 150000 --type F32 --seed 34'
    ),
    'gptoss.q8_0': (
        '--arch gpt-oss --experts 8 --experts-used 4 --expert-ff 256 --head-dim 32 --window 5 --type Q8_0 --seed 35'
    ),
    'gptoss.mxfp4': (
        '--arch gpt-oss --experts 8 --experts-used 4 --expert-ff 160 --head-dim 64 --window 24 --rope-scaling yarn'
        ' --rope-factor 8 --rope-orig 64 --ctx 512 --rope-base 150000 --type MXFP4 --seed 36'
    ),
    'glm4moe.f32': (
        '--arch glm4moe --experts 12 --experts-used 4 --expert-ff 96 --shared-ff 192 --head-dim 64 --dense 1 --nextn 1'
        ' --rotated 32 --biases --qk-norms --expert-scale 1.5 --rope-base 1000000 --type F32 --seed 37'
    ),
    'glm4moe.q4_k_m': (
        '--arch glm4moe --experts 8 --experts-used 3 --expert-ff 256 --shared-ff 256 --head-dim 32 --dense 2 --rotated'
        ' 16 --type Q4_K_M --seed 38'
    ),
    'minimax.f32': (
        '--arch minimax-m2 --experts 12 --experts-used 4 --ff 96 --head-dim 64 --rotated 32 --rope-base 5000000 --type'
        ' F32 --seed 39'
    ),
    'minimax.q4_k_m': (
        '--arch minimax-m2 --experts 8 --experts-used 3 --ff 256 --head-dim 32 --rotated 16 --type Q4_K_M --seed 40'
    ),
    'olmoe.f32': '--arch olmoe --experts 12 --experts-used 4 --ff 96 --kv 8 --type F32 --seed 41',
    'olmoe.q8_0': '--arch olmoe --experts 8 --experts-used 3 --ff 256 --kv 8 --type Q8_0 --seed 42',
    'smollm3.f32': '--arch smollm3 --layers 5 --type F32 --rope-base 5000000 --seed 43',
    'smollm3.q4_k_m': '--arch smollm3 --layers 4 --type Q4_K_M --tied --seed 44',
    'mistral3.f32': (
        '--arch mistral3 --head-dim 64 --rope-scaling yarn --rope-factor 16 --rope-orig 128 --ctx 2048 --rope-base'
        ' 1000000 --type F32 --seed 45'
    ),
    'mistral3.q5_k_m': (
        '--arch mistral3 --rope-scaling yarn --rope-factor 4 --rope-orig 100 --ctx 512 --type Q5_K_M --seed 46'
    ),
    'granite.f32': '--arch granite --head-dim 32 --type F32 --tied --seed 47',
    'granitemoe.q8_0': '--arch granitemoe --experts 8 --experts-used 3 --ff 256 --shared-ff 512 --type Q8_0 --seed 48',
    'gemma2.f32': '--arch gemma2 --layers 4 --head-dim 64 --window 24 --type F32 --tied --seed 51',
    'gemma2.q8_0': '--arch gemma2 --layers 4 --window 9 --type Q8_0 --tied --seed 52',
    'gemma3.f32': (
        '--arch gemma3 --layers 7 --head-dim 64 --window 24 --rope-base 1000000 --rope-scaling linear --rope-factor 8'
        ' --type F32 --tied --seed 53'
    ),
    'gemma3.q4_k_m': '--arch gemma3 --layers 7 --window 16 --type Q4_K_M --seed 54',
    'deepseek.f32': (
        '--arch deepseek --kv 8 --experts 12 --experts-used 4 --expert-ff 96 --shared-ff 192 --dense 1 --rope-scaling'
        ' linear --rope-factor 4 --type F32 --seed 55'
    ),
    'deepseek2.f32': (
        '--arch deepseek2 --experts 12 --experts-used 4 --expert-groups 4 --expert-groups-used 2 --expert-ff 96'
        ' --shared-ff 192 --head-dim 96 --rotated 32 --value-dim 64 --kv-lora 128 --q-lora 96 --dense 1 --nextn 1'
        ' --sigmoid --biases --expert-scale 2.5 --rope-scaling yarn --rope-factor 8 --rope-orig 64 --ctx 512'
        ' --log-multiplier 0.1 --type F32 --seed 49'
    ),
    'deepseek2.joined.q8_0': (
        '--arch deepseek2 --experts 8 --experts-used 3 --expert-ff 256 --shared-ff 512 --head-dim 64 --rotated 32'
        ' --value-dim 32 --kv-lora 64 --q-lora 64 --kv-joined --dense 1 --expert-scale 1.5 --rope-scaling yarn'
        ' --rope-factor 4 --rope-orig 64 --ctx 256 --log-multiplier 0.0707 --type Q8_0 --seed 50'
    ),
    'deepseek2.q4_k_m': (
        '--arch deepseek2 --layers 26 --dense 25 --experts 8 --experts-used 2 --expert-ff 256 --ff 256 --heads 4'
        ' --head-dim 96 --rotated 32 --kv-lora 256 --value-dim 64 --type Q4_K_M --seed 51'
    ),
    'deepseek2.groups.f32': (
        '--arch deepseek2 --experts 12 --experts-used 3 --expert-groups 4 --expert-groups-used 2 --expert-ff 96'
        ' --shared-ff 192 --head-dim 96 --rotated 32 --value-dim 64 --kv-lora 128 --q-lora 96 --dense 1 --expert-scale'
        ' 4 --rope-scaling yarn --rope-factor 8 --rope-orig 64 --ctx 512 --log-multiplier 0.0707 --type F32 --seed 90'
    ),
    'deepseek2.fused.f32': (
        '--arch deepseek2 --experts 8 --experts-used 3 --expert-ff 96 --fused --shared-ff 96 --head-dim 64 --rotated 32'
        ' --value-dim 32 --kv-lora 64 --q-lora 64 --dense 1 --nextn 1 --sigmoid --biases --type F32 --seed 65'
    ),
    'qwen3next.f32': (
        '--arch qwen3next --layers 4 --experts 12 --experts-used 4 --expert-ff 96 --shared-ff 128 --head-dim 64'
        ' --rotated 16 --delta-head 64 --delta-heads 6 --delta-keys 3 --rope-base 1000000 --type F32 --seed 49'
    ),
    'qwen3next.q4_k_m': (
        '--arch qwen3next --layers 4 --experts 8 --experts-used 3 --expert-ff 256 --shared-ff 256 --head-dim 64'
        ' --rotated 32 --delta-head 128 --delta-heads 4 --delta-keys 2 --nextn 1 --type Q4_K_M --seed 50'
    ),
    'qwen3next.joined.q8_0': (
        '--arch qwen3next --layers 4 --experts 8 --experts-used 3 --expert-ff 96 --fused --shared-ff 96 --head-dim 32'
        ' --rotated 16 --delta-head 64 --delta-heads 6 --delta-keys 2 --delta-joined --nextn 1 --type Q8_0 --seed 63'
    ),
    'qwen35.f32': (
        '--arch qwen35 --layers 5 --head-dim 64 --rotated 16 --delta-head 48 --delta-heads 6 --delta-keys 2'
        ' --attention-every 3 --nextn 1 --type F32 --seed 51'
    ),
    'qwen35.q5_k_m': (
        '--arch qwen35 --layers 4 --head-dim 64 --rotated 32 --delta-head 128 --delta-heads 4 --delta-keys 2 --tied'
        ' --type Q5_K_M --seed 52'
    ),
    'qwen35moe.f32': (
        '--arch qwen35moe --layers 4 --experts 12 --experts-used 4 --expert-ff 96 --shared-ff 128 --head-dim 64'
        ' --rotated 16 --delta-head 32 --delta-heads 8 --delta-keys 4 --type F32 --seed 53'
    ),
    'qwen35moe.q8_0': (
        '--arch qwen35moe --layers 4 --experts 8 --experts-used 3 --expert-ff 256 --shared-ff 256 --head-dim 64'
        ' --rotated 16 --delta-head 64 --delta-heads 6 --delta-keys 3 --delta-taps 3 --type Q8_0 --seed 54'
    ),
    'qwen35moe.fused.f32': (
        '--arch qwen35moe --layers 4 --experts 8 --experts-used 3 --expert-ff 96 --fused --shared-ff 128 --head-dim 64'
        ' --rotated 16 --delta-head 32 --delta-heads 4 --delta-keys 4 --nextn 1 --type F32 --seed 64'
    ),
    'kimi-linear.f32': (
        '--arch kimi-linear --layers 4 --experts 8 --experts-used 3 --expert-ff 96 --shared-ff 96 --head-dim 96'
        ' --rotated 32 --value-dim 64 --kv-lora 128 --dense 1 --delta-head 48 --attention-every 3 --expert-scale 2.446'
        ' --type F32 --seed 77'
    ),
    'kimi-linear.q8_0': (
        '--arch kimi-linear --layers 4 --experts 8 --experts-used 2 --expert-ff 128 --shared-ff 256 --head-dim 64'
        ' --rotated 32 --value-dim 32 --kv-lora 64 --dense 0 --delta-head 64 --delta-taps 3 --attention-every 2 --type'
        ' Q8_0 --seed 78'
    ),
    'glm5-next.f32': (
        '--arch glm5-next --layers 6 --experts 8 --experts-used 3 --expert-ff 96 --shared-ff 96 --head-dim 96'
        ' --value-dim 64 --kv-lora 128 --q-lora 96 --dense 1 --delta-head 48 --attention-every 2 --index-heads 20'
        ' --index-head 128 --index-pool 3 --index-most 4 --index-every 2 --delta-bound 5 --nextn 1 --expert-scale 2.5'
        ' --type F32 --seed 79'
    ),
    'glm5-next.q8_0': (
        '--arch glm5-next --layers 4 --experts 8 --experts-used 8 --expert-ff 128 --shared-ff 256 --head-dim 64'
        ' --value-dim 32 --kv-lora 64 --q-lora 64 --dense 0 --delta-head 64 --delta-taps 3 --attention-every 2'
        ' --index-heads 16 --index-pool 4 --index-most 50 --type Q8_0 --seed 80'
    ),
    'qwen4exp.f32': (
        '--arch qwen4exp --layers 6 --experts 8 --experts-used 3 --expert-ff 96 --shared-ff 96 --head-dim 64 --rotated'
        ' 16 --delta-head 48 --delta-heads 6 --delta-keys 3 --attention-every 3 --index-heads 20 --index-head 48'
        ' --index-pool 5 --index-most 4 --low-rank 40 --gram-layer 2 --gram-heads 4 --gram-entries 211 --type F32'
        ' --seed 81'
    ),
    'qwen4exp.q8_0': (
        '--arch qwen4exp --layers 4 --experts 8 --experts-used 8 --expert-ff 128 --shared-ff 256 --head-dim 64'
        ' --rotated 32 --delta-head 64 --delta-heads 4 --delta-keys 2 --delta-taps 3 --attention-every 2 --index-head'
        ' 64 --index-pool 4 --index-most 50 --low-rank 64 --gram-layer 1 --fused --type Q8_0 --seed 82'
    ),
    'gemma4.f32': (
        '--arch gemma4 --layers 6 --head-dim 64 --window-head 32 --kv 4 --full-kv 2 --no-v --window 24 --rope-base'
        ' 1000000 --type F32 --tied --seed 55'
    ),
    'gemma4.moe.f32': (
        '--arch gemma4 --layers 4 --head-dim 64 --window-head 32 --full-kv 1 --window 9 --experts 8 --experts-used 3'
        ' --expert-ff 128 --fused --type F32 --tied --seed 56'
    ),
    'gemma4.inputs.f32': (
        '--arch gemma4 --layers 6 --head-dim 64 --window-head 32 --kv 1 --shared-kv 3 --layer-input 32 --window 16'
        ' --type F32 --tied --seed 57'
    ),
    'gemma4.q8_0': (
        '--arch gemma4 --layers 4 --head-dim 64 --full-kv 1 --shared-kv 1 --layer-input 64 --window 40 --type Q8_0'
        ' --tied --seed 58'
    ),
    'phi3.f32': '--arch phi3 --kv 4 --rotated 24 --rope-freqs --rope-orig 100 --type F32 --seed 59',
    'phi3.q4_k_m': '--arch phi3 --type Q4_K_M --tied --seed 60',
    'llama4.f32': (
        '--arch llama4 --layers 5 --head-dim 32 --experts 8 --experts-used 2 --expert-ff 96 --expert-every 2 --type F32'
        ' --seed 61'
    ),
    'llama4.q8_0': (
        '--arch llama4 --layers 4 --head-dim 64 --experts 6 --experts-used 1 --expert-ff 128 --type Q8_0 --seed 62'
    ),
    'llama4.far.f32': (
        '--arch llama4 --layers 4 --embd 64 --heads 2 --kv 1 --head-dim 32 --ff 64 --experts 4 --experts-used 1'
        ' --expert-ff 32 --expert-every 4 --ctx 32768 --rope-base 500000 --type F32 --seed 66'
    ),
    'mistral3.hot.f32': (
        '--arch mistral3 --head-dim 32 --rope-scaling yarn --rope-factor 4 --rope-orig 16 --ctx 512 --type F32'
        ' --seed 67'
    ),
    'mistral4.joined.q8_0': (
        '--arch mistral4 --experts 8 --experts-used 2 --expert-ff 128 --fused --shared-ff 128 --head-dim 64 --rotated'
        ' 32 --value-dim 32 --kv-lora 64 --q-lora 64 --kv-joined --dense 0 --temperature-length 33 --type Q8_0'
        ' --seed 69'
    ),
    'deepseek32.f32': (
        '--arch deepseek32 --experts 8 --experts-used 3 --expert-groups 4 --expert-groups-used 2 --expert-ff 96'
        ' --shared-ff 96 --head-dim 96 --rotated 32 --value-dim 64 --kv-lora 128 --q-lora 96 --dense 1 --nextn 1'
        ' --biases --expert-scale 2.5 --rope-scaling yarn --rope-factor 8 --rope-orig 64 --ctx 512 --log-multiplier 0.1'
        ' --index-heads 20 --index-head 128 --index-most 20 --type F32 --seed 70'
    ),
    'deepseek32.q8_0': (
        '--arch deepseek32 --experts 8 --experts-used 2 --expert-ff 128 --shared-ff 128 --head-dim 64 --rotated 32'
        ' --value-dim 32 --kv-lora 64 --q-lora 64 --dense 2 --index-heads 16 --index-most 41 --type Q8_0 --seed 71'
    ),
    'glm-dsa.f32': (
        '--arch glm-dsa --layers 5 --experts 8 --experts-used 3 --expert-ff 96 --shared-ff 96 --head-dim 64 --rotated'
        ' 32 --value-dim 64 --kv-lora 96 --q-lora 64 --dense 1 --nextn 1 --biases --expert-scale 2.5 --rope-base'
        ' 1000000 --index-heads 12 --index-most 16 --index-every 2 --type F32 --seed 72'
    ),
    'glm-dsa.q4_k_m': (
        '--arch glm-dsa --layers 4 --experts 8 --experts-used 2 --expert-ff 256 --shared-ff 256 --head-dim 64 --rotated'
        ' 16 --kv-lora 256 --q-lora 256 --dense 1 --index-heads 32 --index-head 64 --index-most 50 --type Q4_K_M'
        ' --seed 73'
    ),
    'deepseek4.f32': (
        '--arch deepseek4 --layers 4 --heads 4 --kv 1 --head-dim 64 --rotated 32 --q-lora 96 --o-parts 2 --o-lora 48'
        ' --window 16 --hashed 1 --index-heads 12 --index-most 9 --experts 8 --experts-used 3 --expert-ff 96'
        ' --shared-ff 192 --nextn 1 --rope-scaling yarn --rope-factor 8 --rope-orig 64 --ctx 512 --type F32 --seed 74'
    ),
    'deepseek4.mxfp4': (
        '--arch deepseek4 --layers 3 --heads 4 --kv 1 --head-dim 128 --rotated 64 --q-lora 256 --o-parts 4 --o-lora 64'
        ' --window 24 --hashed 0 --index-head 128 --index-most 30 --experts 8 --experts-used 4 --expert-ff 160'
        ' --shared-ff 160 --type MXFP4 --seed 75'
    ),
    'deepseek4.far.f32': (
        '--arch deepseek4 --layers 3 --embd 64 --heads 2 --kv 1 --head-dim 64 --rotated 16 --q-lora 32 --o-parts 1'
        ' --o-lora 32 --window 16 --hashed 1 --index-heads 8 --index-most 1000 --experts 4 --experts-used 4 --expert-ff'
        ' 32 --shared-ff 32 --ctx 1024 --type F32 --seed 76'
    ),
    'step35.f32': (
        '--arch step35 --layers 6 --experts 12 --experts-used 4 --expert-ff 96 --shared-ff 160 --head-dim 64 --kv 2'
        ' --heads 6 --window-heads 8 --window 16 --dense 1 --nextn 1 --biases --qk-norms --expert-scale 2.5 --rope-base'
        ' 1000000 --rope-freqs --rope-factor 8 --rope-orig 64 --type F32 --seed 86'
    ),
    'step35.q8_0': (
        '--arch step35 --layers 5 --experts 8 --experts-used 8 --expert-ff 128 --shared-ff 128 --head-dim 64'
        ' --window-heads 4 --window 9 --dense 2 --qk-norms --type Q8_0 --seed 87'
    ),
    'hy4.f32': (
        '--arch hy_v4 --layers 5 --experts 8 --experts-used 3 --expert-ff 96 --shared-ff 192 --head-dim 96 --rotated 32'
        ' --value-dim 64 --kv-lora 128 --q-lora 96 --dense 1 --biases --expert-scale 2.5 --rope-base 1000000'
        ' --index-heads 20 --index-head 128 --index-most 20 --index-every 2 --type F32 --seed 88'
    ),
    'hy4.q8_0': (
        '--arch hy_v4 --layers 3 --experts 8 --experts-used 8 --expert-ff 128 --shared-ff 128 --head-dim 64 --rotated'
        ' 32 --value-dim 32 --kv-lora 64 --q-lora 64 --dense 0 --type Q8_0 --seed 89'
    ),
    'granitehybrid.f32': (
        '--arch granitehybrid --layers 4 --attention-every 2 --delta-heads 8 --delta-head 64 --delta-keys 1 --type F32'
        ' --seed 121'
    ),
    'granitehybrid.q8_0': (
        '--arch granitehybrid --layers 4 --attention-every 2 --delta-heads 8 --delta-head 64 --delta-keys 1 --type Q8_0'
        ' --seed 122'
    ),
    'falcon-h1.f32': '--arch falcon-h1 --delta-heads 8 --delta-head 32 --delta-keys 2 --type F32 --seed 123',
    'nemotron-h.f32': (
        '--arch nemotron_h --layers 6 --delta-heads 8 --delta-head 64 --delta-keys 2 --head-dim 32 --type F32'
        ' --seed 126'
    ),
    'nemotron-h-moe.f32': (
        '--arch nemotron_h_moe --layers 6 --delta-heads 8 --delta-head 64 --delta-keys 2 --head-dim 32 --experts 9'
        ' --experts-used 4 --expert-ff 96 --shared-ff 160 --latent 64 --expert-scale 2.5 --type F32 --seed 127'
    ),
    'nemotron-h-moe.q8_0': (
        '--arch nemotron_h_moe --layers 6 --delta-heads 8 --delta-head 64 --delta-keys 2 --head-dim 32 --experts 9'
        ' --experts-used 4 --expert-ff 96 --shared-ff 160 --latent 128 --expert-scale 2.5 --type Q8_0 --seed 128'
    ),
    'nemotron-h-plain.q8_0': (
        '--arch nemotron_h_moe --layers 6 --delta-heads 8 --delta-head 64 --delta-keys 2 --head-dim 32 --experts 9'
        ' --experts-used 4 --expert-ff 96 --shared-ff 160 --type Q8_0 --seed 129'
    ),
    'jamba.f32': '--arch jamba --layers 4 --attention-every 3 --experts 5 --experts-used 2 --type F32 --seed 130',
    'jamba.q8_0': '--arch jamba --layers 4 --attention-every 3 --experts 5 --experts-used 2 --type Q8_0 --seed 131',
    'minimax-m3.f32': (
        '--arch minimax-m3 --layers 4 --experts 9 --experts-used 3 --expert-ff 96 --shared-ff 96 --dense 1 --heads 6'
        ' --kv 2 --head-dim 64 --rotated 32 --biases --expert-scale 2 --type F32 --seed 133'
    ),
    'minimax-m3.blocks.f32': (
        '--arch minimax-m3 --layers 4 --experts 9 --experts-used 3 --expert-ff 96 --shared-ff 96 --dense 1 --heads 6'
        ' --kv 2 --head-dim 64 --rotated 32 --expert-scale 2 --index-pool 8 --index-most 4 --type F32 --seed 134'
    ),
    'dbrx.f32': '--arch dbrx --layers 4 --experts 9 --experts-used 3 --ff 96 --heads 8 --kv 2 --type F32 --seed 135',
    'dbrx.q8_0': '--arch dbrx --layers 3 --experts 6 --experts-used 6 --ff 128 --heads 8 --kv 4 --type Q8_0 --seed 136',
    'kimi-k3.f32': (
        '--arch kimi-k3 --layers 6 --experts 8 --experts-used 3 --expert-ff 96 --shared-ff 192 --head-dim 96 --rotated'
        ' 32 --value-dim 64 --kv-lora 128 --q-lora 96 --dense 1 --delta-head 48 --attention-every 3 --latent 96'
        ' --expert-scale 2.446 --biases --type F32 --seed 137'
    ),
    'kimi-k3.q8_0': (
        '--arch kimi-k3 --layers 5 --experts 8 --experts-used 8 --expert-ff 128 --shared-ff 256 --head-dim 64'
        ' --rotated 32 --value-dim 32 --kv-lora 64 --q-lora 64 --dense 2 --delta-head 64 --attention-every 2 --latent'
        ' 128 --biases --type Q8_0 --seed 138'
    ),
    'grok.f32': (
        '--arch grok --layers 4 --experts 7 --experts-used 2 --ff 160 --expert-ff 96 --heads 8 --kv 2 --head-dim 32'
        ' --type F32 --seed 143'
    ),
    'grok.yarn.q8_0': (
        '--arch grok --experts 6 --experts-used 6 --ff 256 --expert-ff 128 --heads 8 --kv 4 --head-dim 32'
        ' --rope-scaling yarn --rope-factor 8 --rope-orig 32 --ctx 256 --type Q8_0 --seed 140'
    ),
    'grovemoe.experts.f32': (
        '--arch grovemoe --layers 4 --experts 9 --experts-used 3 --expert-ff 96 --shared-ff 64 --heads 6 --kv 2'
        ' --head-dim 64 --expert-scale 1e-9 --type F32 --seed 141'
    ),
    'grovemoe.experts.q8_0': (
        '--arch grovemoe --experts 8 --experts-used 4 --expert-ff 128 --shared-ff 64 --heads 8 --kv 4 --head-dim 32'
        ' --expert-scale 1e-9 --type Q8_0 --seed 144'
    ),
    'deci.f32': '--arch deci --layers 5 --type F32 --seed 132',
    'lfm2.f32': '--arch lfm2 --layers 4 --attention-every 2 --delta-taps 3 --head-dim 32 --type F32 --seed 124',
    'lfm2moe.f32': (
        '--arch lfm2moe --layers 4 --attention-every 2 --delta-taps 3 --head-dim 32 --experts 9 --experts-used 3'
        ' --expert-ff 96 --dense 1 --type F32 --seed 125'
    ),
    'qwen3vl.f32': '--arch qwen3vl --heads 6 --kv 2 --head-dim 64 --rope-base 5000000 --type F32 --seed 91',
    'qwen3vlmoe.f32': (
        '--arch qwen3vlmoe --experts 9 --experts-used 3 --expert-ff 96 --head-dim 64 --rope-base 5000000 --type F32'
        ' --seed 92'
    ),
    'glm4.f32': '--arch glm4 --heads 6 --kv 3 --head-dim 32 --rotated 16 --biases --type F32 --seed 93',
    'hunyuan.f32': (
        '--arch hunyuan-moe --experts 7 --experts-used 3 --ff 96 --expert-ff 96 --shared-ff 96 --type F32 --seed 94'
    ),
    'hy3.f32': (
        '--arch hy_v3 --layers 4 --experts 9 --experts-used 3 --expert-ff 96 --shared-ff 192 --heads 6 --head-dim 64'
        ' --dense 1 --nextn 1 --biases --expert-scale 2.826 --type F32 --seed 95'
    ),
    'dots1.f32': (
        '--arch dots1 --kv 8 --experts 9 --experts-used 3 --expert-ff 96 --shared-ff 192 --head-dim 64 --dense 1'
        ' --biases --expert-scale 2.5 --type F32 --seed 96'
    ),
    'ernie45.f32': (
        '--arch ernie4_5-moe --experts 9 --experts-used 3 --expert-ff 96 --shared-ff 160 --dense 1 --biases --type F32'
        ' --seed 97'
    ),
    'seedoss.f32': '--arch seed_oss --heads 10 --kv 2 --head-dim 32 --biases --type F32 --seed 98',
    'afmoe.f32': (
        '--arch afmoe --layers 5 --experts 9 --experts-used 3 --expert-ff 96 --shared-ff 192 --heads 6 --head-dim 64'
        ' --dense 1 --biases --window 16 --expert-scale 2.826 --type F32 --seed 99'
    ),
    'exaone.f32': (
        '--arch exaone-moe --layers 5 --experts 9 --experts-used 3 --expert-ff 96 --shared-ff 96 --heads 6 --head-dim'
        ' 64 --dense 1 --biases --window 16 --expert-scale 2.5 --type F32 --seed 110'
    ),
    'bailing2.f32': (
        '--arch bailingmoe2 --experts 12 --experts-used 3 --expert-groups 4 --expert-groups-used 2 --expert-ff 96'
        ' --shared-ff 96 --dense 1 --rotated 16 --biases --expert-scale 2.5 --type F32 --seed 101'
    ),
    'bailing3.f32': (
        '--arch bailingmoe3 --layers 6 --experts 12 --experts-used 3 --expert-groups 4 --expert-groups-used 2'
        ' --expert-ff 96 --shared-ff 96 --head-dim 96 --rotated 32 --value-dim 64 --kv-lora 128 --dense 2 --delta-head'
        ' 48 --attention-every 3 --expert-scale 2.5 --type F32 --seed 102'
    ),
    'laguna.f32': (
        '--arch laguna --layers 5 --experts 9 --experts-used 3 --expert-ff 96 --shared-ff 160 --heads 6 --window-heads'
        ' 8 --head-dim 64 --rotated 32 --window 16 --dense 1 --biases --expert-scale 2.5 --type F32 --seed 103'
    ),
    'cohere2.f32': '--arch cohere2 --layers 5 --head-dim 32 --window 16 --tied --type F32 --seed 106',
    'cohere2moe.f32': (
        '--arch cohere2moe --layers 5 --experts 9 --experts-used 3 --expert-ff 96 --shared-ff 192 --head-dim 64'
        ' --window 16 --dense 1 --type F32 --seed 117'
    ),
    'apertus.f32': '--arch apertus --heads 6 --kv 2 --head-dim 64 --type F32 --seed 104',
    'mimo2.f32': (
        '--arch mimo2 --layers 5 --experts 9 --experts-used 3 --expert-ff 96 --heads 8 --kv 4 --full-kv 2 --head-dim 96'
        ' --value-dim 64 --rotated 32 --window 16 --dense 1 --biases --type F32 --seed 105'
    ),
    'yarn.told.f32': (
        '--rope-scaling yarn --rope-factor 8 --rope-orig 32 --ctx 256 --yarn-magnitude 1.3 --type F32 --seed 83'
    ),
    'yarn.told.mistral3.f32': (
        '--arch mistral3 --head-dim 64 --rope-scaling yarn --rope-factor 16 --rope-orig 16 --ctx 2048 --rope-base'
        ' 1000000 --yarn-magnitude 0.8 --type F32 --seed 84'
    ),
    'yarn.told.deepseek2.f32': (
        '--arch deepseek2 --experts 8 --experts-used 8 --expert-ff 96 --shared-ff 96 --head-dim 64 --rotated 32'
        ' --value-dim 32 --kv-lora 64 --q-lora 64 --dense 1 --sigmoid --biases --rope-scaling yarn --rope-factor 8'
        ' --rope-orig 64 --ctx 512 --log-multiplier 0.1 --yarn-magnitude 1.3 --type F32 --seed 85'
    ),
    'biases.q4_0': '--biases --type Q4_0 --seed 27',
}


def load(path):
    p = L.llama_model_default_params()
    p.n_gpu_layers, p.use_mmap = 0, False
    model = L.llama_model_load_from_file(path.encode(), p)
    assert model, path
    return model


def logits(model, ids, kv=0, batch=False, flash=False):  # kv: GGML_TYPE_F32
    """[n_tokens x n_vocab] float32"""
    p = L.llama_context_default_params()
    far, most = len(ids) > 256, batch if isinstance(batch, int) and batch > 1 else len(ids)
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = (
        len(ids) + 256 if far else 256,
        512 if far else 256,
        512 if far else 256,
        1,
        1,
    )
    p.type_k = p.type_v = kv
    p.flash_attn_type = L.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else L.LLAMA_FLASH_ATTN_TYPE_DISABLED
    ctx = L.llama_init_from_model(model, p)
    assert ctx
    n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    out = np.empty((len(ids), n_vocab), np.float32)
    b = L.llama_batch_init(len(ids), 0, 1)
    most = min(most, 512) if batch else 1
    for at in range(0, len(ids), most):
        b.n_tokens = step = min(most, len(ids) - at)
        for i in range(step):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = ids[at + i], at + i, 1, 1
            b.seq_id[i][0] = 0
        assert L.llama_decode(ctx, b) == 0
        for i in range(step):
            out[at + i] = np.ctypeslib.as_array(L.llama_get_logits_ith(ctx, i), (n_vocab,))
    L.llama_batch_free(b)
    L.llama_free(ctx)
    return out


def expand(path, out):
    p = L.llama_model_quantize_default_params()
    p.ftype, p.allow_requantize, p.nthread, p.pure = L.LLAMA_FTYPE_ALL_F32, True, 1, True
    assert L.llama_model_quantize(path.encode(), out.encode(), ctypes.byref(p)) == 0


def distance(a, b, sd):
    d = a.astype(np.float64) - b
    return {'rms_over_sd': float('%.3g' % (np.sqrt((d * d).mean()) / sd)), 'max_abs': float('%.3g' % np.abs(d).max())}


BY_TRANSFORMERS = ('--arch qwen4exp', '--yarn-magnitude')


def wants_transformers(options):
    import shapes

    at = options.index('--arch') if '--arch' in options else 0
    return any(o in ' '.join(options) for o in BY_TRANSFORMERS) or shapes.needs_plain(options[at:])


def by_transformers(path, ids, quantized):
    import plain
    import qwen4

    if plain.File(path).arch != 'qwen4exp':
        model = plain.load(path)
        ref, f16 = qwen4.logits(model, ids), plain.logits_f16kv(model, ids)
        if quantized:
            plain.round_inputs(model)
        return qwen4.logits(model, ids) if quantized else ref, ref, f16
    model = qwen4.load(path)
    ref = qwen4.logits(model, ids)
    if quantized:
        qwen4.round_inputs(model)
    main = qwen4.logits(model, ids)
    return main, ref, main


def record(name, options, tmp, rng, ids, positions, ref, main, in_batch, f16):
    n_ids, n_vocab = len(ids), ref.shape[1]
    rows, sd = ref[positions], float(ref[positions].std())
    top = np.sort(rows, axis=1)[:, -2:]
    indices = sorted(rng.sample(range(n_vocab), N_INDICES))
    digest = hashlib.sha256()
    for f in sorted(os.listdir(tmp)):
        if f not in ('f32.gguf', 'whole.gguf'):
            digest.update(open(os.path.join(tmp, f), 'rb').read())
    return {
        'name': name,
        'options': ' '.join(options),
        'sha256': digest.hexdigest(),
        'n_vocab': n_vocab,
        **({'n_ids': n_ids} if name in FAR else {'ids': ids}),
        'positions': positions,
        'argmax': rows.argmax(1).tolist(),
        'gap': [float('%.4g' % g) for g in top[:, 1] - top[:, 0]],
        'logit_sd': float('%.6g' % sd),
        'main_vs_ref': distance(main[positions], rows, sd),
        'batch_vs_main': distance(in_batch[positions], main[positions], sd),
        'f16kv_vs_main': distance(f16[positions], main[positions], sd),
        'indices': indices,
        'logits': [[float('%.6g' % x) for x in r] for r in rows[:, indices]],
    }


def make_by_transformers(name, options, path, tmp):
    import qwen4

    n_vocab = qwen4.File(path).key('vocab_size')
    rng = random.Random(name)
    ids = [1] + [rng.randrange(2, n_vocab) for _ in range(N_TOKENS - 1)]
    if 'qwen4exp' in options:
        ids[7] = ids[8] = ids[40] = 2  # texts end, and others begin
    main, ref, f16 = by_transformers(path, ids, options[options.index('--type') + 1] in ('Q8_0', 'MXFP4'))
    return record(name, options, tmp, rng, ids, POSITIONS, ref, main, main, f16)


def make(mkmodel, name, args, tmp):
    path = os.path.join(tmp, 'm.gguf')
    options = (SHAPE + ' ' + args).split()
    subprocess.run([mkmodel] + options + [path], check=True, stdout=subprocess.DEVNULL)
    first = path if os.path.exists(path) else sorted(os.path.join(tmp, f) for f in os.listdir(tmp))[0]
    if wants_transformers(options):
        return make_by_transformers(name, options, first, tmp)
    model = load(first)
    n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    rng = random.Random(name)
    positions = FAR.get(name, POSITIONS)
    n_ids, by = (positions[-1] + 1, 384) if name in FAR else (N_TOKENS, False)
    ids = [1] + [rng.randrange(3, n_vocab) for _ in range(n_ids - 1)]
    main, in_batch, f16 = (
        logits(model, ids, batch=by, flash=name in FLASH),
        logits(model, ids, batch=True, flash=name in FLASH),
        logits(model, ids, kv=L.GGML_TYPE_F16, batch=by, flash=name in FLASH),
    )
    L.llama_model_free(model)
    whole = os.path.join(tmp, 'whole.gguf')
    if first != path:  # the reference of a split model is the same model in one file
        at = options.index('--split')
        subprocess.run([mkmodel] + options[:at] + options[at + 2 :] + [whole], check=True, stdout=subprocess.DEVNULL)
    expand(whole if first != path else path, os.path.join(tmp, 'f32.gguf'))
    model = load(os.path.join(tmp, 'f32.gguf'))
    ref = logits(model, ids, batch=by, flash=name in FLASH)
    L.llama_model_free(model)
    return record(name, options, tmp, rng, ids, positions, ref, main, in_batch, f16)


def main():
    if L:
        L.llama_log_set(quiet, None)
        L.llama_backend_init()
    mkmodel, wanted = sys.argv[1], sys.argv[2:] or list(CASES)
    cases = []
    for name in wanted:
        with tempfile.TemporaryDirectory() as tmp:
            cases.append(make(mkmodel, name, CASES[name], tmp))
        c = cases[-1]
        print(
            '%-18s sd %.3g  main-ref %.2g  batch %.2g  f16kv %.2g'
            % (
                name,
                c['logit_sd'],
                c['main_vs_ref']['rms_over_sd'],
                c['batch_vs_main']['rms_over_sd'],
                c['f16kv_vs_main']['rms_over_sd'],
            )
        )
    made_by = 'make.py with llama-cpp-python %s' % (L and L.__version__)
    if sys.argv[2:]:
        with open(os.path.join(HERE, 'golden.json')) as f:
            before = json.load(f)
        made_by, all_cases = before['made_by'], {c['name']: c for c in before['cases']}
        all_cases.update({c['name']: c for c in cases})
        cases = [all_cases[name] for name in CASES]
    with open(os.path.join(HERE, 'golden.json'), 'w') as f:
        f.write('{"made_by": "%s",\n"cases": [\n' % made_by)
        f.write(',\n'.join(json.dumps(c, separators=(',', ':')) for c in cases))
        f.write('\n]}\n')


quiet = L and L.llama_log_callback(lambda level, text, data: None)

if __name__ == '__main__':
    main()
