#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""200 random shapes of each architecture against llama.cpp: shapes.py with llama-cpp-python from PyPI.

Part of tests/run --long. NTX_ORACLE names an environment that has it already, NTX_SHAPES another number of shapes.
"""

import os
import subprocess
import sys
import tempfile
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ['numpy', 'llama-cpp-python==0.3.36']
PLAIN = (  # as make.py has it
    '-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_CPU_REPACK=OFF -DGGML_OPENMP=OFF'
)


def skip(why):
    print('skipped:', why)
    sys.exit(77)


def main():
    if not os.environ.get('NTX_LONG'):
        skip('random shapes beside llama.cpp are part of tests/run --long (NTX_LONG is set there)')
    if int(os.environ.get('NTX_TEST_SLOW', 1)) > 1:
        skip('run as shipped; with sanitizers forward-golden-shapes computes a dozen of each')
    with tempfile.TemporaryDirectory(prefix='ntx-shapes-') as tmp:
        home = os.environ.get('NTX_ORACLE') or tmp
        python = os.path.join(home, 'bin', 'python')
        if home == tmp:
            venv.create(tmp, with_pip=True)
            got = subprocess.run(
                [
                    python,
                    '-m',
                    'pip',
                    'install',
                    '-q',
                    '--disable-pip-version-check',
                    '--no-binary',
                    'llama-cpp-python',
                    *PACKAGES,
                ],
                env=dict(os.environ, CMAKE_ARGS=PLAIN),
                capture_output=True,
                text=True,
            )
            if got.returncode:
                skip('llama-cpp-python cannot be had from PyPI: ' + (got.stderr.strip().splitlines() or [''])[-1])
        return subprocess.run(
            [python, os.path.join(HERE, 'shapes.py'), os.environ['NTX_BIN'], os.environ.get('NTX_SHAPES', '200')]
        ).returncode


if __name__ == '__main__':
    sys.exit(main())
