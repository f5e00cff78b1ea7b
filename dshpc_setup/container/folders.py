"""The host name, the folders and the key: what must stand before any Slurm program is started."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from dshpc_setup.container import ends
from dshpc_setup.files.storage import cannot_write, read_text
from dshpc_setup.jobs import end_record
from dshpc_setup.slurm.paths import HOMES, Paths
from dshpc_setup.usage import ledger


def host_name_note(
    paths: Paths, name: str, own: str, resolves: Callable[[str], bool]
) -> str | None:
    """Make `name` resolve; a sentence where that took an entry of ours.

    A host name that does not resolve costs about 20 s at every srun (seen with 24.11.5). It gets the
    address of `own`, the container's host name: slurmd listens at that one alone (NoInAddrAny), by
    whatever name the node goes. `resolves` asks beyond /etc/hosts and is only called where the name
    does not stand there.
    """
    path = paths.at("/etc/hosts")
    text = read_text(path) or ""
    known = hosts_names(text)
    if name in known or resolves(name):
        return None
    address = known.get(own, "127.0.0.1")
    try:
        # Docker mounts this one file: it can be written to, but not renamed over.
        with open(path, "a", encoding="utf-8") as file:
            file.write(
                f"{'' if text.endswith(chr(10)) or not text else chr(10)}{address}\t{name}\n"
            )
    except OSError as error:
        raise cannot_write(path, error) from None
    return f"The host name {name} did not resolve: added to /etc/hosts as {address}."


def hosts_names(text: str) -> dict[str, str]:
    """Name -> address of an /etc/hosts; the first line with a name counts."""
    names: dict[str, str] = {}
    for line in text.splitlines():
        address, *more = line.partition("#")[0].split() or [""]
        for name in more:
            names.setdefault(name, address)
    return names


def make_folders(paths: Paths, slurm: tuple[int, int], *, with_key: bool = True) -> None:
    """Runtime and state folders with their owners; `slurm` is SlurmUser's uid and gid.

    slurmd and slurmctld want a run folder of their own user each.
    """
    root = (0, 0) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    for path, owner, mode in (
        ("/run/slurm", root, 0o755),
        ("/run/slurmctld", slurm, 0o755),
        ("/var/spool/slurmd", root, 0o755),
        ("/run/dshpc/users", root, 0o755),
        ("/run/dshpc/exec", root, 0o755),
        ("/var/lib/dshpc/state", root, 0o755),
        ("/var/lib/dshpc/state/slurmctld", slurm, 0o700),
        ("/var/lib/dshpc/state/jobcomp", slurm, 0o755),
        (end_record.ENDED, root, 0o755),
        (ends.CONCLUDED, root, 0o755),
        (ledger.FOLDER, root, 0o711),
        (f"{ledger.FOLDER}/run", root, 0o700),
        *((("/var/lib/dshpc/key", slurm, 0o700),) if with_key else ()),
        (HOMES, root, 0o755),
        (f"{HOMES}/root", root, 0o700),
    ):
        folder = paths.at(path)
        try:
            os.makedirs(folder, exist_ok=True)
            found = os.stat(folder)
            if (found.st_uid, found.st_gid) != owner:
                os.chown(folder, *owner)
            if stat.S_IMODE(found.st_mode) != mode:
                os.chmod(folder, mode)
        except OSError as error:
            raise cannot_write(folder, error) from None
    ends.make_folder(paths, *root)


def adopt_state(paths: Paths, slurm: tuple[int, int]) -> str | None:
    """Slurm's saved state belongs to SlurmUser, whose number may have been another in an old image."""
    top = f"{paths.state}/slurmctld"
    changed = 0
    for folder, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            found = os.lstat(path)
            if found.st_uid != slurm[0] and not stat.S_ISLNK(found.st_mode):
                os.chown(path, *slurm)
                changed += 1
    return (
        f"{changed} files of Slurm's saved state had another owner: put right." if changed else None
    )
