# SPDX-License-Identifier: Apache-2.0
"""What the tests of quality measures share: a temporary folder, models, and `ntx` with its output."""

import os
import subprocess
import sys
import tempfile

BIN = os.environ.get('NTX_BIN') or sys.exit('run through ctest, or set NTX_BIN to build/bin')
SLOW = float(os.environ.get('NTX_TEST_SLOW', '1'))
_dir = tempfile.TemporaryDirectory(prefix='ntx-test-')
TMP = _dir.name


def path(name):
    return os.path.join(TMP, name)


def write(name, text):
    with open(path(name), 'w') as f:
        f.write(text)
    return path(name)


def fail(text):
    print('FAILED:', text, file=sys.stderr)
    sys.exit(1)


def check(ok, text):
    if not ok:
        fail(text)


def close(a, b, tolerance, what):
    check(abs(a - b) <= tolerance, '%s: %r is not %r within %g' % (what, a, b, tolerance))


def model(name, *options):
    subprocess.run([os.path.join(BIN, 'ntx-mkmodel'), *options, path(name)], check=True, stdout=subprocess.DEVNULL)
    return path(name)


def ntx(*args):
    r = subprocess.run(
        [os.path.join(BIN, 'ntx'), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        timeout=100 * SLOW,
    )
    check(r.returncode == 0, 'ntx %s: exit %d: %s' % (' '.join(args), r.returncode, r.stderr.decode(errors='replace')))
    return r.stdout.decode()


def refused(code, pattern, *args):
    """Exits with `code` and one line that holds `pattern`."""
    r = subprocess.run(
        [os.path.join(BIN, 'ntx'), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        timeout=100 * SLOW,
    )
    err = r.stderr.decode(errors='replace')
    check(r.returncode == code, 'ntx %s: exit %d, not %d: %s' % (' '.join(args), r.returncode, code, err))
    check(
        pattern in err and len(err.splitlines()) == 1,
        "ntx %s: '%s' is not one line with '%s'" % (' '.join(args), err.strip(), pattern),
    )
