"""The user's browser, opened where there is one.

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

from dshpc_setup.files.atomic import write_atomic
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project

_PROGRAMS = ("xdg-open", "wslview", "open")
_OPEN_S = 20.0
_LEADS_ON = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>dshpc dashboard</title>'
    '<meta http-equiv="refresh" content="0; url={url}">'
)


@contextlib.contextmanager
def opened(machine: Machine, url: str) -> Iterator[None]:
    """Have it open the address; the page that leads there is gone at the end."""
    program = _program(machine)
    if program is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="dshpc-dashboard-") as folder:
        path = os.path.join(folder, "open.html")
        with open(path, "x", encoding="utf-8") as file:
            file.write(_page(url))
        argv = [program, path]
        threading.Thread(target=lambda: machine.run(argv, deadline_s=_OPEN_S), daemon=True).start()
        yield


def open_now(machine: Machine, project: Project, url: str) -> None:
    """The same for who does not stay: the page stays, beside the token that is kept."""
    program = _program(machine)
    if program is None:
        return
    path = project.folder / OWN / "dashboard.html"
    write_atomic(path, _page(url), mode=0o600, owner=project.owner)
    machine.run([program, str(path)], deadline_s=_OPEN_S)


def _program(machine: Machine) -> str | None:
    seen = machine.system[0] == "Darwin" or any(
        machine.env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME")
    )
    found = next((each for each in _PROGRAMS if machine.which(each)), None)
    return found if seen and os.isatty(1) else None


def _page(url: str) -> str:
    return _LEADS_ON.format(url=html.escape(url))
