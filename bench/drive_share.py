#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What share of the drive's rate a disk-bound decode gets: windows of decode and of fio in turn, in one run.

    bench/drive_share.py MODEL.gguf [--build build] [--tokens 40] [--decode 3] [--fio 2] [-- OPTION...of ntx bench]

ntx-computed is stopped (SIGSTOP) while fio reads the same file (io_uring, O_DIRECT, huge pages; 512 KiB and 1 MiB at
depths 4 and 8), so that both see the same minutes of a drive whose rate changes by the second. fio's rate is that of
the one of its four configurations that is fastest over the whole run: the best of each four short windows would be the
best of their noise. A window counts if that configuration's windows before and after it differ by at most 10 %; its
share is its rate over their mean. The reader's share is over the rate of bench/stream/ceiling.c before and after it,
where a thread reads each buffer once, as inference must and fio does not. The last line compares the means of all
windows, void ones included. Rates are bytes that the process had the block layer read, per second.

Needs root (huge pages for fio, /proc/PID/io) and fio. Prints CSV, then the medians of the windows that count, and
ntx-iod's CPU time.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time

FIO = [('512k', 4), ('512k', 8), ('1m', 4), ('1m', 8)]
HUGE = '/proc/sys/vm/nr_hugepages'


def child(parent, name):
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            comm = open(f'/proc/{pid}/comm').read().strip()
            ppid = int(open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1])
        except OSError:
            continue
        if comm == name and ppid == parent:
            return int(pid)
    return None


def bytes_read(pid):
    for line in open(f'/proc/{pid}/io'):
        if line.startswith('read_bytes'):
            return int(line.split()[1])


def cpu_s(pid):
    f = open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()
    return (int(f[11]) + int(f[12])) / os.sysconf('SC_CLK_TCK')


def fio(path, bs, depth, seconds):
    out = subprocess.run(
        [
            'fio',
            '--name=r',
            '--filename=' + path,
            '--readonly',
            '--direct=1',
            '--ioengine=io_uring',
            '--rw=read',
            f'--bs={bs}',
            f'--iodepth={depth}',
            '--mem=mmaphuge',
            '--hugepage-size=2m',
            f'--runtime={seconds}',
            '--time_based',
            '--size=100%',
            '--output-format=terse',
        ],
        capture_output=True,
        text=True,
    ).stdout
    return float(next(s for s in out.split('\n') if s.startswith('3;')).split(';')[6]) * 1024 / 1e9


def with_reader(build, path, seconds):
    out = subprocess.run(
        [build + '/tests/bench_ceiling', path, str(seconds), '1'], capture_output=True, text=True, check=True
    ).stdout
    return float(out.split(',')[2])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('model')
    ap.add_argument('--build', default='build')
    ap.add_argument('--tokens', type=int, default=40)
    ap.add_argument('--decode', type=float, default=3)
    ap.add_argument('--fio', type=float, default=1)
    argv = sys.argv[1:]
    cut = argv.index('--') if '--' in argv else len(argv)
    a, options = ap.parse_args(argv[:cut]), argv[cut + 1 :]
    subprocess.run(['cmake', '--build', a.build, '--target', 'bench_ceiling'], check=True, stdout=subprocess.DEVNULL)
    old = open(HUGE).read()
    p = subprocess.Popen(
        [a.build + '/bin/ntx', 'bench', a.model, '-p', '1', '-n', str(a.tokens), '-r', '1', '--json'] + options,
        stdout=subprocess.PIPE,
    )
    computed = iod = None
    while not (iod and computed):
        time.sleep(0.1)
        iod, computed = child(p.pid, 'ntx-iod'), child(p.pid, 'ntx-computed')
    time.sleep(5)  # loaded, and into the decode
    open(HUGE, 'w').write('16')
    rows = []
    try:
        while p.poll() is None:
            os.kill(computed, signal.SIGSTOP)
            time.sleep(0.1)
            ceiling = [fio(a.model, bs, depth, a.fio) for bs, depth in FIO]
            reader = with_reader(a.build, a.model, a.fio)
            os.kill(computed, signal.SIGCONT)
            time.sleep(0.2)
            b, c, t = bytes_read(iod), cpu_s(iod), time.monotonic()
            time.sleep(a.decode)
            d = time.monotonic() - t
            rows.append((ceiling, reader, (bytes_read(iod) - b) / d / 1e9, (cpu_s(iod) - c) / d))
    except (OSError, TypeError, StopIteration):
        pass  # it ended
    finally:
        if p.poll() is None:
            os.kill(computed, signal.SIGCONT)
        open(HUGE, 'w').write(old)
    p.wait()
    means = [statistics.mean(c) for c in zip(*(r[0] for r in rows))]
    best = means.index(max(means))
    for (bs, depth), rate in zip(FIO, means):
        print('# fio %s x %d: %.2f GB/s over the run' % (bs, depth, rate))
    rows = [(ceiling[best], *rest) for ceiling, *rest in rows]
    kept = []
    print('fio_before_gb_s,reader_before,decode_gb_s,fio_after,reader_after,share,reader_share,iod_cpu,counts')
    for (f0, r0, rate, cpu), (f1, r1, _, _) in zip(rows, rows[1:]):
        row = (rate / ((f0 + f1) / 2), rate / ((r0 + r1) / 2), cpu)
        counts = abs(f0 - f1) <= 0.1 * max(f0, f1)
        print('%.2f,%.2f,%.2f,%.2f,%.2f,%.3f,%.3f,%.3f,%s' % (f0, r0, rate, f1, r1, *row, 'yes' if counts else 'void'))
        if counts:
            kept.append(row)
    if kept:
        share, reader, cpu = (statistics.median(c) for c in zip(*kept))
        print(
            '# medians of %d windows (%d void): %.3f of fio, %.3f of the drive with a reader, ntx-iod %.1f %% of a core'
            % (len(kept), max(len(rows) - 1, 0) - len(kept), share, reader, 100 * cpu)
        )
    f, r, d, _ = (statistics.mean(c) for c in zip(*rows))
    print(
        '# means of all %d windows, GB/s: fio %.2f, reader %.2f, decode %.2f: %.3f and %.3f'
        % (len(rows), f, r, d, d / f, d / r)
    )


if __name__ == '__main__':
    main()
