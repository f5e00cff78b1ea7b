"""The engine of our own: Slurm up and a GPU handed out, by root, by a user with a range of ids, and by one
without; and whatever is killed, nothing stays."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import pty
import random
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import PREFIX, ROOT, Standards
from tests.integration.conftest import docker
from tests.integration.engines import DOCKER
from tests.integration.leftovers import remember

WAYS = ("root", "mapped", "single")
USER = "dshpc-test-own"
ALONE = 64123  # in no passwd, and with no range of ids
FOREVER = ("/bin/sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.05; done")
_GONE_S = 10.0
_DEAF = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGTTOU)


@dataclass(frozen=True)
class Own:
    """One user's place: `home` holds the archive, the caches and the containers."""

    way: str
    home: Path
    uid: int
    gid: int

    def argv(self, *arguments: str) -> list[str]:
        return [
            os.path.realpath(sys.executable),
            str(self.home.parent / "own_engine.py"),
            *arguments,
        ]

    @property
    def options(self) -> dict[str, Any]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        who = {} if self.uid == 0 else {"user": self.uid, "group": self.gid, "extra_groups": []}
        return {"env": env, "cwd": "/", **who}

    def do(self, action: str, place: str, *arguments: str) -> Any:
        """What it answers; it has to succeed."""
        argv = self.argv(action, str(self.home / place), *arguments)
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=200, check=False, **self.options
        )
        assert done.returncode == 0, f"{argv}: {done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    def begin(
        self, action: str, place: str, *arguments: str, **more: Any
    ) -> subprocess.Popen[bytes]:
        argv = self.argv(action, str(self.home / place), *arguments)
        return subprocess.Popen(argv, **{**self.options, **more})

    def inside(self, place: str, *argv: str, user: str = "root", deadline_s: float = 60) -> Any:
        """[exit code, stdout, stderr, timed out]"""
        return self.do("enter", place, user, str(deadline_s), *argv)

    @contextlib.contextmanager
    def up(self, place: str, *argv: str) -> Iterator[None]:
        try:
            assert self.do("start", place, *argv)[:2] == ["started", "running"]
            yield
        finally:
            self.do("stop", place)


@pytest.fixture(scope="session")
def top(docker_engine: str, standards: Standards) -> Iterator[Path]:
    """A folder that everybody can read, with the package and the image's root filesystem."""
    with tempfile.TemporaryDirectory(prefix="dshpc-test-own-") as made:
        place = Path(made)
        place.chmod(0o755)
        shutil.copytree(
            ROOT / "dshpc_setup",
            place / "dshpc_setup",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        shutil.copy(ROOT / "tests" / "integration" / "own_engine.py", place)
        for path in (place / "dshpc_setup").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        name = f"{PREFIX}own"
        remember(name)
        docker("create", "--name", name, standards(DOCKER).inspect()["Config"]["Image"])
        docker("export", name, "-o", str(place / "root.tar"))
        docker("rm", name)
        with (
            open(place / "root.tar", "rb") as plain,
            gzip.open(place / "root.tar.gz", "wb", 1) as zipped,
        ):
            shutil.copyfileobj(plain, zipped, 1 << 20)
        (place / "root.tar").unlink()
        yield place


@pytest.fixture(scope="session", params=WAYS)
def own(request: pytest.FixtureRequest, top: Path) -> Iterator[Own]:
    way: str = request.param
    with own_user(way) as (uid, gid):
        home = top / way
        home.mkdir(mode=0o700)
        os.link(top / "root.tar.gz", home / "root.tar.gz")
        (home / "root.tar.gz").chmod(0o644)
        os.chown(home, uid, gid)
        made = Own(way, home, uid, gid)
        try:
            yield made
        finally:
            for place in home.iterdir():
                if (place / "run").exists():
                    made.do("stop", place.name)


@contextlib.contextmanager
def own_user(way: str, name: str = USER) -> Iterator[tuple[int, int]]:
    if way == "root":
        yield 0, 0
    elif way == "single":
        yield ALONE, ALONE
    else:
        if shutil.which("newuidmap") is None:
            apt = ["apt-get", "-q", "-y", "--no-install-recommends", "install", "uidmap"]
            subprocess.run(apt, check=True, timeout=300, stdin=subprocess.DEVNULL)
        subprocess.run(["userdel", name], check=False, capture_output=True)
        subprocess.run(["useradd", "--no-create-home", name], check=True, capture_output=True)
        try:
            import pwd

            entry = pwd.getpwnam(name)
            yield entry.pw_uid, entry.pw_gid
        finally:
            # Podman may clean up behind a container that has ended, and leave a process that holds namespaces
            subprocess.run(["pkill", "-KILL", "-u", name], check=False, capture_output=True)
            subprocess.run(["userdel", "--force", name], check=False, capture_output=True)


def left(own: Own, place: str) -> list[str]:
    """Processes of the container, and its mounts among the machine's."""
    mark = os.fsencode(str(own.home / place))
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            lines = (
                Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/mounts").read_bytes()
            )
            if mark in lines and int(pid) != os.getpid() and b" Z " not in _stat(pid):
                found.append(lines.partition(b"\n")[0].decode(errors="replace"))
    return found


def _stat(pid: str) -> bytes:
    return Path(f"/proc/{pid}/stat").read_bytes()


def within(true: Callable[[], bool], deadline_s: float = _GONE_S) -> bool:
    until = time.monotonic() + deadline_s
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def ready(own: Own, place: str) -> bool:
    code, said, _, _ = own.inside(place, "head", "-1", "/run/dshpc/phase")
    return bool(code == 0 and said.strip() == "ready")


def test_the_way_is_found_by_trying(own: Own) -> None:
    way, lack = own.do("rights", "x")
    assert way == own.way
    assert (lack is not None) == (way == "single")


def test_slurm_comes_up_and_hands_out_a_gpu(own: Own) -> None:
    """With the container's code as it is, on ports of its own; and again, with its queue."""
    with own.up("slurm"):
        assert within(lambda: ready(own, "slurm"), 60), (
            own.home / "slurm/run/container.log"
        ).read_text()
        ask = ("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES")
        assert own.inside("slurm", *ask)[:2] == [0, "0\n"]
        assert own.inside("slurm", "srun", "sh", "-c", "exit 3")[0] == 3
        if own.way != "single":
            as_user = ("/usr/local/lib/dshpc/as-user", "t1", "1000", "1000", "ada", "--")
            assert own.inside("slurm", *as_user, "srun", "id", "-un")[:2] == [0, "ada\n"]
        assert own.inside("slurm", "sbatch", "-H", "--wrap=true")[0] == 0
        assert own.do("start", "slurm")[0] == "running"
        _, taken = own.do("taken", "slurm")
        assert taken == [], "who listens there is ours"
    assert own.do("find", "slurm") == ["exited", 0]
    assert left(own, "slurm") == []
    with own.up("slurm"):
        assert within(lambda: ready(own, "slurm"), 60)
        assert own.inside("slurm", "squeue", "-h", "-o", "%t")[1] == "PD\n"


def test_a_program_inside_has_rights_streams_and_an_end(own: Own) -> None:
    with own.up("enter", *FOREVER):
        code, out, err, _ = own.inside(
            "enter", "sh", "-c", "id -u; hostname; pwd; grep -E '^(CapBnd|NoNewPrivs)' /proc/self/status;"
            "echo x >&2; exit 5",
        )  # fmt: skip
        assert (code, err) == (5, "x\n")
        assert out.split() == ["0", "own", "/", "CapBnd:", "00000000000000eb", "NoNewPrivs:", "1"]
        assert own.do("enter-in-a-thread", "enter", "root", "60", "echo", "x")[:2] == [0, "x\n"]
        assert own.inside("enter", "sh", "-c", "kill -9 $$")[0] == 137
        assert own.inside("enter", "/missing")[0] == 127
        assert own.inside("enter", "/etc")[0] == 126
        if own.way == "single":
            assert own.inside("enter", "id", "-u", user="slurm")[1] == "0\n"
            done = own.begin("enter", "enter", "1000", "5", "id", stderr=subprocess.PIPE)
            assert b"no user 1000" in done.communicate(timeout=60)[1]
        else:
            assert own.inside("enter", "id", "-un", user="slurm")[1] == "slurm\n"
        # what it has started is ended with it
        marked = "trap '' TERM; setsid sleep 4711 & sleep 4711"
        began = time.monotonic()
        assert own.inside("enter", "sh", "-c", marked, deadline_s=1)[0::3] == [124, True]
        assert time.monotonic() - began < 30
        assert own.inside("enter", "sh", "-c", "grep -la 47[1]1 /proc/[0-9]*/cmdline")[1] == ""
    assert own.do("find", "enter") == ["exited", 7]


def test_nothing_of_the_callers_is_open_in_it(own: Own) -> None:
    """A folder would lead out of the container, for whoever may look at the process."""
    handle = os.open("/", os.O_RDONLY)
    try:
        with own.up("files", *FOREVER):
            done = subprocess.run(
                own.argv("enter", str(own.home / "files"), "root", "60", "ls", "/proc/self/fd"),
                pass_fds=(handle,), capture_output=True, text=True, timeout=60, check=True,
                **own.options,
            )  # fmt: skip
            code, out, err, _ = json.loads(done.stdout)
            assert (code, out.split()) == (0, ["0", "1", "2", "3"]), err  # the last is that of ls
    finally:
        os.close(handle)


def test_a_tree_without_an_end_keeps_no_container_from_starting(own: Own) -> None:
    deep = "import os\nos.chdir('/var/tmp')\nfor _ in range(1200): os.mkdir('d'); os.chdir('d')"
    with own.up("deep", *FOREVER):
        assert own.inside("deep", "python3", "-c", deep)[0] == 0
    with own.up("deep", *FOREVER):
        assert own.inside("deep", "ls", "/var/tmp")[1] == ""


@pytest.mark.parametrize("own", ["root"], indirect=True)
def test_root_of_a_container_has_no_way_to_the_machine(own: Own) -> None:
    with own.up("walls", *FOREVER):
        kinds = ("-n", "-C", "-i", "-u")  # of users alone, and with mounts, one is made for images
        made = [["unshare", "-U", kind, "true"] for kind in kinds]
        for words in (*made, ["unshare", "-m", "true"], ["keyctl", "x"]):
            code, _, err, _ = own.inside("walls", *words)
            assert code != 0
            assert words[0] == "keyctl" or "Operation not permitted" in err
        for words in (["chmod", "1666", "/dev/null"], ["chown", "1", "/dev/null"]):
            code, _, err, _ = own.inside("walls", *words)
            assert code != 0
            assert "Read-only file system" in err
        assert own.inside("walls", "sh", "-c", "echo x >/dev/null; head -c1 /dev/zero")[0] == 0
    assert os.stat("/dev/null").st_mode & 0o7777 == 0o666


@pytest.mark.parametrize("own", ["root"], indirect=True)
def test_what_is_no_container_is_not_entered(own: Own) -> None:
    """A record that names a process of the machine's, whoever has written it."""
    with own.up("forged", *FOREVER):
        file = own.home / "forged/run/run.json"
        before = file.read_text()
        record = json.loads(before)
        record["init"] = record["supervisor"]
        try:
            file.write_text(json.dumps(record))
            assert own.inside("forged", "hostname")[1] == "own\n", "its supervisor knows better"
            file.write_text(before)
            file.chmod(0o666)
            assert own.do("find", "forged") == ["gone", None]
        finally:
            file.chmod(0o600)
            file.write_text(before)


@pytest.mark.parametrize("own", ["root"], indirect=True)
def test_nobody_else_is_let_in(own: Own) -> None:
    """Who has got hold of the folder, and may write to what lies in it."""
    knock = (
        "import socket, sys; line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "line.connect(f'/proc/self/fd/{sys.argv[1]}/enter')\n"
        "print('told', line.recv(100))"
    )
    with own.up("shut", *FOREVER):
        folder = own.home / "shut/run"
        handle = os.open(folder, os.O_RDONLY)
        try:
            argv = [os.path.realpath(sys.executable), "-I", "-c", knock, str(handle)]
            for mode, said in ((0o600, "PermissionError"), (0o666, "told b''")):
                folder.chmod(0o711)
                (folder / "enter").chmod(mode)
                done = subprocess.run(
                    argv, user=65534, group=65534, extra_groups=[], pass_fds=(handle,), timeout=60,
                    capture_output=True, text=True, check=False,
                )  # fmt: skip
                assert said in done.stdout + done.stderr
        finally:
            os.close(handle)
            folder.chmod(0o700)
        assert own.inside("shut", "hostname")[1] == "own\n"


@pytest.mark.parametrize("own", ["root"], indirect=True)
def test_the_interpreter_that_enters_cannot_be_changed_from_inside(own: Own) -> None:
    script = (
        "import os, sys; from dshpc_setup.builtin import own_program\n"
        "own_program.protect()\n"
        "try: os.chmod('/proc/self/exe', 0o4755)\n"
        "except OSError as error: print(error.errno, sys.argv[1:], sys.flags.isolated)"
    )
    whole = f"import sys; sys.path.insert(0, {str(own.home.parent)!r}); {script}"
    argv = [os.path.realpath(sys.executable), "-I", "-c", whole, "a", "b c"]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, **own.options
    )
    assert done.stdout == f"{errno.EROFS} ['a', 'b c'] 1\n", done.stderr


def test_limits_are_as_high_as_its_user_may_have_them(own: Own) -> None:
    """Also where the terminal has soft limits of its own, in what runs and in what enters."""
    _, may = resource.getrlimit(resource.RLIMIT_NOFILE)

    def low() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, may))

    shown = "ulimit -Sn; ulimit -Hn; ulimit -Ss"
    process = own.begin(
        "start", "limits", "/bin/sh", "-c", f"{{ {shown}; }} >/seen; sleep 60", preexec_fn=low
    )
    try:
        assert process.wait(30) == 0
        for code, out, err, _ in (
            own.inside("limits", "cat", "/seen"),
            own.inside("limits", "/bin/sh", "-c", shown),
        ):
            assert code == 0, err
            soft, hard, stack = out.split()
            assert soft == hard or (soft, hard) == ("1048576", "unlimited")
            assert stack == "unlimited" or int(stack) >= 65536  # KiB
    finally:
        own.do("stop", "limits")


def test_signals_do_there_what_they_do_by_default(own: Own) -> None:
    """Python ignores two of them, and a shell more for what it starts with `&`; `yes | head` has to end."""

    def deaf() -> None:
        for number in (*_DEAF, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF)

    shown = ("grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status")
    process = own.begin(
        "start",
        "signals",
        "/bin/sh",
        "-c",
        f"{shlex.join(shown)} >/seen; sleep 60",
        preexec_fn=deaf,
    )
    try:
        assert process.wait(30) == 0
        first = own.inside("signals", "cat", "/seen")[1]
        entered = subprocess.run(
            own.argv("enter", str(own.home / "signals"), "root", "60", *shown),
            preexec_fn=deaf, capture_output=True, text=True, timeout=60, check=True, **own.options,
        )  # fmt: skip
        for text in (first, json.loads(entered.stdout)[1]):
            words = text.split()
            assert words[::2] == ["SigBlk:", "SigIgn:"]
            # 32 and 33 are the C library's own, which no program can set
            assert [int(word, 16) & ~(0b11 << 31) for word in words[1::2]] == [0, 0], text
        assert own.inside("signals", "sh", "-c", "yes | head -1")[:3] == [0, "y\n", ""]
    finally:
        own.do("stop", "signals")


def test_signals_and_a_terminal_reach_a_program(own: Own) -> None:
    with own.up("terminal", *FOREVER):
        program = own.begin("run", "terminal", "sh", "-c", "trap 'exit 9' TERM; echo up; sleep 60 & wait",
                            stdout=subprocess.PIPE)  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"
        program.send_signal(signal.SIGTERM)
        assert program.wait(timeout=30) == 9
        program.stdout.close()
        ours, theirs = pty.openpty()
        import fcntl
        import struct
        import termios

        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
        before = termios.tcgetattr(theirs)
        script = "tty; stty size; read word; echo got $word; exit 4"
        program = own.begin("terminal", "terminal", "sh", "-c", script, stdin=theirs, stdout=theirs)
        said = b""
        while b"33 77" not in said:
            said += os.read(ours, 4096)
        os.write(ours, b"hello\r")
        assert program.wait(timeout=30) == 4
        while b"got hello" not in said:
            said += os.read(ours, 4096)
        assert b"/dev/pts/0" in said, "the container's own"
        assert termios.tcgetattr(theirs) == before
        for end in (ours, theirs):
            os.close(end)


def test_of_two_starts_at_once_one_wins(own: Own) -> None:
    own.do("find", "race")
    starts = [
        own.begin("start", "race", *FOREVER, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    said = [start.communicate(timeout=200) for start in starts]
    outcomes = sorted(json.loads(out)[0] if out else err.decode() for out, err in said)
    assert outcomes.count("started") == 1, outcomes
    assert set(outcomes) <= {"started", "running", "other"}
    assert own.do("stop", "race") == ["exited", 7]


def test_a_supervisor_that_is_killed_takes_all_along(own: Own) -> None:
    assert own.do("start", "killed", *FOREVER)[0] == "started"
    supervisor, _ = own.do("pids", "killed")
    os.kill(supervisor, signal.SIGKILL)
    assert within(lambda: left(own, "killed") == []), left(own, "killed")
    assert own.do("find", "killed") == ["gone", None]
    assert own.do("start", "killed", *FOREVER)[:2] == ["started", "running"]
    own.do("stop", "killed")


def test_whatever_moment_it_is_killed_in_nothing_stays(own: Own) -> None:
    moments = random.Random(1)
    for _ in range(6):
        starting = own.begin(
            "start", "moments", *FOREVER, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        wait_s = moments.uniform(0.05, 0.5)
        until = time.monotonic() + wait_s
        while time.monotonic() < until:
            time.sleep(0.01)
        starting.kill()  # first: a supervisor that it starts behind our back would rightly live
        assert within(lambda: _none_begins(os.fsencode(str(own.home / "moments"))))
        starting.communicate(timeout=60)
        assert within(lambda: left(own, "moments") == []), left(own, "moments")
    assert own.do("start", "moments", *FOREVER)[:2] == ["started", "running"]
    assert own.do("stop", "moments") == ["exited", 7]


def _none_begins(mark: bytes) -> bool:
    """Looked at more than once: who forks and ends in between is not seen any more, its child not yet."""
    return not sum(len(_killed(mark)) for _ in range(5))


def _killed(mark: bytes) -> list[str]:
    """The processes with this in their command line, which a supervisor has from its fork on."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
                found.append(pid)
    return found


def test_one_that_ends_by_itself_is_started_again(own: Own) -> None:
    """As restart: unless-stopped has it; with a pause that grows where it ends soon."""
    script = "echo again >>/var/lib/dshpc/state/starts; exit 3"
    assert own.do("keep", "again", "/bin/sh", "-c", script)[0] == "started"
    starts = own.home / "again/state/starts"
    assert within(lambda: own.do("restarts", "again") >= 3)
    assert own.do("find", "again")[0] in ("starting", "running", "restarting")
    assert own.do("stop", "again")[0] == "exited"
    assert left(own, "again") == []
    count = len(starts.read_text().splitlines())
    time.sleep(1)
    assert len(starts.read_text().splitlines()) == count


def test_a_killed_program_is_back_and_one_that_was_stopped_stays_so(own: Own) -> None:
    assert own.do("keep", "back", *FOREVER)[:2] == ["started", "running"]
    supervisor, init = own.do("pids", "back")
    os.kill(init, signal.SIGKILL)
    assert within(lambda: own.do("pids", "back")[1] not in (0, init))
    assert within(lambda: own.do("find", "back") == ["running", None])
    assert own.do("pids", "back")[0] == supervisor
    assert own.do("restarts", "back") == 1
    assert own.inside("back", "true")[0] == 0
    assert own.do("stop", "back") == ["exited", 7]
    assert left(own, "back") == []
    assert own.do("keep", "back", *FOREVER)[:2] == ["started", "running"], "as somebody wants it"
    assert own.do("restarts", "back") == 0
    own.do("stop", "back")


def test_an_init_that_does_not_end_is_killed(own: Own) -> None:
    assert own.do("start", "stubborn", "/bin/sh", "-c", "trap '' TERM; sleep 1000")[0] == "started"
    assert own.do("stop", "stubborn", "1") == ["exited", 137]


def test_a_port_that_somebody_has_is_told(own: Own) -> None:
    (port,), taken = own.do("taken", "ports")
    assert taken == []
    with socket.socket() as foreign:
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        foreign.bind(("127.0.0.1", port))
        foreign.listen()
        assert own.do("taken", "ports") == [[port], [[port, os.geteuid()]]]


@contextlib.contextmanager
def layered(folder: Path, place: Path) -> Iterator[None]:
    """A layer over the folder, at its place; only root can make one."""
    for name in ("up", "work"):
        (place / name).mkdir(parents=True)
    layers = f"lowerdir={folder},upperdir={place}/up,workdir={place}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def starts_on(own: Own, name: str, storage: str) -> None:
    assert own.do("start", name, *FOREVER)[2] == storage
    assert own.inside(name, "stat", "-c", "%U %a", "/etc/shadow")[1] == "root 640\n"
    assert own.inside(name, "sh", "-c", "echo x >/etc/made && rm /etc/made")[0] == 0
    held = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    assert [at for at in held if at.startswith(f"{own.home}/{name}/run/")] == []
    own.do("stop", name)


@pytest.mark.parametrize("own", ["root"], indirect=True)
def test_where_the_folder_takes_no_layer_it_lies_in_memory(own: Own) -> None:
    """overlayfs takes no overlayfs to write on, as it takes no NFS."""
    place = own.home / "memory"
    (place / "run").mkdir(parents=True)
    with layered(place / "run", place):
        starts_on(own, "memory", "memory")


@pytest.mark.parametrize("own", ["root"], indirect=True)
def test_where_layers_are_refused_the_root_is_copied(own: Own) -> None:
    """overlayfs takes two others below it, and no third one."""
    root = Path(own.do("unpack", "copied"))
    with layered(root, own.home / "first"), layered(root, own.home / "second"):
        starts_on(own, "copied", "copy")


@pytest.mark.parametrize(("options", "said"), [("size=40m", "no room"), ("noexec", "noexec")])
def test_a_disk_that_does_not_do_is_told_and_left_clean(own: Own, options: str, said: str) -> None:
    place = own.home / "disk"
    place.mkdir(exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"{options},mode=1777", "none", place], check=True
    )
    try:
        env = {**own.options["env"], "XDG_CACHE_HOME": str(place)}
        run = own.begin(
            "unpack", "small", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env
        )
        assert said.encode() in run.communicate(timeout=100)[1]
        assert [path.name for path in place.rglob("*") if path.is_file()] in ([], ["lock"])
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_keeps_no_owners_is_told_and_left_clean(own: Own) -> None:
    place = own.home / "nfs"
    place.mkdir(exist_ok=True)
    place.chmod(0o777)
    env = {**own.options["env"], "XDG_CACHE_HOME": str(place)}
    run = own.begin(
        "unpack-without-owners", "small", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    out, said = run.communicate(timeout=100)
    if own.way == "single":
        assert str(place) in json.loads(out)  # all files are its one user's
        return
    assert b"does not let files belong" in said
    assert b"Operation not permitted" in said
    assert [path.name for path in place.rglob("*") if path.is_file()] in ([], ["lock"])


def test_at_the_end_all_can_be_removed(own: Own) -> None:
    """Also what belongs to ids of the range."""
    own.do("start", "removed", *FOREVER)
    assert own.inside("removed", "sh", "-c", "touch /new && chown 7:7 /new")[0] == 0
    own.do("stop", "removed")
    assert own.do("remove", "removed") == []
    assert not (own.home / "removed/run").exists()
