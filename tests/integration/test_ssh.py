"""ssh, scp, rsync, sftp and what editors do, into jobs: by OpenSSH's own client, without a port."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import (
    ROOT,
    Cluster,
    Outcome,
    run,
    users_of_this_machine,
    wait_until,
)
from tests.integration.commands import OWN_GROUP, environment
from tests.integration.lan import Member, needs_namespaces, network
from tests.integration.shown import Terminal, documented
from tests.integration.ssh_server import Client, serving

pytestmark = [pytest.mark.engines("docker", "builtin"), pytest.mark.timeout(600)]
DOCKER_ALONE = pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's")
ADA, BOB = "dshpc-ada", "dshpc-bob"
SIZE = 20 << 20
SESSIONS = "/var/lib/dshpc/home/root/.local/state/dshpc-ssh"  # root's


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    """OpenSSH's client and rsync, as Debian has them; this file fails without them."""
    packages = {"ssh": "openssh-client", "rsync": "rsync"}
    missing = [package for name, package in packages.items() if shutil.which(name) is None]
    if missing:
        argv = ["apt-get", "-q", "-y", "--no-install-recommends", "install", *missing]
        subprocess.run(argv, check=True, capture_output=True, timeout=300)


class Ssh:
    """OpenSSH's client with what `dshpc ssh-config --print` says, with nobody to answer a question."""

    def __init__(self, cluster: Cluster, folder: Path, *options: str) -> None:
        self.cluster, self.config = cluster, folder / "jobs"
        self.home = folder
        said = run(
            [str(ROOT / "dshpc"), "ssh-config", "--print", "--dir", str(cluster.folder), *options],
            env={"HOME": str(folder)},
        )
        self.config.write_text(said.good().stdout)

    def argv(self, *words: str) -> list[str]:
        return ["ssh", "-F", str(self.config), "-o", "BatchMode=yes", *words]

    def run(self, *words: str, given: str | None = None, timeout_s: float = 120) -> Outcome:
        return run(
            self.argv(*words), env={"HOME": str(self.home)}, given=given, timeout_s=timeout_s
        )

    def said(self, *words: str) -> str:
        return self.run(*words).good().stdout.strip()

    def started(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*words), env=environment({"HOME": str(self.home)}), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **OWN_GROUP,
        )  # fmt: skip

    def jobs(self) -> dict[str, str]:
        """Number -> "NAME STATE" of the sessions' jobs that have not ended."""
        lines = self.cluster.said("squeue", "-h", "-o", "%i %j %T").splitlines()
        return {line.split()[0]: line.partition(" ")[2] for line in lines if " ssh-" in line}


@pytest.fixture
def ssh(standard: Cluster, tmp_path: Path) -> Iterator[Ssh]:
    tmp_path.chmod(0o700)
    one = Ssh(standard, tmp_path)
    yield one
    ended(one)


def ended(one: Ssh) -> None:
    if jobs := one.jobs():
        one.cluster.said("scancel", *jobs)
    wait_until(lambda: not one.jobs(), "its job ends")


@contextlib.contextmanager
def running(child: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def test_a_session_is_in_a_job(ssh: Ssh) -> None:
    """With its GPU and its variables, which are in no argument; the next one is in the same job."""
    script = "echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES $SLURM_JOB_NAME; exit 7"
    first = ssh.run("gpu", script)
    assert (first.code, "SIMULATED" in first.stderr) == (7, True)
    job, gpu, name = first.stdout.split()
    assert (gpu in "01", name) == (True, "ssh-gpu")
    again = ssh.run("gpu", script)
    assert (again.code, again.stdout, again.stderr) == (7, first.stdout, "")
    assert ssh.jobs() == {job: "ssh-gpu RUNNING"}
    assert ssh.run("gpu", "cat", given="x" * 100_000).stdout == "x" * 100_000
    terminal = ssh.said("-tt", "gpu", "tty; stty -echo; printenv TERM")
    assert re.search(r"/dev/pts/\d", terminal)
    seen = ssh.said("gpu", "ps -eo args")
    assert "sshd" in seen
    assert "SLURM_JOB" not in seen
    folder = ssh.said("gpu", "cd ~/.local/state/dshpc-ssh && pwd && stat -c '%a %n' . *").split(
        "\n"
    )
    assert "700 ." in folder
    private = [line for line in folder[2:] if not line.startswith("600 ")]
    assert private == []
    limits = ssh.said("gpu", "ulimit -a; squeue -h -s -j $SLURM_JOB_ID -o %i")
    assert f"{job}.batch" in limits


def test_no_sshd_runs_by_itself(standard: Cluster) -> None:
    assert "sshd" not in standard.said("ps", "-eo", "args")
    assert standard.said("sh", "-c", "ls /etc/ssh | grep -c ssh_host_ || true") == "0"


def test_files_pass_unharmed(ssh: Ssh, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(os.urandom(SIZE))
    config, rsh = ("-F", str(ssh.config)), f"ssh -F {ssh.config} -o BatchMode=yes"
    ssh.said("gpu", "true")
    ways = {
        "scp": (["scp", "-q", *config, str(there), "gpu:x"], ["scp", "-q", *config, "gpu:x", str(back)]),
        "old scp": (
            ["scp", "-O", "-q", *config, str(there), "gpu:x"],
            ["scp", "-O", "-q", *config, "gpu:x", str(back)],
        ),
        "rsync": (["rsync", "-e", rsh, str(there), "gpu:x"], ["rsync", "-e", rsh, "gpu:x", str(back)]),
    }  # fmt: skip
    for name, (to, fro) in ways.items():
        back.unlink(missing_ok=True)
        ssh.said("gpu", "rm -f x")
        run(to).good()
        run(fro).good()
        assert back.read_bytes() == there.read_bytes(), name
    back.unlink()
    # What PyCharm does: files by sftp, then a program
    batch = f"put {there} y\nget y {back}\n"
    run(["sftp", "-q", *config, "-o", "BatchMode=no", "-b", "-", "gpu"], given=batch).good()
    assert back.read_bytes() == there.read_bytes()
    digest = run(["sha256sum", str(there)]).stdout.split()[0]
    assert ssh.said("gpu", "sha256sum y; rm x y").startswith(digest)
    # By srun's stream, as to another node
    by_srun = tmp_path / "by-srun"
    by_srun.write_text(ssh.config.read_text().replace("ssh-proxy", "ssh-proxy --srun"))
    run(["scp", "-F", str(by_srun), str(there), "gpu:z"]).good()
    assert ssh.said("gpu", "sha256sum z; rm z").startswith(digest)


def test_connections_at_once_share_a_job(ssh: Ssh) -> None:
    children = [ssh.started("gpu", "echo $SLURM_JOB_ID") for _ in range(4)]
    said = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0] * 4, said
    assert len({out for out, _ in said}) == 1
    assert len(ssh.jobs()) == 1


ASK = "import socket; s = socket.socket(socket.AF_{}); s.connect({!r}); print(s.recv(99).decode())"
SERVER = """
import os, socket, sys
made = socket.socket(socket.AF_UNIX); made.bind(sys.argv[1]); made.listen()
tcp = socket.create_server(("127.0.0.1", 0))
open(sys.argv[1] + ".port", "w").write(str(tcp.getsockname()[1]))
import threading
def serve(on):
    while True:
        one, _ = on.accept()
        mine = os.getpid(), os.environ["SLURM_JOB_ID"], os.environ["CUDA_VISIBLE_DEVICES"]
        one.sendall(" ".join(map(str, mine)).encode())
        one.close()
threading.Thread(target=serve, args=(tcp,)).start()
serve(made)
"""


# SOCKS5 (RFC 1928) without a login, to an address of version 4
BY_SOCKS = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(bytes([5, 1, 0])); assert s.recv(2) == bytes([5, 0])
s.sendall(bytes([5, 1, 0, 1, 127, 0, 0, 1]) + int(sys.argv[2]).to_bytes(2, "big"))
assert s.recv(10)[1] == 0
print(s.recv(99).decode())
"""


def server_left(ssh: Ssh) -> tuple[str, str]:
    """SERVER, which a session has left behind: its port, and the home in which its socket lies."""
    start = "rm -f ~/s ~/s.port; setsid python3 ~/server.py ~/s </dev/null >/dev/null 2>&1 &"
    ssh.run("gpu", "cat >~/server.py", given=SERVER).good()
    ssh.said("gpu", start)
    wait_until(lambda: ssh.run("gpu", "test -s ~/s.port").code == 0, "the server is there")
    port, home = ssh.said("gpu", "echo $(cat ~/s.port); cd; pwd").split()
    return port, home


def test_what_an_editor_does(ssh: Ssh, tmp_path: Path) -> None:
    """VS Code: a server that outlives the session that has started it, reached by forwarded sockets and
    ports, and through a proxy (SOCKS), while other sessions come and go."""
    port, home = server_left(ssh)
    local = tmp_path / "s"
    forwards = ("-L", f"{local}:{home}/s", "-L", f"127.0.0.1:48622:127.0.0.1:{port}", "-D", "48623")
    with running(ssh.started("-N", *forwards, "gpu")):
        wait_until(local.exists, "the socket is forwarded")
        by_socket = run([sys.executable, "-c", ASK.format("UNIX", str(local))]).good().stdout
        where = ("127.0.0.1", 48622)
        by_port = run([sys.executable, "-c", ASK.format("INET", where)]).good().stdout
        by_proxy = run([sys.executable, "-c", BY_SOCKS, "48623", port]).good().stdout
        assert by_socket == by_port == by_proxy
        pid, job, gpu = by_socket.split()
        assert ssh.said("gpu", "echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES") == f"{job} {gpu}"
        assert ssh.said("gpu", f"ps -o args= -p {pid}").startswith("python3")
    # With the job goes what its sessions have left
    ssh.cluster.dshpc("job", "cancel", job).good()
    wait_until(lambda: "server.py" not in ssh.cluster.said("ps", "-eo", "args"), "the server ends")


def test_a_cancelled_job_ends_its_sessions(ssh: Ssh) -> None:
    with running(ssh.started("-tt", "gpu", "echo up; sleep 300")) as session:
        assert session.stdout is not None
        assert session.stdout.readline().strip() == "up"
        (job,) = ssh.jobs()
        ssh.cluster.dshpc("job", "cancel", job).good()
        session.communicate(timeout=60)
    assert session.returncode == 255
    # The next one is another
    assert ssh.said("gpu", "echo $SLURM_JOB_ID") != job


def test_the_last_connection_gone_for_long_ends_it(standard: Cluster, tmp_path: Path) -> None:
    """A client that is killed has gone as well."""
    one = Ssh(standard, tmp_path, "--linger", "4s")
    with running(one.started("gpu", "echo $SLURM_JOB_ID; exec sleep 300")) as session:
        assert session.stdout is not None
        job = session.stdout.readline().strip()
        time.sleep(6)
        assert one.jobs() == {job: "ssh-gpu RUNNING"}
        session.kill()
    assert one.said("gpu", "echo $SLURM_JOB_ID") == job  # a network that comes back in time
    gone = time.monotonic()
    wait_until(lambda: not one.jobs(), "its job ends")
    assert time.monotonic() - gone >= 3
    assert "COMPLETED" in standard.job_state(job)


def test_a_time_limit_is_told_beforehand(ssh: Ssh) -> None:
    """To who connects, and in the terminals of the job a minute before."""
    with running(ssh.started("-tt", "gpu-1m", "echo up; sleep 300")) as session:
        assert session.stdout is not None
        assert session.stdout.readline().strip() == "up"
        said = ssh.cluster.exec("cat", f"{SESSIONS}/gpu-1m.say")
        assert re.fullmatch(
            r"dshpc: job \d+, GPU \d\. It ends at \w+ \d\d:\d\d, its time limit, or 15 min after the last "
            r"connection\.\n",
            said.stdout,
        ), said
        (job,) = ssh.jobs()
        assert "TimeLimit=00:01:00" in ssh.cluster.said("scontrol", "show", "job", job)
    # The same listener, a minute and some seconds before the end of its job
    late = (
        "SLURM_JOB_ID=99 SLURM_JOB_END_TIME=$(($(date +%s) + 72)) /usr/local/lib/dshpc/ssh-listen"
    )
    listen = f"{late} --name=gpu-2m --linger=20 >/dev/null 2>&1 &"
    ssh.cluster.said("sh", "-c", listen)
    wait_until(lambda: "gpu-2m.sock" in ssh.cluster.said("ls", SESSIONS), "it listens")
    with running(ssh.started("-tt", "gpu-2m", "sleep 60")) as session:
        assert session.stdout is not None
        told = next(line for line in session.stdout if line.strip())
    assert re.match(r"dshpc: job 99 ends in \d\d s, at its time limit\.", told)


def test_a_queued_job_is_waited_for_and_ctrl_c_cancels_it(ssh: Ssh) -> None:
    holder = ssh.cluster.submit("--gres=gpu:2", "--mem=16", script="sleep 600")
    try:
        with running(ssh.started("gpu", "echo $SLURM_JOB_ID")) as waits:
            assert waits.stderr is not None
            wait_until(lambda: "ssh-gpu PENDING" in ssh.jobs().values(), "its job is queued")
            lines = [waits.stderr.readline()]
            while "is queued" not in lines[-1]:
                lines.append(waits.stderr.readline())
            assert re.match(
                r"dshpc: job \d+ is queued \(\w+\): waiting\. Ctrl-C cancels it\.", lines[-1]
            )
            os.killpg(waits.pid, signal.SIGINT)  # as a terminal does
            wait_until(lambda: not ssh.jobs(), "its job ends")
            _, rest = waits.communicate(timeout=60)
            assert re.search(r"Interrupted\. Cancelled: job \d+\.", rest)
            assert waits.returncode != 0
        # An editor that loses its patience kills ssh alone
        with running(ssh.started("gpu", "true")) as waits:
            wait_until(lambda: "ssh-gpu PENDING" in ssh.jobs().values(), "its job is queued")
            waits.kill()
            wait_until(lambda: not ssh.jobs(), "its job ends")
        # What somebody cancels is not asked for again
        with running(ssh.started("gpu", "true")) as waits:
            wait_until(lambda: "ssh-gpu PENDING" in ssh.jobs().values(), "its job is queued")
            ssh.cluster.said("scancel", *ssh.jobs())
            _, rest = waits.communicate(timeout=60)
            assert "has ended" in rest
            assert ssh.jobs() == {}
        with running(ssh.started("gpu", "echo $SLURM_JOB_ID")) as waits:
            wait_until(lambda: "ssh-gpu PENDING" in ssh.jobs().values(), "its job is queued")
            (job,) = ssh.jobs()
            ssh.cluster.said("scancel", holder)
            out, _ = waits.communicate(timeout=60)
            assert out.strip() == job
    finally:
        ssh.cluster.said("scancel", holder)


def test_a_job_that_is_there_is_entered(ssh: Ssh) -> None:
    script = "export MINE=1; sleep 600"
    job = ssh.cluster.submit("--gres=gpu:1", "--mem=64", script=script)
    try:
        said = ssh.said(
            f"job-{job}", "echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES; pgrep -f 'sleep 600'"
        )
        assert said.split()[0] == job
        assert said.split()[1] in "01"
        left = "setsid sleep 601 </dev/null >/dev/null 2>&1 &"
        ssh.said(f"job-{job}", left)
        assert "sleep 601" in ssh.said(f"job-{job}", "ps -eo args")
        assert ssh.jobs() == {}
    finally:
        ssh.cluster.said("scancel", job)
    wait_until(
        lambda: "sleep 601" not in ssh.cluster.said("ps", "-eo", "args"), "what a session left ends"
    )
    over = ssh.run(f"job-{job}", "true")
    assert (over.code, f"Job {job} has ended" in over.stderr) == (255, True)


def test_what_cannot_be_is_said(ssh: Ssh) -> None:
    for name, why in (
        ("gpu-x2-x2", "is no host that jobs are reached by"),
        ("gpu-b999", "needs 1 GPU named b999"),
        ("gpu-x9", "needs 9 GPUs"),
        ("job-999999", "there is none of that number"),
    ):
        refused = ssh.run(name, "true")
        assert (refused.code, why in refused.stderr) == (255, True), refused
        assert ssh.jobs() == {}
    linger = run(
        [str(ROOT / "dshpc"), "ssh-proxy", "--linger", "soon", "gpu"], cwd=ssh.cluster.folder
    )
    assert linger.code == 64
    nowhere = run([str(ROOT / "dshpc"), "ssh-proxy", "gpu"], cwd=Path("/"))
    assert (nowhere.code, "configure-environment" in nowhere.stderr) == (2, True)


def test_a_cluster_that_is_stopped_is_told_and_its_job_comes_back(
    fresh: Cluster, tmp_path: Path
) -> None:
    fresh.configure("--simulate", "h100:1").good()
    one = Ssh(fresh, tmp_path)
    job = one.said("gpu", "echo $SLURM_JOB_ID")
    fresh.dshpc("down", "--stop-jobs").good()
    stopped = one.run("gpu", "true")
    assert (stopped.code, "dshpc up" in stopped.stderr) == (255, True), stopped
    config = run([str(ROOT / "dshpc"), "ssh-config", "--print"], cwd=fresh.folder)
    assert (config.code, config.stdout, "dshpc up" in config.stderr) == (2, "", True), config
    fresh.dshpc("up").good()
    # Its host key, and what the client knows of it, are as before
    assert one.said("gpu", "echo $SLURM_JOB_ID") == job


def test_the_configuration_is_written_after_asking(standard: Cluster, tmp_path: Path) -> None:
    config, own = tmp_path / ".ssh/config", tmp_path / ".ssh/dshpc/config"
    argv = [str(ROOT / "dshpc"), "ssh-config", "--dir", str(standard.folder)]
    env = {"HOME": str(tmp_path)}
    asked = run(argv, env=env)
    assert (asked.code, "Nothing was written" in asked.stderr, own.exists()) == (2, True, False)
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.write_text("Host mine\n    User me\n")
    run([*argv, "--yes"], env=env).good()
    assert config.read_text() == "Include ~/.ssh/dshpc/config\n\nHost mine\n    User me\n"
    assert own.stat().st_mode & 0o777 == 0o600
    before = (config.read_bytes(), own.read_bytes())
    run([*argv, "--yes"], env=env).good()
    assert (config.read_bytes(), own.read_bytes()) == before
    # A key of the user's own is used, and none made
    (tmp_path / ".ssh/dshpc/id_ed25519").unlink()
    key = tmp_path / ".ssh/id_ed25519"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]).good()
    text = run([*argv, "--print"], env=env).good().stdout
    assert re.findall(r"IdentityFile (.*)", text) == [str(key)]


def test_another_machine_comes_through_this_one(ssh: Ssh, tmp_path: Path) -> None:
    """Its ssh starts our command on this machine, and needs no file of ours: here by a program that hands
    the command line to a shell, as sshd does."""
    ssh.said("gpu", "true")  # a job that follows the keys of this test's home
    argv = [
        str(ROOT / "dshpc"),
        "ssh-config",
        "--through",
        "workstation",
        "--dir",
        str(ssh.cluster.folder),
    ]
    config = tmp_path / "elsewhere"
    config.write_text(run(argv).good().stdout)
    assert str(tmp_path) not in config.read_text()
    programs = tmp_path / "bin"
    programs.mkdir()
    fake = programs / "ssh"
    fake.write_text('#!/bin/sh\n[ "$1" = workstation ] || exit 1\nshift\nexec sh -c "$*"\n')
    fake.chmod(0o755)
    identity = next(iter(re.findall(r"IdentityFile (.*)", ssh.config.read_text())))
    env = {"HOME": str(ssh.home), "PATH": f"{programs}:{os.environ['PATH']}"}
    ssh_itself = str(shutil.which("ssh"))
    line = [
        ssh_itself,
        "-F",
        str(config),
        "-i",
        identity,
        "-o",
        "BatchMode=yes",
        "gpu",
        "echo $SLURM_JOB_NAME",
    ]
    assert run(line, env=env).good().stdout == "ssh-gpu\n"


class Laptop(Ssh):
    """A machine that reaches this one, `workstation`, by a network of the test's."""

    def __init__(self, ssh: Ssh, member: Member, workstation: Member, client: Client) -> None:
        self.cluster, self.home, self.member, self.client = ssh.cluster, ssh.home, member, client
        self.key = re.findall(r"IdentityFile (.*)", ssh.config.read_text())[0]
        argv = [str(ROOT / "dshpc"), "ssh-config", "--through", "workstation"]
        block = run([*argv, "--dir", str(ssh.cluster.folder)]).good().stdout
        before = (client.folder / "config").read_text()
        host = f"Host workstation\n  HostName {workstation.address}\n  ServerAliveInterval 0\n"
        client.says("config", f"{block}{host}{before}")

    def argv(self, *words: str) -> list[str]:
        options = ("-i", self.key, "-o", "BatchMode=yes")
        return self.member.argv("env", self.client.path, "ssh", *options, *words)


@pytest.mark.timeout(1500)
def test_a_laptop_that_sleeps_comes_back_into_its_job(
    standard: Cluster, tmp_path: Path, full: bool
) -> None:
    """Its network is gone for half a minute, ten with --full: the connections go on. One that was switched
    off meanwhile connects again, and finds what its editor has left. No connection is gone for the job."""
    needs_namespaces()
    asleep_s = 600 if full else 30
    tmp_path.chmod(0o700)
    ssh = Ssh(standard, tmp_path, "--linger", "20s")
    _, home = server_left(ssh)
    (tmp_path / "hidden").mkdir()
    with (
        network("laptop", "host") as (member, workstation),
        serving(workstation, tmp_path / "sshd", tmp_path / "hidden") as client,
    ):
        laptop, local = Laptop(ssh, member, workstation, client), tmp_path / "s"
        forward = ("-N", "-L", f"{local}:{home}/s", "gpu")
        ask = [sys.executable, "-c", ASK.format("UNIX", str(local))]
        with (
            running(laptop.started("gpu", "echo $SLURM_JOB_ID; exec cat")) as window,
            running(laptop.started(*forward)) as ports,
        ):
            assert window.stdin is not None
            assert window.stdout is not None
            job = window.stdout.readline().strip()
            wait_until(local.exists, "the socket is forwarded")
            server = run(ask).good().stdout
            assert server.split()[1] == job
            with member.unplugged():
                time.sleep(asleep_s - 25)
                window.stdin.write("typed in its sleep\n")
                window.stdin.flush()
                time.sleep(25)
                assert (window.poll(), ports.poll()) == (None, None)
                assert laptop.jobs() == {job: "ssh-gpu RUNNING"}
            assert window.stdout.readline() == "typed in its sleep\n"
            assert run(ask).good().stdout == server
            with member.unplugged():
                window.kill()
                ports.kill()
        assert laptop.said("gpu", "echo $SLURM_JOB_ID") == job
        local.unlink()
        with running(laptop.started(*forward)):
            wait_until(local.exists, "the socket is forwarded again")
            assert run(ask).good().stdout == server
    ended(ssh)


def test_what_the_page_shows(standard: Cluster, tmp_path: Path) -> None:
    programs, home = tmp_path / "bin", tmp_path / "home"
    for folder in (programs, home):
        folder.mkdir(mode=0o700)
    launcher = ROOT / "dshpc"
    config = f"{home}/.ssh/dshpc/config"  # OpenSSH looks for ~ where the account has it
    for name, line in (("dshpc", launcher), ("ssh", f"{shutil.which('ssh')} -F {config}")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        program.chmod(0o755)
    env = {"HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}"}
    theirs = ((re.escape(str(launcher)), "dshpc"), (re.escape(str(home)), "/home/ada"))
    terminal = Terminal(standard.folder, env, theirs=theirs)
    try:
        for command in (
            "dshpc ssh-config --yes",
            """ssh gpu 'echo "job $SLURM_JOB_ID, GPU $CUDA_VISIBLE_DEVICES"'""",
            """ssh gpu 'echo "job $SLURM_JOB_ID again"'""",
            "ssh gpu-x9 hostname 2>&1 | head -5",
        ):
            terminal.type(documented("docs/how-to/ssh.md", command))
    finally:
        ended(Ssh(standard, tmp_path))


@DOCKER_ALONE
def test_root_needs_no_engine_where_the_volume_of_homes_is_in_sight(ssh: Ssh) -> None:
    ssh.said("gpu", "true")
    volume = Path(f"/var/lib/docker/volumes/{ssh.cluster.prefix}-home/_data/root")
    without = run(ssh.argv("gpu", "id -un"), env={"DOCKER_HOST": "unix:///nowhere"})
    assert (without.code == 0, without.stdout == "root\n") == (volume.exists(), volume.exists())


class User(Ssh):
    """An ordinary user of this machine, who may use Docker."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        group = Path("/var/run/docker.sock").stat().st_gid
        self.become = ["setpriv", "--reuid", name, "--regid", name, "--groups", str(group), "--"]
        self.cluster, self.home = cluster, Path(f"/home/{name}")
        self.config = self.home / "jobs"
        argv = [
            *self.become,
            str(ROOT / "dshpc"),
            "ssh-config",
            "--print",
            "--dir",
            str(cluster.folder),
        ]
        self.config.write_text(run(argv, env={"HOME": str(self.home)}, cwd=self.home).good().stdout)

    def argv(self, *words: str) -> list[str]:
        return [*self.become, *super().argv(*words)]


@pytest.fixture
def users(standard: Cluster) -> Iterator[tuple[User, User]]:
    with users_of_this_machine(ADA, BOB):
        yield User(standard, ADA), User(standard, BOB)


@DOCKER_ALONE
def test_two_users_reach_their_own_sessions_alone(users: tuple[User, User]) -> None:
    ada, bob = users
    both = [one.started("gpu", "id -un; echo $SLURM_JOB_ID; pwd; sleep 5") for one in users]
    said = [child.communicate(timeout=120) for child in both]
    assert [child.returncode for child in both] == [0, 0], said
    lines = [out.split() for out, _ in said]
    assert [line[0] for line in lines] == [ADA, BOB]
    assert lines[0][1] != lines[1][1]
    try:
        # Their homes are the machine's, and the sockets in them: who has a job there needs no engine
        for one in users:
            without = run(one.argv("gpu", "id -un"), env={"DOCKER_HOST": "unix:///nowhere"})
            assert (without.good().stdout, without.stderr) == (f"{one.name}\n", "")
        place = f"{lines[0][2]}/.local/state/dshpc-ssh-{ada.cluster.prefix}"
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{place}/gpu.sock')"
        for script in (
            f"ls {place}",
            f"cat {place}/host_key",
            f"cat {place}/gpu.conf",
            f'python3 -c "{connect}"',
            "cat /var/lib/dshpc/key/ssh_ca",
            "ls /var/lib/dshpc/key",
        ):
            refused = bob.run("gpu", script)
            assert (refused.code != 0, "ermission denied" in refused.stderr) == (True, True), script
        other = bob.run(f"job-{lines[0][1]}", "true")
        assert (other.code, "is not yours" in other.stderr) == (255, True), other

        # Were she led to his session, her client would see that it is not hers
        led = ada.config.with_name("led")
        proxy = " ".join([*bob.become, "env", f"HOME={bob.home}"])
        led.write_text(ada.config.read_text().replace("ProxyCommand ", f"ProxyCommand {proxy} "))
        line = [
            "ssh",
            "-F",
            str(led),
            "-o",
            "BatchMode=yes",
            "-i",
            str(bob.home / ".ssh/dshpc/id_ed25519"),
            "gpu",
            "true",
        ]
        posed = run(line)
        assert posed.code == 255
        assert "Host key verification failed" in posed.stderr
        # And her key opens none of his
        mixed = ada.config.with_name("mixed")
        mixed.write_text(
            bob.config.read_text().replace("ProxyCommand ", f"ProxyCommand {proxy} ")
            .replace(f"{bob.home}/.ssh/dshpc/id", f"{ada.home}/.ssh/dshpc/id")
        )  # fmt: skip
        key = run(["ssh", "-F", str(mixed), "-o", "BatchMode=yes", "gpu", "true"])
        assert (key.code, "Permission denied (publickey)" in key.stderr) == (255, True), key
    finally:
        ended(ada)
