"""`dshpc srun ...`, `dshpc exec -- ...`, `dshpc shell`: into the container as the calling user.

One call of the engine's client, and nothing is asked before it: a question costs as much as a job.
What went wrong is found out afterwards. The Docker client is used and not the API because it knows
contexts, TLS, ssh and terminals. Imports are counted here: see benchmarks/srun.py.

Of the caller's environment nothing but the time zone goes along: SLURM_* and SBATCH_* of the host belong
to its own cluster where it has one, and would send the job astray. DSHPC_PASS_ENV="NAME,SBATCH_*" lists
those that shall.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from dshpc_setup import engine_client
from dshpc_setup.cli import exec_caller, exec_stdin, exec_zone
from dshpc_setup.project import trust, writers

TYPE_CHECKING = False  # importing typing would cost as much as all of the rest
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

_PIPE_CLOSED = 128 + signal.SIGPIPE
NODE = "node"  # no command of ours: a Call of dshpc-node, which waits for the cluster as Slurm's do
_SUBMITS = (["job", "submit"], ["job", "workflow"], ["job", "ssh"])
_START_S = 60  # how long a Slurm command waits for a cluster that is still starting
# Beginnings of options that only other tools have: other_tools.py tells which they are
_OF_OTHERS = ("--container", "--volume", "--runtime", "--image", "--mount")
_ROOT = "--root"
_USAGE = """Usage: dshpc exec [--root] [--] COMMAND [ARGUMENT...]
       dshpc shell [--root]

Run a command, or a shell, in the cluster's container as yourself: in this folder where jobs see it
(the work folder, homes, mounts), else in the work folder. The exit code is the command's own.

  --root  Run it as the container's root, who may change nodes and other people's jobs.
"""

_NO_SHELL = "dshpc: dshpc shell takes no command; dshpc exec runs one.\n"


class Call:
    """One command line, taken apart: what to run, where, as whom, with which streams."""

    def __init__(
        self, command: str, arguments: list[str], runtime: dict[str, Any], *, as_root: bool = False
    ) -> None:
        self.command = command
        self.as_root = as_root
        self.runtime = runtime
        self.began = time.time()
        self.container = str(runtime["container"])
        self.engine = engine_client.of(runtime)
        self.work = str(runtime["work"])
        # What dshpc-node is asked is about no folder
        self.folder = (
            self.work
            if command == NODE
            else exec_caller.seen_at(runtime, exec_caller.current_folder())
        )
        self.is_slurm = command not in ("exec", "shell")
        if command == "exec":
            self.argv = arguments
        elif command == "shell":
            self.argv = ["bash", "-l", *arguments]
        elif command == NODE:
            self.argv = ["dshpc-node", *arguments]
        else:
            self.argv = [command, *arguments]
        self.mode = exec_stdin.mode(command, arguments, exec_caller.terminals())
        self.token = os.urandom(8).hex()
        self.more: list[str] = []  # variables, as NAME or NAME=VALUE
        self.ended_by = 0  # the signal that came to us and ends a command, once it was run

    def client(self, user: tuple[int, int, str], environ: Mapping[str, str]) -> list[str]:
        """The command line of the engine's client that runs it."""
        # dshpc-node reads times that slurmctld has written, by its clock; jobs that it submits have ours
        ours = "DSHPC_" if self.command == NODE else ""
        zone = [f"{ours}{variable}" for variable in exec_zone.variables(environ)]
        names = [*zone, *exec_caller.passed(environ), *self.more]
        if self.mode == exec_stdin.TTY:
            names += exec_caller.of_terminal(environ)
        if self.is_slurm:
            names.append(f"DSHPC_WAIT_S={_START_S}")
        if self.command == NODE and self.argv[1:3] in _SUBMITS:
            names.append(f"DSHPC_WORK={self.work}")  # where a workspace will have to be made
        umask = os.umask(0o022)
        os.umask(umask)
        names.append(f"DSHPC_UMASK={umask:03o}")
        uid, gid, name = (0, 0, "root") if self.as_root else user
        if uid != 0 and (home := exec_caller.own_home(self.runtime, uid)) is not None:
            names.append(f"DSHPC_HOME={home}")
        return self.engine.run_in(
            self.container,
            *(engine_client.AS_USER, self.token, str(uid), str(gid), name, "--", *self.argv),
            stdin=self.mode != exec_stdin.NONE,
            terminal=self.mode == exec_stdin.TTY,
            env=names,
            folder=self.folder or self.work,
        )

    @property
    def deliver(self) -> list[str]:
        return self.engine.run_in(self.container, engine_client.AS_USER, "--signal", self.token)


def main(arguments: list[str]) -> int:
    """Run `arguments[0]` (one of cli.EXEC_COMMANDS) with the rest; the result is the exit code.

    Errors of our own are written to stderr here; they end with 2, wrong usage with 64.
    """
    command, rest = arguments[0], arguments[1:]
    if command in ("exec", "shell") and rest[:1] in (["-h"], ["--help"]):
        sys.stdout.write(_USAGE)
        return 0
    as_root = command in ("exec", "shell") and rest[:1] == [_ROOT]
    if as_root:
        rest = rest[1:]
    if command == "exec" and rest[:1] == ["--"]:
        rest = rest[1:]
    wrong = _NO_SHELL if command == "shell" and _is_command(rest) else ""
    if wrong or (command == "exec" and not rest):
        sys.stderr.write(f"{wrong}{_USAGE}")
        return 64
    _open_streams()
    try:
        if any(word.startswith(_OF_OTHERS) for word in rest) or (
            command == "sbatch" and _script_has_others(rest)
        ):
            _check_options(command, rest)
        value = runtime(os.environ)
        if any("localhost" in word for word in rest):
            rest = _with_node(command, rest, value)
        return run(Call(command, rest, value, as_root=as_root))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from dshpc_setup.errors import DshpcError

        if not isinstance(error, DshpcError):
            raise
        from dshpc_setup.terminal.command_names import print_error

        print_error(error)
        return int(error.exit_code)


def _is_command(rest: list[str]) -> bool:
    """What bash would take for a script's name; its own options (-c) stay its own."""
    return rest[:1] == ["--"] or (rest[:1] != [] and not rest[0].startswith("-"))


def _with_node(command: str, rest: list[str], value: dict[str, Any]) -> list[str]:
    """The words, with the node's own name where `localhost` stands for it."""
    from dshpc_setup.cli import localhost

    if not localhost.meant(command, rest):
        return rest
    from dshpc_setup.machine.local import LocalMachine

    return localhost.with_node(
        command, rest, localhost.node(LocalMachine(), engine_client.of(value), value)
    )


def _script_has_others(rest: list[str]) -> bool:
    """Whether a file that is named there may hold such an option in a line of sbatch's."""
    for word in rest:
        if not word.startswith("-") and os.path.isfile(word):
            try:
                with open(word, "rb") as file:
                    text = file.read(exec_stdin.MOST_OF_SCRIPT)
            except OSError:
                continue
            if b"#SBATCH" in text and any(option.encode() in text for option in _OF_OTHERS):
                return True
    return False


def _check_options(command: str, rest: list[str]) -> None:
    """Raises DshpcError for an option that only other tools have."""
    from dshpc_setup.cli import other_tools

    if command in other_tools.COMMANDS:
        other_tools.check(command, rest)


def run(call: Call) -> int:
    """Run it with our streams and signals: its exit code. Raises DshpcError where it cannot be."""
    for argument in call.argv:
        _check(argument)
    from dshpc_setup.cli.exec_session import Session

    # A script's stderr is kept as the command's own; sbatch's is not the job's
    folder_said = call.folder is None and (os.isatty(2) or call.command == "sbatch")
    if folder_said:
        from dshpc_setup.cli.exec_trouble import not_seen

        say(not_seen(call))
    builtin = call.runtime.get("engine") == engine_client.BUILTIN
    if builtin:
        os.environ[engine_client.QUIET] = "1"
    # Docker's client ends by SIGPIPE; of srun's threads, the one that writes gets it, and no other hears it
    deaf = builtin and call.command in ("srun", "sattach")
    client = call.client(exec_caller.calling_user(os.environ), os.environ)
    session = Session(client, call.deliver, call.mode, direct=builtin, deaf=deaf)
    try:
        code, died_by = session.run()
    except OSError as error:
        from dshpc_setup.cli.exec_trouble import no_client

        raise no_client(call.engine.program[0], str(error)) from None
    call.ended_by = session.ended_by
    if session.gave_up:
        say(
            f"Docker does not answer: SIG{session.gave_up} could not be delivered, and what was "
            "started may still run."
        )
    elif died_by or code == _PIPE_CLOSED:  # Podman's client ends with that code, not by the signal
        session.abandon(died_by or signal.SIGPIPE)
    elif code != 0:
        from dshpc_setup.cli.exec_trouble import explain

        explain(call, code, folder_said=folder_said, said=session.said)
        return code
    show(session.said)
    if (
        code == 0 and call.command == "sshare"
    ):  # which ends well without accounting, and shows nothing
        from dshpc_setup.cli.exec_trouble import say_what_it_needs

        say_what_it_needs(call)
    return code


def say_unwatched(call: Call, code: int, what: str, *more: str) -> None:
    """Where a signal of ours has ended the watching, and not what was watched: say what becomes of that.

    By the exit code alone a job that was cancelled could not be told from it.
    """
    if not call.ended_by or code != 128 + call.ended_by:
        return
    from dshpc_setup.terminal.command_names import as_called

    name = "Ctrl-C" if call.ended_by == signal.SIGINT else signal.Signals(call.ended_by).name
    try:
        say(f"{name}: {what} is no longer watched. It keeps running, unless it has ended.")
        for text in more:
            say(as_called(text))
    except OSError:  # the terminal has hung up
        return


def show(said: bytes) -> None:
    """The bytes on stderr, as they are."""
    try:
        os.write(2, said)
    except OSError:
        return  # nobody reads it any more


def _open_streams() -> None:
    """Give a stream that the caller closed a place: the next file opened would become it."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def project_folder(environ: Mapping[str, str]) -> str:
    """The project's folder here or above, or of DSHPC_DIR; where there is none, the one to say so of."""
    found, _, here = _place(environ)
    return here if found is None else found.folder


def runtime(environ: Mapping[str, str]) -> dict[str, Any]:
    """`.dshpc/runtime.json` of the project; raises DshpcError where there is none that can be used.

    It is data: what another user's folder says is compared with what the engine says of its container.
    """
    found, ignored, here = _place(environ)
    value = {} if found is None or found.fault is not None else found.runtime
    if not {"container", "work"} <= value.keys():
        from dshpc_setup.cli.exec_trouble import no_project

        raise no_project(
            found, ignored, here if environ.get("DSHPC_DIR") else exec_caller.current_folder()
        )
    if found is not None and found.foreign:
        from dshpc_setup.cli.exec_trouble import need_label

        need_label(value, found)
    say_ignored(ignored)
    return value


def _place(environ: Mapping[str, str]) -> tuple[trust.Place | None, list[trust.Place], str]:
    """As project.find_project, without its imports: what was found, what is not used, where it began."""
    named = environ.get("DSHPC_DIR")
    if named:
        folder = os.path.realpath(named)
        return trust.judged(folder), [], folder
    here = exec_caller.current_folder() or "/"
    found, ignored = trust.search(here)
    if found is None:
        from dshpc_setup.project import known

        found = known.elsewhere(here, environ)
    return found, ignored, here


def say_ignored(ignored: Sequence[trust.Place]) -> None:
    """A line for people about a folder that they stand in, and that is not used."""
    if ignored and os.isatty(2):
        at = ignored[-1]
        why = "It lies in the work folder of another project, where jobs write."
        if at.fault is not None:
            why = at.fault.why
        elif at.foreign:
            why = f"It belongs to {writers.user_name(at.uid)}."
        say(f"{at.folder}/{trust.OWN} is ignored. {why}")


def say(text: str) -> None:
    """A line of our own, beside what the command says."""
    from dshpc_setup.terminal.sanitize import harmless

    sys.stderr.write(f"dshpc: {harmless(text)}\n")
    sys.stderr.flush()


def _check(argument: str) -> None:
    try:
        argument.encode()
    except UnicodeEncodeError:
        from dshpc_setup.cli.exec_trouble import no_text

        raise no_text(argument) from None


def hand_over(argv: list[str]) -> NoReturn:
    """Become that program: its streams, signals and exit code are then its own affair.

    Where it speaks to a terminal we stay, for what it prints are words of others.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if os.isatty(1) or os.isatty(2):
            from dshpc_setup.cli import exec_streams

            sys.exit(exec_streams.run(argv))
        os.execvp(argv[0], argv)
    except OSError as error:
        from dshpc_setup.cli.exec_trouble import no_client

        raise no_client(argv[0], str(error)) from None
