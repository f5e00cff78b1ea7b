"""`dshpc rest`: tokens for Slurm's REST API."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any

import typer

from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import exec_caller, exec_stdin, job_request, print_json
from dshpc_setup.cli.command_line import (
    HELP,
    Commands,
    Dir,
    Json,
    app,
    examples,
    finish,
    this_machine,
)
from dshpc_setup.cli.options import NoMachine
from dshpc_setup.errors import DshpcError, Exit, Fix, usage_error
from dshpc_setup.machine import CommandResult

SCHEMA = "dshpc.rest-token/1"
_ASK_S = 30.0

rest_app = Commands(
    help="Manage access to Slurm's REST API.", no_args_is_help=True, context_settings=HELP
)
app.add_typer(rest_app, name="rest", rich_help_panel="Run")

Lifespan = Annotated[
    str, typer.Option("--lifespan", metavar="TIME", help="How long it is good for: 30m, 12h, 7d.")
]


@rest_app.callback()
def rest() -> None:
    """Manage access to Slurm's REST API."""


@rest_app.command("token", epilog=examples('curl -H "X-SLURM-USER-TOKEN: $(dshpc rest token)" URL'))
def rest_token(
    *,
    lifespan: Lifespan = "30m",
    dir: Dir = None,  # noqa: A002
    json_output: Json = False,
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Print a token for Slurm's REST API. Whoever has it is you, until it expires."""
    seconds = _seconds(lifespan)
    runtime = execution.runtime(job_request.environ(dir))
    done = _asked(_call(runtime, "scontrol", "token", f"lifespan={seconds}"))
    found = re.fullmatch(r"SLURM_JWT=(\S+)", done.stdout.strip())
    if not done.ok or found is None:
        raise _no_token(runtime, done)
    if json_output:
        print_json({"schema": SCHEMA, "exit_code": int(Exit.OK), "token": found[1],
                    "seconds": seconds})  # fmt: skip
    else:
        print(found[1])
    finish(Exit.OK)


def _seconds(text: str) -> int:
    from dshpc_setup.settings import texts

    try:
        seconds = 0 if text == "none" else texts.seconds(texts.wait(text))
    except ValueError:
        seconds = 0
    if not 0 < seconds <= texts.seconds("3650d"):
        raise usage_error(
            f"--lifespan {text!r} must be a time such as 30m, 12h or 7d, 3650d at most."
        )
    return seconds


def _call(runtime: dict[str, Any], *words: str) -> execution.Call:
    call = execution.Call("exec", [*words], runtime)
    call.mode = exec_stdin.NONE
    return call


def _asked(call: execution.Call) -> CommandResult:
    """As the calling user; what is printed holds a token, and is shown nowhere."""
    argv = call.client(exec_caller.calling_user(os.environ), os.environ)
    return this_machine().run(argv, deadline_s=_ASK_S)


def _no_token(runtime: dict[str, Any], done: CommandResult) -> DshpcError:
    call = _call(runtime, "scontrol", "show", "config")
    asked = _asked(call)
    if asked.ok and not re.search(r"(?m)^AuthAltTypes\s*=.*\bauth/jwt\b", asked.stdout):
        return DshpcError(
            "Slurm's REST API is off in this cluster, so it gives no tokens.",
            "The setting rest says whether it is on.",
            (
                Fix(
                    "Turn it on, on this machine's own address",
                    "dshpc config set rest 127.0.0.1:6820",
                ),
                Fix("Then put it in force", "configure-environment", step="after"),
            ),
        )
    if asked.state != "timeout":
        from dshpc_setup.cli import exec_trouble

        exec_trouble.explain(call, asked.code or 1, folder_said=True)
    return DshpcError(
        "There is no token: the cluster did not give one.",
        asked.text if not asked.ok else done.stderr.strip(),
        (Fix("See the cluster's state", "dshpc status", step="look"),),
        Exit.INCOMPLETE if done.state == "timeout" else Exit.ERROR,
    )
