"""GPUs, what they measure and who holds them, put together; and one look after the other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.cluster.gpu_watch import watch
from dshpc_setup.cluster.gpus import GpusNow, look
from dshpc_setup.facts import GpuDevice, Gpus, MigInstance
from dshpc_setup.machine import Reply
from dshpc_setup.machine.simulated import SimulatedMachine
from dshpc_setup.probes import gather
from dshpc_setup.probes.readings import Readings
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from tests.unit.cluster.test_gpu_jobs import MIXED, said
from tests.unit.engine.fake import Answer, Answers, FakeMachine

INSPECT = "docker inspect --type container -- p-slurm"
EXEC = "docker exec p-slurm"


@dataclass
class Host(FakeMachine):
    """A machine without a GPU."""

    def nvml(self, deadline_s: float) -> Reply:
        return Reply("absent", code=12)

    def amdsmi(self, deadline_s: float) -> Reply:
        return Reply("absent")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / ".dshpc").mkdir()
    runtime = {"container": "p-slurm", "work": f"{tmp_path}/work", "prefix": "p"}
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    return Project(tmp_path)


def container(project: Project, status: str = "running", started: str = "2026-01-01") -> Answer:
    value = {
        "Id": "1", "Name": "/p-slurm", "Image": "sha256:1", "Created": "2026-01-01",
        "State": {"Running": status == "running", "Status": status, "ExitCode": 0,
                  "StartedAt": started},
        "Config": {"Image": "p-slurm:none", "Labels": {"org.dshpc.project": str(project.folder)}},
    }  # fmt: skip
    return Answer(json.dumps([value]))


def devices(profile: str) -> Gpus:
    return gather(SimulatedMachine(Host(), profile, devices_exist=True), engine=False).gpus


def facts(profile: str) -> str:
    machine = SimulatedMachine(Host(), profile, devices_exist=True)
    return json.dumps(gather(machine, engine=False).to_json())


def listed(gpus: Gpus) -> str:
    """As `slurmd -G` would have them."""
    lines = []
    for gpu in gpus.devices:
        parts: tuple[GpuDevice | MigInstance, ...] = gpu.mig or (gpu,)
        for part in parts:
            kind = part.profile if isinstance(part, MigInstance) else part.slurm_type
            lines.append(f"slurmd-node: Gres Name=gpu Type={kind} Count=1 Index=0 "
                         f"File={','.join(part.device_files)} Flags=HAS_FILE")  # fmt: skip
    return "\n".join(lines)


def queue(*jobs: dict[str, Any]) -> Answer:
    return Answer(json.dumps({"jobs": list(jobs)}))


def cluster(project: Project, profile: str = "mixed", **more: Answers) -> dict[str, Answers]:
    """The commands of a running cluster of made-up GPUs."""
    ready = {"phase": "ready", "ready": True, "simulated": True, "node": "node"}
    return {
        INSPECT: container(project),
        f"{EXEC} dshpc-node": Answer(json.dumps(ready)),
        f"{EXEC} cat /var/lib/dshpc/state/facts.json": Answer(facts(profile)),
        f"{EXEC} slurmd -G": Answer(stderr=listed(devices(profile))),
        f"{EXEC} squeue": queue(),
        **{f"{EXEC} {key}": answer for key, answer in more.items()},
    }


def held(now: GpusNow) -> list[list[str] | None]:
    """Job ids of each card."""
    ids = ([job.job_id for job in card.jobs] if card.jobs is not None else None
           for card in now.cards())  # fmt: skip
    return list(ids)


def test_who_holds_what(project: Project) -> None:
    jobs = queue(
        said(["gpu:t4:1(IDX:2),gpu:h100:1(IDX:0)"], job_id=5), said(["gpu:h100:1(IDX:1)"], job_id=6)
    )
    machine = Host(commands=cluster(project, squeue=jobs))
    now = look(machine, project, "mixed")
    assert held(now) == [["5"], ["6"], ["5"]]
    value = json.loads(json.dumps(now.to_json()))
    assert (value["schema"], value["exit_code"], value["simulated"]) == ("dshpc.gpus/1", 0, True)
    assert value["cluster"] == {"container": "p-slurm", "state": "ready", "detail": None}
    first = value["gpus"][0]
    assert first["jobs"] == [{"job_id": "5", "user": "anna", "name": "train", "gpus_of_job": 2}]
    assert (first["memory_total_mib"], first["memory_used_mib"]) == (81559, None)
    assert value["evidence"][-1]["probe"] == "cluster"


def test_slurms_places_are_not_the_hosts_numbers(project: Project) -> None:
    """slurmd has the T4, the machine's second card, as its third."""
    listing = Answer(stderr=MIXED)
    jobs = queue(said(["gpu:t4:1(IDX:2)"], job_id=7))
    real = Reply(
        "present",
        {"devices": [{"index": i, "name": name, "uuid": f"GPU-{i}", "minor": i,
                      "pci_bus_id": f"00000000:1{i}:00.0"}
                     for i, name in enumerate(("NVIDIA H100", "Tesla T4", "NVIDIA H100"))]},
    )  # fmt: skip

    class Real(Host):
        def nvml(self, deadline_s: float) -> Reply:
            return real

        def is_device(self, path: str) -> bool:
            return path.startswith("/dev/nvidia")

    commands = cluster(project, squeue=jobs)
    commands[f"{EXEC} slurmd -G"] = listing
    ready = {"phase": "ready", "ready": True, "simulated": False, "node": "node"}
    commands[f"{EXEC} dshpc-node"] = Answer(json.dumps(ready))
    files = {f"/dev/nvidia{i}": "" for i in range(3)} | {"/sys/module/nvidia/version": "550.1"}
    now = look(Real(commands=commands, files=files), project)
    assert not now.gpus.simulated
    assert held(now) == [[], ["7"], []]


def test_instances_have_jobs_of_their_own(project: Project) -> None:
    jobs = queue(
        said(["gpu:1g.10gb:2(IDX:1-2)"], job_id=10), said(["gpu:h100:1(IDX:5)"], job_id=11)
    )
    now = look(Host(commands=cluster(project, "mig", squeue=jobs)), project, "mig")
    cut, whole = now.cards()
    assert [[job.job_id for job in part.jobs or ()] for part in cut.parts] == [
        [], ["10"], ["10"], [], [],
    ]  # fmt: skip
    assert cut.slurm_type is None, "no job can ask for a card that is cut into instances"
    assert held(now) == [["10"], ["11"]]
    assert [part.slurm_type for part in cut.parts][:2] == ["3g.40gb", "1g.10gb"]
    assert whole.slurm_type == "h100"


def test_without_a_cluster_the_settings_say_what_jobs_call_them() -> None:
    mixed = GpusNow(
        devices("mixed"), Readings(), None, settings=Settings(gres_type="index")
    ).cards()
    assert [card.slurm_type for card in mixed] == ["gpu0", "gpu1", "gpu2"]
    cut, whole = GpusNow(
        devices("mig"), Readings(), None, settings=Settings(gres_type="index")
    ).cards()
    assert (cut.slurm_type, whole.slurm_type) == (None, "gpu1")
    assert [part.slurm_type for part in cut.parts] == [f"gpu0.{number}" for number in range(5)]


def test_what_runs_counts_more_than_what_is_set(project: Project) -> None:
    now = look(Host(commands=cluster(project, "h100:4")), project, "t4:1")
    assert len(now.cards()) == 4


@pytest.mark.parametrize("status", ["missing", "exited", "paused", "restarting"])
def test_a_cluster_that_does_not_run(project: Project, status: str) -> None:
    gone = Answer(code=1, stderr="Error: No such container: p-slurm")
    commands: dict[str, Answers] = {
        INSPECT: gone if status == "missing" else container(project, status)
    }
    now = look(Host(commands=commands), project, "mixed")
    assert now.cluster is not None
    assert (now.cluster.state, now.exit_code) == (status, 0)
    assert held(now) == [None] * 3
    assert now.to_json()["gpus"][0]["jobs"] is None


def test_no_project_and_one_that_was_never_set_up(tmp_path: Path) -> None:
    for project in (None, Project(tmp_path)):
        now = look(Host(), project)
        assert now.cluster is None
        assert now.to_json()["cluster"] is None
        assert (now.exit_code, now.gpus.state) == (0, "absent")


def test_a_cluster_that_cannot_be_asked(project: Project) -> None:
    away = Answer(code=1, stderr="Cannot connect to the Docker daemon at unix:///x")
    now = look(Host(commands={INSPECT: away}), project, "mixed")
    assert now.cluster is not None
    assert (now.cluster.state, now.exit_code) == ("error", 0)
    slow = Answer(code=None, state="timeout")
    asked: list[dict[str, Answers]] = [{INSPECT: slow}, cluster(project, squeue=slow)]
    for commands in asked:
        now = look(Host(commands=commands), project, "mixed")
        assert now.cluster is not None
        assert (now.cluster.state, now.exit_code) == ("timeout", 3)
        assert held(now) == [None] * 3


def test_a_start_that_is_not_over_or_failed(project: Project) -> None:
    for report, state in (
        ({"phase": "starting: detect", "ready": False}, "starting: detect"),
        ({"phase": "failed", "ready": False, "failure": {"brief": "No."}}, "failed"),
        ({}, "starting"),
    ):
        commands = cluster(project)
        commands[f"{EXEC} dshpc-node"] = Answer(json.dumps(report))
        now = look(Host(commands=commands), project, "mixed")
        assert now.cluster is not None
        assert (now.cluster.state, now.exit_code) == (state, 0)


def test_a_controller_that_is_away(project: Project) -> None:
    refused = Answer(code=1, stderr="slurm_load_jobs error: Unable to contact slurm controller")
    now = look(Host(commands=cluster(project, squeue=refused)), project, "mixed")
    assert now.cluster is not None
    assert now.cluster.state == "error"
    assert "Unable to contact slurm controller" in (now.cluster.detail or "")
    assert held(now) == [None] * 3


# Watching


@dataclass
class Driver(Host):
    """One card that answers, hangs, or is gone, as `now_does` says."""

    now_does: str = "answer"
    asked: list[str] = field(default_factory=list)

    def exists(self, path: str) -> bool:
        return path == "/dev/nvidia0"

    def listdir(self, path: str) -> tuple[str, ...]:
        return ("nvidia0",) if path == "/dev" else ()

    def is_device(self, path: str) -> bool:
        return path == "/dev/nvidia0"

    def nvml(self, deadline_s: float) -> Reply:
        self.asked.append("facts")
        return self._reply({"name": "Tesla T4", "minor": 0, "memory_bytes": 15360 << 20})

    def nvml_readings(self, deadline_s: float) -> Reply:
        self.asked.append("readings")
        return self._reply({"utilization": 7})

    def _reply(self, values: Mapping[str, Any]) -> Reply:
        if self.now_does == "hang":
            self.now += 5
            return Reply("timeout", {"devices": []}, detail="no answer within 5 s")
        device = {"index": 0, "uuid": "GPU-1", "pci_bus_id": "00000000:1a:00.0", **values}
        return Reply("present", {"devices": [device]})


def use(now: GpusNow) -> int | None:
    return now.cards()[0].reading.utilization_percent


def test_cards_are_listed_seldom_and_measured_each_time() -> None:
    machine = Driver()
    looks = watch(machine, None, "", 5.0)
    for _ in range(3):
        assert use(next(looks)) == 7
    assert machine.asked == ["facts", "readings", "readings", "readings"]
    machine.now += 31
    next(looks)
    assert machine.asked[4:] == ["facts", "readings"]


def test_a_driver_that_hangs_leaves_the_last_values_and_is_let_be() -> None:
    machine = Driver()
    looks = watch(machine, None, "", 5.0)
    next(looks)
    machine.now_does = "hang"
    machine.asked.clear()
    first, second = next(looks), next(looks)
    assert machine.asked == ["readings"], "not asked again at once"
    for now in (first, second):
        assert (use(now), now.no_answer) == (7, True)
        assert now.age_s is not None
        assert now.age_s >= 5
    machine.now_does = "answer"
    machine.now += 31
    now = next(looks)
    assert (use(now), now.no_answer, now.age_s) == (7, False, None)


def test_a_driver_that_never_answered() -> None:
    looks = watch(Driver(now_does="hang"), None, "", 5.0)
    for _ in range(3):
        now = next(looks)
        assert (now.gpus.state, now.no_answer, now.age_s) == ("timeout", True, None)
        assert now.exit_code == 3


def test_while_watching_the_queue_alone_is_asked_again(project: Project) -> None:
    jobs = [queue(), queue(said(["gpu:h100:1(IDX:1)"], job_id=6))]
    machine = Host(commands=cluster(project, squeue=jobs))
    looks = watch(machine, project, "mixed", 5.0)
    assert held(next(looks)) == [[], [], []]
    assert held(next(looks)) == [[], ["6"], []]
    assert len(machine.lines("slurmd -G")) == 1
    assert len(machine.lines("squeue")) == 2
    machine.commands[INSPECT] = container(project, started="2026-01-02")
    next(looks)
    assert len(machine.lines("slurmd -G")) == 2, "it was started anew: its list may be another"
