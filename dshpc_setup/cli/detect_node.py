"""`dshpc detect --node`: what a node of the cluster sees, asked in its container."""

from __future__ import annotations

import sys

from dshpc_setup import engine_door
from dshpc_setup.cli import put
from dshpc_setup.cli.command_line import needed_project, this_machine
from dshpc_setup.cli.detect import DetectOptions
from dshpc_setup.cluster import targets
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.sanitize import plain

_HEADROOM_S = 10.0  # of Python's start in a container of a machine that is busy


def detect(asked: DetectOptions, node: str) -> int:
    """Print what it says and give its exit code; raises DshpcError where it cannot be asked."""
    if asked.root != "/" or asked.machine is not None or asked.simulate:
        raise usage_error(
            "--node names a node of the cluster, and --root, --machine or --simulate another machine.",
            "",
            "Give one of them.",
        )
    project = needed_project(None)
    machine = engine_door.of(this_machine(), project.runtime())
    found = targets.container_of(machine, project, node)
    if found is None or found.status != "running":
        how = containers.how(found.status) if found is not None else "is not there"
        raise DshpcError(
            f"Node {plain(node)} cannot be asked: its container {how}.",
            "",
            (f"Start it: dshpc node resume {node}",),
        )
    words = ["dshpc-node", "detect", f"--deadline={asked.deadline:g}"]
    words += ["--json"] if asked.json else []
    words += ["--explain"] if asked.explain else []
    words += [f"--only={asked.only}"] if asked.only is not None else []
    done = containers.exec_in(machine, found.name, words, deadline_s=asked.deadline + _HEADROOM_S)
    if done.code not in (Exit.OK, Exit.INCOMPLETE):
        silent = done.state == "timeout"
        raise DshpcError(
            f"Node {plain(node)} {'gives no answer' if silent else 'cannot say what it has'}.",
            "" if silent else done.text,
            (f"See what it says: dshpc logs --node {node}",),
            Exit.INCOMPLETE if silent else Exit.ERROR,
        )
    put(done.stdout if asked.json else as_called(done.stdout))
    sys.stderr.write(done.stderr)
    return int(done.code)
