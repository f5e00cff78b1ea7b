"""`dshpc` without a word: what there is here, and what to do next. Asks quickly, and starts nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from dshpc_setup.errors import DshpcError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dshpc_setup.project.folder import Project

_MACHINE_S = 1.5
_ENGINE_S = 1.0

_NEW = (
    ("configure-environment", "set Slurm up here; asks first"),
    ("configure-environment --simulate h100:2", "the same with made-up GPUs"),
    ("dshpc demo", "a tour of two minutes"),
)
_UP = (
    ("dshpc srun --pty bash", "a shell in a job; --gres=gpu:1 gives it a GPU"),
    ("dshpc status", "node, GPUs, queue, and what has changed"),
    ("dshpc gpus", "which job holds which GPU"),
)
_DOWN = (("dshpc up", "start it"), ("dshpc status", "why it is not running"))
_ALWAYS = (("dshpc doctor", "what is wrong, how to fix it"),)


def look() -> int:
    """Print some ten lines; the exit code."""
    from dshpc_setup.cli import put

    put("".join(f"{line}\n" for line in _lines()))
    return 0


def _lines() -> Iterator[str]:
    from dshpc_setup import __version__
    from dshpc_setup.cli.folders import found_project
    from dshpc_setup.terminal.command_names import as_called, dshpc_command

    yield f"dsHPC setup {__version__}: Slurm in a container, configured from the hardware that is there"
    yield f"Machine  {_machine()}"
    project = None
    with suppress(DshpcError):
        project = found_project(None)
    words, steps = _cluster(project)
    yield f"Cluster  {words}"
    start = "Next     "
    named = [(as_called(command), about) for command, about in (*steps, *_ALWAYS)]
    named.append((f"{dshpc_command()} --help", "all commands"))
    width = max(len(command) for command, _ in named)
    for command, about in named:
        yield f"{start}{command:<{width}}  {about}"
        start = " " * len(start)


def _machine() -> str:
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.probes import gather
    from dshpc_setup.setup.describe import describe_gpus, gib, system_name

    facts = gather(
        LocalMachine(),
        only=("platform", "cpu", "memory", "gpus"),
        engine=False,
        deadline_s=_MACHINE_S,
    )
    system = system_name(facts.platform) or facts.platform.kind
    return f"{system}, {facts.cpu.logical} CPUs, {gib(facts.memory.total_mib)}; {describe_gpus(facts.gpus)}"


def _cluster(project: Project | None) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What is known of it, and the steps that fit."""
    from dshpc_setup import engine_client
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.terminal.sanitize import plain

    runtime = {} if project is None else project.runtime()
    if project is None or "container" not in runtime:
        return "none in this folder or above it", _NEW
    name = str(runtime["container"])
    argv = engine_client.of(runtime).inspect("container", name, template="{{.State.Status}}")
    said = LocalMachine().run(argv, deadline_s=_ENGINE_S)
    where = plain(f"{name} of {project.folder}")
    if said.state == "timeout":
        return f"{where}: the engine did not answer within {_ENGINE_S:g} s", _DOWN
    status = plain(said.stdout.strip()) if said.code == 0 else ""
    if status == "running":
        return f"{where}: running", _UP
    return f"{where}: not running{f' ({status})' if status else ''}", _DOWN
