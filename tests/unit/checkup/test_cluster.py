"""The cluster asked from the host, from inside its container, and out of a recorded machine's folder."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import checkup, probes
from dshpc_setup.checkup import cluster, disks, inside_answer, kernel
from dshpc_setup.container import observe
from dshpc_setup.engine import containers
from dshpc_setup.engine.inspecting import INSIDE_S, Early, ask_inside
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Engine, HostFacts
from dshpc_setup.machine import CommandResult, Ended
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed import stored
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.observed.model import ContainerSeen, Daemon, Disk, Inside, KernelLog, Observed
from dshpc_setup.project.folder import Project
from dshpc_setup.slurm.paths import Paths
from tests.unit.cluster.conftest import GONE, INSPECT
from tests.unit.engine.fake import Answer, FakeMachine, facts

MACHINES = Path(__file__).parents[2] / "machines"
NODES = "p|gpu:t4:1|gpu:t4:0|idle|none\n"
INSIDE = Inside(
    time=1000.0, wheel_version="1", controller="up", daemons=(Daemon("slurmd", True, 3, 4),)
)
LOG = """slurmctld: slurmctld version 24.11.5 started on cluster p
slurmctld: error: Node p is not responding
dshpc: error: is ours, and told elsewhere
slurmd: fatal: Unable to bind
slurmd: no errors: 0
"""
ROOM = Disk("tmp", "/tmp", 10, 20)
OBSERVE = "docker exec p-slurm dshpc-node observe"
HEALTHY: dict[str, Answer] = {
    OBSERVE: Answer(json.dumps(asdict(INSIDE))),
    "docker exec p-slurm sh -c read -r first": Answer(
        json.dumps({"phase": "ready", "ready": True})
    ),
    "docker exec p-slurm sinfo": Answer(NODES),
    "docker exec p-slurm scontrol show config": Answer("TaskPlugin = task/none\n"),
    "docker exec p-slurm sh -c squeue": Answer("\x1e\x1e"),
    "docker logs": Answer(LOG),
    "/usr/bin/docker image inspect": Answer(code=1, stderr="Error: No such image: p-slurm:none"),
}


@dataclass
class Timed(FakeMachine):
    """Keeps the deadline of every command."""

    deadlines: dict[str, float] = field(default_factory=dict)

    def run(self, argv: Sequence[str], *, deadline_s: float, **more: Any) -> CommandResult:
        if "{ said=" in argv[-1]:
            return self._together(argv, deadline_s)
        self.deadlines[" ".join(argv)] = deadline_s
        return super().run(argv, deadline_s=deadline_s, **more)

    def _together(self, argv: Sequence[str], deadline_s: float) -> CommandResult:
        """As sh does it in the container, up to what fails or hangs."""
        said = ""
        for command in re.findall(r"\{ said=\$\(\{ (.*?); \} 2>&1", argv[-1], re.DOTALL):
            done = self.run([*argv[:3], *shlex.split(command)], deadline_s=deadline_s)
            if done.state != "present":
                return replace(done, argv=tuple(argv), stdout=said + done.stdout)
            said += f"{done.stdout}\x1d{done.code}\x1d{done.stderr}\x1c"
            if done.code:
                break
        return CommandResult(tuple(argv), "present", 0, said, "", 1.0)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.prepare()
    made.write_json(".dshpc/runtime.json", {"container": "p-slurm", "work": "/w", "prefix": "p"})
    (made.folder / "docker-compose.yml").write_text(
        "services:\n  slurm:\n    image: p-slurm:none\n"
    )
    return made


def described(project: Project, status: str = "running", **more: Any) -> Answer:
    labels = {"org.dshpc.project": str(project.folder)}
    state = {"Running": status in ("running", "paused"), "Status": status, "ExitCode": 137,
             "StartedAt": "2026-01-01T00:00:00.5Z", **more.pop("State", {})}  # fmt: skip
    value = {"Id": "1", "Name": "/p-slurm", "Image": "sha256:1", "Created": "2026-01-01T00:00:00Z",
             "State": state, "Config": {"Image": "p-slurm:none", "Labels": labels,
                                        "Env": ["TOKEN=a-secret"]}, **more}  # fmt: skip
    return Answer(json.dumps([value]))


def machine(container: Answer, changes: Mapping[str, Answer] | None = None) -> Timed:
    return Timed(programs={"docker"}, commands={INSPECT: container, **HEALTHY, **(changes or {})})


def look(asked: Timed, project: Project) -> Observed:
    return cluster.look(asked, project, 9.0)


def test_what_the_engine_has_said_already_is_not_asked_again(project: Project) -> None:
    asked = machine(described(project))
    said = asked.run(INSPECT.split(), deadline_s=1.0)
    told = machine(Answer("", code=1, stderr="Error: No such container: p-slurm"))
    observed = cluster.look(told, project, 9.0, Early(said))
    assert INSPECT not in told.deadlines
    assert observed.cluster is not None
    assert observed.cluster.state == "running"


def test_a_running_cluster(project: Project) -> None:
    asked = machine(described(project))
    found = look(asked, project)
    assert found.cluster is not None
    assert found.cluster.ready
    assert found.inside is not None
    assert found.inside_problem is None
    assert found.inside.daemons == INSIDE.daemons
    assert found.inside.asked_at is not None
    assert found.inside.errors == (
        "slurmctld: error: Node p is not responding",
        "slurmd: fatal: Unable to bind",
    )
    assert found.container is not None
    assert found.container.status == "running"
    assert found.container.image_there is False
    assert found.container.log == tuple(LOG.splitlines())
    assert "a-secret" not in json.dumps(stored.to_json(found))


def test_what_the_container_is_being_asked_is_not_asked_again(project: Project) -> None:
    asked = machine(described(project))
    found = cluster.look(asked, project, 9.0, Early(asking=True))
    assert OBSERVE not in asked.deadlines
    assert (found.inside, found.inside_problem) == (None, None)
    answer = ask_inside(asked, "p-slurm")
    at_once = look(asked, project)
    joined = cluster.with_inside(found, Ended("present", (answer,), None, 1.0))
    assert joined.inside == replace(at_once.inside or INSIDE, asked_at=answer.at)
    assert joined == replace(at_once, inside=joined.inside)
    hung = cluster.with_inside(found, Ended("timeout", (), None, 7000.0))
    assert hung.inside_problem == "It did not answer within 7 seconds."
    assert replace(hung, inside_problem=None) == found


@pytest.mark.parametrize("container", [described, None])
def test_what_does_not_run_said_nothing(project: Project, container: Any) -> None:
    """Whatever the engine said to the early question, which was put before this was known."""
    gone = Answer("", code=1, stderr="Error: No such container: p-slurm")
    asked = machine(container(project, "exited") if container else gone)
    found = cluster.look(asked, project, 9.0, Early(asking=True))
    assert found.inside_problem
    said = Ended("present", (ask_inside(asked, "p-slurm"),), None, 1.0)
    assert cluster.with_inside(found, said) == found


def test_no_command_has_more_time_than_there_is(project: Project) -> None:
    asked = machine(described(project))
    look(asked, project)
    inside = asked.deadlines.pop(OBSERVE)
    assert observe.DEADLINE_S < inside <= INSIDE_S
    assert asked.deadlines
    assert max(asked.deadlines.values()) <= cluster.COMMAND_S


@pytest.mark.parametrize("status", ["exited", "dead", "created", "restarting", "paused"])
def test_a_container_that_does_not_run_is_not_asked(project: Project, status: str) -> None:
    asked = machine(described(project, status, State={"OOMKilled": True}, RestartCount=3))
    found = look(asked, project)
    assert found.cluster is not None
    assert found.cluster.state == status
    assert found.inside is None
    assert found.inside_problem == f"The container p-slurm {containers.how(status)}."
    assert found.container is not None
    assert found.container.oom_killed
    assert found.container.restarts == 3
    assert found.container.exit_code == (None if status == "paused" else 137)
    assert found.container.log == tuple(LOG.splitlines())
    assert asked.lines("docker exec") == []
    (logs,) = asked.lines("docker logs")
    assert logs == "docker logs --since 2026-01-01T00:00:00.5Z --tail 100 -- p-slurm"


def test_no_container_at_all(project: Project) -> None:
    found = look(machine(GONE), project)
    assert found.cluster is not None
    assert found.cluster.state == "missing"
    assert found.inside_problem == "There is no container p-slurm."
    assert found.container is not None
    assert (found.container.image, found.container.image_there) == ("p-slurm:none", False)


def test_a_folder_without_a_cluster_is_asked_nothing(tmp_path: Path) -> None:
    asked = Timed()
    assert look(asked, Project(tmp_path)) == Observed()
    assert asked.ran == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(state="absent"), "there is no docker command"),
        (Answer(state="timeout"), "Docker did not answer in time"),
        (Answer("[]", 1, "Cannot connect to the Docker daemon at unix:///x."), "does not answer"),
        (Answer("[]", 1, "permission denied while trying"), "you may not use Docker"),
    ],
)
def test_an_engine_that_cannot_be_asked(project: Project, answer: Answer, words: str) -> None:
    found = look(machine(answer), project)
    assert found.cluster is not None
    assert found.cluster.state == "unknown"
    assert words in (found.cluster.problem or "")
    assert words in (found.inside_problem or "")
    assert (found.container, found.inside) == (None, None)


def test_a_container_of_another_folder_is_left_alone(project: Project) -> None:
    labels = {"org.dshpc.project": "/home/ada/other"}
    config = {"Image": "p-slurm:none", "Labels": labels}
    asked = machine(described(project, Config=config))
    found = look(asked, project)
    assert found.cluster is not None
    assert "belongs to the cluster in /home/ada/other" in (found.cluster.problem or "")
    assert asked.lines("docker exec") == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(code=64, stderr="There is no command 'observe'."), "built by an older version"),
        (Answer(state="timeout"), "did not answer within"),
        (Answer(code=1, stderr="Traceback\nMemoryError"), "failed: MemoryError"),
        (Answer(code=1, stderr="Error response from daemon: No such container: p"), "not running"),
        (Answer("{}"), "cannot be read"),
        (Answer("not json"), "cannot be read"),
        (Answer('{"wheel_version": "1", "zombies": "many"}'), "cannot be read"),
    ],
)
def test_a_container_that_does_not_say(project: Project, answer: Answer, words: str) -> None:
    asked = machine(described(project), {OBSERVE: answer})
    found = look(asked, project)
    assert found.inside is None
    assert words in (found.inside_problem or "")
    assert found.cluster is not None
    assert found.cluster.ready  # the rest was asked all the same


def test_a_controller_that_hangs_is_a_problem_of_its_own(project: Project) -> None:
    changes = {"docker exec p-slurm sinfo": Answer(state="timeout")}
    found = look(machine(described(project), changes), project)
    assert found.cluster is not None
    assert (found.cluster.phase, found.cluster.problem) == (
        "ready",
        "sinfo did not answer within 1 s",
    )
    assert found.inside is not None


def test_an_answer_of_the_second_time_is_kept() -> None:
    seen = Observed(container=ContainerSeen("p-slurm", "running"), inside=INSIDE)
    late = Ended("timeout", (), None, 7000.0)
    assert cluster.with_inside(seen, late) == seen


class Hanging(Timed):
    """Of what is asked apart, that what is named hangs."""

    hangs = ("status", "inside", "cluster")

    def apart(
        self,
        questions: Mapping[str, Any],
        *,
        deadline_s: float,
        meanwhile: Any = None,
        on_item: Any = None,
    ) -> Mapping[str, Ended]:
        good = {name: ask for name, ask in questions.items() if name not in self.hangs}
        lost = {
            name: Ended("timeout", (), None, deadline_s * 1000)
            for name in questions
            if name in self.hangs
        }
        return {**super().apart(good, deadline_s=deadline_s, meanwhile=meanwhile), **lost}


def test_what_hangs_takes_nothing_along(project: Project) -> None:
    asked = Hanging(commands=machine(described(project)).commands)
    found = look(asked, project)
    assert found.cluster is not None
    assert (found.cluster.state, found.cluster.image) == ("running", "p-slurm:none")
    assert "did not answer within 9 seconds" in (found.cluster.problem or "")
    assert "did not answer within 9 seconds" in (found.inside_problem or "")
    assert found.container is not None
    assert found.container.log


def test_a_newer_containers_words_are_passed_over() -> None:
    value = {**asdict(INSIDE), "moon": "full"}
    assert inside_answer.parse_inside(json.dumps(value)) == INSIDE


@given(st.text(max_size=60) | st.just("[" * 100_000))
def test_any_answer_is_read(text: str) -> None:
    assert inside_answer.parse_inside(text) is None


def test_only_the_last_errors_are_kept() -> None:
    log = [f"slurmd: error: {number}" for number in range(30)]
    assert cluster.errors_of(log) == tuple(log[-20:])


# --- What the engine says of a container


def test_rights_devices_and_places_of_a_container(project: Project) -> None:
    host = {
        "Memory": 4 << 30,
        "ShmSize": 8 << 30,
        "Privileged": True,
        "Runtime": "nvidia",
        "Devices": [{"PathOnHost": "/dev/kfd", "PathInContainer": "/dev/kfd"}],
        "DeviceRequests": [
            {"Driver": "nvidia", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]},
            {"Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]},
            {"Driver": "", "Count": 2, "DeviceIDs": []},
        ],
    }
    ports = {
        "6817/tcp": [
            {"HostIp": "0.0.0.0", "HostPort": "6817"},
            {"HostIp": "::", "HostPort": "6817"},
        ],
        "6818/tcp": None,
    }
    mounts = [
        {
            "Type": "volume",
            "Name": "p-state",
            "Source": "/x",
            "Destination": "/var/lib/dshpc/state",
        },
        {"Type": "bind", "Source": "/home/ada/config", "Destination": "/config"},
    ]
    answer = described(project, HostConfig=host, NetworkSettings={"Ports": ports}, Mounts=mounts)
    found = containers.inspect(machine(answer), "p-slurm")
    assert found is not None
    assert (found.memory_limit_mib, found.shm_mib) == (4096, 8192)
    assert (found.privileged, found.runtime, found.devices) == (True, "nvidia", ("/dev/kfd",))
    assert found.gpus == ("nvidia all", "cdi nvidia.com/gpu=0,nvidia.com/gpu=1", "gpu count=2")
    assert found.published == ("0.0.0.0:6817", ":::6817")
    assert found.mounts == {"/var/lib/dshpc/state": "p-state", "/config": "/home/ada/config"}


def test_without_any_of_them(project: Project) -> None:
    host = {"Memory": 0, "ShmSize": 64 << 20, "Devices": None, "DeviceRequests": None,
            "PortBindings": {"80/tcp": [{"HostIp": "", "HostPort": "8080"}]}}  # fmt: skip
    answer = described(project, "exited", HostConfig=host, NetworkSettings={"Ports": {}})
    found = containers.inspect(machine(answer), "p-slurm")
    assert found is not None
    assert (found.memory_limit_mib, found.shm_mib, found.privileged) == (None, 64, False)
    assert (found.devices, found.gpus, found.mounts, found.runtime) == ((), (), {}, None)
    assert found.published == ("0.0.0.0:8080",)


# --- All together


@pytest.fixture
def _no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(*_: object, engine: bool = True, **__: object) -> HostFacts:
        return facts(Engine("present" if engine else "unsupported"))

    monkeypatch.setattr(probes, "gather", gather)
    monkeypatch.setattr(disks, "disks", lambda *_: (ROOM,))
    monkeypatch.setattr(kernel, "read_log", lambda *_: KernelLog("present", ("NVRM: x",)))


@pytest.mark.usefixtures("_no_probes")
def test_the_host_and_its_cluster(project: Project) -> None:
    known = checkup.examine(machine(described(project)), project)
    assert known.facts.engine.state == "present"
    assert known.observed.project == str(project.folder)
    assert known.observed.kernel.lines == ("NVRM: x",)
    assert known.observed.disks == (ROOM,)
    compose = known.observed.file("docker-compose.yml")
    assert compose is not None
    assert compose.owner != "missing"
    assert known.observed.engine_installed is False
    assert known.observed.cluster is not None
    assert known.observed.inside is not None


@pytest.mark.usefixtures("_no_probes")
def test_a_machine_without_a_project(tmp_path: Path) -> None:
    known = checkup.examine(Timed(), None)
    assert (known.observed.cluster, known.observed.project) == (None, None)
    assert known.facts.engine.state == "present"


@pytest.mark.usefixtures("_no_probes")
def test_settings_that_cannot_be_read_stop_nothing(project: Project) -> None:
    (project.folder / "dshpc.yaml").write_text("gpu: [")
    known = checkup.examine(machine(described(project)), project)
    (wrong,) = known.observed.settings_wrong
    assert (wrong.kind, wrong.where) == ("file", "dshpc.yaml:1:7")
    assert known.observed.inside is not None


@pytest.mark.usefixtures("_no_probes")
def test_a_cluster_that_hangs_is_there_all_the_same(project: Project) -> None:
    known = checkup.examine(Hanging(commands=machine(described(project)).commands), project)
    assert known.observed.cluster == ClusterStatus(
        str(project.folder), "p-slurm", "unknown", problem="The cluster could not be asked."
    )


@pytest.mark.parametrize(("engine", "asked_times"), [("podman", 2), ("docker", 1)])
def test_a_podman_that_is_slow_is_asked_once_more(
    project: Project, monkeypatch: pytest.MonkeyPatch, engine: str, asked_times: int
) -> None:
    """And each of its commands may take longer; Docker, whose daemon runs, gets no more than before."""
    runtime = {"container": "p-slurm", "work": "/w", "prefix": "p", "engine": engine}
    project.write_json(".dshpc/runtime.json", runtime)
    given: list[float] = []

    def gather(_: object, *, deadline_s: float, **__: object) -> object:
        given.append(deadline_s)
        return facts(Engine("timeout" if len(given) == 1 else "present"))

    monkeypatch.setattr(probes, "gather", gather)
    monkeypatch.setattr(disks, "disks", lambda *_: (ROOM,))
    monkeypatch.setattr(kernel, "read_log", lambda *_: KernelLog("present"))
    asked = machine(described(project))
    known = checkup.examine(asked, project)
    assert len(given) == asked_times
    inside = asked.deadlines.pop(OBSERVE)
    if engine == "podman":
        assert known.facts.engine.state == "present"
        assert given[1] > 2 * given[0]
        assert cluster.COMMAND_S < max(asked.deadlines.values()) <= 3 * cluster.COMMAND_S
        assert inside > INSIDE_S
    else:
        assert known.facts.engine.state == "timeout"
        assert max(asked.deadlines.values()) <= cluster.COMMAND_S
        assert inside <= INSIDE_S


def _container_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timed:
    """The inside of a container whose start report lies under `tmp_path`."""
    run = tmp_path / "run/dshpc"
    run.mkdir(parents=True)
    report = {"phase": "ready", "ready": True, "image_gpu_type": "nvidia", "container_began": ""}
    (run / "status.json").write_text(json.dumps(report))
    monkeypatch.setattr(cluster, "Paths", lambda: Paths(str(tmp_path)))
    monkeypatch.setattr(observe, "observe", lambda *_: INSIDE)
    inside = {
        name.removeprefix("docker exec p-slurm "): answer
        for name, answer in HEALTHY.items()
        if name.startswith("docker exec")
    }
    return Timed(
        files={"/.dockerenv": "", str(run): ""}, commands=dict(inside), env={"DSHPC_PREFIX": "p"}
    )


@pytest.mark.usefixtures("_no_probes")
def test_inside_the_container_nothing_is_asked_of_docker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _container_machine(tmp_path, monkeypatch)
    known = checkup.examine(asked, None)
    assert known.facts.engine.state == "unsupported"
    assert known.observed.inside is not None
    assert known.observed.inside.asked_at == INSIDE.time
    found = known.observed.cluster
    assert found is not None
    assert found.ready
    assert (found.container, found.image_gpu_type, found.isolation) == (
        "p-slurm", "nvidia", "default",
    )  # fmt: skip
    assert asked.lines("docker") == []


def test_a_broken_start_from_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _container_machine(tmp_path, monkeypatch)
    failure = {"brief": "There is no network.", "details": "", "resolution": []}
    status = {"phase": "failed", "ready": False, "failure": failure, "container_began": ""}
    (tmp_path / "run/dshpc/status.json").write_text(json.dumps(status))
    found = cluster.inside_here(asked).cluster
    assert found is not None
    assert (found.phase, found.failure) == ("failed", failure)
    assert asked.ran == []


def test_a_controller_that_is_down_from_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _container_machine(tmp_path, monkeypatch)
    down = Inside(time=1.0, controller="down", controller_says="Slurmctld is DOWN")
    monkeypatch.setattr(observe, "observe", lambda *_: down)
    found = cluster.inside_here(asked).cluster
    assert found is not None
    assert found.problem == "Slurmctld is DOWN"
    assert asked.ran == []


@pytest.mark.parametrize(
    ("files", "inside"),
    [
        ({"/run/dshpc": "", "/.dockerenv": ""}, True),
        ({"/.dockerenv": ""}, False),  # another container, as a development machine may be
        ({"/run/dshpc": ""}, False),
    ],
)
def test_whether_this_is_the_clusters_container(files: dict[str, str], inside: bool) -> None:
    assert cluster.is_inside(FakeMachine(files=files)) is inside


# --- A recorded machine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = MACHINES / "workstation-rtx4090"
    ignored = shutil.ignore_patterns("expected", "observed")
    return Path(shutil.copytree(source, tmp_path / "machine", ignore=ignored))


def test_what_was_observed_lies_in_the_folder(folder: Path) -> None:
    assert checkup.examine_recorded(RecordedMachine(folder)).observed == Observed()
    text = (MACHINES / "workstation-rtx4090/observed/healthy.json").read_text()
    value = {"schema": "dshpc.observed/1", **json.loads(text)}
    (folder / "observed.json").write_text(json.dumps(value))
    found = checkup.examine_recorded(RecordedMachine(folder)).observed
    assert found.cluster is not None
    assert found.cluster.container == "cluster-slurm"


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"schema": "other"}'])
def test_what_cannot_be_read_is_said(folder: Path, content: bytes) -> None:
    (folder / "observed.json").write_bytes(content)
    with pytest.raises(DshpcError, match=r"observed\.json cannot be read"):
        checkup.examine_recorded(RecordedMachine(folder))
