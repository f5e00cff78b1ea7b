"""The volume that holds jobs, users and the last good configuration: writable, and this cluster's."""

from __future__ import annotations

import os

from dshpc_setup.container.config import Candidate
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.storage import cannot_write, read_text, replace_bytes
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.paths import Paths

_OURS = "/var/lib/dshpc/state/slurmctld"
_LEAST_BYTES = 256 * 1024  # slurmctld writes its state beside the one it has


def ensure_room(paths: Paths) -> None:
    """DshpcError where nothing can be written, or next to nothing: jobs would be lost."""
    path = f"{paths.own}/.dshpc-room"
    replace_bytes(path, bytes(4096), sync=False)
    try:
        os.unlink(path)
        found = os.statvfs(paths.state)
    except OSError as error:
        raise cannot_write(path, error) from None
    room = found.f_bavail * found.f_frsize
    if found.f_blocks and room < _LEAST_BYTES:
        raise DshpcError(
            f"The state volume is full: {room // 1024} KiB are left.",
            "Slurm could not write down the jobs that it is given.",
            (
                Fix("See what is full", "docker system df; df -h", step="look"),
                "Make room on the disk that Docker keeps its volumes on; nothing was deleted.",
                Fix(
                    "Then start the container again", "dshpc restart", step="after", does="restart"
                ),
            ),
        )


def saved_in(paths: Paths, text: str) -> str:
    """The folder in which slurmctld saves its state, by the text of slurm.conf."""
    return paths.at(slurm_conf.last(text, "StateSaveLocation") or _OURS)


def holds_state(paths: Paths, candidate: Candidate) -> bool:
    """Whether slurmctld will find a state of before: then this is not the first start."""
    folder = slurm_conf.last(candidate.texts["slurm.conf"], "StateSaveLocation") or _OURS
    try:
        return bool(os.listdir(paths.at(folder)))
    except (OSError, ValueError):  # Slurm says what is wrong with it
        return False


def foreign_error(paths: Paths, candidate: Candidate) -> DshpcError | None:
    """Whether the saved state is another cluster's: slurmctld would end on it."""
    text = candidate.texts["slurm.conf"]
    folder = slurm_conf.last(text, "StateSaveLocation") or _OURS
    name = slurm_conf.last(text, "ClusterName")
    saved = (read_text(f"{paths.at(folder)}/clustername") or "").strip()
    owner = saved.partition("|")[0]  # "lab|1652": name and number
    if not owner or name is None or owner == name:
        return None
    return DshpcError(
        f"The state volume belongs to the cluster {owner}, and this one is called {name}.",
        f"{folder}/clustername says {saved}; slurmctld takes over no queue of another cluster.",
        (
            Fix("To keep using its queue and users", f"configure-environment --prefix {owner}"),
            Fix(
                "To begin with an empty queue, take the saved state out of the volume",
                f"dshpc exec --root -- mv {folder} {folder}.{owner}",
            ),
            Fix("Then start the cluster", "dshpc restart", step="after", does="restart"),
        ),
    )
