#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ntx quantize` beside llama-quantize on some layers of a published model: the KL divergence and the processor time.

    bench/real/layers.py MODEL.gguf TEXT LLAMA_FOLDER IMATRIX TYPE... [--layers 5,20] [--windows 2]

All layers would take hours on two processors. The matrices of --layers are dequantised, and each block of 32 gets
Gaussian noise of 7 % of its mean size, about the rounding error of four bits, so that no quantiser finds the file's own
grid again. That is the source in F16, and the base of the KL divergence. Both quantisers get a file of these layers
alone and the same importance matrix; their result takes the place of the layers in MODEL, and llama-perplexity measures
both. Needs Python with numpy and gguf. NTX_BIN: build/bin.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, dequantize


def keys(reader, writer):
    for f in reader.fields.values():
        if f.name.startswith('GGUF.') or f.name == 'general.architecture' or f.name.startswith('quantize.'):
            continue
        kind = f.types[0]
        writer.add_key_value(f.name, f.contents(), kind, f.types[-1] if kind == GGUFValueType.ARRAY else None)


def write(path, reader, tensors):
    """tensors: (name, data, type or None)"""
    w = GGUFWriter(path, reader.fields['general.architecture'].contents())
    keys(reader, w)
    for name, data, kind in tensors:
        w.add_tensor(name, data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def smeared(t, draw):
    x = dequantize(t.data, t.tensor_type).astype(np.float32)
    blocks = x.reshape(-1, 32)
    size = np.sqrt((blocks * blocks).mean(1, keepdims=True))
    blocks += 0.07 * size * draw.standard_normal(blocks.shape, dtype=np.float32)
    return x.astype(np.float16)


def timed(*cmd, env=None):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    r = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env)
    if r.returncode:
        sys.exit('%s: status %d: %s' % (' '.join(cmd), r.returncode, r.stdout.decode(errors='replace')[-1500:]))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime, r.stdout.decode(errors='replace')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('model')
    p.add_argument('text')
    p.add_argument('llama')
    p.add_argument('imatrix')
    p.add_argument('type', nargs='+')
    p.add_argument('--layers', default='5,20')
    p.add_argument('--ctx', type=int, default=256)
    p.add_argument('--windows', type=int, default=2)
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--threads', type=int, default=2, help='of llama-perplexity')
    a = p.parse_args()
    env, draw = dict(os.environ, LD_LIBRARY_PATH=a.llama), np.random.default_rng(a.seed)
    ntx = os.path.join(os.environ.get('NTX_BIN', 'build/bin'), 'ntx')
    whole = GGUFReader(a.model)
    here = re.compile(r'blk\.(%s)\..*(q|k|v|output|gate|up|down)\.weight' % a.layers.replace(',', '|'))
    part = {t.name: smeared(t, draw) for t in whole.tensors if here.fullmatch(t.name)}
    with tempfile.TemporaryDirectory(prefix='ntx-layers-') as tmp:
        source, made, joined, base = (os.path.join(tmp, n) for n in ('source.gguf', 'made.gguf', 'joined.gguf', 'base'))
        write(source, whole, [(n, x, None) for n, x in part.items()])

        def join(path):
            new = {t.name: t for t in GGUFReader(path).tensors}
            write(joined, whole, [(t.name, t.data, t.tensor_type) for t in (new.get(t.name, t) for t in whole.tensors)])

        def measure(*more):
            settings = [
                '-f',
                a.text,
                '-c',
                str(a.ctx),
                '-b',
                str(a.ctx),
                '--chunks',
                str(a.windows),
                '-t',
                str(a.threads),
            ]
            return timed(
                os.path.join(a.llama, 'llama-perplexity'),
                '-m',
                joined,
                *settings,
                '--kl-divergence-base',
                base,
                *more,
                env=env,
            )[1]

        join(source)
        measure()
        print(
            '| type | quantiser | bytes | error | KL | same token | CPU s |\n|---|---|---|---|---|---|---|', flush=True
        )
        for kind in a.type:
            for who in ('ntx', 'llama-quantize'):
                if who == 'ntx':
                    cmd = [ntx, 'quantize', source, made, kind, '--pure', '--imatrix', a.imatrix, '-t', str(a.threads)]
                else:
                    cmd = [
                        os.path.join(a.llama, 'llama-quantize'),
                        '--pure',
                        '--imatrix',
                        a.imatrix,
                        source,
                        made,
                        kind,
                    ]
                seconds, _ = timed(*cmd, *([] if who == 'ntx' else [str(a.threads)]), env=env)
                off = size = bytes_ = 0
                for t in GGUFReader(made).tensors:
                    x, y = part[t.name].astype(np.float32), dequantize(t.data, t.tensor_type)
                    off, size, bytes_ = (
                        off + float(((x - y) ** 2).sum()),
                        size + float((x**2).sum()),
                        bytes_ + int(t.n_bytes),
                    )
                join(made)
                os.remove(made)
                said = measure('--kl-divergence')
                kl = re.search(r'Mean +KLD: +([-\d.]+) ± +([\d.]+)', said)
                same = re.search(r'Same top p: +([\d.]+)', said)
                print(
                    '| %s | %s | %d | %.4f | %s ± %s | %s %% | %.1f |'
                    % (kind, who, bytes_, (off / size) ** 0.5, kl[1], kl[2], same[1], seconds),
                    flush=True,
                )


main()
