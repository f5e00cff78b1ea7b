"""Why a command could not be run in the container: looked up afterwards, when it may take its time."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dshpc_setup import engine_door
from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import exec_caller, exec_needs
from dshpc_setup.cluster import compose_file
from dshpc_setup.cluster.stopping import STOPPED
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.machine import Machine, local
from dshpc_setup.project import trust, writers
from dshpc_setup.project.folder import LABEL, Project
from dshpc_setup.project.refusals import need_own_engine, unsafe
from dshpc_setup.project.refusals import no_project as none_found
from dshpc_setup.terminal.command_names import as_called

_ASK_S = 20.0
_KILLED = (137, 143)  # by SIGKILL or SIGTERM
_LOST_FOLDER = (2, 126, 127, 255)  # of ours, of a shell, of Slurm's: where a folder is not there
_NOT_STARTED = 2  # as-user's exit code for a cluster that does not get ready


def no_project(
    found: trust.Place | None, ignored: Sequence[trust.Place], here: str | None
) -> DshpcError:
    """Nothing that may be used tells of a cluster; `here` is where it was looked for, if that is there."""
    if found is not None and found.fault is not None:
        return unsafe(found.folder, found.fault)
    if found is not None and found.there:
        return DshpcError(
            f"The cluster in {found.folder} was never set up to its end.",
            f"There is no usable {trust.OWN}/runtime.json in it.",
            (f"cd {found.folder} && configure-environment",),
        )
    if found is not None and here is not None and found.folder != here:
        return DshpcError(
            f"There is no cluster in {found.folder} any more.",
            "It is the one that commands typed here mean, by dshpc use or dshpc install-commands.",
            ("Choose another: dshpc use DIR", "Or choose none: dshpc use --none"),
        )
    if here is None:
        return DshpcError("The folder that you are in was removed.", "", ("Go to another.",))
    return none_found(here, ignored)


def need_label(runtime: Mapping[str, Any], place: trust.Place) -> None:
    """Raises DshpcError where the engine does not say the same as another user's folder: that the
    container is that folder's, and that the work folder is mounted there."""
    container = str(runtime["container"])
    found = containers.inspect(engine_door.of(local.LocalMachine(), runtime), container)
    if found is None:
        raise _not_there(container, place.folder, runtime)
    told = {runtime["work"], *runtime.get("homes", ()), *runtime.get("mounts", ())}
    if found.labels.get(LABEL) != place.folder or not told <= found.mounts.keys():
        raise DshpcError(
            f"The container {container} is not of the cluster in {place.folder}.",
            f"That folder belongs to {writers.user_name(place.uid)}; what it says is not believed.",
            ("Go to your own project's folder, or name it in DSHPC_DIR.",),
        )


def not_seen(call: execution.Call) -> str:
    """For who stands in a folder that jobs do not see, before the command runs elsewhere."""
    more = [name for name in ("homes", "mounts") if call.runtime.get(name)]
    places = " or ".join(("the work folder", *more))
    folder = exec_caller.current_folder() or "DIR"
    if f"{call.work}/".startswith(f"{folder}/"):  # the project's, most often
        return (
            f"this folder is not in {places}: commands run in {call.work}, and files elsewhere are not "
            f"seen there. To work with files: cd {shlex.quote(call.work)}"
        )
    here = shlex.quote(folder)
    how = f"dshpc config set mounts {here} && configure-environment"
    if "mounts" in more:
        how = "add it to the setting mounts, then configure-environment"
    return as_called(
        f"this folder is not in {places}: commands run in {call.work}, and files elsewhere are not seen "
        f"there. To have it seen: {how}"
    )


def no_client(docker: str, said: str) -> DshpcError:
    """The Docker client did not start."""
    return DshpcError(
        f"The program {docker} cannot be started.",
        said,
        ("Run configure-environment: it installs Docker, or says how.",),
    )


def no_text(argument: str) -> DshpcError:
    """An argument that holds other bytes than UTF-8."""
    return usage_error(
        f"The argument {os.fsencode(argument)!r} is not valid UTF-8.",
        "Docker would hand it on with other characters in place of those.",
        "Rename the file, or pass the name through a file or stdin.",
    )


def explain(call: execution.Call, code: int, *, folder_said: bool, said: bytes = b"") -> None:
    """Raise where it was not the command that failed but the way to it; else say what may help.

    `folder_said`: that this folder is not in the work folder has been said, or need not be. `said`: what the
    engine's client may have said, which is shown where it is not the container that is missing.
    A Docker that does not answer in time says nothing of the way: the exit code stays the command's.
    """
    machine = engine_door.of(local.LocalMachine(), call.runtime)
    try:
        found = containers.inspect(machine, call.container)
    except DshpcError as error:
        if error.exit_code != Exit.INCOMPLETE:
            raise
        execution.show(said)
        execution.say(f"{error.brief}. What may be wrong: dshpc doctor")
        return
    if (why := _stopped_meanwhile(call, code, found)) is not None:
        execution.say(as_called(why))
        return
    if found is None:
        raise _not_there(call.container, execution.project_folder(os.environ), call.runtime)
    if not found.running or found.status != "running":
        raise DshpcError(
            f"The cluster is not running: its container {call.container} {containers.how(found.status)}.",
            "",
            ("Start it: dshpc up",),
        )
    _need_folders(machine, call, code)
    execution.show(said)
    if call.is_slurm and code == _NOT_STARTED and (phase := _phase(machine, call)) != "ready":
        if phase == "failed":  # as-user has said that much: the command was never begun
            execution.say(as_called("when that is fixed, start it again: dshpc restart"))
        return
    if call.folder is None and not folder_said:
        execution.say(not_seen(call))
    if call.is_slurm and found.health == "unhealthy":
        execution.say(as_called("the cluster is not healthy; dshpc status says why."))
    elif (needs := exec_needs.hint(machine, call)) is not None:
        execution.say(as_called(needs))


def say_what_it_needs(call: execution.Call) -> None:
    """Of a command that has ended well."""
    machine = engine_door.of(local.LocalMachine(), call.runtime)
    if (needs := exec_needs.hint(machine, call)) is not None:
        execution.say(as_called(needs))


def _stopped_meanwhile(
    call: execution.Call, code: int, found: containers.Container | None
) -> str | None:
    """Why the command ended, where that was with its container, which was stopped or started anew."""
    runs = found is not None and found.running
    began = compose_file.seconds(found.started or "") if found is not None else None
    if runs and (began is None or began < call.began):
        return None
    note = Project(Path(execution.project_folder(os.environ))).read_note(STOPPED)
    at, by = note.get("at"), note.get("command")
    known = isinstance(at, float) and at >= call.began
    if not known and not runs and code not in _KILLED:
        return None  # it was down before
    how = "was restarted" if runs else "was stopped"
    when = f" by {by} at {time.strftime('%H:%M:%S', time.localtime(at))}" if known else ""
    return (
        f"the cluster {how}{when} while this ran, and so it was ended. What sbatch queued is kept; this "
        "has to be started again."
    )


def _not_there(container: str, folder: str, runtime: Mapping[str, Any]) -> DshpcError:
    need_own_engine(folder, runtime)
    return DshpcError(
        f"The cluster is not running: there is no container {container}.",
        "",
        ("Start it: dshpc up",),
    )


def _need_folders(machine: Machine, call: execution.Call, code: int) -> None:
    """Raises DshpcError where the folder that it ran in is not there, or is no more."""
    if code in _LOST_FOLDER and _work_was_removed(machine, call):
        raise _work_removed(call.work)
    where = call.folder or call.work
    if code in (126, 127) and not _has_folder(machine, call, where):
        raise DshpcError(
            f"The running cluster has no folder {where}.",
            f"The work folder {call.work} was not mounted when it was started, or is not shared "
            "with Docker.",
            ("Start it again: dshpc up",),
        )


def _has_folder(machine: Machine, call: execution.Call, folder: str) -> bool:
    """False where the container says that it has none."""
    argv = call.engine.run_in(call.container, "test", "-d", folder)
    done = machine.run(argv, deadline_s=_ASK_S)
    return done.ok or done.state == "timeout"  # what did not answer is not called missing


def _work_was_removed(machine: Machine, call: execution.Call) -> bool:
    """Whether the container still holds a work folder to which no name leads any more (stat(2))."""
    argv = call.engine.run_in(call.container, "stat", "-c", "%h", "--", call.work)
    done = machine.run(argv, deadline_s=_ASK_S)
    return done.ok and (done.stdout.strip() == "0" or not os.path.isdir(call.work))


def _work_removed(work: str) -> DshpcError:
    there = os.path.isdir(work)
    return DshpcError(
        f"The work folder {work} was removed while the cluster ran.",
        "The cluster still holds the removed one: what jobs write there is lost"
        + (", though a new folder has its name." if there else "."),
        (
            *(() if there else (f"Make it again, empty: mkdir {shlex.quote(work)}",)),
            "Let the cluster take the folder of today: dshpc restart",
        ),
    )


def _phase(machine: Machine, call: execution.Call) -> str:
    """How far the container's start has come: "ready", "failed", "starting: STEP"; "" if not known."""
    argv = call.engine.run_in(call.container, "cat", "/run/dshpc/phase")
    return next(iter(machine.run(argv, deadline_s=_ASK_S).stdout.splitlines()), "")
