#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models of transformers' classes, converted by llama.cpp's converter, beside both: official.py, towers.py for
vision towers, and official_images.py for texts with pictures.

Part of tests/run --long. NTX_ORACLE names an environment with numpy, torch, transformers and llama-cpp-python, and
NTX_CONVERTER llama.cpp's convert_hf_to_gguf.py (it is in llama-cpp-python's source package).
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def skip(why):
    print('skipped:', why)
    sys.exit(77)


def main():
    if not os.environ.get('NTX_LONG'):
        skip('models of published classes are part of tests/run --long (NTX_LONG is set there)')
    if int(os.environ.get('NTX_TEST_SLOW', 1)) > 1:
        skip('run as shipped; with sanitizers golden-made computes a model of each family')
    home, converter = os.environ.get('NTX_ORACLE'), os.environ.get('NTX_CONVERTER')
    python = os.path.join(home, 'bin', 'python') if home else sys.executable
    needs = 'import llama_cpp, numpy, torch, transformers'
    if subprocess.run([python, '-c', needs], capture_output=True).returncode:
        skip('torch, transformers or llama-cpp-python is missing (NTX_ORACLE names an environment that has them)')
    if not converter:
        skip('NTX_CONVERTER does not name convert_hf_to_gguf.py of llama.cpp')
    binaries = os.environ['NTX_BIN']
    tests = os.path.join(os.path.dirname(os.path.abspath(binaries)), 'tests')
    texts = subprocess.run([python, os.path.join(HERE, 'official.py'), binaries, converter]).returncode
    towers = subprocess.run([python, os.path.join(HERE, 'towers.py'), tests, converter]).returncode
    sees = subprocess.run([python, os.path.join(HERE, 'official_images.py'), binaries, converter]).returncode
    return texts or towers or sees


if __name__ == '__main__':
    sys.exit(main())
