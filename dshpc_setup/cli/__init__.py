"""The command line: parse, call, print, exit. It knows nothing of its own.

Both entry points decide from the first word alone what to import: `dshpc --version` and
`dshpc srun ...` are counted in milliseconds, and importing typer alone would cost them more than all
else they do.
"""

from __future__ import annotations

import sys

EXEC_COMMANDS = frozenset(
    (
        "srun sbatch salloc squeue sinfo scancel scontrol sacct sacctmgr sstat sprio sshare sdiag "
        "sattach sbcast strigger sreport scrontab exec shell"
    ).split()
)


def main() -> int:
    """The entry point `dshpc`."""
    return run(sys.argv[1:], "dshpc")


def configure_environment_main() -> int:
    """The entry point `configure-environment`: the same as `dshpc configure`."""
    return run(["configure", *sys.argv[1:]], "configure-environment")


def run(arguments: list[str], program: str) -> int:
    """Run one command line; the result is the exit code."""
    try:
        return _run(arguments, program)
    except KeyboardInterrupt:  # also while a command is still being imported
        return interrupted(arguments, program)


def interrupted(arguments: list[str], program: str) -> int:
    """Say that Ctrl-C came where no command's own report could; the exit code."""
    sys.stderr.write(f"{program}: interrupted.\n")
    if "--json" in arguments and arguments[0] not in EXEC_COMMANDS:
        sys.stdout.write(
            '{"schema": "dshpc.error/1", "exit_code": 130, "error": {"brief": "Interrupted.", '
            '"details": "", "resolution": ["Run again."], "exit_code": 130}}\n'
        )
    return 130


def _run(arguments: list[str], program: str) -> int:
    first = arguments[0] if arguments else ""
    if first in ("--version", "-V") or arguments[:2] == ["configure", "--version"]:
        from dshpc_setup import __version__

        sys.stdout.write(f"dshpc {__version__}\n")
        return 0
    if first in EXEC_COMMANDS:
        from dshpc_setup.cli.exec import main as exec_main

        return exec_main(arguments)
    from dshpc_setup.cli.app import run as app_run

    return app_run(arguments, program)
