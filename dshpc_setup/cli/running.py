"""The commands that start, change and stop the cluster: up, restart, reconfigure, down."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dshpc_setup.cli import print_json
from dshpc_setup.cli.command_line import (
    Dir,
    Json,
    StopJobs,
    WhenIdle,
    Yes,
    app,
    environment,
    finish,
    machine_of,
    needed_project,
    reporter,
    show_status,
)
from dshpc_setup.cli.options import NoMachine
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.terminal.command_names import as_called

if TYPE_CHECKING:
    from dshpc_setup.cluster.stopping import MayStop


@contextlib.contextmanager
def asked_of(*, stop_jobs: bool, when_idle: bool) -> Iterator[MayStop]:
    """What may become of running jobs; a queue that was held for them goes on when it is left."""
    from dshpc_setup.cli.configure_line import one_way
    from dshpc_setup.cluster import idle
    from dshpc_setup.cluster.stopping import MayStop

    one_way(stop_jobs=stop_jobs, when_idle=when_idle)
    with idle.WhenIdle(when_idle) as held:
        yield MayStop(stop_jobs, when_idle=held)


@app.command("up", rich_help_panel="Run")
def up(
    *,
    dir: Dir = None,  # noqa: A002
    yes: Yes = False,
    stop_jobs: StopJobs = False,
    when_idle: WhenIdle = False,
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Start the cluster and wait until jobs can run."""
    from dshpc_setup.cluster import operations as cluster
    from dshpc_setup.project import known

    project = needed_project(dir)
    with asked_of(stop_jobs=stop_jobs, when_idle=when_idle) as may:
        now = cluster.up(machine_of(project), project, reporter(yes), may)
    with contextlib.suppress(
        DshpcError
    ):  # where nothing can be written, a command names the folder
        known.again(str(project.folder), os.environ)
    show_status(now, json_output, changed=True)


@app.command("restart", rich_help_panel="Run")
def restart(
    *,
    dir: Dir = None,  # noqa: A002
    yes: Yes = False,
    stop_jobs: StopJobs = False,
    when_idle: WhenIdle = False,
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Restart the cluster: it detects and configures again; queued jobs stay."""
    from dshpc_setup.cluster import operations as cluster

    project = needed_project(dir)
    with asked_of(stop_jobs=stop_jobs, when_idle=when_idle) as may:
        now = cluster.restart(machine_of(project), project, reporter(yes), may)
    show_status(now, json_output, changed=True)


@app.command("reconfigure", rich_help_panel="Run")
def reconfigure(
    *,
    dir: Dir = None,  # noqa: A002
    yes: Yes = False,
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Detect and configure again in the running cluster, without a restart: jobs keep running."""
    from dshpc_setup.cluster import reconfigure as stage
    from dshpc_setup.cluster import status

    project = needed_project(dir)
    done = stage.reconfigure(machine_of(project), project, environment(), reporter(yes))
    if json_output:
        print_json(done.to_json())
    else:
        print("\n".join(map(as_called, [*stage.lines(done), *status.lines(done.status)])))
    finish(done.exit_code)


@app.command("down", rich_help_panel="Run")
def down(
    *,
    dir: Dir = None,  # noqa: A002
    yes: Yes = False,
    stop_jobs: StopJobs = False,
    when_idle: WhenIdle = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Stop the cluster; queue, users, homes and key are kept."""
    from dshpc_setup.cluster import operations as cluster

    project = needed_project(dir)
    with asked_of(stop_jobs=stop_jobs, when_idle=when_idle) as may:
        was = cluster.down(machine_of(project), project, reporter(yes), may)
    if not was:
        print("It was down already.")
    elif project.foreign is not None:
        from dshpc_setup.project.writers import user_name

        print(
            f"Stopped. Queued jobs are kept. Only {user_name(project.foreign)} can start it again."
        )
    else:
        print(as_called("Stopped. Queued jobs are kept: dshpc up"))
    finish(Exit.OK)
