"""`dshpc srun|exec|...` on a running cluster: exit codes, streams, terminals, signals, users.

DSHPC_TEST_PROJECT=FOLDER takes a cluster that runs already; otherwise one is set up and destroyed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.cli import exec_stdin
from tests.integration.cluster import PREFIX, made, one_at_a_time
from tests.integration.conftest import docker
from tests.integration.engines import DOCKER, Engine

ROOT = Path(__file__).resolve().parents[2]
RUN = (sys.executable, "-c", "import sys; from dshpc_setup.cli import main; sys.exit(main())")
CONFIGURE = (
    sys.executable,
    "-c",
    "import sys; from dshpc_setup.cli import configure_environment_main as main; sys.exit(main())",
)
pytestmark = [
    # What it is about is handed over to the engine's client: signals, terminals, streams
    pytest.mark.engines("docker", "builtin"),
    pytest.mark.timeout(180, func_only=True),  # setting up may mean a whole build
]


class Cluster:
    """A project folder with a running cluster, and `dshpc` called in its work folder."""

    def __init__(self, folder: Path, engine: Engine = DOCKER) -> None:
        runtime = json.loads((folder / ".dshpc/runtime.json").read_text())
        self.folder, self.work = folder, Path(runtime["work"])
        self.container: str = runtime["container"]
        self.engine = engine
        self.started: list[subprocess.Popen[bytes]] = []
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DSHPC_", "SLURM_", "SBATCH_", "SUDO_"))
        } | {"PYTHONPATH": str(ROOT), "DSHPC_DIR": str(folder)}

    def run(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[bytes]:
        options.setdefault("stdin", subprocess.DEVNULL if "input" not in options else None)
        if "input" in options:
            del options["stdin"]
        return subprocess.run(
            [*RUN, *arguments],
            cwd=cwd or self.work,
            env=self.env | (env or {}),
            capture_output=True,
            timeout=90,
            check=False,
            **options,
        )

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        options.setdefault("cwd", self.work)
        child = subprocess.Popen([*RUN, *arguments], env=self.env, **options)
        self.started.append(child)
        return child

    def said(self, *argv: str) -> str:
        """What a command in the container that has to succeed prints."""
        return self.engine.said("exec", self.container, *argv)

    def processes(self, pattern: str) -> list[str]:
        """Command lines in the container that match."""
        lines = self.said("ps", "-eo", "args").splitlines()
        return [line for line in lines if re.search(pattern, line)]


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    named = os.environ.get("DSHPC_TEST_PROJECT")
    if named:
        yield Cluster(Path(named))
        return
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with made("commands", engine=engine) as project:
        argv = [*CONFIGURE, *project.own_flags, "--simulate", "h100:2"]
        with one_at_a_time("base"):
            done = subprocess.run(
                argv, env=env, capture_output=True, text=True, timeout=800, check=False
            )
        assert done.returncode == 0, done.stdout + done.stderr
        cluster = Cluster(project.folder, engine)
        yield cluster
        done_bytes = cluster.run("destroy", "--yes", "--stop-jobs", "--image")
        assert done_bytes.returncode == 0, done_bytes.stderr
        assert cluster.container not in engine.names("container")


@pytest.fixture(autouse=True)
def _nothing_left(cluster: Cluster) -> Iterator[None]:
    """A test that fails leaves no command, and no job, to the next."""
    yield
    while cluster.started:
        child = cluster.started.pop()
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(timeout=30)
            finally:
                child.kill()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


# Exit codes and streams


@pytest.mark.parametrize("code", [0, 1, 2, 3, 64, 125, 126, 127, 137, 255])
def test_the_commands_own_exit_code(cluster: Cluster, code: int) -> None:
    done = cluster.run("exec", "--", "sh", "-c", f"echo out; echo err >&2; exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, b"out\n", b"err\n")


def test_srun_has_the_exit_code_of_its_job(cluster: Cluster) -> None:
    assert cluster.run("srun", "true").returncode == 0
    assert cluster.run("srun", "sh", "-c", "exit 77").returncode == 77


def test_a_command_that_is_not_there(cluster: Cluster) -> None:
    done = cluster.run("exec", "no-such-command")
    assert done.returncode == 127
    assert b"no such command" in done.stderr


@pytest.mark.parametrize("command", [["exec", "--", "cat"], ["srun", "cat"]])
def test_binary_streams_pass_byte_for_byte(cluster: Cluster, command: list[str]) -> None:
    block = os.urandom(1 << 20) + b"\x00\x03\x04\x1a\xff\r\n"
    done = cluster.run(*command, input=block)
    assert done.returncode == 0
    assert done.stdout == block


def test_a_closed_stdin_is_an_empty_one(cluster: Cluster) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" <&-', "sh", *RUN, "exec", "wc", "-c"],
        cwd=cluster.work,
        env=cluster.env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"0\n")


def test_a_closed_pipe_ends_the_command_inside(cluster: Cluster) -> None:
    mark = f"mark{os.getpid()}"
    line = '"$@" | head -1; echo "${PIPESTATUS[0]}"'
    # Python hears of a closed pipe by an error, where it writes into the caller's pipe itself
    code = 141 if cluster.engine == DOCKER else 1
    for inside, ends in (
        (["yes", mark], 141),
        (["python3", "-c", f"while True: print('{mark}')"], code),
    ):
        done = subprocess.run(
            ["bash", "-c", line, "bash", *RUN, "exec", "--", *inside],
            cwd=cluster.work,
            env=cluster.env,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.stdout.split() == [mark.encode(), str(ends).encode()]
        wait_for(lambda: not cluster.processes(mark))


def test_a_closed_pipe_ends_the_job(cluster: Cluster) -> None:
    line = '"$@" | head -1; echo "${PIPESTATUS[0]}"'
    done = subprocess.run(
        ["bash", "-c", line, "bash", *RUN, "srun", "--job-name=closed", "yes"],
        cwd=cluster.work,
        env=cluster.env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == b"y\n141\n", done.stderr
    wait_for(lambda: cluster.run("squeue", "-h", "--name=closed").stdout == b"")


def test_a_loop_over_stdin_is_not_eaten(cluster: Cluster) -> None:
    script = cluster.work / "nothing.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    line = (
        'while read -r word; do "$@" squeue -h >/dev/null || exit; '
        '"$@" sbatch --output=/dev/null --parsable nothing.sh; done'
    )
    done = subprocess.run(
        ["bash", "-c", line, "bash", *RUN],
        cwd=cluster.work,
        env=cluster.env,
        input=b"one\ntwo\nthree\n",
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 3


def test_sbatch_takes_a_script_from_stdin(cluster: Cluster) -> None:
    text = b"#!/bin/sh\necho from stdin > made.txt\n"
    made = cluster.work / "made.txt"
    made.unlink(missing_ok=True)
    done = cluster.run("sbatch", "--wait", "--output=/dev/null", input=text)
    assert done.returncode == 0, done.stderr
    assert made.read_text() == "from stdin\n"


def test_the_options_of_sbatch_are_those_of_the_image(cluster: Cluster) -> None:
    text = cluster.run("sbatch", "--help").stdout.decode()
    options = re.findall(r"^ {2,6}(?:-(\w), )?--([\w-]+)(\[=|=|,)?", text, re.MULTILINE)
    assert len(options) > 80
    # These take an argument, though help says they need none; --wrap counts as a script.
    exceptions = ("container", "container-id", "export", "wrap")
    for short, name, behind in options:
        flag = behind != "="
        if name not in exceptions:
            assert exec_stdin.sbatch_has_script([f"--{name}", "x"]) == flag, name
            assert not short or exec_stdin.sbatch_has_script([f"-{short}", "x"]) == flag, short


# Folders, users, environment


def test_the_working_folder_is_kept_in_the_work_folder(cluster: Cluster, tmp_path: Path) -> None:
    deep = cluster.work / "deep folder" / "ä"
    deep.mkdir(parents=True, exist_ok=True)
    assert cluster.run("srun", "pwd", cwd=deep).stdout.decode().strip() == str(deep)
    link = tmp_path / "link"
    link.symlink_to(deep)
    assert cluster.run("exec", "pwd", cwd=link).stdout.decode().strip() == str(deep)


def test_outside_of_it_the_work_folder_itself_with_a_hint(cluster: Cluster, tmp_path: Path) -> None:
    good = cluster.run("exec", "pwd", cwd=tmp_path)
    assert (good.stdout.decode().strip(), good.stderr) == (str(cluster.work), b"")
    bad = cluster.run("exec", "cat", "here.txt", cwd=tmp_path)
    assert bad.returncode == 1
    assert b"not in the work folder" in bad.stderr


def test_files_belong_to_the_user_who_called_sudo(cluster: Cluster) -> None:
    folder = cluster.work / "of-a-user"
    folder.mkdir(exist_ok=True)
    os.chown(folder, 23456, 23457)
    user = {"SUDO_UID": "23456", "SUDO_GID": "23457", "SUDO_USER": "someone"}
    line = "id -un; id -u; id -g; touch made; umask"
    done = cluster.run("srun", "sh", "-c", line, cwd=folder, env=user)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:3] == [b"user23456", b"23456", b"23457"]
    found = (folder / "made").stat()
    assert (found.st_uid, found.st_gid) == (23456, 23457)


@pytest.mark.parametrize("name", [r"DOM\user", "Jörg Müller", "a.b@example.org"])
def test_user_names_of_any_directory(cluster: Cluster, name: str) -> None:
    program = (
        "import pwd, sys; entry = pwd.getpwuid(0)\n"
        f"pwd.getpwuid = lambda uid: pwd.struct_passwd(({name!r}, *tuple(entry)[1:]))\n"
        "from dshpc_setup.cli import main; sys.exit(main())"
    )
    uid = 30000 + sum(name.encode())
    done = subprocess.run(
        [sys.executable, "-c", program, "srun", "id", "-un"],
        cwd=cluster.work,
        env=cluster.env | {"SUDO_UID": str(uid), "SUDO_GID": str(uid)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.decode().strip()) == (0, name), done.stderr


def test_the_umask_goes_along(cluster: Cluster) -> None:
    done = cluster.run("srun", "sh", "-c", "umask", umask=0o077)
    assert done.stdout == b"0077\n"


def test_variables_go_along_only_where_listed(cluster: Cluster) -> None:
    own = {"SLURM_JOB_NAME": "mine", "OMP_NUM_THREADS": "3", "DSHPC_PASS_ENV": "OMP_*"}
    line = 'echo "$SLURM_JOB_NAME-$OMP_NUM_THREADS-$DSHPC_WAIT_S$DSHPC_UMASK"'
    assert cluster.run("exec", "sh", "-c", line, env=own).stdout == b"-3-\n"


def test_times_are_those_of_the_callers_zone(cluster: Cluster) -> None:
    india = {"TZ": "Asia/Kolkata"}  # five hours and a half before UTC, all the year
    assert cluster.run("exec", "date", "+%z", env=india).stdout == b"+0530\n"
    assert cluster.run("srun", "--mem=16", "date", "+%z", env=india).stdout == b"+0530\n"
    ran = cluster.run("run", "--wait", "--", "date", "+%z", env=india)
    assert ran.stdout.splitlines()[-1:] == [b"+0530"], ran.stderr
    at = ("--begin=2035-01-01T12:00:00", "--wrap=true")
    job = cluster.run("sbatch", "--hold", "--parsable", *at, env=india).stdout.decode().strip()
    start = ("-h", "-j", job, "-o", "%S")
    assert cluster.run("squeue", *start, env=india).stdout == b"2035-01-01T12:00:00\n"
    assert cluster.said("squeue", *start) == "2035-01-01T06:30:00\n"
    assert cluster.run("scancel", job).returncode == 0


def test_an_argument_that_docker_would_change_is_refused(cluster: Cluster) -> None:
    done = subprocess.run(
        [*(part.encode() for part in RUN), b"exec", b"echo", b"\xff"],
        cwd=cluster.work,
        env=cluster.env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 64
    assert b"UTF-8" in done.stderr


# Signals


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"])
def test_signals_arrive_inside(cluster: Cluster, name: str) -> None:
    line = f'trap "echo got {name}; exit 7" {name}; echo begun; while :; do sleep 0.05; done'
    child = cluster.start("exec", "--", "sh", "-c", line, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"begun\n"
    child.send_signal(signal.Signals[f"SIG{name}"])
    out, _ = child.communicate(timeout=30)
    assert (child.returncode, out) == (7, f"got {name}\n".encode())


def test_a_signal_before_the_command_has_begun(cluster: Cluster) -> None:
    mark = f"{3000 + os.getpid()}"
    for delay_s in (0.06, 0.1, 0.15):
        child = cluster.start("exec", "sleep", mark)
        time.sleep(delay_s)
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) in (143, -signal.SIGTERM)
    wait_for(lambda: not cluster.processes(f"sleep {mark}"))


def test_the_second_interrupt_within_a_second_ends_the_job(cluster: Cluster) -> None:
    child = cluster.start(
        "srun", "--job-name=twice", "sh", "-c", "echo begun; sleep 500", stdout=-1, stderr=-1
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"begun\n"
    assert child.stderr is not None
    child.send_signal(signal.SIGINT)
    said = b""
    while b"one more within 1 sec" not in said:
        line = child.stderr.readline()
        assert line, said
        said += line
    assert child.poll() is None, "the first one only asks"

    def pressed_again() -> bool:
        """Each is delivered by a client of its own, which may take longer than srun's second."""
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.4)
        return child.poll() is not None

    wait_for(pressed_again)
    child.communicate(timeout=30)
    assert child.returncode != 0
    wait_for(lambda: cluster.run("squeue", "-h", "--name=twice").stdout == b"")


def test_a_killed_client_leaves_nothing_behind(cluster: Cluster) -> None:
    mark = f"{4000 + os.getpid()}"
    child = cluster.start("exec", "sleep", mark)
    wait_for(lambda: bool(cluster.processes(f"sleep {mark}")))
    (client,) = subprocess.run(
        ["pgrep", "-P", str(child.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    os.kill(int(client), signal.SIGKILL)
    assert child.wait(timeout=30) == 137
    wait_for(lambda: not cluster.processes(f"sleep {mark}"))


def test_what_the_caller_ignores_is_not_delivered(cluster: Cluster) -> None:
    done = subprocess.run(
        ["sh", "-c", 'trap "" TERM; "$@" & sleep 1; kill -TERM $!; wait $!', "sh", *RUN]
        + ["exec", "sh", "-c", "sleep 2; echo whole"],
        cwd=cluster.work,
        env=cluster.env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"whole\n")


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP"])
def test_an_engine_that_hangs_is_given_up_at_one_signal(tmp_path: Path, name: str) -> None:
    """A client that never answers, at the start of the command and at the delivery of the signal."""
    hanging = tmp_path / "docker"
    hanging.write_text('#!/bin/sh\necho "$$ $*" >>"${0%/*}/calls"\nexec sleep 600\n')
    hanging.chmod(0o755)
    (tmp_path / ".dshpc").mkdir()
    runtime = {"container": "c", "work": str(tmp_path), "prefix": "p"}
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    env = os.environ | {"PYTHONPATH": str(ROOT), "DSHPC_DIR": str(tmp_path)}
    env["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    child = subprocess.Popen(
        [*RUN, "srun", "true"], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    calls = tmp_path / "calls"
    wait_for(calls.exists)
    began = time.monotonic()
    child.send_signal(signal.Signals[f"SIG{name}"])
    _, err = child.communicate(timeout=60)
    assert child.returncode == 128 + signal.Signals[f"SIG{name}"]
    assert 4 < time.monotonic() - began < 30
    assert f"SIG{name} could not be delivered" in err.decode()
    started = [int(line.split()[0]) for line in calls.read_text().splitlines()]
    assert len(started) == 2
    wait_for(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in started))


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("HUP", 129), ("INT", 130)])
def test_a_signal_ends_the_other_commands_and_their_children(
    cluster: Cluster, name: str, code: int
) -> None:
    child = cluster.start("restart", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    wait_for(lambda: bool(children.read_text().split()))
    child.send_signal(signal.Signals[f"SIG{name}"])
    _, err = child.communicate(timeout=30)
    assert child.returncode == code
    assert b"interrupted" in err
    again = cluster.run("restart")
    assert again.returncode == 0, again.stderr


# Terminals


class Terminal:
    """`dshpc` in a session with a terminal of its own; `stdout` elsewhere makes it a mixed one."""

    def __init__(
        self,
        cluster: Cluster,
        arguments: Sequence[str],
        stdout: int | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.master, slave = pty.openpty()
        self.size(24, 80)
        self.seen = b""

        def lead() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.child = cluster.start(
            *arguments,
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave,
            preexec_fn=lead,
            cwd=cwd or cluster.work,
        )
        os.close(slave)

    def size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows: int, columns: int, seconds: float = 30.0) -> None:
        """Until it is seen: Docker's client listens a moment after it has told the first size."""
        until = time.monotonic() + seconds
        while f"{rows} {columns}".encode() not in self.seen:
            assert time.monotonic() < until, f"no {rows} {columns} in {self.seen!r}"
            self.size(rows, columns + 1)
            self.size(rows, columns)
            if select.select([self.master], [], [], 1.0)[0]:
                self.seen += os.read(self.master, 4096)

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def until(self, wanted: bytes, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while wanted not in self.seen:
            left = until - time.monotonic()
            assert left > 0, f"no {wanted!r} in {self.seen!r}"
            if select.select([self.master], [], [], min(left, 0.5))[0]:
                self.seen += os.read(self.master, 4096)

    def end(self) -> int:
        code = self.child.wait(timeout=30)
        os.close(self.master)
        return code


def test_a_terminal_inside_and_its_size(cluster: Cluster) -> None:
    # The trap first: Docker's client sets the size when the command runs already
    line = (
        "trap 'stty size' WINCH; test -t 0 && test -t 1 && stty size; while :; do sleep 0.1; done"
    )
    terminal = Terminal(cluster, ["exec", "sh", "-c", line])
    terminal.until(b"24 80")
    terminal.resize(33, 111)
    terminal.type(b"\x03")
    assert terminal.end() == 130


def test_a_shell(cluster: Cluster) -> None:
    terminal = Terminal(cluster, ["shell"])
    terminal.until(b"$ " if os.geteuid() else b"# ")
    terminal.type(b"echo $((6*7)); pwd\n")
    terminal.until(b"42")
    terminal.until(str(cluster.work).encode())
    terminal.type(b"exit 5\n")
    assert terminal.end() == 5


def test_srun_with_a_terminal_of_its_own(cluster: Cluster) -> None:
    terminal = Terminal(
        cluster, ["srun", "--pty", "sh", "-c", "test -t 0 && stty size; read x; exit $x"]
    )
    terminal.until(b"24 80")
    terminal.type(b"9\n")
    assert terminal.end() == 9


@pytest.mark.parametrize(("told", "seen"), [("33 111", "33 111"), (None, "0 0")])
def test_a_terminal_has_its_size_before_the_client_tells_it(
    cluster: Cluster, told: str | None, seen: str
) -> None:
    """A client without a terminal never tells one: Docker before 23 does so when the command runs."""
    size = [] if told is None else ["-e", f"DSHPC_TERMINAL_SIZE={told}"]
    as_user = ["/usr/local/lib/dshpc/as-user", "size", "0", "0", "root", "--"]
    line = "stty size; env | grep SIZE || :"
    printed = cluster.engine.said(
        "exec", "-t", *size, cluster.container, *as_user, "sh", "-c", line
    )
    assert printed == f"{seen}\n"


def test_a_terminal_as_stdin_and_a_pipe_as_stdout(cluster: Cluster) -> None:
    read, write = os.pipe()
    terminal = Terminal(cluster, ["exec", "cat"], stdout=write)
    os.close(write)
    terminal.type(b"hello\n")
    assert os.read(read, 100) == b"hello\n"
    terminal.type(b"\x04")
    assert terminal.end() == 0
    os.close(read)


def test_on_a_terminal_it_is_said_that_the_folder_is_another(
    cluster: Cluster, tmp_path: Path
) -> None:
    terminal = Terminal(cluster, ["exec", "sh", "-c", "cd; pwd; exit 3"], cwd=tmp_path)
    terminal.until(f"commands run in {cluster.work}, and".encode())
    assert terminal.end() == 3
    assert terminal.seen.count(b"work folder") == 1


def test_ctrl_c_with_a_pipe_as_stdout(cluster: Cluster) -> None:
    read, write = os.pipe()
    line = "trap 'echo got it; exit 6' INT; echo begun; while :; do sleep 0.05; done"
    terminal = Terminal(cluster, ["exec", "sh", "-c", line], stdout=write)
    os.close(write)
    assert os.read(read, 100) == b"begun\n"
    terminal.type(b"\x03")
    assert os.read(read, 100) == b"got it\n"
    assert terminal.end() == 6
    os.close(read)


def test_ctrl_z_stops_both_and_cont_wakes_both(cluster: Cluster) -> None:
    line = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done"
    child = cluster.start("exec", "sh", "-c", line, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()

    def stopped() -> bool:
        """The shell inside, as the kernel has it: how much of its output is under way is luck."""
        lines = cluster.said("ps", "-eo", "stat,args").splitlines()
        (state,) = (each.split()[0] for each in lines if each.endswith(f"sh -c {line}"))
        return state.startswith("T")

    child.send_signal(signal.SIGTSTP)
    assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
    wait_for(stopped)
    child.send_signal(signal.SIGCONT)
    wait_for(lambda: not stopped())
    assert child.stdout.readline()
    child.terminate()
    assert child.wait(timeout=30) == 143
    child.stdout.close()


def test_typed_ahead_input_stays_for_the_shell(cluster: Cluster) -> None:
    terminal = Terminal(cluster, ["squeue"])
    terminal.type(b"next command\n")
    terminal.until(b"JOBID")
    assert terminal.child.wait(timeout=30) == 0
    os.close(terminal.master)


# The cluster as a whole


def test_status(cluster: Cluster) -> None:
    def status() -> dict[str, Any]:
        done = cluster.run("status", "--json")
        assert done.returncode == 0, done.stderr
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    value = status()
    assert value["schema"] == "dshpc.status/1"
    assert value["container"] == cluster.container
    # the last job of an earlier test may be completing
    wait_for(lambda: [node["state"] for node in status()["nodes"]] == ["idle"])
    assert value["isolation"]["tier"] == "default"


def test_status_of_a_drained_node(cluster: Cluster) -> None:
    node = json.loads(cluster.run("status", "--json").stdout)["nodes"][0]["name"]
    drain = ("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=a | b")
    assert cluster.run(*drain).returncode == 0
    try:
        done = cluster.run("status", "--json")
        assert done.returncode == 2
        assert json.loads(done.stdout)["nodes"][0]["reason"] == "a | b"
        said = cluster.run("status").stdout.decode()
        (back,) = re.findall(rf"To use node {node} again: dshpc (exec --root -- scontrol .*)", said)
    finally:
        assert cluster.run(*shlex.split(back)).returncode == 0
    # With a * until slurmctld has asked its slurmd again
    state = json.loads(cluster.run("status", "--json").stdout)["nodes"][0]["state"]
    assert state.rstrip("*") == "idle"


@pytest.mark.parametrize("commands", [["restart"], ["down", "up"]])
def test_the_queue_outlives_the_container(cluster: Cluster, commands: list[str]) -> None:
    queued = cluster.run("sbatch", "--parsable", "--hold", "--wrap=true")
    job = queued.stdout.decode().strip()
    for command in commands:
        done = cluster.run(command)
        assert done.returncode == 0, done.stderr
    kept = cluster.run("squeue", "-h", "-j", job, "-o", "%i %T").stdout.decode()
    assert kept == f"{job} PENDING\n"
    assert cluster.run("srun", "true").returncode == 0
    assert cluster.run("scancel", job).returncode == 0


def test_another_folders_cluster_is_left_alone(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / ".dshpc").mkdir()
    for name in (".dshpc/runtime.json", "docker-compose.yml"):
        (tmp_path / name).write_bytes((cluster.folder / name).read_bytes())
    for command in (["down"], ["restart"], ["destroy", "--yes"]):
        done = cluster.run(*command, cwd=tmp_path, env={"DSHPC_DIR": str(tmp_path)})
        assert done.returncode == 2
        assert str(cluster.folder).encode() in done.stderr
    assert cluster.run("srun", "true").returncode == 0


def test_a_refused_configuration_is_told(cluster: Cluster) -> None:
    path = cluster.folder / "config/slurm.conf"
    good = path.read_text()
    path.write_text(f"# USER_CUSTOMIZED=true\n{good}Bogus=1\n")
    try:
        assert cluster.run("restart").returncode == 2
        assert cluster.run("status").returncode == 0, "it was tried first, and goes on"
        cluster.engine.said("restart", cluster.container)
        cluster.said("dshpc-node", "wait", "--timeout", "60")
        status = json.loads(cluster.run("status", "--json").stdout)
        assert (status["ready"], status["exit_code"]) == (True, 1)
        done = cluster.run("doctor", "--json")
        assert done.returncode == 2
        findings = {each["id"]: each for each in json.loads(done.stdout)["findings"]}
        assert findings["DSH-FI-001"]["state"] == "error"
        assert "Bogus" in " ".join(findings["DSH-FI-001"]["evidence"])
        assert findings["DSH-SL-002"]["state"] == "ok"
    finally:
        path.write_text(good)
        assert cluster.run("restart").returncode == 0


@pytest.mark.engines("docker", why="what it removes is made by Docker's own commands")
def test_destroy_takes_this_cluster_and_no_other_of_the_folder(
    cluster: Cluster, tmp_path: Path
) -> None:
    """As after configure with one prefix, and with another in the same folder."""
    image = docker("inspect", "--format", "{{.Image}}", cluster.container).strip()
    label = f"org.dshpc.project={tmp_path}"
    own, other = (f"{PREFIX}{part}-{os.getpid()}" for part in ("own", "other"))
    for prefix in (own, other):
        mark = f"com.docker.compose.project={prefix}"
        docker("network", "create", "--label", mark, f"{prefix}_default")
        for part in ("state", "key", "home"):
            owner = "org.dshpc.project=/another" if prefix == own else label  # taken over
            docker("volume", "create", "--label", owner, f"{prefix}-{part}")
        docker("create", "--name", f"{prefix}-slurm", "--label", label, "--network",
               f"{prefix}_default", "-v", f"{prefix}-state:/s", image, "true")  # fmt: skip
    (tmp_path / ".dshpc").mkdir()
    runtime = {"container": f"{own}-slurm", "work": str(tmp_path), "prefix": own}
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps(runtime))

    def left() -> set[str]:
        lists = (("ps", "-a", "--format", "{{.Names}}"), ("volume", "ls", "-q"),
                 ("network", "ls", "--format", "{{.Name}}"))  # fmt: skip
        return {name for each in lists for name in docker(*each).split()}

    theirs = {f"{other}{end}" for end in ("-slurm", "-state", "-key", "-home", "_default")}
    try:
        done = cluster.run("destroy", "--yes", env={"DSHPC_DIR": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        assert not {name for name in left() if name.startswith(own)}
        assert theirs <= left()
        note = done.stdout.decode()
        assert f"destroy --prefix {other}" in note
        argv = ["destroy", "--yes", "--prefix", other]
        done = cluster.run(*argv, env={"DSHPC_DIR": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        assert not theirs & left()
    finally:
        for prefix in (own, other):
            for kind, name in (("rm", "-slurm"), ("volume rm", "-state"), ("volume rm", "-key"),
                               ("volume rm", "-home"), ("network rm", "_default")):  # fmt: skip
                if prefix + name in left():
                    docker(*kind.split(), prefix + name)


# The way to it


@pytest.mark.engines(
    "docker", why="a stopped container of the built-in engine keeps no file but its volumes"
)
def test_a_cluster_that_is_not_running_and_one_that_is_still_starting(cluster: Cluster) -> None:
    go = cluster.work / "go"
    held = f"/^trap /a until [ -e {go} ]; do sleep 0.1; done # of a test"
    init = "/usr/local/lib/dshpc/init"
    docker("exec", cluster.container, "sed", "-i", held, init)
    docker("stop", "-t", "5", cluster.container)
    try:
        done = cluster.run("srun", "true")
        assert done.returncode == 2
        assert b"is not running" in done.stderr
        assert b"dshpc up" in done.stderr
    finally:
        docker("start", cluster.container)
        docker("exec", cluster.container, "sed", "-i", "/# of a test$/d", init)
    child = cluster.start("srun", "hostname", stdout=-1, stderr=-1)
    try:
        assert child.stderr is not None
        assert b"still starting" in child.stderr.readline()
        assert child.poll() is None, "it waits"
    finally:
        go.touch()
        out, _ = child.communicate(timeout=90)
        go.unlink()
    assert (child.returncode, out != b"") == (0, True)


def test_no_project(cluster: Cluster, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path)}  # where `dshpc use` has written, it may be
    env = {**{name: value for name, value in cluster.env.items() if name != "DSHPC_DIR"}, **state}
    done = subprocess.run(
        [*RUN, "srun", "true"], cwd=tmp_path, env=env, capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 2
    assert b"configure-environment" in done.stderr


@pytest.mark.engines("docker", why="the program is in PATH")
def test_no_docker(cluster: Cluster) -> None:
    done = cluster.run("srun", "true", env={"PATH": "/nowhere"})
    assert done.returncode == 2
    assert b"docker cannot be started" in done.stderr


@pytest.mark.engines("docker", why="a daemon does not answer")
def test_no_engine(cluster: Cluster) -> None:
    done = cluster.run("srun", "true", env={"DOCKER_HOST": "unix:///nowhere.sock"})
    assert done.returncode == 2
    assert b"does not answer" in done.stderr
