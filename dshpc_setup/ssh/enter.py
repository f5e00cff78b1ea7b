"""`ssh-enter NAME [--wait=SECONDS] [--say]`: stdin and stdout joined to the listener of a job.

What the engine's exec, or srun, runs for each connection, so imports are counted here. Where the home is this
machine's own, its socket is there, too: `at_hand` takes it without the engine.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time

from dshpc_setup.files.streams import write_all
from dshpc_setup.ssh import place

_BLOCK = 1 << 18
_AGAIN_S = 0.05
_GREETING_S = 5.0


def main() -> int:
    """The exit code: NONE_THERE, with nothing read, where nobody listens."""
    words = sys.argv[1:]
    name = words[0]
    wait_s = next((float(w[7:]) for w in words if w.startswith("--wait=")), 0.0)
    try:
        place.enter()
    except OSError as error:
        sys.stderr.write(f"dshpc: {error.filename}: {error.strerror}\n")
        return 2
    joined = _connected(f"{name}.sock", wait_s)
    if joined is None:
        return place.NONE_THERE
    return _carry(joined, f"{name}.say" if "--say" in words else None)


def at_hand(folder: str, name: str, *, say: bool) -> int | None:
    """Join them to the listener `name` in a folder of this machine; None, with nothing read, where none of
    ours listens there: on another machine that has the same home, in a virtual machine of the engine's."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    if not place.is_ours(os.fstat(handle)):
        return None
    within = f"/proc/self/fd/{handle}"  # a socket's path is short
    joined = _connected(f"{within}/{name}.sock", 0.0)
    if joined is None or place.peer(joined) != os.geteuid():
        return None
    # A server speaks first; a listener that knows us by another number has hung up
    joined.settimeout(_GREETING_S)
    try:
        if not joined.recv(1, socket.MSG_PEEK):
            return None
    except OSError:
        return None
    joined.settimeout(None)
    return _carry(joined, f"{within}/{name}.say" if say else None)


def _carry(joined: socket.socket, say: str | None) -> int:
    if say is not None and (said := place.read(say)):
        sys.stderr.write(said)
        sys.stderr.flush()
    threading.Thread(target=_copy_in, args=(joined,), daemon=True).start()
    _copy_out(joined)
    os._exit(0)  # the other one may wait for a word of the client for ever


def _connected(path: str, wait_s: float) -> socket.socket | None:
    until = time.monotonic() + wait_s
    while True:
        made = socket.socket(socket.AF_UNIX)
        try:
            made.connect(path)
        except OSError:
            made.close()
        else:
            return made
        if time.monotonic() >= until:
            return None
        time.sleep(_AGAIN_S)


def _copy_in(joined: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := os.read(0, _BLOCK):
            joined.sendall(block)
    with contextlib.suppress(OSError):
        joined.shutdown(socket.SHUT_WR)


def _copy_out(joined: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := joined.recv(_BLOCK):
            write_all(1, block)
