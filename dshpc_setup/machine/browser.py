"""An address opened in the user's browser, where there is one.

Its command line tells all users of the machine what it is to open: a page of ours in a folder of ours, which
leads on to the address with the token.
"""

from __future__ import annotations

import contextlib
import html
import os
import tempfile
import threading
from collections.abc import Iterator

from dshpc_setup.machine import Machine

OPEN_S = 20.0
_PROGRAMS = ("xdg-open", "wslview", "open")


@contextlib.contextmanager
def opened(machine: Machine, url: str, title: str) -> Iterator[None]:
    """Have it open the address; the page that leads there is gone at the end."""
    found = program(machine)
    if found is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="dshpc-browser-") as folder:
        path = os.path.join(folder, "open.html")
        with open(path, "x", encoding="utf-8") as file:
            file.write(page(url, title))
        argv = [found, path]
        threading.Thread(target=lambda: machine.run(argv, deadline_s=OPEN_S), daemon=True).start()
        yield


def program(machine: Machine) -> str | None:
    """What opens a page for who sits here; None without a desktop."""
    seen = machine.system[0] == "Darwin" or any(
        machine.env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")
    )
    found = next((each for each in _PROGRAMS if machine.which(each)), None)
    return found if seen else None


def page(url: str, title: str) -> str:
    """One that leads on to the address."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title>"
        f'<meta http-equiv="refresh" content="0; url={html.escape(url)}">'
    )
