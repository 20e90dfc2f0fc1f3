#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""models.py NTX: prints the table of docs/models.md: for each model by name its size, the weights that a token uses,
and the speeds that `ntx plan` predicts for three machines."""

import json
import re
import subprocess
import sys

MACHINES = ('ram=16G,drive=3.3G', 'ram=64G,drive=7G', 'ram=64G,drive=7G,gpu=3090,pcie=4x16')
TYPES = ('q4_k_m', 'q8_0', 'mxfp4')  # the first that the model's rows allow


def figure(v):
    return '%.0f' % v if v >= 10 else '%.2g' % v


def plan(ntx, model, machine):
    for kind in ('mxfp4', *TYPES) if model.startswith('gpt-oss') else TYPES:
        p = subprocess.run(
            [ntx, 'plan', '%s@%s' % (model, kind), '--machine', machine, '--json'], capture_output=True, text=True
        )
        if not p.returncode:
            return kind, json.loads(p.stdout)
    sys.exit('%s: %s' % (model, p.stderr))


def main():
    ntx = sys.argv[1]
    listed = subprocess.run([ntx, 'plan', '--list'], capture_output=True, text=True, check=True).stdout
    names = re.search(r'^models:(.*?)^types:', listed, re.S | re.M)[1].split()
    print('| model | type | GB | GB a token | A | B | C |\n|---|---|---|---|---|---|---|')
    for name in names:
        plans = [plan(ntx, name, machine) for machine in MACHINES]
        kind, first = plans[0]
        print(
            '| %s | %s | %s | %s | %s |'
            % (
                name,
                kind,
                figure(first['bytes_model'] / 1e9),
                figure(first['bytes_token'] / 1e9),
                ' | '.join(figure(j['predicted_tok_s']) for _, j in plans),
            )
        )


if __name__ == '__main__':
    main()
