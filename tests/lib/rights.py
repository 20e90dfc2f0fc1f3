# SPDX-License-Identifier: Apache-2.0
"""A service, and a member of its group that is another user. The test has to be root to become one."""

import os
import tempfile
import traceback

from daemons import Daemons, equal

NOBODY = 65534
tmp = tempfile.TemporaryDirectory(prefix="ntx-server-conf-")


def service(conf, *options):
    """The daemons as a service with this configuration, in a directory that members may enter."""
    path = os.path.join(tmp.name, "ntx.conf")
    with open(path, "w") as f:
        f.write(conf)
    d = Daemons("--service", "--config", path, *options, restart=False)
    os.chmod(d.dir, 0o755)
    return d


def as_member(d, act):
    """Runs act(client) as another user who is in the socket's group."""
    if not (pid := os.fork()):
        code = 1
        try:
            os.setgroups([os.getgid()])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            act(d.client())
            code = 0
        except SystemExit as e:
            code = e.code
        except BaseException:
            traceback.print_exc()
        os._exit(code or 0)
    equal(os.waitpid(pid, 0)[1], 0, "a member's part: exit code")
