"""Bad input, faults and interruptions: clear words, the right exit code, files all old or all new."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dshpc_setup.image.base import BaseImage
from tests.integration.cluster import (
    FILES,
    LIVE,
    STEPS,
    Cluster,
    Outcome,
    Started,
    as_root,
    as_user,
    command,
    docker,
    environment,
    made,
    run,
    tree,
    wait_until,
)
from tests.integration.second_engine import SecondEngine

pytestmark = pytest.mark.engines("docker", why="what fails there is Docker or what it stands on")

Start = Callable[..., Started]
MADE_UP = ("--simulate", "h100:2")


def refused(outcome: Outcome, code: int, *words: str) -> None:
    """An error as people and programs get it: what, and what to do."""
    assert outcome.code == code, outcome.stderr
    error = outcome.report["error"]
    assert outcome.report["exit_code"] == error["exit_code"] == code
    assert error["brief"] in outcome.stderr
    for word in words:
        assert word in outcome.stderr
    assert "Traceback" not in outcome.stderr


def whole(texts: dict[str, str | None], partitions: tuple[str, ...]) -> str | None:
    """The partition that all files are of, None where there is no file; a mixture fails."""
    if set(texts.values()) == {None}:
        return None
    assert None not in texts.values(), texts
    slurm_conf, live = texts["config/slurm.conf"] or "", texts[LIVE] or ""
    assert slurm_conf.endswith("\n")
    (name,) = re.findall(r"^PartitionName=(\S+)", slurm_conf, re.MULTILINE)
    assert name in partitions
    assert (f'"DSHPC_PARTITION": "{name}"' in live) is (name != "debug")
    return str(name)


# --- wrong words


@pytest.mark.parametrize(
    ("yaml", "where", "words"),
    [
        ("partition: [a\nprefix: x\n", "dshpc.yaml:2:", "not valid YAML"),
        ("partition: a\npartitoin: b\n", "dshpc.yaml:2:1", "Did you mean 'partition'"),
        ("# first\n\ngpu: nvida\n", "dshpc.yaml:3:1", "did you mean nvidia"),
        ("- a\n", "dshpc.yaml:1:1", "key: value"),
        ("prefix:\n  a: b\n", "dshpc.yaml:1:1", "single value"),
        ("simulate: h10:2\n", "dshpc.yaml:1:1", "h100"),
        ("\tpartition: a\n", "dshpc.yaml:1:1", "not valid YAML"),
    ],
)
def test_broken_settings_file(tmp_path: Path, yaml: str, where: str, words: str) -> None:
    cluster = Cluster("dshpc-test-words", tmp_path)
    (tmp_path / "dshpc.yaml").write_text(yaml)
    refused(cluster.configure(), 64, where, words)
    assert [path.name for path in tmp_path.iterdir()] == ["dshpc.yaml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--simulate", "h10:2"), ("h100",)),
        (("--simulate", "h100:99"), ("16",)),
        (("--prefix", "Not_Good"), ("--prefix", "lower-case")),
        (("--work", "/etc"), ("/etc",)),
        (("--work", "a:b"), (":",)),
        (("--work", "/"), ("work folder",)),
        (("--devices", "one"), ("--devices",)),
        (("--settings", "/not/there.yaml"), ("/not/there.yaml",)),
        (("--gpu", "nvida"), ("nvidia",)),
    ],
)
def test_wrong_values(tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    refused(Cluster("dshpc-test-words", tmp_path).configure(*arguments), 64, *words)
    assert list(tmp_path.iterdir()) == []


def test_unknown_flags_and_commands() -> None:
    for program, arguments, word in (
        ("configure-environment", ("--simulat", "h100:2"), "--simulat"),
        ("dshpc", ("configure", "--nonsense"), "--nonsense"),
        ("dshpc", ("confgure",), "confgure"),
        ("dshpc", ("config", "unset"), "'NAME...'"),
    ):
        outcome = run(command(program, *arguments))
        assert (outcome.code, outcome.stdout) == (64, ""), arguments
        assert word in outcome.stderr


# --- what belongs to others


def test_name_taken_by_a_container_that_is_not_ours(fresh: Cluster, base_image: BaseImage) -> None:
    docker("create", "--name", fresh.container, base_image.ref, "sleep", "1")
    before = fresh.inspect()["Id"]
    for arguments in ((), ("--take-over",)):
        refused(fresh.configure(*MADE_UP, *arguments), 2, fresh.container, "--prefix", "docker rm")
    assert fresh.inspect()["Id"] == before
    assert set(fresh.texts().values()) == {None}


def test_name_of_another_folders_cluster_and_taking_it_over(
    standard: Cluster, fresh: Cluster
) -> None:
    fresh.configure(*MADE_UP).good()
    before = fresh.inspect()["Id"]
    held = fresh.said("sbatch", "--parsable", "--hold", "-D", "/tmp", "--wrap", "true")
    other = Cluster(fresh.prefix, fresh.folder / "other folder")
    refused(other.configure(*MADE_UP), 2, str(fresh.folder), "--take-over", "--prefix")
    assert fresh.inspect()["Id"] == before
    assert set(other.texts().values()) == {None}

    other.configure(*MADE_UP, "--take-over").good()
    assert fresh.inspect()["Id"] != before
    assert str(other.work) in {item["Source"] for item in fresh.inspect()["Mounts"]}
    assert fresh.said("srun", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES") == "0"
    assert fresh.job_state(held)[0] == "PENDING"
    refused(fresh.configure(), 2, str(other.folder))
    assert fresh.dshpc("status").code == 2
    assert fresh.dshpc("down").code == 2
    assert other.node() == ("gpu:h100:2", "idle")


def test_second_run_at_once_is_refused(fresh: Cluster, start_configure: Start) -> None:
    first = start_configure(fresh, *MADE_UP)
    first.wait_line("probe")
    first.signal(signal.SIGSTOP)  # or it has ended before the second one has begun
    second = fresh.configure("--partition", "other")
    refused(second, 2, f"process {first.child.pid}", "Wait")
    assert fresh.dshpc("config", "show").code == 0
    first.signal(signal.SIGCONT)
    first.end().good()
    assert whole(fresh.texts(), ("debug",)) == "debug"
    assert fresh.node() == ("gpu:h100:2", "idle")


# --- disks and folders


@contextmanager
def mounted(at: Path, *options: str) -> Iterator[None]:
    at.mkdir(exist_ok=True)
    run(as_root("mount", *options, str(at))).good()
    try:
        yield
    finally:
        run(as_root("umount", "--lazy", str(at))).good()


def free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def test_full_disk_leaves_all_files_as_they_were(fresh: Cluster) -> None:
    project = Cluster(fresh.prefix, fresh.folder / "small")
    filler = project.folder / "filler"
    with mounted(project.folder, "-t", "tmpfs", "-o", "size=16m,mode=755", "none"):
        project.configure(*MADE_UP, "--no-start").good()
        before = project.texts()
        used = 16 * 2**20 - free_bytes(project.folder)
        assert used < 8 * 2**20
        failed = 0
        # in bytes: too little for anything, for the build's folder, for the files
        for room in (0, 4096, 64 * 1024, used // 2, used - 16384):
            filler.write_bytes(b"")
            with filler.open("wb") as file:
                while free_bytes(project.folder) > room:
                    file.write(b"x" * 4096)
                    file.flush()
            outcome = project.configure("--partition", "other", "--no-start", "--no-build")
            if outcome.code == 0:
                continue
            refused(outcome, 2, "No space left on device")
            failed += 1
            assert project.texts() == before
            assert project.leftovers() == []
        assert failed >= 3
        filler.unlink()
        project.configure("--partition", "other", "--no-start").good()
        assert whole(project.texts(), ("other",)) == "other"


def test_new_project_on_a_full_disk(fresh: Cluster) -> None:
    project = Cluster(fresh.prefix, fresh.folder / "small")
    with mounted(project.folder, "-t", "tmpfs", "-o", "size=32k,mode=755", "none"):
        refused(project.configure(*MADE_UP), 2, "No space left on device")
        assert set(project.texts().values()) == {None}
    assert not project.exists()


def test_read_only_folder(fresh: Cluster) -> None:
    folder = fresh.folder / "read-only"
    folder.mkdir()
    with mounted(folder, "--bind", str(folder)):
        run(as_root("mount", "-o", "remount,ro,bind", str(folder))).good()
        for at in (folder, folder / "below"):
            refused(Cluster(fresh.prefix, at).configure(*MADE_UP), 2, "read-only", "--dir")
    assert list(folder.iterdir()) == []


def test_folder_of_somebody_else(fresh: Cluster) -> None:
    arguments = ("--yes", "--json", "--prefix", fresh.prefix, *MADE_UP)
    outcome = as_user(42_430, "configure-environment", *arguments, cwd=fresh.folder)
    refused(outcome, 2, "permission denied", "--dir")
    assert list(fresh.folder.iterdir()) == []


def test_part_of_the_path_is_a_file(fresh: Cluster) -> None:
    (fresh.folder / "file").write_text("mine")
    for name in ("file", "file/below", "file/far/below"):
        outcome = Cluster(fresh.prefix, fresh.folder / name).configure(*MADE_UP)
        refused(outcome, 2, "file", "folder")
    assert (fresh.folder / "file").read_text() == "mine"


def test_foreign_compose_file_is_not_touched(fresh: Cluster) -> None:
    path = fresh.folder / "docker-compose.yml"
    path.write_text("services: {}\n")
    refused(fresh.configure(*MADE_UP), 2, "docker-compose.yml", "not ours", "--dir")
    assert path.read_text() == "services: {}\n"
    assert not (fresh.folder / "config").exists()


ODD = 'it\'s "odd" $HOME `x` {{a}} #1 ü 日本 & co'


def test_folders_with_odd_names(standard: Cluster) -> None:
    with made("odd", sub=ODD) as cluster:
        cluster.configure(*MADE_UP, "--work", "my $work 'x'").good()
        work = cluster.folder / "my $work 'x'"
        (work / "train 1.py").write_text("import os; print(os.getcwd())\n")
        outcome = cluster.dshpc("srun", "--gres=gpu:1", "python", "train 1.py", cwd=work)
        assert outcome.good().stdout == f"{work}\n"
        again = cluster.configure().good()
        assert again.actions == dict.fromkeys(FILES, "unchanged")
        assert again.steps["start"]["detail"] == "running already"
        cluster.dshpc("down").good()
        cluster.dshpc("up").good()
        assert cluster.dshpc("squeue", "-h").good().stdout == ""


def test_colon_in_the_project_folder_is_refused(fresh: Cluster) -> None:
    project = Cluster(fresh.prefix, fresh.folder / "a:b")
    for arguments in ((), ("--work", str(fresh.folder / "work"))):
        refused(project.configure(*MADE_UP, *arguments), 64, "project folder", "--dir")
    assert list(fresh.folder.iterdir()) == []


# --- engines that are away


def test_engine_that_cannot_be_reached(tmp_path: Path) -> None:
    cluster = Cluster("dshpc-test-away", tmp_path / "project")
    packages = Path("/var/lib/dpkg/status")
    before = packages.stat().st_mtime_ns if packages.exists() else 0
    host = f"unix://{tmp_path}/no.sock"
    outcome = cluster.configure(*MADE_UP, env={"DOCKER_HOST": host})
    refused(outcome, 2, host, "DOCKER_HOST")
    assert outcome.steps["probe"]["state"] == "failed"
    assert (packages.stat().st_mtime_ns if packages.exists() else 0) == before
    assert set(cluster.texts().values()) == {None}


def test_engine_that_never_answers(tmp_path: Path) -> None:
    cluster = Cluster("dshpc-test-away", tmp_path / "project")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(16)
        started = time.monotonic()
        outcome = cluster.configure(*MADE_UP, env={"DOCKER_HOST": f"unix://{tmp_path}/s"})
        assert time.monotonic() - started < 120
    refused(outcome, 3, "does not answer")


def test_nothing_waits_for_input(fresh: Cluster, tmp_path: Path) -> None:
    """stdin is a pipe on which nothing ever comes; a question would be answered with no."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("docker", "env", "sh", "apt-config", "dpkg", "apt-get", "id", "getent"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    config = tmp_path / "client"  # a Docker client without plugins
    config.mkdir()
    reading, writing = os.pipe()
    arguments = ["--json", "--dir", str(fresh.folder), "--prefix", fresh.prefix, *MADE_UP]
    try:
        for env, code in (
            ({"PATH": str(tools), "DOCKER_CONFIG": str(config)}, 2),
            ({"DOCKER_HOST": f"unix://{tmp_path}/no.sock"}, 2),
            ({}, 0),
        ):
            done = subprocess.run(
                command("configure-environment", *arguments),
                env=environment(env),
                cwd="/",
                stdin=reading,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            if "PATH" in env and _has_compose_plugin():
                continue  # part of the client here, whatever the PATH
            assert done.returncode == code, done.stderr
            if code:
                refused(Outcome(code, done.stdout, done.stderr), 2)
    finally:
        os.close(reading)
        os.close(writing)
    assert fresh.node() == ("gpu:h100:2", "idle")


def _has_compose_plugin() -> bool:
    return run(["docker", "compose", "version"]).code == 0


# --- a build that stands still, so that something can happen in the middle of it


@contextmanager
def black_hole() -> Iterator[tuple[dict[str, str], Callable[[], int]]]:
    """A proxy that takes every connection and says nothing: its environment, and how many it holds.

    On the loopback, so that the product lets the build use the host's network.
    """
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        ended = threading.Event()

        def take() -> None:
            while not ended.is_set():
                try:
                    held.append(listener.accept()[0])
                except TimeoutError:
                    continue

        def open_now() -> int:
            count = 0
            for item in held:
                item.setblocking(False)
                try:
                    while item.recv(65536):
                        pass
                except BlockingIOError:
                    count += 1
                except OSError:
                    pass
            return count

        thread = threading.Thread(target=take)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            yield {"HTTP_PROXY": url, "http_proxy": url, "NO_PROXY": "", "no_proxy": ""}, open_now
        finally:
            ended.set()
            thread.join(10)
            for item in held:
                item.close()


STUCK = ("--apt-mirror", "http://mirror.invalid/debian")


def test_ctrl_c_in_the_middle_of_the_build(fresh: Cluster, start_configure: Start) -> None:
    with black_hole() as (env, connections):
        going = start_configure(fresh, *MADE_UP, *STUCK, env=env)
        going.wait_until(lambda: connections() > 0, "the build fetches packages", 180)
        going.signal(signal.SIGINT)
        outcome = going.end()
        refused(outcome, 130, "Interrupted")
        assert outcome.steps["build"]["state"] == "failed"
        assert {outcome.steps[name]["state"] for name in ("start", "verify")} == {"skipped"}
        # the engine has stopped building too
        wait_until(lambda: connections() == 0, "the build's container has ended")
    assert not fresh.exists()
    assert whole(fresh.texts(), ("debug",)) == "debug"
    assert fresh.leftovers() == []
    fresh.dshpc("config", "unset", "apt_mirror").good()
    fresh.configure().good()
    assert fresh.node() == ("gpu:h100:2", "idle")


def test_engine_that_dies_in_the_middle_of_the_build(
    base_image: BaseImage, start_configure: Start
) -> None:
    with made("dies") as cluster, SecondEngine(base_image.ref) as engine:
        with black_hole() as (env, connections):
            going = start_configure(
                cluster, *MADE_UP, *STUCK, env={**env, "DOCKER_HOST": engine.host}
            )
            going.wait_until(lambda: connections() > 0, "the build fetches packages", 180)
            engine.kill()
            outcome = going.end()
        assert outcome.code in (2, 3)
        refused(outcome, outcome.code, "image")
        assert re.search(r"engine|[Dd]ocker", outcome.report["error"]["brief"])
        assert outcome.report["error"]["resolution"]
        assert outcome.steps["build"]["state"] == "failed"
        assert whole_or_none(cluster)
        before = cluster.texts()
        away = cluster.configure(env={"DOCKER_HOST": engine.host})
        refused(away, 2, engine.host)
        assert cluster.texts() == before


def whole_or_none(cluster: Cluster) -> bool:
    texts = cluster.texts()
    return cluster.leftovers() == [] and len({text is None for text in texts.values()}) == 1


# --- Ctrl-C and kill at any moment


@pytest.fixture(scope="module")
def victim(standard: Cluster) -> Iterator[Cluster]:
    """A cluster whose runs are interrupted."""
    with made("victim") as cluster:
        yield cluster


def after(outcome: Outcome) -> None:
    """What an interrupted run has said."""
    assert outcome.code == 130, outcome.stderr
    assert list(outcome.steps) == list(STEPS)
    states = [step["state"] for step in outcome.steps.values()]
    assert states.count("failed") <= 1
    assert outcome.report["cluster"]["ready"] is False
    assert "Traceback" not in outcome.stderr


# A client with which the last step does not end, however late the Ctrl-C after the one before comes
NEVER_READY = """#!/bin/sh
case "$*" in *" dshpc-node wait "*) exec sleep 600 ;; esac
exec {docker} "$@"
"""


def test_ctrl_c_at_each_step(victim: Cluster, start_configure: Start, tmp_path: Path) -> None:
    client = tmp_path / "docker"
    client.write_text(NEVER_READY.format(docker=shutil.which("docker")))
    client.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    names = ["dsHPC setup", *(f" {name} " for name in STEPS[:-1])]
    for number, line in enumerate(names):
        wanted = f"p{number}"
        going = start_configure(victim, *MADE_UP, "--partition", wanted, env=env)
        going.wait_line(line)
        going.signal(signal.SIGINT)
        after(going.end())
        assert victim.leftovers() == []
        whole(victim.texts(), tuple(f"p{index}" for index in range(number + 1)))
    victim.configure(*MADE_UP, "--partition", "calm").good()
    assert whole(victim.texts(), ("calm",)) == "calm"
    assert (
        victim.said("srun", "-p", "calm", "--gres=gpu:1", "printenv", "CUDA_VISIBLE_DEVICES") == "0"
    )
    again = victim.configure().good()
    assert again.actions == dict.fromkeys(FILES, "unchanged")


def test_ctrl_c_and_kill_at_random_moments(
    victim: Cluster, start_configure: Start, full: bool
) -> None:
    rounds, seed = (60, random.SystemRandom().randrange(10**6)) if full else (3, 1)
    print(f"seed {seed}")
    choose = random.Random(seed)
    victim.configure(*MADE_UP, "--partition", "a").good()
    for number in range(rounds):
        wanted = "ba"[number % 2]
        going = start_configure(victim, *MADE_UP, "--partition", wanted)
        time.sleep(choose.uniform(0.3, 4.0))
        how = choose.choice([signal.SIGINT, signal.SIGKILL, signal.SIGKILL])
        if going.child.poll() is None:
            going.signal(how)
        outcome = going.end()
        if how == signal.SIGINT and outcome.code != 0 and outcome.stdout:
            if outcome.report["schema"] == "dshpc.error/1":  # before its first step
                assert outcome.code == 130, outcome.stderr
            else:
                after(outcome)
        # renames that a SIGKILL cut short are completed by the next run, and told by the journal
        if not (victim.folder / ".dshpc/journal.json").exists():
            whole(victim.texts(), ("a", "b"))
        victim.configure("--partition", wanted).good()
        assert whole(victim.texts(), (wanted,)) == wanted
        assert victim.leftovers() == []
        assert victim.said("srun", "-p", wanted, "true") == ""
    assert victim.node() == ("gpu:h100:2", "idle")


def test_damaged_files_of_our_own_are_made_anew(victim: Cluster) -> None:
    victim.configure(*MADE_UP, "--partition", "a").good()
    before = tree(victim.folder / "config")
    for name in ("runtime.json", "passthrough.json", "lock"):
        (victim.folder / ".dshpc" / name).write_bytes(b"\xff\x00{")
    victim.configure(*MADE_UP, "--partition", "a").good()
    assert tree(victim.folder / "config") == before
    runtime = json.loads((victim.folder / ".dshpc/runtime.json").read_text())
    assert runtime["container"] == victim.container


def test_what_the_user_chose_is_not_forgotten_because_a_file_is_damaged(fresh: Cluster) -> None:
    fresh.configure(*MADE_UP, "--partition", "a", "--no-start").good()
    before = tree(fresh.folder / "config")
    (fresh.folder / ".dshpc/remembered.json").write_bytes(b'{"simulate": "h1')
    refused = fresh.configure()
    assert refused.code == 2
    assert "remembered.json cannot be read" in refused.stderr
    assert tree(fresh.folder / "config") == before
