"""A start that is tried before anything stops: in the container that runs, or in one of the new image."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from dshpc_setup.documents import foreign
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import containers, start_report
from dshpc_setup.engine.containers import Container
from dshpc_setup.errors import DshpcError, Exit, Fix, told_error
from dshpc_setup.facts import Compose
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.machine.no_answer import no_answer
from dshpc_setup.slurm.paths import TRIED

_DEADLINE_S = 180.0
_CHECK = ("dshpc-node", "check")
_SERVICE = "com.docker.compose.service"
_GOES_ON = "It was tried before anything was stopped: the cluster runs as before."


def is_ready(machine: Machine, container: str) -> bool:
    """Whether a cluster runs there that a start could end; one that cannot be asked has no more to lose."""
    try:
        return start_report.ask(machine, container).get("ready") is True
    except DshpcError:
        return False


def in_place(machine: Machine, container: str, live: Mapping[str, str] | None = None) -> None:
    """Raises DshpcError where the container, started anew as it is, would not come up.

    Or would come up with an older configuration than the one that it is given.
    `live`: settings that are to come, where these are others.
    """
    done = containers.exec_in(machine, container, _check(live), deadline_s=_DEADLINE_S)
    _judge(done, f"whether {container} would start", None)


def with_options(
    machine: Machine,
    compose: Compose,
    folder: str,
    prefix: str,
    text: str,
    found: Container,
    live: Mapping[str, str] | None = None,
) -> str | None:
    """The same of the container that compose would make of this text, in one that is thrown away.

    The name of the cluster's service is that of `found`, its container now. A sentence where it could not
    be tried, since the image is of a version that does not know how.
    """
    name = f"{prefix}-trial"
    # Its own network: what it would listen at is in use, and compose 1.29 links a trial to what runs
    text = re.sub(r'(?m)^    network_mode: "host"\n', "", text)
    service = found.labels.get(_SERVICE, "slurm")
    _clear(machine, name, found)
    try:
        args = ["run", "--rm", "--no-deps", "-T", "--name", name, service, *_check(live)]
        done = compose_tool.with_text(
            machine, compose, text, args, folder=folder, project=prefix, deadline_s=_DEADLINE_S
        )
    finally:
        _clear(machine, name, found)
    return _judge(
        done,
        "whether the new container would start",
        compose_tool.failure(done, compose, args, _DEADLINE_S),
    )


def _check(live: Mapping[str, str] | None) -> tuple[str, ...]:
    return _CHECK if live is None else ("env", f"{TRIED}={json.dumps(live)}", *_CHECK)


def _clear(machine: Machine, name: str, found: Container) -> None:
    """What a trial that was killed has left; a container of that name that is another's stays."""
    left = containers.inspect(machine, name)
    if left is not None and left.labels.get("com.docker.compose.project") == found.labels.get(
        "com.docker.compose.project"
    ):
        containers.remove(machine, name)


def _judge(done: CommandResult, unknown: str, not_made: DshpcError | None) -> str | None:
    """Raises what the trial refused; `not_made`: the error where the container did not come about."""
    if done.state == "timeout":
        raise _not_tried(no_answer(done, unknown))
    try:
        value = foreign.value(next(filter(_is_object, reversed(done.stdout.splitlines())), "null"))
    except ValueError:
        value = None
    if isinstance(value, dict) and "refused" in value:
        refused = value["refused"]
        if not isinstance(refused, dict):
            return None
        raise _refused(replace(told_error(refused), exit_code=_code(done)))
    if done.code == Exit.USAGE:  # no such command
        return "The image is of an older dsHPC setup: whether it starts was not tried before."
    if not_made is not None:
        raise _not_tried(not_made)
    said = done.stderr.strip()
    raise _refused(
        DshpcError("The cluster cannot say whether it would start.", said, (), _code(done))
    )


def _code(done: CommandResult) -> Exit:
    return Exit.INCOMPLETE if done.code == Exit.INCOMPLETE else Exit.ERROR


def _is_object(line: str) -> bool:
    return line.startswith("{")


def _not_tried(error: DshpcError) -> DshpcError:
    """It may be the trial alone that fails here, a second container: there is a way without one."""
    untried = Fix(
        f"{'Or stop' if error.steps else 'Stop'} the cluster first, then run this again, untried",
        "dshpc down",
        step="alternative" if error.steps else "do",
    )
    return _refused(replace(error, steps=(*error.steps, untried)))


def _refused(error: DshpcError) -> DshpcError:
    details = "\n".join(filter(None, (error.details, _GOES_ON)))
    return replace(error, details=details)
