"""The commands that look: detect, gpus, status, dashboard, logs, passthrough, record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dshpc_setup.cli import print_json
from dshpc_setup.cli.command_line import (
    Dir,
    Json,
    Yes,
    app,
    environment,
    finish,
    machine_of,
    needed_project,
    reporter,
    show_status,
)
from dshpc_setup.cli.console import is_interactive
from dshpc_setup.cli.folders import found_project
from dshpc_setup.cli.options import FollowLog, Machine, NoMachine, Root, Tail
from dshpc_setup.errors import Exit
from dshpc_setup.probes import DEADLINE_S
from dshpc_setup.terminal.command_names import as_called

# As they stand on the command line: `detect` reads them without typer as well.
_RootText = Annotated[
    str, typer.Option("--root", metavar="DIR", help="Read /proc, /sys, /dev, /etc under DIR.")
]
_MachineText = Annotated[
    str | None, typer.Option("--machine", metavar="DIR|FILE", help="Replay a recorded machine.")
]


@app.command("detect", rich_help_panel="Inspect")
def detect(
    *,
    json_output: Json = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="SECTION[,SECTION]",
            help="Probe only these: platform, cpu, memory, gpus, docker.",
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show why each thing is concluded, and nothing else.")
    ] = False,
    deadline: Annotated[
        float,
        typer.Option(
            "--deadline", metavar="SECONDS", help="Seconds to wait for each probe's answer."
        ),
    ] = DEADLINE_S,
    root: _RootText = "/",
    machine: _MachineText = None,
    simulate: Annotated[
        str, typer.Option("--simulate", metavar="PROFILE", help="Made-up GPUs, as configure has.")
    ] = "",
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NODE", help="What this node of the cluster sees."),
    ] = None,
) -> None:
    """Show what this machine has: platform, CPUs, memory, GPUs, Docker; how each was read."""
    from dshpc_setup.cli.detect import DetectOptions
    from dshpc_setup.cli.detect import detect as look

    finish(look(DetectOptions(json_output, explain, only, deadline, root, machine, simulate, node)))


@app.command("gpus", rich_help_panel="Inspect")
def gpus(
    *,
    json_output: Json = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval", metavar="SECONDS", help="Seconds between two readings (default: 2)."
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NODE", help="Only those of this node.")
    ] = None,
    dir: Dir = None,  # noqa: A002
    root: _RootText = "/",
    machine: _MachineText = None,
) -> None:
    """Show every GPU: memory, use, temperature, power, MIG, its Slurm type, and which job holds it."""
    from dshpc_setup.cli.gpus import show

    project = found_project(dir)
    finish(
        show(
            project,
            json_output=json_output,
            watching=watch,
            interval=interval,
            root=root,
            machine=machine,
            node=node,
        )
    )


@app.command("status", rich_help_panel="Inspect")
def status(
    *,
    dir: Dir = None,  # noqa: A002
    json_output: Json = False,
    machine: Machine = None,
) -> None:
    """Show the cluster's status: node, GPUs in use, isolation, what changed at the last start."""
    from dshpc_setup.cli.seen import seen_machine
    from dshpc_setup.cluster import operations as cluster

    recorded = None if machine is None else seen_machine("/", machine, "")
    project = needed_project(dir)
    show_status(cluster.status(recorded or machine_of(project), project), json_output)


def _for_others(name: str, metavar: str, text: str) -> object:
    panel = "For users of other machines, behind a reverse proxy that logs them in"
    return typer.Option(name, metavar=metavar, help=text, rich_help_panel=panel)


@app.command("dashboard", rich_help_panel="Inspect")
def dashboard(
    *,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", min=0, max=65535, help="Port (default: a free one)."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="ADDRESS", help="Address (default: 127.0.0.1)."),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address; open no browser.")
    ] = False,
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Serve where the setting dashboard says, as dshpc up has it."),
    ] = False,
    tls_certificate: Annotated[
        str | None, _for_others("--tls-certificate", "FILE", "Certificate to answer with (PEM).")
    ] = None,
    tls_key: Annotated[str | None, _for_others("--tls-key", "FILE", "Its key (PEM).")] = None,
    login_header: Annotated[
        str | None, _for_others("--login-header", "NAME", "Where the proxy names the user.")
    ] = None,
    login_from: Annotated[
        str | None, _for_others("--login-from", "ADDRESS[,...]", "The proxy's addresses.")
    ] = None,
    name: Annotated[
        str | None, _for_others("--name", "HOST[,...]", "Host as in browsers' addresses.")
    ] = None,
    proxy_ca: Annotated[
        str | None,
        _for_others("--proxy-ca", "FILE", "Who signs the proxy's own certificate (PEM)."),
    ] = None,
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Show the cluster in a browser, until Ctrl-C: GPUs, jobs, logs, files; submit and cancel."""
    from dshpc_setup.cli import dashboard as pages
    from dshpc_setup.dashboard.others import Others

    others = Others(tls_certificate, tls_key, login_header, login_from, name, proxy_ca)
    asked = pages.Asked(port, listen, browser=not no_browser, others=others)
    project = needed_project(dir)
    finish(pages.keep(project, dir, asked) if serve else pages.show(project, dir, asked))


@app.command("logs", rich_help_panel="Inspect")
def logs(
    *,
    dir: Dir = None,  # noqa: A002
    follow: FollowLog = False,
    tail: Tail = None,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NODE", help="Of this node (default: the controller's)."),
    ] = None,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Show the container's log: its start, slurmctld and slurmd."""
    from dshpc_setup.cli.exec import hand_over
    from dshpc_setup.cluster import operations as cluster

    project = needed_project(dir)
    hand_over(cluster.logs_argv(machine_of(project), project, follow=follow, tail=tail, node=node))


@app.command("passthrough", rich_help_panel="Inspect")
def passthrough(
    *,
    json_output: Json = False,
    image: Annotated[
        str | None,
        typer.Option(
            "--image", metavar="IMAGE", help="A local image (default: the cluster's base)."
        ),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option("--devices", metavar="LIST", help="Only these GPUs, by index or UUID: 0,2."),
    ] = None,
    get_base: Annotated[
        bool, typer.Option("--get-base", help="Pull or make the base image where it is missing.")
    ] = False,
    deadline: Annotated[
        float,
        typer.Option(
            "--deadline", metavar="SECONDS", help="Seconds to wait for each test container."
        ),
    ] = 60,
    yes: Yes = False,
    dir: Dir = None,  # noqa: A002
    machine: Machine = None,
) -> None:
    """Test-run every way for a container to get the GPUs: which works, and why others do not."""
    from dshpc_setup import engine_door
    from dshpc_setup.cli.detect import check_deadline
    from dshpc_setup.cli.passthrough import lines
    from dshpc_setup.cli.seen import seen_machine
    from dshpc_setup.passthrough.testrun import RunOptions, test_run
    from dshpc_setup.settings import load

    check_deadline(deadline)
    project = found_project(dir)
    if project is not None and project.foreign is not None:  # whose settings name images to start
        project = None
    flags = {"devices": devices}
    env = environment()
    settings = project.settings(env, flags) if project else load(flags=flags, env=env)
    asked = seen_machine("/", machine, "")
    if project is not None and machine is None:
        asked = engine_door.of(asked, project.runtime())
    wish = RunOptions(
        settings,
        image,
        get_base=get_base,
        deadline_s=deadline,
        replayed=machine is not None,
        interactive=is_interactive(),
    )
    done = test_run(asked, wish, reporter(yes))
    if json_output:
        print_json(done.to_json())
    else:
        print("\n".join(map(as_called, lines(done))))
    finish(done.exit_code)


@app.command("record", rich_help_panel="Inspect")
def record(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
    *,
    json_output: Json = False,
    yes: Yes = False,
    root: Root = Path("/"),
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Capture this machine, scrubbed, as a folder to send or to replay: --machine DIR."""
    from dshpc_setup.checkup.kernel import read_log
    from dshpc_setup.cli.record import lines
    from dshpc_setup.cli.seen import seen_machine
    from dshpc_setup.record.recorder import record as record_machine

    seen = seen_machine(root, None, "")
    own = str(root) == "/"  # what lies under another folder has no kernel that could be asked
    ask = (lambda facts: read_log(seen, facts.platform)) if own else None
    done = record_machine(seen, folder, reporter(yes), ask)
    if json_output:
        print_json(done.to_json())
    else:
        print("\n".join(map(as_called, lines(done))))
    finish(Exit.OK)
