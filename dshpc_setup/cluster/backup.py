"""`dshpc backup` and `dshpc restore`: all that a cluster keeps of its own, as one file of the owner's."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dshpc_setup import codec, engine_client
from dshpc_setup.cluster import operations, stopping, targets
from dshpc_setup.container.backup import SCHEMA, Manifest
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError, Exit, Fix, usage_error, words_of
from dshpc_setup.files import atomic
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.project.folder import Project
from dshpc_setup.terminal.reporter import Reporter

SAVED_SCHEMA = "dshpc.backup-file/1"
_WRITTEN_S = 3600.0
_ASK_S = 60.0


@dataclass(frozen=True)
class Saved:
    container: str
    file: str
    size: int  # bytes

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.backup-file/1` object."""
        return {
            "schema": SAVED_SCHEMA,
            "exit_code": int(Exit.OK),
            "container": self.container,
            "file": self.file,
            "bytes": self.size,
        }


def save(machine: Machine, project: Project, file: Path, reporter: Reporter) -> Saved:
    """A new file that its owner alone can read, there when it is whole; jobs go on.

    DshpcError where the cluster does not run, and where there is such a file already.
    """
    if os.path.lexists(file):
        raise usage_error(f"{file} is there already.", "", "Name another file.")
    cluster = targets.target(project)
    with project.lock(files=False):
        _need_running(machine, cluster, "backed up")
        reporter.progress(f"writing {file}")
        client = engine_client.of(project.runtime())
        argv = client.run_in(cluster.container, "dshpc-node", "backup")
        with _written(file) as new:
            done = machine.run(_through('>"$file"', new, argv), deadline_s=_WRITTEN_S)
            if not done.ok:
                raise _failed(done, "The backup was not made", "dshpc backup FILE")
    return Saved(cluster.container, str(file), file.stat().st_size)


@contextlib.contextmanager
def _written(file: Path) -> Iterator[Path]:
    """A file beside it, 0600, that gets its name when all went well."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        os.close(handle)
    except OSError as error:
        raise atomic.write_error(error, file) from None
    new = Path(name)
    try:
        yield new
        with new.open("rb") as written:
            os.fsync(written.fileno())
        os.link(new, file)  # never over one that came meanwhile
    except OSError as error:
        raise atomic.write_error(error, file) from None
    finally:
        new.unlink(missing_ok=True)


def _through(redirected: str, file: Path, argv: list[str]) -> list[str]:
    """The command with one of its streams in a file: a backup may be larger than the memory."""
    return ["sh", "-euc", f'file=$1; shift; exec "$@" {redirected}', "sh", str(file), *argv]


def restore(
    machine: Machine, project: Project, file: Path, reporter: Reporter, *, stop_jobs: bool = False
) -> ClusterStatus:
    """The cluster as it was when that file was made, started anew. The file is checked whole before
    anything is replaced, and it asks.

    What there was goes into `before-restore` of the state volume. DshpcError where the file is no backup of
    this cluster, where jobs run and may not be stopped, and where the answer is no.
    """
    _need_file(file)
    again = f"dshpc restore {shlex.quote(str(file))}"
    cluster = targets.target(project)
    with project.lock(files=False):
        _need_running(machine, cluster, "restored")
        reporter.progress(f"checking {file}")
        client = engine_client.of(project.runtime())
        argv = client.run_in(cluster.container, "dshpc-node", "restore", "check", stdin=True)
        done = machine.run(_through('<"$file"', file, argv), deadline_s=_WRITTEN_S)
        if not done.ok:
            raise _failed(done, "Nothing was restored", again)
        agreed = False
        try:
            _may_replace(machine, cluster, _told(done), reporter, again, stop_jobs=stop_jobs)
            agreed = True
        finally:
            if not agreed:
                _inside(machine, cluster, "drop")
        done = _inside(machine, cluster, "accept")
        if not done.ok:
            raise _failed(done, "Nothing was restored", again)
    return operations.restart(machine, project, reporter, stopping.MayStop(True), tried=False)


def _need_file(file: Path) -> None:
    try:
        with file.open("rb"):
            return
    except OSError as error:
        raise atomic.read_error(error, file) from None


def _may_replace(
    machine: Machine,
    cluster: targets.Target,
    found: Manifest,
    reporter: Reporter,
    again: str,
    *,
    stop_jobs: bool,
) -> None:
    made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.made))
    question = (
        f"Queue, users, keys{', accounting' if found.accounting else ''} and records of use of "
        f"{cluster.prefix} become those of {made}. Go on?"
    )
    if not reporter.ask(question):
        raise DshpcError(
            "Nothing was restored: it was not agreed to.",
            question,
            (Fix("Where that is meant", f"{again} --yes"),),
        )
    stopping.may_stop(
        machine,
        cluster.container,
        reporter,
        agreed=stop_jobs,
        what="restored",
        command=again,
    )
    stopping.remember(cluster.project, "dshpc restore")


def _inside(machine: Machine, cluster: targets.Target, word: str) -> CommandResult:
    argv = ["dshpc-node", "restore", word]
    return containers.exec_in(machine, cluster.container, argv, deadline_s=_ASK_S)


def _told(done: CommandResult) -> Manifest:
    try:
        return codec.from_json(Manifest, foreign.value(done.stdout), SCHEMA)
    except ValueError as error:
        raise DshpcError(
            "Nothing was restored: the cluster's answer cannot be read.",
            words_of(error),
            ("Rebuild the image: configure-environment", "Then: dshpc restore FILE"),
        ) from None


def _need_running(machine: Machine, cluster: targets.Target, what: str) -> None:
    found = targets.ours(machine, cluster)
    if found is None or found.status != "running":
        raise DshpcError(
            f"The cluster does not run, and only one that runs can be {what}.",
            f"The container {cluster.container} is {found.status if found else 'not there'}.",
            (Fix("Start it", "dshpc up"),),
        )


def _failed(done: CommandResult, brief: str, again: str) -> DshpcError:
    """In the words of dshpc-node, whose first line says what is wrong and whose others say what to do: only
    where it knows nothing to do it may help to try `again`."""
    if done.state == "timeout":
        return DshpcError(
            f"{brief}: it did not end within {_WRITTEN_S / 60:.0f} minutes.",
            "",
            (Fix("See the cluster's state", "dshpc status", step="look"),),
            Exit.INCOMPLETE,
        )
    first, *others = done.stderr.strip().splitlines() or [f"it ended with {done.code}"]
    code = Exit.INCOMPLETE if done.code == Exit.INCOMPLETE else Exit.ERROR
    details = "\n".join(line.strip() for line in others)
    retry = () if others else (Fix("Run it again", again),)
    return DshpcError(f"{brief}. {first}", details, retry, code)
