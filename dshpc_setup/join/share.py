"""Whether the work folder is the same one on both machines; else how it is shared by NFS, as text."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, replace

from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.jobs.workspace import JOBS
from dshpc_setup.join.messages import Probe

_MOST = 4096
# As cluster_facts.leave_probe makes them: who could name any file, whose content is known anywhere, could
# have any folder of this machine taken for the work folder
_NAME, _TEXT = re.compile(r"\.dshpc-join-[0-9a-f]{16}"), re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Shared:
    work: str
    is_same: bool
    refused: DshpcError | None = None
    carried_to: str = ""  # where it is not the same, and a folder of that path can be had

    def words(self, controller: str, own: str) -> tuple[str, ...]:
        """What is said of it; `own` is this machine's address."""
        if self.is_same:
            return (f"The work folder {self.work} is the controller's.",)
        return (
            f"The work folder is not shared: {self.work} of the controller's machine is not here. "
            f"{self._jobs()} What srun and sbatch start here finds the files of this machine: give sbatch "
            "--chdir=/tmp --output=/tmp/NAME, and fetch what it wrote.",
            *_recipe(self.work, controller, own),
        )

    def _jobs(self) -> str:
        if self.carried_to:
            return (
                f"dshpc run, methods and workflows take their workspace to {self.work} of this machine and "
                "back, 4 GiB at most; those with --env or --image keep off this node."
            )
        path = shlex.quote(self.work)
        return (
            "dshpc run, methods and workflows therefore keep off this node. To have their workspaces carried "
            f"here and back, make an empty folder of that path and join again: sudo mkdir -p {path}"
        )


def look(work: str, probe: Probe | None, controllers: str = "", before: object = None) -> Shared:
    """Found by the file that the controller's machine has left there for it; `controllers` is the path of
    its work folder, `before` the folder to which an earlier join has had workspaces carried."""
    found = _look(work, probe)
    if found.is_same or work != controllers or not (work == before or _can_be_had(work)):
        return found
    return replace(found, carried_to=work)


def _can_be_had(work: str) -> bool:
    """A folder of that path, of this machine's own: one to be made, or an empty one.

    A controller could name any folder of this machine, and what is in it would be in the container.
    """
    if not os.path.isabs(work) or os.path.normpath(work) != work:
        return False
    if not os.path.lexists(work):
        above = os.path.dirname(work)
        return os.path.isdir(above) and os.access(above, os.W_OK | os.X_OK)
    try:
        return not os.path.islink(work) and not set(os.listdir(work)) - {JOBS}
    except OSError:
        return False


def _look(work: str, probe: Probe | None) -> Shared:
    if probe is None or not _NAME.fullmatch(probe.name) or not _TEXT.fullmatch(probe.text):
        return Shared(work, False)
    try:
        path = os.path.join(work, probe.name)
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            found, text = os.fstat(handle), os.read(handle, _MOST).decode("ascii", "replace")
        finally:
            os.close(handle)
    except OSError:
        return Shared(work, False)
    if text != probe.text:
        return Shared(work, False)
    if (found.st_uid, found.st_gid) == (probe.uid, probe.gid):
        return Shared(work, True)
    return Shared(
        work,
        True,
        DshpcError(
            f"The work folder {work} is shared, but files have other owners here.",
            f"A file of {probe.uid}:{probe.gid} is {found.st_uid}:{found.st_gid}'s on this machine: jobs "
            "would write as somebody else.",
            (
                Fix("See how it is mounted", f"findmnt -T {work}", step="look"),
                "Export it without squashing (no_root_squash, no all_squash), and with NFSv4 let numbers be "
                "numbers: nfs4_disable_idmapping=1 on both sides.",
            ),
        ),
    )


def _recipe(work: str, controller: str, own: str) -> tuple[str, ...]:
    """The commands of an NFSv4 export and its mount, a line for each family of distributions."""
    exported = f'"{work}"' if re.search(r"\s", work) else work
    line = shlex.quote(f"{exported} {own}(rw,sync,no_subtree_check,no_root_squash)")
    export = (
        f"echo {line} | sudo tee -a /etc/exports && sudo systemctl enable --now nfs-server && "
        "sudo exportfs -ra"
    )
    path = shlex.quote(work)
    mount = (
        f"sudo mkdir -p {path} && sudo mount -t nfs4 {shlex.quote(f'{controller}:{work}')} {path}"
    )
    let_in = " && ".join(
        f"sudo firewall-cmd {words}" for words in ("--permanent --add-service=nfs", "--reload")
    )
    there, here = "on the controller's machine", "on this machine"
    debian, red_hat = "Debian, Ubuntu", "RHEL, Rocky, Fedora"
    return (
        "To share it by NFSv4, a line on each machine, the controller's first:",
        f"  {there}, {debian}: sudo apt-get install -y nfs-kernel-server && {export}",
        f"  {there}, {red_hat}: sudo dnf install -y nfs-utils && {export} && {let_in}",
        f"  {here}, {debian}: sudo apt-get install -y nfs-common && {mount}",
        f"  {here}, {red_hat}: sudo dnf install -y nfs-utils && {mount}",
        "  Any other firewall of the controller's machine has to let TCP port 2049 in. Then join again.",
    )
