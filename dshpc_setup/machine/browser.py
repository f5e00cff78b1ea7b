"""An address opened in a browser, where there is one."""

from __future__ import annotations

import contextlib
import html
import os
import tempfile
import threading
from collections.abc import Iterator

from dshpc_setup.machine import Machine

_BROWSERS = ("xdg-open", "wslview", "open")
_OPEN_S = 20.0


@contextlib.contextmanager
def opened(machine: Machine, url: str, title: str) -> Iterator[None]:
    """Have a browser open it, where there is one, and a desktop.

    Its command line tells all users of the machine what it is to open: a page of ours in a folder of ours,
    which leads on to the address with the token.
    """
    program = next((each for each in _BROWSERS if machine.which(each)), None)
    seen = machine.system[0] == "Darwin" or any(
        machine.env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")
    )
    if program is None or not seen:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="dshpc-browser-") as folder:
        path = os.path.join(folder, "open.html")
        with open(path, "x", encoding="utf-8") as file:
            file.write(
                '<!doctype html><html lang="en"><meta charset="utf-8">'
                f"<title>{html.escape(title)}</title>"
                f'<meta http-equiv="refresh" content="0; url={html.escape(url)}">'
            )
        argv = [program, path]
        threading.Thread(target=lambda: machine.run(argv, deadline_s=_OPEN_S), daemon=True).start()
        yield
