"""The cluster's image for the other machine: carried where it fits there, else made there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dshpc_setup import gpu_vendors
from dshpc_setup.adding import scripts
from dshpc_setup.adding.connection import Connection
from dshpc_setup.adding.look import CARRIED, Found
from dshpc_setup.cluster import targets
from dshpc_setup.engine import containers
from dshpc_setup.engine.packages import last_lines
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.image import saving
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import plain

FILE, NOTE = "image.tar.gz", "image"
_CARRY_S = 7200.0
_NOTE_S = 30.0


@dataclass(frozen=True)
class Carried:
    """`words`: what configure-environment there is given of it; `why`: in words, for who watches."""

    words: tuple[str, ...] = ()
    why: str = ""
    id: str = ""  # of the image that goes there; "" where none does


def choose(machine: Machine, project: Project, found: Found) -> Carried:
    """What is done about it; nothing has gone there yet."""
    container = containers.inspect(machine, targets.target(project).container)
    if container is None:
        raise DshpcError(
            "The cluster does not run, and has no image to carry.", "", ("Start it: dshpc up",)
        )
    if found["joined"] and found[NOTE] == container.image_id:
        return Carried(("--no-build",), "the image is there already")
    if found["arch"] != machine.system[2]:
        return Carried(
            why=f"the image is made there, of Debian's packages, as its processor is {plain(found['arch'])} "
            f"and this machine's is {machine.system[2]}: that takes minutes, and internet there"
        )
    kind = container.image.rpartition(":")[2]
    others = [
        each.label
        for each in gpu_vendors.all_of_them()
        if each.pci in found.cards and each.name != kind
    ]
    if others and kind != "all":
        return Carried(why=f"the image is made there: its GPUs are of another vendor ({others[0]})")
    return Carried(
        ("--image-file", f"{CARRIED}/{FILE}"), "the image is carried there", container.image_id
    )


def carry(machine: Machine, project: Project, there: Connection, reporter: Reporter) -> int:
    """The image lies there as a file: its size in bytes. Raises DshpcError, and none of it does."""
    file = there.folder / FILE
    try:
        size = saving.save(machine, project, file, reporter).size
        reporter.progress(f"carrying the image to {there.host.name}: {size / 1e6:.0f} MB")
        send(there, file, scripts.store(there.host.shell_folder, FILE))
    finally:
        file.unlink(missing_ok=True)
    return size


def send(there: Connection, file: Path, command: str) -> None:
    done = there.run(command, deadline_s=_CARRY_S, stdin=file)
    if done.ok:
        return
    full = "No space left" in done.text or "quota" in done.text.lower()
    brief = f"There is no space left on {there.host.name}." if full else (
        f"{there.host.name} did not take {file.name}."
    )  # fmt: skip
    raise DshpcError(
        brief,
        last_lines(done, 3),
        (Fix("See its file systems", there.host.typed("df", "-h"), step="look"),),
    )


def keep_note(there: Connection, chosen: Carried) -> None:
    """Which one it has, and that the file is not needed any more."""
    at = there.host.shell_folder
    if chosen.id:
        there.run(f"rm -f {at}/{CARRIED}/{FILE}", deadline_s=_NOTE_S)
        there.run(scripts.store(at, NOTE), deadline_s=_NOTE_S, stdin=chosen.id)
