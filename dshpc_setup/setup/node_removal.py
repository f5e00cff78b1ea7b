"""`dshpc node remove`: one node less, and no other one touched."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from shlex import quote

from dshpc_setup import engine_door
from dshpc_setup.cluster import added, key, nodes, stopping, targets, worker_changes
from dshpc_setup.cluster.key import Rotated
from dshpc_setup.cluster.nodes import NodeNow
from dshpc_setup.cluster.stopping import MayStop
from dshpc_setup.engine import containers
from dshpc_setup.errors import Fix, usage_error
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.setup.pipeline import Configure
from dshpc_setup.setup.report import StepReporter
from dshpc_setup.setup.run import Options
from dshpc_setup.terminal.sanitize import plain

_SETTING = "nodes"


def remove(
    machine: Machine,
    project: Project,
    name: str,
    reporter: StepReporter,
    options: Options,
    reached: Collection[str] = (),
) -> Rotated | None:
    """The node is none of the cluster's any more, and has no key that would be worth something: of one that
    is no container of this machine the key is changed, which is what comes back. `reached`: as key.rotate's.

    Raises DshpcError, with all as it was, where there is no such node, where it is the controller's own,
    and where jobs run there and nobody agrees to end them.
    """
    project.need_own()
    cluster = targets.target(project)
    if name == cluster.prefix:
        raise usage_error(
            f"Node {plain(name)} is the controller's own: without it there is no cluster.",
            "",
            Fix("Let it take no jobs", f"dshpc node drain {quote(name)} --reason TEXT"),
            Fix("Or remove the whole cluster", "dshpc destroy", step="alternative"),
        )
    settings = project.settings(machine.env)
    command = f"dshpc node remove {quote(name)}"
    options = replace(options, may_stop=MayStop(options.may_stop.agreed, command))
    if name in settings.worker_containers:
        _of_this_machine(machine, project, name, settings, reporter, options)
        return None
    machine = engine_door.of(machine, project.runtime())
    found = nodes.look(machine, project).named(name)
    with project.lock():
        _of_elsewhere(machine, project, found, reporter, options.may_stop)
    added.forget(project, name)
    return None if found.container else key.rotate(machine, project, reporter, reached)


def _of_this_machine(
    machine: Machine,
    project: Project,
    name: str,
    settings: Settings,
    reporter: StepReporter,
    options: Options,
) -> None:
    """As `configure-environment --nodes` does with a list in which it is missing."""
    source = settings.sources[_SETTING]
    if source.origin == "environment":
        raise usage_error(
            f"{source.where} says which nodes there are, and would bring {plain(name)} back.",
            "Nothing was changed.",
            f"Take it out of the environment, and run this again: unset {source.where}",
        )
    text = settings.without_worker(int(name.rpartition("-")[2]))
    report = Configure(machine, project, replace(options, flags={_SETTING: text}), reporter).run()
    if report.error is not None:
        raise report.error
    if source.origin == "file":
        reporter.note(
            f"{source.where} still says what it said. What is remembered now outranks it: nodes = {text}. "
            "To let the file count again: dshpc config unset nodes"
        )


def _of_elsewhere(
    machine: Machine, project: Project, node: NodeNow, reporter: StepReporter, may_stop: MayStop
) -> None:
    """One that Slurm knows and that is no node of the settings: what it has for a key must end."""
    cluster = targets.target(project)
    stopping.may_stop(
        machine,
        cluster.container,
        reporter,
        agreed=may_stop.agreed,
        what="removed",
        command=may_stop.command,
        nodes=frozenset((node.name,)),
    )
    if node.container:
        reporter.progress(f"removing {node.container}")
        containers.remove(machine, node.container)
    worker_changes.forget(machine, cluster.container, node.name)
