"""The interpreter that enters a container, kept from what runs there.

A program of the container's is started by this very process, and until then /proc/self/exe leads to the
machine's Python: a link to it in place of a program, and root of the container changes it (CVE-2019-5736 was
that). So root runs it from a read-only mount, in a mount namespace of its own.
"""

from __future__ import annotations

import os
import sys

from dshpc_setup.builtin import kernel


def protect() -> None:
    """Start this program once more from a read-only mount of its interpreter; OSError.

    Only for root: any other user's container has no right to a file that is not this user's own. Returns
    where that is done already, or the file system is read-only anyhow.
    """
    if os.geteuid() != 0 or os.statvfs("/proc/self/exe").f_flag & os.ST_RDONLY:
        return
    program = os.path.realpath("/proc/self/exe")
    kernel.unshare(kernel.NEWNS)
    # What the machine mounts later is seen here, and not the other way round
    kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.SLAVE)
    kernel.mount(program, program, flags=kernel.BIND)
    kernel.mount("none", program, flags=kernel.BIND | kernel.REMOUNT | kernel.READONLY)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
