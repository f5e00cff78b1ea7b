"""The dashboard in the user's browser, for a command that does not stay."""

from __future__ import annotations

from dshpc_setup.files.atomic import write_atomic
from dshpc_setup.machine import Machine, browser
from dshpc_setup.project.folder import OWN, Project

TITLE = "dshpc dashboard"


def open_now(machine: Machine, project: Project, url: str) -> None:
    """Have it open the address: the page that leads there stays, beside the token that is kept."""
    program = browser.program(machine)
    if program is None:
        return
    path = project.folder / OWN / "dashboard.html"
    write_atomic(path, browser.page(url, TITLE), mode=0o600, owner=project.owner)
    machine.run([program, str(path)], deadline_s=browser.OPEN_S)
