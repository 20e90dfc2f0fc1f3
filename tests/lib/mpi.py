# SPDX-License-Identifier: Apache-2.0
"""The environment in which mpirun starts several ranks on this machine, as root too."""

import os


def environment(folder, **more):
    """All that the ranks write lies in `folder`."""
    return dict(
        os.environ,
        NTX_RUNTIME=folder,
        TMPDIR=folder,
        XDG_RUNTIME_DIR=folder,
        XDG_CACHE_HOME=folder,
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        OMPI_MCA_btl="self,tcp",
        OMPI_MCA_btl_tcp_if_include="lo",
        OMPI_MCA_pml="ob1",
        OMPI_MCA_plm_rsh_agent="",
        **more,
    )
