"""`dshpc reconfigure`: the running container looks, renders and checks anew, and jobs go on."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dshpc_setup import settings as settings_module
from dshpc_setup.cluster import queue_room, workers
from dshpc_setup.cluster import status as cluster_status
from dshpc_setup.cluster.targets import Target, ours, target
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers
from dshpc_setup.engine.containers import engine_error
from dshpc_setup.engine_client import AS_USER, DOCKER
from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.machine import CommandResult, Machine, handed_in
from dshpc_setup.machine.longer_deadlines import patient
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.project.folder import LIVE, Project
from dshpc_setup.settings import BY_NAME, DECLARATIONS
from dshpc_setup.slurm.nodes import TAKEN_OUT, Node
from dshpc_setup.slurm.paths import FROM_HOST
from dshpc_setup.terminal.reporter import Reporter

_ASK_S = 20.0
_DEADLINE_S = (
    300.0  # a check takes up to 45 s, on a slow machine a node that registers anew as long
)


@dataclass(frozen=True)
class Reconfigured:
    """How it went: `code` is the container's own answer, `lines` what it said."""

    code: int
    lines: tuple[str, ...]
    behind: tuple[str, ...]  # settings that the container does not have as the folder has them
    status: ClusterStatus

    @property
    def left_alone(self) -> tuple[Node, ...]:
        """Nodes that take no jobs because a person wants it so.

        The container takes back a node that was drained by our own doing, or refuses: with its 0, what
        is still drained is somebody's.
        """
        if self.code != Exit.OK or self.status.phase != "ready":
            return ()
        out = tuple(node for node in self.status.nodes if not node.usable)
        return out if all(node.plain_state in TAKEN_OUT for node in out) else ()

    @property
    def exit_code(self) -> int:
        """A node that a person took out is no failure: the configuration is in force."""
        if self.left_alone:
            return int(Exit.ERROR if self.status.kept_last_good else Exit.OK)
        return self.code or self.status.exit_code_of_change

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.status/1` object, and beside it what this run did."""
        own = {
            "exit_code": self.code,
            "lines": list(self.lines),
            "settings_behind": list(self.behind),
        }
        return {**self.status.to_json(), "exit_code": self.exit_code, "reconfigure": own}


def reconfigure(
    machine: Machine, project: Project, env: Mapping[str, str], reporter: Reporter
) -> Reconfigured:
    """Let the running container do it; raises DshpcError where it could not be asked at all."""
    machine = patient(machine)
    cluster = target(project)
    with project.lock(files=False):
        found = ours(machine, cluster)
        if found is None or found.status != "running":
            how = "it is down" if found is None else f"its container {containers.how(found.status)}"
            raise DshpcError(
                f"The cluster cannot be reconfigured: {how}.",
                "A start detects everything again anyway.",
                ("Start it: dshpc up",),
            )
        behind = _behind(machine, cluster, env)
        queue_room.check_folder(machine, cluster.container, project)
        with in_containers(machine, reporter) as run:
            reporter.progress(f"{cluster.container} detects its hardware and reads config/ again")
            done = run(cluster.container)
            code, told = _code(done, cluster), done.text.splitlines()
            for node, each in workers.of_project(machine, project, cluster.container).items():
                if each.status == "running":
                    reporter.progress(f"{each.name} detects its hardware and reads config/ again")
                    done = run(each.name)
                    code = code or _code(done, replace(cluster, container=each.name))
                    told += [f"{node}: {line}" for line in done.text.splitlines()]
            now = cluster_status.ask(machine, str(project.folder), cluster.container)
    return Reconfigured(code, tuple(told), behind, now)


_STOPPED = (Exit.INTERRUPTED, 128 + signal.SIGTERM)  # the latter before it hears signals


@contextlib.contextmanager
def in_containers(machine: Machine, reporter: Reporter) -> Iterator[Callable[[str], CommandResult]]:
    """Gives what runs a container's own `dshpc-node reconfigure`, the controller's first: how it ended.

    No interruption leaves half of it. The first container is told, and stops before it has changed
    anything; once it has begun to, it is awaited, and so are the others. DshpcError then says which it was.
    """
    token = os.urandom(8).hex()
    asked: list[str] = []
    ended: list[CommandResult] = []

    def tell() -> None:
        said = "Interrupted: a change that has begun is finished. Press Ctrl-C again to leave it alone."
        reporter.progress(said)  # a step's note is seen as it ends
        reporter.note(said)
        if asked and not ended:
            handed_in.deliver(machine, DOCKER.run_in(asked[0], AS_USER, "--signal", token))

    with handed_in.passed_on(tell, _DEADLINE_S) as came:

        def run(container: str) -> CommandResult:
            if came and not asked:
                raise _interrupted(came[0])
            asked.append(container)
            words = (AS_USER, token, "0", "0", "root", "--", "dshpc-node", "reconfigure")
            argv = DOCKER.run_in(container, *words, env=[FROM_HOST])
            done = machine.run(argv, deadline_s=_DEADLINE_S, on_line=reporter.progress)
            if came and not ended and done.code in _STOPPED:
                raise _interrupted(came[0])
            ended.append(done)
            return done

        yield run
    if came:
        raise _interrupted(came[0], ended[0] if ended else None)


def _interrupted(number: int, done: CommandResult | None = None) -> DshpcError:
    """`done`: how it ended, where it could not be stopped any more."""
    what = "Interrupted before anything was changed in the running cluster."
    if done is not None:
        how = "it is put in force" if done.ok else "it was tried, and is not in force"
        what = f"The interruption came too late for what config/ says: {how}."
    look = Fix("See what is in force", "dshpc status", step="look")
    again = () if done is not None and done.ok else (Fix("Try it again", "dshpc reconfigure"),)
    return DshpcError(what, "" if done is None else done.text, (look, *again), 128 + number)


def _code(done: CommandResult, cluster: Target) -> int:
    """0, 2 (refused) or 3 (still starting); raises DshpcError for every other end."""
    if done.state == "timeout":
        raise DshpcError(
            f"The container did not reconfigure itself within {_DEADLINE_S:.0f} s.",
            done.text or "It may still be at work.",
            ("See its state: dshpc status", "And what it says: dshpc logs --tail 50"),
            Exit.INCOMPLETE,
        )
    if done.state != "present":
        raise engine_error(done, f"Nothing can be run in the container {cluster.container}")
    if done.code in (Exit.OK, Exit.ERROR, Exit.INCOMPLETE):
        return int(done.code)
    if done.code in (Exit.USAGE, 126, 127):
        raise DshpcError(
            "The container cannot reconfigure itself: its image is of an older dsHPC setup.",
            done.text,
            ("Rebuild it: configure-environment", "Or restart it: dshpc restart"),
        )
    raise engine_error(done, "The container could not be reconfigured")


def _behind(machine: Machine, cluster: Target, env: Mapping[str, str]) -> tuple[str, ...]:
    """Settings that reach the container by its environment alone, and have changed since it was made."""
    argv = DOCKER.inspect("container", cluster.container, template="{{json .Config.Env}}")
    asked = machine.run(argv, deadline_s=_ASK_S)
    if not asked.ok:
        raise engine_error(asked, f"Docker could not be asked for {cluster.container}")
    if cluster.project.foreign is not None:  # whose settings are not ours to apply
        return ()
    settings = cluster.project.settings(env)
    written = cluster.project.read_note(LIVE)
    late = tuple(
        item.name
        for item in DECLARATIONS
        if item.live and _value(item.name, written) != _value(item.name, settings.live_env())
    )
    return (*differing(asked.stdout, settings.container_env()), *late)


def differing(env_json: str, wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Names of settings whose value is another in the container (`.Config.Env`) than wanted.

    Values are compared as they are read, so that "0, 2" and "0,2" are the same.
    """
    try:
        entries = foreign.value(env_json) or []
    except ValueError:
        return ()
    if not isinstance(entries, list):
        return ()
    has = dict(str(item).partition("=")[::2] for item in entries)
    return tuple(
        item.name
        for item in DECLARATIONS
        if item.in_container
        and not item.live
        and _value(item.name, has) != _value(item.name, wanted)
    )


def _value(name: str, env: Mapping[str, str]) -> Any:
    variable = BY_NAME[name].env
    if variable not in env:
        return BY_NAME[name].default
    try:
        return getattr(settings_module.load(env={variable: env[variable]}), name)
    except DshpcError:  # of an older version, say
        return env[variable]


def lines(done: Reconfigured) -> list[str]:
    """What comes before the status, for people."""
    said = list(done.lines)
    for node in done.left_alone:
        why = f" ({node.reason})" if node.reason else ""
        said.append(
            f"The configuration is in force. Node {node.name} is {node.plain_state}{why}, by a "
            "person: it is left alone, and no jobs run there until somebody takes it back."
        )
    if done.behind:
        said.append(
            f"Not in force: {', '.join(done.behind)}. Settings are put in force by: configure-environment"
        )
    return said
