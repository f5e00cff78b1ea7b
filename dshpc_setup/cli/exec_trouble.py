"""Why a command could not be run in the container: looked up afterwards, when it may take its time."""

from __future__ import annotations

import os

from dshpc_setup.cli import exec as execution
from dshpc_setup.cli.console import as_called
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.machine import Machine, local

_ASK_S = 20.0
_NOT_STARTED = 2  # as-user's exit code for a cluster that does not get ready


def no_project(folder: str, here: str | None) -> DshpcError:
    """Nothing in `folder` or above it tells of a cluster; `here` is the working directory, if it is there."""
    own = execution.OWN
    if os.path.isdir(os.path.join(folder, own)):
        return DshpcError(
            f"The cluster in {folder} was never set up to its end.",
            f"There is no usable {own}/runtime.json in it.",
            (f"cd {folder} && configure-environment",),
        )
    if here is None:
        return DshpcError("The folder that you are in was removed.", "", ("Go to another.",))
    return DshpcError(
        f"There is no cluster in {folder} or above it.",
        f"No folder there holds {own}, which configure-environment makes.",
        (
            "Go to the folder where you ran configure-environment, or run it here.",
            "Or name that folder in the environment variable DSHPC_DIR.",
        ),
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


def explain(call: execution.Call, code: int, *, told: bool) -> None:
    """Raise where it was not the command that failed but the way to it; else say what may help."""
    machine = local.LocalMachine()
    found = containers.inspect(machine, call.container)
    if found is None:
        raise DshpcError(
            f"The cluster is not there: no container is called {call.container}.",
            "",
            ("Start it: dshpc up",),
        )
    if not found.running or found.status != "running":
        raise DshpcError(
            f"The cluster is not running: its container {call.container} is {found.status}.",
            "",
            ("Start it: dshpc up",),
        )
    where = call.folder or call.work
    if code in (126, 127) and not _has_folder(machine, call, where):
        raise DshpcError(
            f"The running cluster has no folder {where}.",
            f"The work folder {call.work} was not mounted when it was started, or is not shared "
            "with Docker.",
            ("Start it anew: dshpc up",),
        )
    if call.is_slurm and code == _NOT_STARTED and (phase := _phase(machine, call)) != "ready":
        if phase == "failed":  # as-user has said that much: the command was never begun
            execution.say(as_called("when that is mended, start it again: dshpc restart"))
        return
    if call.folder is None and not told:
        execution.say(
            f"this folder is not in the work folder: commands run in {call.work}, and files elsewhere "
            "are not seen there."
        )
    if call.is_slurm and found.health == "unhealthy":
        execution.say(as_called("the cluster is not healthy; dshpc status says why."))


def _has_folder(machine: Machine, call: execution.Call, folder: str) -> bool:
    argv = [call.docker, "exec", call.container, "test", "-d", folder]
    return machine.run(argv, deadline_s=_ASK_S).ok


def _phase(machine: Machine, call: execution.Call) -> str:
    """How far the container's start has come: "ready", "failed", "starting: STEP"; "" if not known."""
    argv = [call.docker, "exec", call.container, "cat", "/run/dshpc/phase"]
    return next(iter(machine.run(argv, deadline_s=_ASK_S).stdout.splitlines()), "")
