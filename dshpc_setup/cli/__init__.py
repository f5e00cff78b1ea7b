"""The command line: parse, call, print, exit. It knows nothing of its own.

Both entry points decide from the first word alone what to import: `dshpc --version` and
`dshpc srun ...` are counted in milliseconds, and importing typer alone would cost them more than all
else they do.
"""

from __future__ import annotations

import sys

from dshpc_setup.terminal.commands import EXEC_COMMANDS

TYPE_CHECKING = False  # importing typing would cost as much as all of the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from dshpc_setup.errors import DshpcError

_END_SOON = [
    [name] for name in ("configure", "destroy", "doctor", "down", "restart", "status", "up")
]
_NOT_PRINTED = "What was found could not be printed."
_ended_by: list[int] = []  # the signal that ended the running command
_told_json: list[bool] = []  # whether its object is printed


def main() -> int:
    """The entry point `dshpc`."""
    return _soon(sys.argv[1:], "dshpc")


def configure_environment_main() -> int:
    """The entry point `configure-environment`: the same as `dshpc configure`."""
    return _soon(["configure", *sys.argv[1:]], "configure-environment")


def _soon(arguments: list[str], program: str) -> int:
    """Run one that ends soon without looking for garbage: all that is loaded would be looked over again and
    again, also in each of its processes and at the end. One that goes on does look."""
    if arguments[:1] not in _END_SOON:
        return run(arguments, program)
    import gc

    gc.disable()
    code = run(arguments, program)
    gc.freeze()
    return code


def run(arguments: list[str], program: str) -> int:
    """Run one command line; the result is the exit code."""
    _ended_by.clear()
    _told_json.clear()
    return _printed(_ended(arguments, program), program)


def _ended(arguments: list[str], program: str) -> int:
    try:
        return _run(arguments, program)
    except KeyboardInterrupt:  # also while a command is still being imported
        return interrupted(arguments, program)
    except (BrokenPipeError, ReaderGoneError):  # as an error was told
        _let_stdout_go()
        return 141
    except Exception as error:  # noqa: BLE001 -- the one boundary: nobody shall read a traceback
        if _ended_by:  # a terminal that hung up takes no words any more
            return interrupt_code()
        return _defect(error, arguments, program)


def _printed(code: int, program: str) -> int:
    """The exit code once all that was said is really written: the interpreter would end with 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _let_stdout_go()
        return 141
    except OSError as error:
        _let_stdout_go()
        sys.stderr.write(f"{program}: {_NOT_PRINTED}\n  {error}\n")
        return 2
    return code


def _let_stdout_go() -> None:
    """What waits to be written goes nowhere, instead of failing once more at the interpreter's end; to stderr
    too, where that is the same pipe."""
    _let_go(sys.stdout)
    try:
        sys.stderr.flush()
    except BrokenPipeError:
        _let_go(sys.stderr)


def _let_go(stream: TextIO) -> None:
    import os

    try:
        number = stream.fileno()
    except (OSError, ValueError):  # no file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def interrupt_code() -> int:
    """The exit code of an interrupted command: 130, or 128 + the number of the signal that came."""
    return 128 + _ended_by[-1] if _ended_by else 130


def interrupted(arguments: list[str], program: str) -> int:
    """Say that Ctrl-C (or TERM, HUP) came where no command's own report could; the exit code."""
    code = interrupt_code()
    try:
        start = "\n" if sys.stderr.isatty() else ""  # behind the terminal's own ^C
        sys.stderr.write(f"{start}{program}: interrupted.\n")
        _error_object(arguments, code, "Interrupted.", "", ["Run again."])
    except OSError:  # the terminal has hung up
        pass
    return code


def _defect(error: Exception, arguments: list[str], program: str) -> int:
    """What nobody has foreseen, in one sentence; with DSHPC_DEBUG=1 the traceback as well."""
    import os

    if os.environ.get("DSHPC_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}"
    todo = "Run it again with DSHPC_DEBUG=1 and report what it says, with the command line."
    sys.stderr.write(
        f"{program}: a defect of dsHPC setup itself: {what}\n  {_versions()}\n  - {todo}\n"
    )
    _error_object(arguments, 2, "A defect of dsHPC setup itself.", what, [todo])
    return 2


def _versions() -> str:
    """What a report has to name: ours, Python's, and the distribution in its own words."""
    import platform

    import distro

    from dshpc_setup import __version__

    system = distro.name(pretty=True) or platform.platform()
    return f"dsHPC setup {__version__}, Python {platform.python_version()}, {system}"


def _error_object(
    arguments: list[str], code: int, brief: str, details: str, resolution: list[str]
) -> None:
    """The `dshpc.error/1` object, where --json asked for one and the command has not spoken yet."""
    if arguments[:1] and arguments[0] in EXEC_COMMANDS:
        return
    if _told_json or not wants_json(arguments):
        return
    error = {"brief": brief, "details": details, "resolution": resolution, "exit_code": code}
    print_json({"schema": "dshpc.error/1", "exit_code": code, "error": error})


def wants_json(arguments: list[str]) -> bool:
    """Whether --json is asked of us; `dshpc run` has a command behind its options with words of its own."""
    if arguments[:1] == ["run"] and "--json" in arguments:
        from dshpc_setup.cli.submission import without_command

        arguments = without_command(arguments)
    return "--json" in arguments


def print_json(value: dict[str, object]) -> None:
    """One object, and nothing else, on stdout."""
    import json

    _told_json.append(True)
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:  # not in this locale, or nowhere: half of a pair
        text = json.dumps(value, indent=2)
    put(f"{text}\n")


class ReaderGoneError(Exception):
    """Who read our stdout has closed it (`| head -1`). No OSError: the parser ends on those itself."""


def put(text: str) -> None:
    """The text on stdout, all of it; raises DshpcError where it cannot be written.

    What the encoding does not have becomes a question mark.
    """
    from dshpc_setup.errors import DshpcError

    if sys.stdout is None:  # closed by who started us (`>&-`)
        raise DshpcError("Nothing could be printed.", "The standard output is closed.")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError as error:
        _let_stdout_go()
        raise ReaderGoneError from error
    except OSError as error:  # a full disk
        _let_stdout_go()
        raise DshpcError(_NOT_PRINTED, str(error)) from error


def _run(arguments: list[str], program: str) -> int:
    first = arguments[0] if arguments else ""
    if first in ("--version", "-V") or (arguments[1:] == ["--version"] and first == "configure"):
        from dshpc_setup import __version__

        sys.stdout.write(f"dshpc {__version__}\n")
        return 0
    if first in EXEC_COMMANDS:
        from dshpc_setup.cli.exec import main as exec_main

        return exec_main(arguments)
    if first == "__complete":
        from dshpc_setup.cli.completing import print_answers

        return print_answers(arguments[2:])
    from dshpc_setup.cli.interrupts import raised

    with raised(_ended_by):
        command = _plain(first, arguments)
        if command is not None:
            return told(command, arguments, program)
        from dshpc_setup.cli.app import run as app_run

        return app_run(arguments, program)


def _plain(first: str, arguments: list[str]) -> Callable[[], int] | None:
    """A command whose line can be read without typer; None for what typer has to judge."""
    if not arguments:
        from dshpc_setup.cli.first_look import look as first_look

        return first_look
    if first == "configure":
        from dshpc_setup.cli import configure_line

        wanted = configure_line.parsed(arguments[1:])
        return None if wanted is None else lambda: configure_line.carry_out(wanted)
    if first == "detect":
        from dshpc_setup.cli.detect import detect, parsed

        asked = parsed(arguments[1:])
        return None if asked is None else lambda: detect(asked)
    if first == "doctor":
        from dshpc_setup.cli.doctor_line import look
        from dshpc_setup.cli.doctor_line import parsed as parsed_line

        line = parsed_line(arguments[1:])
        return None if line is None else lambda: look(line)
    if first == "ssh-proxy":
        from dshpc_setup.cli import ssh_proxy

        proxied = ssh_proxy.parsed(arguments[1:])
        return None if proxied is None else lambda: ssh_proxy.carry_out(proxied)
    if first == "job":
        from dshpc_setup.cli import job_line

        words = job_line.parsed(arguments[1:])
        return None if words is None else lambda: job_line.ask(*words)
    if first == "run" or (first == "method" and arguments[1:2] in (["run"], ["check"])):
        from dshpc_setup.cli.submission import carry_out
        from dshpc_setup.cli.submission import parsed as parsed_submission

        submission = parsed_submission(arguments)
        return None if submission is None else lambda: carry_out(submission)
    return None


def told(command: Callable[[], int], arguments: list[str], program: str) -> int:
    """Run a command; its errors become text, and JSON, here and nowhere else. The exit code."""
    from dshpc_setup.errors import DshpcError

    try:
        return command()
    except DshpcError as error:
        return _told(error, arguments, program)
    except (BrokenPipeError, ReaderGoneError):
        _let_stdout_go()
        return 141
    except OSError as error:
        if error.filename is not None:
            raise
        _let_stdout_go()  # of print(): what we write to files is told by its name
        return _told(DshpcError(_NOT_PRINTED, str(error)), arguments, program)
    except Exception:
        raise
    except BaseException as error:  # what a recorded machine cannot answer passes every probe
        from dshpc_setup.machine.recorded import Unrecorded

        if not isinstance(error, Unrecorded):
            raise
        return _told(error.told(), arguments, program)


def _told(error: DshpcError, arguments: list[str], program: str) -> int:
    code = int(error.exit_code)
    if not _told_json and wants_json(arguments):
        print_json(error.to_object())
    from dshpc_setup.terminal.command_names import print_error

    print_error(error, program)
    return code
