#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The logits of the trained models against those that PyTorch computed from the same files.

They are in torch.json, by models/train/logits.py. Models that no other program loads have no other reference.
"""

import array
import json
import os
import subprocess
import sys
import tempfile

SOURCE, BIN = os.environ.get('NTX_SOURCE'), os.environ.get('NTX_BIN')
if not SOURCE or not BIN:
    sys.exit('run through ctest, or set NTX_SOURCE and NTX_BIN')
FAR = 0.02  # ntx keeps K and V in F16


def logits(model, ids, out):
    subprocess.run(
        [
            os.path.join(BIN, 'ntx'),
            'logits',
            os.path.join(SOURCE, 'models', model),
            '--tokens',
            ','.join(map(str, ids)),
            '-o',
            out,
            '--quiet',
        ],
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )
    flat = array.array('f')
    with open(out, 'rb') as f:
        flat.frombytes(f.read())
    n = len(flat) // len(ids)
    return [flat[at : at + n] for at in range(0, len(flat), n)]


def differences(model, recorded, tmp):
    rows = logits(model, recorded['ids'], os.path.join(tmp, 'logits'))
    for at, top in zip(range(7, len(rows), 8), recorded['top']):
        for i, was in top:
            if not abs(rows[at][i] - was) < FAR:
                yield '%s: after token %d the logit of %d is %.4f, not %.4f' % (model, at, i, rows[at][i], was)


def main():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'torch.json')) as f:
        recorded = json.load(f)
    with tempfile.TemporaryDirectory(prefix='ntx-test-') as tmp:
        wrong = [d for name, r in recorded.items() for d in differences(name, r, tmp)]
    wrong += [name + ' has too many active neurons' for name, r in recorded.items() if r.get('active', 0) > 0.2]
    print('\n'.join(wrong) or 'as PyTorch computes them: ' + ', '.join(recorded))
    return bool(wrong)


sys.exit(main())
