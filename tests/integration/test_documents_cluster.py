"""What README and docs show of a cluster is what a cluster prints: typed in their order, compared by line.

What a block begins from (other GPUs, settings, jobs that run) is made by BEFORE; the settings of a page
are taken from its own yaml blocks.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dshpc_setup import resources
from tests.integration.cluster import (
    _PROGRAM,
    ROOT,
    Cluster,
    environment,
    made,
    wait_until,
)
from tests.integration.shown import Jobs, Shown, Terminal, blocks, shown
from tests.integration.test_documents import ELSEWHERE, RECORDED

pytestmark = [
    pytest.mark.engines("docker", why="it types what the documents show, which is Docker's"),
    pytest.mark.timeout(900),
]

README, HOW_TO = "README.md", "docs/how-to"
SETTINGS, OWN, JOBS, METHODS = (
    f"{HOW_TO}/{name}.md" for name in ("configuration", "own-configuration", "jobs", "methods")
)
COMPOSE = f"{HOW_TO}/own-compose-file.md"
START = "docs/start.md"
CHECKPOINTS, ARRAY, EIGHT = (
    f"docs/tutorials/{name}.md" for name in ("checkpoints", "array", "eight-gpus")
)


# The settings that the page shows: what goes together is in force together, to save starts.
TOGETHER = (
    *("partitions", "gpu_sharing", "workspace_access", "array_limit", "clean_after", "log_size"),
    *("unhealthy_gpus", "reserve_mib", "longest_wait"),
)
APART = ("gres_type", "slurm_conf_extra")


@dataclass(frozen=True)
class Scene:
    """A cluster, and somebody who types in its folder."""

    cluster: Cluster
    terminal: Terminal
    others: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def gpus(self, profile: str, settings: str = "") -> None:
        """The cluster has these GPUs and no files of one's own, and nothing runs on it."""
        self.settings(settings)
        for path in (self.cluster.folder / "config").glob("*"):
            path.unlink()
        self.cluster.configure("--simulate", profile, "--stop-jobs").good()
        self.sh("dshpc scancel --me")

    def is_as_made(self) -> bool:
        """Two H100 and nothing of one's own, as README leaves it."""
        return (
            self.cluster.exists()
            and not (self.cluster.folder / "dshpc.yaml").exists()
            and self.cluster.node() == ("gpu:h100:2", "idle")
            and self.cluster.dshpc("config", "diff").code == 0
        )

    def settings(self, text: str) -> None:
        path = self.cluster.folder / "dshpc.yaml"
        path.write_text(text)
        if not text:
            path.unlink()

    def start(self, text: str) -> subprocess.Popen[bytes]:
        """Typed in another terminal; the scene waits for its end."""
        null = subprocess.DEVNULL
        return subprocess.Popen(
            ["bash", "-c", text],
            cwd=self.cluster.folder,
            env=environment(self.terminal.env),
            stdin=null,
            stdout=null,
            stderr=null,
        )

    def until_one_runs(self) -> None:
        wait_until(lambda: self.cluster.said("squeue", "-h", "-t", "R") != "", "a job runs")

    def launchers(self) -> None:
        """`./dshpc` and `./configure-environment`, as a checkout has them."""
        for name in ("dshpc", "configure-environment"):
            line = f'DSHPC_COMMAND="$PWD/dshpc" exec {name} "$@"'
            write_program(self.cluster.folder / name, line)

    def sh(self, text: str) -> None:
        """What a reader has done before; it succeeds."""
        Terminal(self.cluster.folder, self.terminal.env).type(Shown("BEFORE", text, ()))


def _nothing_yet(scene: Scene) -> None:
    scene.cluster.remove()
    for path in scene.cluster.folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    scene.launchers()


def _jobs_that_ended(scene: Scene) -> None:
    scene.sh("dshpc method run gpu-report --wait")
    scene.sh("! dshpc run --gpus 1 --wait -- sh -c 'exit 3'")


def _fewer_gpus(scene: Scene) -> None:
    scene.sh("dshpc sbatch --gres=gpu:2 --begin=now+1hour --wrap true")


def _gpu_0_is_taken(scene: Scene) -> None:
    scene.sh("cd work; dshpc sbatch --gres=gpu:gpu0:1 --time=60 --wrap 'sleep 600'")
    scene.until_one_runs()


def _settings_of_the_page(*names: str) -> Callable[[Scene], None]:
    """Those of its yaml blocks that begin with these names, all at once."""

    def make(scene: Scene) -> None:
        texts = [item.text for item in blocks(SETTINGS) if item.language == "yaml"]
        scene.gpus("h100:2", "".join(text for text in texts if text.partition(":")[0] in names))

    return make


def _a_line_of_mine(scene: Scene) -> None:
    with (scene.cluster.folder / "config/gres.conf").open("a") as file:
        file.write("# hand\n")


def _a_node_of_mine(scene: Scene) -> None:
    """The text of the page, with CPUs and memory of this machine."""
    (block,) = (item for item in blocks(OWN) if not item.language)
    marker, line = block.text.splitlines()
    cpus, memory = scene.cluster.said("sinfo", "-h", "-N", "-o", "%c %m").split()
    line = re.sub(r"NodeName=\S+ CPUs=\d+ RealMemory=\d+",
                  f"NodeName={scene.cluster.prefix} CPUs={cpus} RealMemory={memory}", line)  # fmt: skip
    rendered = scene.cluster.dshpc("config", "show", "slurm.conf").good().stdout
    text = re.sub(r"(?m)^NodeName=.*$", line, rendered)
    (scene.cluster.folder / "config/slurm.conf").write_text(f"{marker}\n{text}")


def _one_gpu_is_gone(scene: Scene) -> None:
    scene.gpus("h100:2")
    scene.sh("dshpc sbatch --gres=gpu:h100:2 --begin=now+1hour --job-name=train --wrap true")
    scene.sh("dshpc sbatch --hold --job-name=sweep --wrap true")
    path = scene.cluster.folder / "config/gres.conf"
    path.write_text(re.sub(r"(?m)^.*/dev/nvidia1.*\n", "# taken out\n", path.read_text()))
    scene.cluster.configure("--simulate", "h100:1").good()


def _jobs_of_all_kinds(scene: Scene) -> None:
    shutil.copytree(
        resources.methods() / "monte-carlo-pi", scene.cluster.folder / "methods/monte-carlo-pi"
    )
    scene.sh("dshpc method run monte-carlo-pi --array methods/monte-carlo-pi/sets.csv --wait")
    scene.sh("dshpc run --gpus 1 -- sh -c 'sleep 600'")
    scene.until_one_runs()
    scene.sh("! dshpc run --wait -- sh -c 'exit 3'")
    scene.sh(
        "dshpc run -- sh -c 'sleep 600'; until [ $(dshpc squeue -h -t R | wc -l) = 2 ]; do sleep 0.2; done;"
        " dshpc job cancel $(dshpc squeue -h -t R -o %A | head -1)"
    )
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    scene.sh(f"! dshpc run --wait --gpus 1 -- sh -c 'echo \"{oom}\" >&2; exit 1'")


def _it_will_be_stopped(scene: Scene) -> None:
    """From another terminal, once the job of this one runs."""
    text = (
        "until [ $(dshpc squeue -h -t R | wc -l) = 1 ]; do sleep 0.2; done; dshpc down --stop-jobs"
    )
    scene.others.append(scene.start(text))


def _deploy_in_braces(scene: Scene) -> None:
    with (scene.terminal.folder / "compose.yml").open("a") as file:
        file.write("    deploy: {replicas: 2}\n")


BEFORE: dict[tuple[str, str], Callable[[Scene], None]] = {
    (README, "./configure-environment --yes --simulate h100:2"): _nothing_yet,
    (README, "./dshpc job list"): _jobs_that_ended,
    (README, "./configure-environment --yes --simulate h100:1     # there were two"): _fewer_gpus,
    (README, 'docker exec dshpc-slurm sinfo -o "%n %G"'): lambda scene: scene.gpus("h100:2"),
    (SETTINGS, 'dshpc sinfo -o "%P %l"'): _settings_of_the_page(*TOGETHER),
    (SETTINGS, 'dshpc sinfo -o "%G"  # by index'): _settings_of_the_page(*APART),
    (SETTINGS, "dshpc run --target dshpc::0 -- ./train.sh"): _gpu_0_is_taken,
    (OWN, "dshpc config diff"): _a_line_of_mine,
    (OWN, "dshpc reconfigure     # config/ alone"): _a_node_of_mine,
    (OWN, "dshpc status"): _one_gpu_is_gone,
    (JOBS, "dshpc job list"): _jobs_of_all_kinds,
    (JOBS, "dshpc run --wait -- sleep 60"): _it_will_be_stopped,
    (
        COMPOSE,
        "dshpc compose patch compose.yml --service tensorboard --mechanism device-request --yes",
    ): _deploy_in_braces,
}


@pytest.fixture(scope="module")
def cluster(standard: Cluster) -> Iterator[Cluster]:
    with made("doc") as found:
        yield found


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dshpc` and `configure-environment` as if they were installed."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "program.py").write_text(_PROGRAM)
    for name in ("dshpc", "configure-environment"):
        write_program(folder / name, f'exec "{sys.executable}" "{folder}/program.py" {name} "$@"')
    return folder


def write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.fixture
def scene(cluster: Cluster, programs: Path) -> Iterator[Scene]:
    changes = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "COLUMNS": "80",
        "DSHPC_PREFIX": cluster.prefix,
    }
    ours = ((r"\bdshpc(?=::|-slurm\b)|(?<=node=)dshpc\b|(?<=NodeName=)dshpc\b", cluster.prefix),)
    theirs = (
        (re.escape(str(cluster.folder)), "/home/ada/dshpc-setup"),
        (re.escape(cluster.prefix), "dshpc"),
        (rf"(?<=\()(?:{getpass.getuser()})(?=, )|(?<= of ){getpass.getuser()}\b", "ada"),
    )
    found = Scene(cluster, Terminal(cluster.folder, changes, ours, theirs))
    found.launchers()
    yield found
    for other in found.others:
        other.wait(60)


def type_all(scene: Scene, document: str) -> None:
    """All of the document's console blocks, in their order."""
    for block in blocks(document):
        if block.language == "console":
            for item in block.commands:
                if item.key not in ELSEWHERE and RECORDED not in item.command:
                    if item.key in BEFORE:
                        BEFORE[item.key](scene)
                    scene.terminal.type(item)


def test_readme(scene: Scene) -> None:
    type_all(scene, README)


def test_own_configuration(scene: Scene) -> None:
    if not scene.is_as_made():
        scene.gpus("h100:2")
    type_all(scene, OWN)


def test_settings(scene: Scene) -> None:
    scene.cluster.work.mkdir(exist_ok=True)
    for name in ("quick.sh", "train.sh"):
        write_program(scene.cluster.work / name, "true")
    scene.terminal.folder = scene.cluster.work
    type_all(scene, SETTINGS)


def test_jobs(scene: Scene) -> None:
    scene.gpus("mixed")
    scene.terminal.since = int(scene.cluster.submit(script="true"))
    type_all(scene, JOBS)


def test_methods(scene: Scene) -> None:
    (json,) = re.findall(r"(?ms)^    \{$.*?^    \}$", (ROOT / METHODS).read_text())
    folder = scene.cluster.folder / "methods/train"
    folder.mkdir(parents=True)
    (folder / "method.json").write_text(textwrap.dedent(json).replace('"gpus": 1', '"gpus": "1"'))
    (folder / "main.py").write_text("")
    type_all(scene, METHODS)


def test_the_first_sbatch(scene: Scene) -> None:
    if not scene.is_as_made():
        scene.gpus("h100:2")
    scene.terminal.since = int(scene.cluster.submit(script="true"))
    type_all(scene, START)


def test_tutorials(scene: Scene) -> None:
    scene.gpus("h100:8")
    scene.terminal.folder = scene.cluster.work
    for command in blocks(CHECKPOINTS)[0].commands:
        name = command.command.removeprefix("cat ")
        (scene.cluster.work / name).write_text("".join(f"{line}\n" for line in command.lines))
    shutil.rmtree(scene.cluster.work / "jobs", ignore_errors=True)
    for document in (CHECKPOINTS, ARRAY, EIGHT):
        scene.terminal.since = int(scene.cluster.submit(script="true"))
        scene.terminal.wanted, scene.terminal.printed = Jobs(), Jobs()
        type_all(scene, document)


def test_a_compose_file_of_ones_own(scene: Scene, tmp_path: Path) -> None:
    cat, *_ = blocks(COMPOSE)[0].commands
    (tmp_path / "compose.yml").write_text("".join(f"{line}\n" for line in cat.lines))
    scene.terminal.folder = tmp_path
    scene.terminal.theirs = ((re.escape(str(tmp_path)), "/home/ada/lab"),)
    type_all(scene, COMPOSE)


def test_nothing_is_left_untyped() -> None:
    here = {item.document for item in shown() if item.key not in ELSEWHERE}
    assert here == {
        *(README, SETTINGS, OWN, JOBS, METHODS, COMPOSE, START, CHECKPOINTS, ARRAY, EIGHT),
        "docs/index.md", "docs/tutorials/broken-toolkit.md",
    }  # fmt: skip
    settings = [item.text.partition(":")[0] for item in blocks(SETTINGS) if item.language == "yaml"]
    assert settings == sorted([*TOGETHER, *APART], key=settings.index)
    assert not set(BEFORE) - {item.key for item in shown()}
