"""`dshpc node`: the nodes of the cluster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.command_line import (
    HELP,
    Commands,
    Dir,
    Json,
    StopJobs,
    Yes,
    app,
    examples,
    finish,
    machine_of,
    needed_project,
    reporter,
    this_machine,
)
from dshpc_setup.cli.console import is_interactive
from dshpc_setup.cli.options import FollowLog, NoMachine, Tail
from dshpc_setup.cluster import added
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.terminal.command_names import as_called, print_error
from dshpc_setup.terminal.sanitize import harmless

if TYPE_CHECKING:
    from dshpc_setup.cluster.key import Rotated
    from dshpc_setup.machine import Machine
    from dshpc_setup.project.folder import Project

node_app = Commands(
    help="List, drain, resume and remove nodes; let machines join.",
    no_args_is_help=True,
    context_settings=HELP,
)
app.add_typer(node_app, name="node", rich_help_panel="Run")

Name = Annotated[str, typer.Argument(metavar="NODE", help="As dshpc node list has it.")]


@node_app.callback()
def node() -> None:
    """List, drain, resume and remove nodes; let machines join."""


@node_app.command("list")
def node_list(
    *,
    dir: Dir = None,  # noqa: A002
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """List the nodes with state, GPUs and address."""
    from dshpc_setup.cluster import nodes

    project = needed_project(dir)
    now = nodes.look(machine_of(project), project)
    if json_output:
        print_json(now.to_json())
    else:
        _print(nodes.lines(now))
    finish(now.exit_code)


@node_app.command("show")
def node_show(
    name: Name,
    *,
    dir: Dir = None,  # noqa: A002
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Show one node: its state, what changed at its last start, and its jobs."""
    from dshpc_setup.cluster import nodes

    project = needed_project(dir)
    here = machine_of(project)
    now = nodes.look(here, project)
    found = now.named(name)
    if json_output:
        print_json(nodes.NodesNow((found,)).to_json())
    else:
        _print(nodes.shown(here, project, found))
    finish(now.exit_code)


@node_app.command("token", epilog=examples("dshpc node token --ttl 2h --once"))
def node_token(
    *,
    ttl: Annotated[
        str, typer.Option("--ttl", metavar="TIME", help="For how long it is good: 30m, 24h, 7d.")
    ] = "24h",
    once: Annotated[bool, typer.Option("--once", help="Good for one machine.")] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Make all tokens worthless instead; nodes stay.")
    ] = False,
    serve: Annotated[
        int | None,
        typer.Option(
            "--serve",
            metavar="PORT",
            hidden=True,
            help="Answer machines that join, until no token lives: a process of its own does.",
        ),
    ] = None,
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Print a token with which other machines join this cluster as nodes."""
    from dshpc_setup.join import giving

    project = needed_project(dir)
    here = machine_of(project)
    if serve is not None:
        giving.serve(here, project, serve)
    elif revoke:
        gone = giving.revoke(project)
        print(f"Revoked: {len(gone)}." if gone else "There was no token to revoke.")
    else:
        _print(giving.lines(giving.give(here, project, ttl, once=once)))
    finish(Exit.OK)


@node_app.command(
    "add",
    epilog=examples(
        "dshpc node add ada@10.0.0.7",
        "dshpc node add -p 2222 --node-name gpu7 lab7 -- --engine builtin",
        "dshpc node add --again",
    ),
)
def node_add(
    host: Annotated[
        str | None,
        typer.Argument(
            metavar="[USER@]HOST", help="The machine, as ssh knows it.", show_default=False
        ),
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- OPTION...]",
            help="Options for configure-environment there.",
            show_default=False,
        ),
    ] = None,
    *,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="All machines that were added from here join again: after a new key, or where this machine "
            "has another address.",
        ),
    ] = False,
    port: Annotated[
        int | None, typer.Option("--port", "-p", metavar="PORT", help="Of its ssh server.")
    ] = None,
    node_name: Annotated[
        str,
        typer.Option(
            "--node-name",
            metavar="NAME",
            help="What the node is called (default: its host name).",
            show_default=False,
        ),
    ] = "",
    folder: Annotated[
        str,
        typer.Option(
            "--folder",
            metavar="DIR",
            help="Of program and node there, absolute or below the home (default: dshpc-CLUSTER).",
            show_default=False,
        ),
    ] = "",
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Make another machine a node, over ssh: it gets program and image, joins, and runs a job."""
    from dshpc_setup.adding import adding
    from dshpc_setup.adding import host as hosts

    if again != (host is None) or (again and (words or port or node_name or folder)):
        raise usage_error(
            "dshpc node add takes a machine, or --again alone.",
            "",
            "Such as: dshpc node add ada@10.0.0.7",
        )
    project = needed_project(dir)
    here = machine_of(project)
    code = Exit.OK
    if host is None:
        code = _again(here, project, added.read(project))
    else:
        place = hosts.read(host, folder or adding.usual_folder(project), port)
        wanted = adding.Wanted(place, node_name, tuple(words or ()), interactive=is_interactive())
        _print(adding.add(here, project, wanted, reporter()).lines(place))
    finish(code)


def join_again(machine: Machine, project: Project, rotated: Rotated) -> Exit:
    """Of nodes that a new key has cut off, those that were added from here join again, and what was done is
    told; whether all did."""
    ways = added.read(project)
    mine = tuple(node for node in rotated.cut_off if node in ways)
    left = tuple(node for node in rotated.cut_off if node not in ways)
    print(as_called(replace(rotated, cut_off=left).describe()))
    return _again(machine, project, mine) if mine else Exit.OK


def _again(machine: Machine, project: Project, nodes: Collection[str]) -> Exit:
    from dshpc_setup.adding import adding

    if not nodes:
        print("No node was added from here by ssh.")
        return Exit.OK
    say = reporter()
    done = adding.again(machine, project, say, nodes, interactive=is_interactive())
    failed = {node: each for node, each in done.items() if isinstance(each, DshpcError)}
    for node, each in done.items():
        if not isinstance(each, DshpcError):
            print(f"Joined again: {node}, {each.state}: {each.proof}.")
    for node, error in failed.items():
        print_error(replace(error, brief=f"{node} has not joined again: {error.brief}"))
    return Exit.INCOMPLETE if failed else Exit.OK


@node_app.command("drain")
def node_drain(
    name: Name,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for all who ask.")],
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Keep new jobs from starting on a node; running jobs continue."""
    from dshpc_setup.cluster import nodes

    project = needed_project(dir)
    nodes.drain(machine_of(project), project, name, reason)
    print(as_called(f"Drained: {name}. To take it back: dshpc node resume {name}"))
    finish(Exit.OK)


@node_app.command("resume")
def node_resume(
    name: Name,
    *,
    dir: Dir = None,  # noqa: A002
    yes: Yes = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Return a node to service: jobs start there again. A stopped node is started."""
    from dshpc_setup.cluster import nodes

    project = needed_project(dir)
    nodes.resume(machine_of(project), project, name, reporter(yes))
    print(f"Resumed: {name}.")
    finish(Exit.OK)


@node_app.command("logs")
def node_logs(
    name: Name,
    *,
    dir: Dir = None,  # noqa: A002
    follow: FollowLog = False,
    tail: Tail = None,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Show the log of a node's container."""
    from dshpc_setup.cli.exec import hand_over
    from dshpc_setup.cluster import operations

    project = needed_project(dir)
    here = machine_of(project)
    hand_over(operations.logs_argv(here, project, follow=follow, tail=tail, node=name))


@node_app.command("remove")
def node_remove(
    name: Name,
    *,
    dir: Dir = None,  # noqa: A002
    yes: Yes = False,
    stop_jobs: StopJobs = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Take a node out of the cluster for good. Asks while jobs run there; other nodes keep theirs."""
    from dshpc_setup.cluster.stopping import MayStop
    from dshpc_setup.setup import node_removal
    from dshpc_setup.setup.run import Options

    project = needed_project(dir)
    here = this_machine()
    say = reporter(yes)
    may = MayStop(stop_jobs)
    options = Options(build=False, may_stop=may, interactive=is_interactive(), env=here.env)
    rotated = node_removal.remove(here, project, name, say, options, added.read(project))
    code = join_again(machine_of(project), project, rotated) if rotated is not None else Exit.OK
    print(as_called(f"Removed: {name}. The others: dshpc node list"))
    finish(code)


def _print(lines: list[str]) -> None:
    put("".join(f"{as_called(harmless(line))}\n" for line in lines))
