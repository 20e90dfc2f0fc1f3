#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published models, by bench/real/suite.py: texts of many languages, greedy texts by other ways, chats, tool calls, and
what K and V in q8_0 and q4_0 cost. With NTX_LONG, and models in the folder NTX_REAL; skipped otherwise."""

import glob
import os
import subprocess
import sys

folder = os.environ.get('NTX_REAL', '')
models = sorted(glob.glob(os.path.join(folder, '*.gguf'))) if folder else []
if not os.environ.get('NTX_LONG') or not models:
    print('skipped: NTX_LONG is not set, or NTX_REAL names no folder of published models')
    sys.exit(77)
suite = os.path.join(os.environ['NTX_SOURCE'], 'bench', 'real', 'suite.py')
vocab = os.path.join(os.environ.get('NTX_DATA', ''), 'vocab', 'ggml-vocab-qwen2.gguf')
more = ['--vocab', vocab] if os.path.exists(vocab + '.inp') else []
sys.exit(subprocess.run([sys.executable, suite, *models, *more]).returncode)
