"""`ssh-enter NAME [--wait=SECONDS] [--say]`: stdin and stdout joined to the listener of a job.

What the engine's exec, or srun, runs for each connection, so imports are counted here.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time

from dshpc_setup.ssh import place

_BLOCK = 1 << 18
_AGAIN_S = 0.05


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
    if "--say" in words and (said := place.read(f"{name}.say")):
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
            view = memoryview(block)
            while view:
                view = view[os.write(1, view) :]
