"""`dshpc metrics`: for Prometheus, on stdout or served by HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from dshpc_setup.cli import put
from dshpc_setup.cli.command_line import Dir, app, examples, finish, machine_of, needed_project
from dshpc_setup.cli.options import NoMachine


@app.command("metrics", rich_help_panel="Inspect", epilog=examples("dshpc metrics | grep DCGM"))
def metrics(
    *,
    open_metrics: Annotated[
        bool, typer.Option("--openmetrics", help="Print OpenMetrics instead of Prometheus text.")
    ] = False,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help="Serve them at the address of the setting metrics, until Ctrl-C."
        ),
    ] = False,
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Print metrics of GPUs, nodes, queue and scheduler for Prometheus."""
    project = needed_project(dir)
    project.need_own()
    seen = machine_of(project)
    if serve:
        from dshpc_setup.metrics import served

        served.serve(seen, project)
        finish(0)
        return
    from dshpc_setup.metrics import families, look

    found = families.Snapshot(look.look(seen, project, look.examine(seen, project)))
    put(families.openmetrics(found) if open_metrics else families.prometheus(found))
    finish(0)
