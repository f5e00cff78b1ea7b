"""A cluster without Docker and without root: from an image file to jobs, by the commands that people type."""

from __future__ import annotations

import compileall
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.hardware import carry
from tests.integration.cluster import ROOT, Outcome, Standards, run, wait_until
from tests.integration.engines import DOCKER
from tests.integration.test_builtin import own_user

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_MAIN = (
    "import sys; from dshpc_setup.cli import main, configure_environment_main as configure; "
    "sys.argv[:2] = [sys.argv[1]]; sys.exit(configure() if sys.argv[0] == 'configure' else main())"
)


@dataclass(frozen=True)
class User:
    """Somebody with a home of his own, a copy of dsHPC that all can read, and no Docker."""

    way: str
    uid: int
    gid: int
    top: Path
    home: Path
    prefix: str
    project: str = "project"
    space: str = ""  # a network of its own; "": the machine's

    @property
    def folder(self) -> Path:
        return self.home / self.project

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": f"{self.top}/bin",
            "HOME": str(self.home),
            "PYTHONPATH": f"{self.top}:{self.top}/site",
            "PYTHONDONTWRITEBYTECODE": "1",
            "DSHPC_DIR": str(self.folder),
            "DOCKER_HOST": "unix:///nowhere/docker.sock",
        }

    def argv(self, program: str, *words: str) -> list[str]:
        return [os.path.realpath(sys.executable), "-c", _MAIN, program, *words]

    def run(self, program: str, *words: str, deadline_s: float = 240, **more: str) -> Outcome:
        env = {**self.environ, **more}
        return self.started(self.argv(program, *words), env, deadline_s)

    def started(self, argv: list[str], env: Mapping[str, str], deadline_s: float) -> Outcome:
        """By this user, in the network `space`."""
        who = ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", "--"]
        there = ["nsenter", f"--net=/run/netns/{self.space}", "--"] if self.space else []
        before = [*there, *(who if self.uid else [])]
        # His PATH may lead to neither
        before = [shutil.which(word) or word for word in before]
        done = subprocess.run(
            [*before, *argv], env=env, cwd=self.home, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=deadline_s,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr)

    def configure(self, *words: str, deadline_s: float = 240) -> dict[str, Any]:
        done = self.run(
            "configure",
            "--yes",
            "--json",
            "--dir",
            str(self.folder),
            "--prefix",
            self.prefix,
            *words,
            deadline_s=deadline_s,
        )
        assert done.code == 0, done
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def dshpc(self, *words: str) -> str:
        done = self.run("dshpc", *words)
        assert done.code == 0, (words, done)
        return done.stdout

    def processes(self) -> list[str]:
        """Those that have his folder in their command line."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(str(self.home)) in line and int(pid) != os.getpid():
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
        return found


def _needed(name: str, found: dict[str, importlib.metadata.Distribution]) -> None:
    if name.lower() in found:
        return
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return  # for another system, or another Python
    found[name.lower()] = distribution
    for requirement in distribution.requires or ():
        if "extra ==" not in requirement and (word := _NAME.match(requirement)):
            _needed(word[0], found)


@pytest.fixture(scope="session")
def installed(docker_engine: str, standards: Standards) -> Iterator[Path]:
    """A folder that everybody can read: the package, what it imports, and the image as a file."""
    with tempfile.TemporaryDirectory(prefix="dshpc-test-builtin-") as made:
        top = Path(made)
        top.chmod(0o755)
        for name in ("dshpc_setup", "templates", "container", "methods"):
            shutil.copytree(ROOT / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("docker-compose.yml.j2", "pyproject.toml"):
            shutil.copy(ROOT / name, top / name)
        found: dict[str, importlib.metadata.Distribution] = {}
        _needed("dshpc-setup", found)
        for name, distribution in found.items():
            if name in ("dshpc-setup", "uv"):
                continue
            for file in distribution.files or ():
                if ".." not in file.parts and "__pycache__" not in file.parts:
                    target = top / "site" / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(str(file.locate()), target)
        compileall.compile_dir(top, quiet=2)  # once: who runs it there writes nothing
        saved = standards(DOCKER).dshpc("image", "save", str(top / "image.tar.xz"))
        assert saved.code == 0, saved
        assert "is saved in" in saved.stdout
        # With 10 MiB of Python packages: what tests/hardware/carry.py may put into its folder
        assert (top / "image.tar.xz").stat().st_size < (carry.MOST_MIB - 12) << 20
        (top / "bin").mkdir()  # what a machine has that has little: the programs of two packages
        for name in ("newuidmap", "newgidmap", "git", "env", "ssh-keygen"):
            if (found_at := shutil.which(name)) is not None:
                (top / "bin" / name).symlink_to(found_at)
        subprocess.run(["chmod", "-R", "go+rX", str(top)], check=True)
        yield top


@pytest.fixture(scope="module", params=("root", "mapped", "single"))
def user(request: pytest.FixtureRequest, installed: Path) -> Iterator[User]:
    with own_user(request.param) as (uid, gid):
        home = installed / request.param
        home.mkdir(mode=0o700)
        os.chown(home, uid, gid)
        one = User(request.param, uid, gid, installed, home, f"dshpc-test-{request.param}")
        try:
            report = one.configure(
                "--engine", "builtin", "--image-file", str(installed / "image.tar.xz"),
                "--simulate", "h100:2",
            )  # fmt: skip
            assert report["cluster"]["nodes"] == [
                {"name": one.prefix, "gres": "gpu:h100:2", "state": "idle"}
            ]
            yield one
        finally:
            one.run("dshpc", "destroy", "--yes", "--stop-jobs", "--image")


def test_jobs_have_gpus_and_files_belong_to_the_caller(user: User) -> None:
    script = "printenv CUDA_VISIBLE_DEVICES; echo x > $SLURM_PROCID.txt; sleep 1"
    said = user.dshpc("srun", "--ntasks=2", "--gpus-per-task=1", "sh", "-c", script)
    assert sorted(said.split()) == ["0", "1"]
    for name in ("0.txt", "1.txt"):
        assert (user.folder / "work" / name).stat().st_uid == user.uid
    assert user.run("dshpc", "srun", "sh", "-c", "exit 3").code == 3
    # Where all users are one, too, a batch job has that user's home, and the list does not say root
    homes = [
        user.dshpc(*words, "printenv", "HOME") for words in (("srun",), ("run", "--wait", "--"))
    ]
    assert homes[0] == homes[1]
    assert " USER " not in user.dshpc("job", "list")


def test_which_engine_it_is_is_told(user: User) -> None:
    assert json.loads(user.dshpc("detect", "--json"))["cluster_engine"] == {
        "kind": "builtin",
        "why": "setting",  # which the folder remembers
    }
    unasked = json.loads(user.run("dshpc", "detect", "--json", DSHPC_ENGINE="auto").stdout)
    assert unasked["cluster_engine"] == {"kind": "builtin", "why": "cluster"}
    elsewhere: Any = {"DSHPC_DIR": str(user.home / "elsewhere"), "DSHPC_ENGINE": "auto"}
    nothing = json.loads(user.run("dshpc", "detect", "--json", **elsewhere).stdout)
    kind, why = ("docker", "root") if user.uid == 0 else ("builtin", "no-root")
    assert nothing["cluster_engine"] == {"kind": kind, "why": why}


def test_methods_doctor_status_and_the_key(user: User) -> None:
    user.dshpc("method", "run", "gpu-report", "--gpus", "1", "--wait")
    found = json.loads(user.run("dshpc", "doctor", "--json").stdout)
    broken = [item for item in found["findings"] if item["state"] in ("warn", "error", "crashed")]
    assert broken == []
    status = json.loads(user.dshpc("status", "--json"))
    assert status["ready"] is True
    assert any("one user" in note for note in status["notes"]) == (user.way == "single")
    user.dshpc("key", "rotate", "--yes")
    assert user.dshpc("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES") == "0\n"
    assert "slurmctld" in user.dshpc("logs", "-n", "50")


def test_ssh_enters_a_job(user: User, tmp_path: Path) -> None:
    """Its client is root's, for OpenSSH's refuses who is not in /etc/passwd; all behind it is the user's."""
    become = ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups"]
    environ = [f"{name}={value}" for name, value in user.environ.items()]
    line = [*become, "env", "-i", *environ, *user.argv("dshpc")]
    proxy, config = tmp_path / "proxy", tmp_path / "jobs"
    proxy.write_text(f'#!/bin/sh\ncd {user.home} && exec {shlex.join(line)} "$@"\n')
    proxy.chmod(0o755)
    own = user.home / ".ssh"  # with a key: ssh-keygen refuses that user as well
    own.mkdir(mode=0o700)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(own / "id_ed25519")]).good()
    run(["chown", "-R", f"{user.uid}:{user.gid}", str(own)]).good()
    text = user.dshpc("ssh-config", "--print")
    config.write_text(re.sub(r"ProxyCommand \S+", f"ProxyCommand {proxy}", text))
    script = "tty; echo $SLURM_JOB_NAME $CUDA_VISIBLE_DEVICES; exit 4"
    said = run(["ssh", "-tt", "-F", str(config), "-o", "BatchMode=yes", "gpu", script])
    if user.way == "single":
        assert (said.code, "takes a container with several ids" in said.stderr) == (255, True), said
        return
    assert said.code == 4, said
    assert re.fullmatch(r"/dev/pts/\d+\s+ssh-gpu 0\s+", said.stdout), said
    # The cluster is this user's alone: another one of the machine reaches neither session, key nor home
    (sock,) = user.home.rglob("gpu.sock")
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect({os.path.basename(sock)!r})"
    (listener,) = (pid for pid in filter(str.isdigit, os.listdir("/proc")) if _session(pid, sock))
    other = ["setpriv", "--reuid=64124", "--regid=64124", "--clear-groups", "--"]
    for line in (
        [sys.executable, "-c", f"import os; os.chdir({str(sock.parent)!r}); {connect}"],
        ["cat", str(sock.with_name("host_key"))],
        ["ls", str(user.folder / ".dshpc/engine")],
        ["ls", f"/proc/{listener}/root/"],
        ["cat", f"/proc/{listener}/environ"],
        ["kill", listener],
    ):
        tried = run([*other, *line])
        assert tried.code != 0, line
        assert re.search("ermission denied|not permitted|FileNotFound", tried.stderr), tried
    user.dshpc("scancel", "--name", "ssh-gpu")


def _session(pid: str, sock: Path) -> bool:
    """Whether that process serves the sessions of that socket."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"--name=gpu" in line and os.path.samefile(f"/proc/{pid}/cwd", sock.parent)
    except OSError:
        return False


def test_a_restart_keeps_the_queue_and_sees_other_gpus(user: User) -> None:
    user.dshpc("sbatch", "--hold", "--wrap=true", "--job-name=waits")
    user.configure("--simulate", "h100:1")
    node = json.loads(user.dshpc("status", "--json"))["nodes"][0]
    assert node["gres_total"] == {"gpu:h100": 1}
    ports = user.dshpc("config", "show", "slurm_ports")
    again = user.configure("--simulate", "h100:1")
    assert user.dshpc("config", "show", "slurm_ports") == ports, "nobody else listens there"
    start = next(step for step in again["steps"] if step["name"] == "start")
    assert start["detail"] == "running already"
    assert "waits" in user.dshpc("squeue", "-h", "-o", "%j")
    user.dshpc("down", "--stop-jobs")
    assert user.processes() == []
    user.dshpc("up")
    assert "waits" in user.dshpc("squeue", "-h", "-o", "%j")


def test_it_is_found_with_another_cache_folder(user: User) -> None:
    other = user.home / "other-cache"
    done = user.run("dshpc", "srun", "echo", "there", XDG_CACHE_HOME=str(other))
    assert (done.code, done.stdout) == (0, "there\n"), done
    state = user.run("dshpc", "status", "--json", XDG_CACHE_HOME=str(other))
    assert json.loads(state.stdout)["state"] == "running"
    assert not other.exists()


def test_what_a_boot_that_is_over_has_left_is_no_cluster_that_runs(user: User) -> None:
    """All processes end at once, and their pids are others' afterwards; files and sockets stay."""
    run_folder = user.folder / ".dshpc/engine/containers" / f"{user.prefix}-slurm"
    written = run_folder / "run.json"
    record = json.loads(written.read_text())
    os.kill(record["supervisor"]["pid"], signal.SIGKILL)
    wait_until(lambda: user.processes() == [], "all of it has ended")
    begun = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    for who in ("supervisor", "init"):
        record[who] = {"pid": 1, "ticks": int(begun), "boot": "of another start"}
    written.write_text(json.dumps(record))
    done = user.run("dshpc", "status")
    assert (done.code, "is not running" in done.stdout) == (2, True), done
    done = user.run("dshpc", "srun", "true")
    assert (done.code, "dshpc up" in done.stderr) == (2, True), done
    user.dshpc("up")
    assert "waits" in user.dshpc("squeue", "-h", "-o", "%j")


@pytest.mark.parametrize("daemon", ["slurmctld", "slurmd"])
def test_a_daemon_that_is_killed_comes_back(user: User, daemon: str) -> None:
    user.dshpc("up")
    container = f"{user.prefix}-slurm"
    client = [
        os.path.realpath(sys.executable),
        str(user.top / "dshpc_setup/builtin_client/__main__.py"),
    ]
    who: dict[str, Any] = (
        {} if user.uid == 0 else {"user": user.uid, "group": user.gid, "extra_groups": []}
    )
    env = {
        "HOME": str(user.home),
        "PYTHONPATH": f"{user.top}:{user.top}/site",
        "PATH": "/usr/bin:/bin",
    }
    argv = [*client, "exec", container, "pkill", "-KILL", "-f", f"^{daemon} -D"]

    def killed() -> bool:  # the other one is started anew by its own end, a moment later
        done = subprocess.run(argv, env=env, cwd="/", check=False, timeout=60, **who)
        return done.returncode == 0

    wait_until(killed, f"{daemon} was killed", 30)
    assert user.dshpc("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES") == "0\n"


def test_its_user_is_the_clusters_administrator(user: User) -> None:
    """Slurm lets only root and its own user take a node out, and the caller became neither.

    Behind those that kill slurmctld: one that is killed within seconds knows the node as it was before.
    """
    node = user.dshpc("sinfo", "-h", "-o", "%N").strip()
    for state, seen in (("DRAIN", "drained"), ("RESUME", "idle")):
        order = ("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=fan")
        user.dshpc("exec", "--root", "--", *order)
        # With a * until slurmctld has asked its slurmd again
        assert user.dshpc("sinfo", "-h", "-o", "%T").strip().rstrip("*") == seen


def test_what_it_cannot_carry_out_is_said_before_anything_stops(user: User) -> None:
    file = user.folder / "docker-compose.yml"
    before = file.read_text()
    try:
        file.write_text("# USER_CUSTOMIZED=true\n" + before.replace(
            "    environment:\n", "    mem_limit: 1g\n    environment:\n", 1))  # fmt: skip
        done = user.run("dshpc", "up", "--stop-jobs")
        assert done.code == 2
        assert "services.slurm.mem_limit" in done.stderr
    finally:
        file.write_text(before)
    assert user.dshpc("srun", "echo", "on") == "on\n"


def test_a_file_that_is_no_image(user: User) -> None:
    wrong = user.home / "wrong.tar.gz"
    wrong.write_bytes(b"no archive")
    done = user.run(
        "configure", "--yes", "--dir", str(user.home / "other"), "--prefix", "other",
        "--engine", "builtin", "--image-file", str(wrong),
    )  # fmt: skip
    assert done.code == 2
    assert "This is not an archive of a root filesystem." in done.stderr
    assert not (user.home / "other/docker-compose.yml").exists()


def test_the_image_is_made_here(user: User) -> None:
    """From Debian's packages, with no program of the machine's: nothing of apt, dpkg or debootstrap."""
    made = replace(user, prefix=f"{user.prefix}-made", project="made")
    try:
        made.folder.mkdir(parents=True, exist_ok=True)
        (made.folder / "dshpc.yaml").write_text("engine: builtin\n")
        os.chown(made.folder / "dshpc.yaml", user.uid, -1)
        os.chown(made.folder, user.uid, -1)
        made.dshpc("env", "add", "--dir", str(made.folder), "--apt", "jq")
        made.dshpc("env", "lock", "--dir", str(made.folder))
        report = made.configure("--simulate", "h100:1", deadline_s=900)
        assert report["cluster"]["nodes"][0]["gres"] == "gpu:h100:1"
        assert made.dshpc("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES") == "0\n"
        assert made.dshpc("srun", "jq", "-n", "6*7") == "42\n"
        assert "has what is locked" in made.dshpc("env", "show")
        again = made.configure("--simulate", "h100:1")
        base = next(step for step in again["steps"] if step["name"] == "base")
        assert "here already" in base["detail"]
        _another_version(made)
    finally:
        made.dshpc("destroy", "--yes", "--stop-jobs", "--image")


def _another_version(made: User) -> None:
    """Of dsHPC: it is laid on the same packages, which stay as they were, and the image before it goes."""
    cache = made.home / ".cache/dshpc"
    (layer,) = (cache / "layers").glob("*/*/")
    before, images = _files(layer), set(os.listdir(cache / "images"))
    file = made.top / "dshpc_setup/versions.py"
    text = file.read_text()
    try:
        file.write_text(f"{text}# another version\n")
        made.configure("--simulate", "h100:1")
        inside = made.dshpc("exec", "cat", "/opt/dshpc/lib/dshpc_setup/versions.py")
        assert inside.endswith("# another version\n")
        assert made.dshpc("srun", "jq", "-n", "6*7") == "42\n"
    finally:
        file.write_text(text)
    assert _files(layer) == before
    now = set(os.listdir(cache / "images"))
    assert (len(now), len(now & images)) == (len(images), len(images) - 1)


def _files(folder: Path) -> dict[Path, tuple[int, ...]]:
    """All that a write to one changes."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {
        path: (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_mode, seen.st_uid)
        for path, seen in found.items()
    }


def test_destroy_leaves_nothing(user: User) -> None:
    user.dshpc("destroy", "--yes", "--stop-jobs", "--image")
    assert user.processes() == []
    assert not (user.folder / ".dshpc/engine").exists()
    cache = user.home / ".cache/dshpc"
    assert list((cache / "images").iterdir()) == []
    assert not (cache / "layers").exists()
    left = [
        path
        for kind in ("container", "volume", "image")
        for path in (cache / "engine" / kind).iterdir()
    ]
    assert left == []
