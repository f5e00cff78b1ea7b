"""A trial of a configuration by Slurm's own programs, beside whatever runs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping

from dshpc_setup import slurm_releases
from dshpc_setup.container import config, network
from dshpc_setup.container.complaints import explain
from dshpc_setup.container.config import Candidate
from dshpc_setup.errors import DshpcError
from dshpc_setup.files.storage import read_text, replace_bytes, replace_text
from dshpc_setup.machine import Machine
from dshpc_setup.machine.no_answer import no_answer
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.paths import ASK, Paths

_PARSE_S = 90.0  # slurmd itself waits 19 s for a device file that is missing
_TRIAL_S = 40.0
_LOG = "log"
_KEY_BYTES = 32  # of HS256
# It would register beside the running one, with its spare port; and without slurmdbd Slurm refuses the rest
_WITH_ACCOUNTING = ("AccountingStorageType", "AccountingStorageTRES", "AccountingStorageEnforce")


def asking(text: str) -> str:
    """A slurm.conf with which a second slurmd or slurmctld takes nothing from the one that runs.

    Each makes the socket anew by which clients are authenticated, `slurmd -G` too, and removes it as
    it ends (src/plugins/auth/slurm/sack.c, 24.11): no client gets through any more.
    """
    found = slurm_conf.last(text, "AuthInfo")
    options = f"{found},disable_sack" if found else "disable_sack"
    return f"{without(text, ('AuthInfo',))}\nAuthInfo={options}\n"


def without(text: str, keys: Iterable[str]) -> str:
    """Without the lines of these keys, and with the same line numbers: Slurm's complaints name them."""
    pattern = rf"(?i)\s*(?:{'|'.join(keys)})\s*="
    return "\n".join("" if re.match(pattern, line) else line for line in text.split("\n"))


def write_set(folder: str, texts: Mapping[str, str], key: str, *, asked: str | None = None) -> None:
    """The files of one configuration in a new folder, and what a program is asked with: `asked`, where
    that is another slurm.conf."""
    config.write_set(folder, texts, key)
    text = texts["slurm.conf"] if asked is None else asked
    replace_text(f"{folder}/{ASK}", asking(text), sync=False)


def parse_error(
    machine: Machine, candidate: Candidate, folder: str, node: str
) -> DshpcError | None:
    """What slurmd says to the files in `folder`, written by `write_set`."""
    result = Slurm(machine).gpus(f"{folder}/{ASK}", node, deadline_s=_PARSE_S).asked
    if result.state == "timeout":
        return no_answer(result, "what slurmd thinks of the configuration")
    # slurmd goes on without a GPU that it cannot use; the node would then be refused as too small.
    # Of one more than slurm.conf speaks of it says "Ignoring extra GRES": that is no harm.
    ignored = slurm_releases.says("gpu_without_file").search(result.text)
    if result.ok and ignored is None:
        return None
    if result.ok and ignored is not None:
        return explain(f"error: {ignored[1]}", candidate)
    return explain(result.text or f"slurmd ended with {result.code} ({result.state})", candidate)


def trial_error(machine: Machine, candidate: Candidate, paths: Paths) -> DshpcError | None:
    """Whether slurmctld comes up with these texts, on a spare port and with no saved state.

    It has no option to check a configuration, and under -D a reconfigure with a file that does not
    parse ends the running one.
    """
    import shutil

    folder = f"{paths.run}/trial"
    try:
        said = _refusal(machine, candidate, paths, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what stays, the next trial removes or tells
    return None if said is None else explain(said, candidate)


def _refusal(machine: Machine, candidate: Candidate, paths: Paths, folder: str) -> str | None:
    """What slurmctld said as it did not come up."""
    up = came_up(machine, candidate.texts, paths, folder)
    if up:
        return None
    said = read_text(f"{folder}/{_LOG}") or ""
    if up is None:
        return f"slurmctld did not say within {_TRIAL_S:.0f} s that it runs.\n{said}"
    return said or "slurmctld did not come up and gave no reason."


def came_up(
    machine: Machine,
    texts: Mapping[str, str],
    paths: Paths,
    folder: str,
    lay: Callable[[str, tuple[int, int]], None] = lambda _into, _owner: None,
) -> bool | None:
    """Whether slurmctld comes up with these texts; None where it neither did in time nor ended.

    `lay` puts a saved state into a folder, for the owner of its files; else there is none.
    """
    ports = (network.spare_port(), network.spare_port())
    moved = asking(_moved(texts["slurm.conf"], ports, folder))
    key = None if os.path.lexists(paths.rest_key) else f"{folder}/state/jwt.key"
    if key is not None:  # the start that is tried makes it, where `rest` was switched on just now
        moved = moved.replace(f"jwt_key={Paths().rest_key}", f"jwt_key={key}")
    config.write_set(folder, {**texts, "slurm.conf": moved}, paths.key)
    os.makedirs(f"{folder}/state")
    os.chmod(folder, 0o755)
    found = os.stat(paths.key)
    os.chown(f"{folder}/state", found.st_uid, found.st_gid)
    if key is not None:
        replace_bytes(key, os.urandom(_KEY_BYTES), 0o600, (found.st_uid, found.st_gid), sync=False)
    lay(f"{folder}/state", (found.st_uid, found.st_gid))
    log = f"{folder}/{_LOG}"
    pid = machine.start_daemon(["slurmctld", "-D", "-f", f"{folder}/slurm.conf"], log=log)
    try:
        return _runs(pid, log)
    finally:
        network.end(pid)


def _runs(pid: int, log: str) -> bool | None:
    """Whether it says that it is the controller now: it listens some time before it is sure of that.

    None where it neither said so in time nor ended.
    """
    until = time.monotonic() + _TRIAL_S
    while time.monotonic() < until:
        if slurm_releases.says("controller_serves").search(read_text(log) or ""):
            return True
        if network.reaped(pid):
            return False
        time.sleep(0.005)
    return None


def _moved(text: str, ports: tuple[int, int], folder: str) -> str:
    """slurm.conf for the trial: nothing of it may meet the running controller."""
    has_accounting = slurm_conf.has_accounting(text)
    own = {
        "SlurmctldPort": str(ports[0]),
        "StateSaveLocation": f"{folder}/state",
        "SlurmctldPidFile": f"{folder}/state/pid",
        "SlurmctldDebug": "info",  # below that it does not say that it runs
        "SlurmctldLogFile": None,
        **dict.fromkeys(_WITH_ACCOUNTING if has_accounting else ()),
        "SlurmdPort": str(ports[1]),  # the running slurmd is none of its business
    }
    added = "\n".join(f"{name}={value}" for name, value in own.items() if value is not None)
    return f"{without(text, own)}\n{added}\n"
