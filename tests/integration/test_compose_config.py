"""Our compose file as the real compose tools take it: version 1, 2.26 and one from 2.30 on.

`config -q` says whether a text is taken, `config` what is made of it, and a container that is created
(not started) what the engine is asked for. No GPU is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from dshpc_setup import probes
from dshpc_setup.engine.compose import check, run_compose
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Compose, HostFacts
from dshpc_setup.image.base import BaseImage
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.model import Passthrough
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.project.folder import OWN
from dshpc_setup.render import stanza
from dshpc_setup.render.gpu_stanza import compose_version
from dshpc_setup.settings import load
from tests.integration.bench.compose import ComposeTool
from tests.integration.conftest import docker

pytestmark = pytest.mark.engines("docker", why="about the files of Docker's compose")

pytest_plugins = ("tests.integration.bench.fixtures",)

MACHINES = Path(__file__).parents[1] / "machines"
LABEL = f"dshpc-test-compose-{os.getpid()}"
NVIDIA = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}


# -- the compose tools ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tool:
    """A compose tool as it is found on some machine, with the variables that choose it."""

    compose: Compose
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def version(self) -> tuple[int, int]:
        found = compose_version(self.compose.version)
        assert found is not None, self.compose.version
        return found

    def said(self, *arguments: str, cwd: Path, text: str) -> str:
        """What it prints for this text in this folder; it has to succeed."""
        done = subprocess.run(
            [*self.compose.argv, *arguments], capture_output=True, input=text, text=True,
            timeout=180, check=False, cwd=cwd, env={**os.environ, **self.environment},
        )  # fmt: skip
        assert done.returncode == 0, f"{self.compose.version} {arguments}: {done.stderr}\n{text}"
        return done.stdout


@pytest.fixture(scope="module", params=["v1", "v2", "newest"])
def tool(
    request: pytest.FixtureRequest,
    compose_tools: dict[str, ComposeTool],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Tool]:
    """Each compose tool in turn, and the environment of this process so that it is the one found."""
    there = compose_tools[request.param]
    assert {"v1": (1, 29), "v2": (2, 26)}.get(request.param, there.release) == there.release
    assert request.param != "newest" or there.release >= (2, 30)
    argv = there.argv if request.param == "v1" else ("docker", "compose")
    client = there.client(tmp_path_factory.mktemp("client") / "config")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in client.items():
            patch.setenv(name, value)
        yield Tool(Compose(there.version, argv), client)


# -- the machines, and how GPUs are handed over there ----------------------------------------------


@dataclass(frozen=True)
class Case:
    """A way to hand over GPUs, and what compose has to make of it."""

    handover: Handover
    nodes: tuple[str, ...] = ()  # on the host
    request: dict[str, Any] | None = None  # driver, and ids where not all
    runtime: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


def cases(plan: ClusterPlan) -> dict[str, Case]:
    """Every mechanism that GPUs of these vendors can have, for all of them and for a selection."""
    vendors = {line.vendor for line in plan.gres}
    nodes = tuple(dict.fromkeys(file for line in plan.gres for file in line.files))
    found = {"none": Case(Handover("none"))}
    if plan.gres:
        made_up = tuple(f"/dev/null:{node}" for node in nodes)
        found["simulated"] = Case(Handover("simulated", devices=made_up), ("/dev/null",))
    if "nvidia" in vendors:
        found |= nvidia_cases(plan)
    if vendors & {"amd", "intel"}:
        vendor = "amd" if "amd" in vendors else "intel"
        own = ("/dev/kfd", *nodes) if vendor == "amd" else nodes
        pairs = tuple(f"{node}:{node}" for node in own)
        raw = Handover("devices", devices=pairs, group_add=(44, 993))
        found[f"{vendor} nodes"] = Case(raw, own)
        names = (f"{vendor}.com/gpu=0", f"{vendor}.com/gpu=1")
        found[f"{vendor} cdi"] = Case(
            Handover("cdi", ids=names), request={"driver": "cdi", "ids": list(names)}
        )
    if {"nvidia", "amd"} <= vendors:
        both = Handover("device-request", devices=("/dev/kfd:/dev/kfd",), group_add=(993,))
        found["request and nodes"] = Case(both, ("/dev/kfd",), {"driver": "nvidia"}, None, NVIDIA)
    return found


def nvidia_cases(plan: ClusterPlan) -> dict[str, Case]:
    lines = [line for line in plan.gres if line.vendor == "nvidia"]
    ids = tuple(dict.fromkeys(line.uuid or str(line.index) for line in lines))
    names = tuple(f"nvidia.com/gpu={item}" for item in ids)
    found = {}
    for label, chosen in (
        ("all", ("nvidia.com/gpu=all",)),
        ("some", names),
        ("by place", ("nvidia.com/gpu=0:1",)),  # how the toolkit calls the parts of a card
    ):
        wanted = {"driver": "cdi", "ids": list(chosen)}
        found[f"cdi {label}"] = Case(Handover("cdi", ids=chosen), (), wanted, None, NVIDIA)
    everything = {"driver": "nvidia"}
    found["request all"] = Case(Handover("device-request"), (), everything, None, NVIDIA)
    some = {"driver": "nvidia", "ids": list(ids)}
    found["request some"] = Case(Handover("device-request", ids=ids), (), some, None, NVIDIA)
    for label, visible in (("all", "all"), ("some", ",".join(ids))):
        variables = {"NVIDIA_VISIBLE_DEVICES": visible}
        found[f"runtime {label}"] = Case(
            Handover("runtime", environment=variables), (), None, "nvidia", {**variables, **NVIDIA}
        )
    dxg = Handover(
        "devices", devices=("/dev/dxg:/dev/dxg",), volumes=("/usr/lib/wsl:/usr/lib/wsl:ro",)
    )
    found["wsl"] = Case(dxg, ("/dev/dxg",))
    return found


@lru_cache(maxsize=1)
def machines() -> dict[str, tuple[HostFacts, ClusterPlan]]:
    """One machine of each sort: GPUs, system, engine, SELinux, parts of a card."""
    found: dict[tuple[Any, ...], str] = {}
    looked: dict[str, tuple[HostFacts, ClusterPlan]] = {}
    for path in sorted(MACHINES.glob("*/machine.yaml")):
        name = path.parent.name
        with_engine = (path.parent / "docker.json").exists()
        facts = probes.gather(RecordedMachine(path.parent), engine=with_engine)
        plan = plan_cluster(facts, load())
        looked[name] = (facts, plan)
        sort = (
            frozenset(line.vendor for line in plan.gres),
            any(len(line.files) > 1 for line in plan.gres),
            min(len(plan.gres), 2),
            facts.platform.kind,
            facts.platform.in_container,
            facts.platform.selinux == "enforcing",
            facts.engine.kind,
            facts.engine.rootless,
        )
        found.setdefault(sort, name)
    return {name: looked[name] for name in found.values()}


def written(
    facts: HostFacts, plan: ClusterPlan, handover: Handover, tool: Tool, **flags: str
) -> str:
    """The file that this machine would get, had it this compose tool."""
    facts = replace(facts, engine=replace(facts.engine, compose=tool.compose))
    passthrough = Passthrough(handover, "for the test")
    settings = load(flags={"prefix": "shown", **flags})
    return stanza.compose_text(
        Path("/srv/häuser $x"), settings, facts, plan, passthrough, "dshpc:nvidia", None
    )


def several_nodes(tool: Tool) -> str:
    """The file of a controller and two workers, one of which has made-up GPUs."""
    facts, _ = machines()[next(iter(machines()))]
    facts = replace(facts, engine=replace(facts.engine, compose=tool.compose))
    whole = load(flags={"prefix": "shown", "nodes": "none,h100:2,none"})
    none = Passthrough(Handover("none"), "for the test")
    made_up = Passthrough(Handover("simulated", devices=("/dev/null:/dev/nvidia0",)), "made up")
    workers = [
        stanza.Worker(own := whole.of_worker(number), plan_cluster(facts, own), way)
        for number, way in ((2, made_up), (3, none))
    ]
    plan = plan_cluster(facts, replace(whole, gpu="none"))
    return stanza.compose_text(
        Path("/srv/häuser $x"), whole, facts, plan, none, "dshpc:nvidia", None, workers
    )


# -- every file is taken ----------------------------------------------------------------------------


def test_every_file_is_taken(tool: Tool, local_machine: LocalMachine, tmp_path: Path) -> None:
    assert len(machines()) > 30
    texts: dict[str, str] = {}
    for name, (facts, plan) in machines().items():
        for label, case in cases(plan).items():
            for profiling in ("no", "yes") if label == "amd nodes" else ("no",):
                text = written(facts, plan, case.handover, tool, amd_profiling=profiling)
                texts[f"{name}: {label}, profiling {profiling}"] = text
    assert len(texts) > 120
    texts["several nodes: each a service"] = several_nodes(tool)
    if tool.compose.major == 1:  # it is slow: one machine for each mechanism
        texts = {key.split(": ")[1]: text for key, text in reversed(texts.items())}
        assert len(texts) > 14
    with ThreadPoolExecutor(4) as pool:
        words = pool.map(
            lambda text: check(
                local_machine, tool.compose, text, folder=str(tmp_path), deadline_s=180
            ),
            texts.values(),
        )
    refused = {key: said for key, said in zip(texts, words, strict=True) if said is not None}
    assert refused == {}


SHOWN = ("rtx4090-beside-rx7900xtx", "h100-mig", "max1550")


def made(tool: Tool, text: str, folder: Path) -> dict[str, Any]:
    """The service as compose understands it."""
    found = yaml.safe_load(tool.said("-p", "lab", "-f", "-", "config", cwd=folder, text=text))
    service = found["services"]["slurm"]
    assert isinstance(service, dict)
    return service


def asked_of_the_engine(service: dict[str, Any], tool: Tool) -> tuple[list[Any], list[str]]:
    """Device requests (driver, ids; all: None), and nodes of the host, as this version reads them."""
    deploy = service.get("deploy", {}).get("resources", {}).get("reservations", {})
    requests = list(deploy.get("devices", ()))
    if tool.version >= (2, 30):
        requests += service.get("gpus", ())
    nodes = []
    for device in service.get("devices", ()):
        source = device["source"] if isinstance(device, dict) else device.split(":")[0]
        target = device["target"] if isinstance(device, dict) else device.split(":")[1]
        if tool.version >= (2, 30) and source == target and ".com/gpu=" in source:
            requests.append({"driver": "cdi", "device_ids": [source]})
        else:
            nodes.append(source)
    found: dict[str, Any] = {}
    for request in requests:
        every = request.get("count") in (-1, "all")
        assert every != bool(request.get("device_ids"))
        found.setdefault(request["driver"], [] if not every else None)
        if not every:
            found[request["driver"]] += request["device_ids"]
    return list(found.items()), nodes


def test_what_compose_makes_of_it(tool: Tool, tmp_path: Path) -> None:
    seen = set()
    for name in SHOWN:
        facts, plan = machines()[name]
        for label, case in cases(plan).items():
            if label in seen:
                continue
            seen.add(label)
            service = made(tool, written(facts, plan, case.handover, tool), tmp_path)
            requests, nodes = asked_of_the_engine(service, tool)
            wanted = [] if case.request is None else [
                (case.request["driver"], case.request.get("ids"))
            ]  # fmt: skip
            assert requests == wanted, label
            assert list(dict.fromkeys(nodes)) == list(case.nodes), label
            assert service.get("runtime") == case.runtime, label
            assert service.get("group_add", []) == [str(g) for g in case.handover.group_add], label
            variables = {k: v for k, v in service["environment"].items() if "NVIDIA" in k}
            assert variables == case.environment, label
            assert service["ulimits"]["memlock"] == -1
            assert "privileged" not in service
            assert service["security_opt"] == ["no-new-privileges:true"]
    assert len(seen) >= 14


def test_the_odd_path_and_profiling_arrive(tool: Tool, tmp_path: Path) -> None:
    facts, plan = machines()[SHOWN[0]]
    handover = Handover("devices", devices=("/dev/kfd:/dev/kfd",))
    text = written(facts, plan, handover, tool, amd_profiling="yes")
    service = made(tool, text, tmp_path)
    assert service["security_opt"] == ["no-new-privileges:true", "seccomp=unconfined"]
    assert service["cap_add"][-1] == "SYS_PTRACE"
    assert service["cap_drop"] == ["ALL"]
    volumes = [
        item["source"] if isinstance(item, dict) else item.split(":")[0]
        for item in service["volumes"]
    ]
    assert volumes[0].replace("$$", "$") == "/srv/häuser $x/config"


# -- what the engine is asked for -------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, tool: Tool, local_machine: LocalMachine) -> Iterator[Path]:
    """A project folder; what compose made of it is gone afterwards."""
    yield tmp_path
    subprocess.run(
        ["docker", "rm", "--force", f"{LABEL}-slurm"], capture_output=True, timeout=60, check=False
    )
    if (tmp_path / "docker-compose.yml").exists():
        run_compose(
            local_machine, tool.compose, str(tmp_path), ["down", "--volumes"],
            project=LABEL, deadline_s=180,
        )  # fmt: skip


def created(tool: Tool, machine: LocalMachine, folder: Path, text: str) -> dict[str, Any]:
    """The HostConfig of the container that compose creates for this text."""
    (folder / "docker-compose.yml").write_text(text)
    arguments = ["up", "--no-start", "--no-build"]
    run_compose(machine, tool.compose, str(folder), arguments, project=LABEL, deadline_s=180)
    (found,) = json.loads(docker("inspect", f"{LABEL}-slurm"))
    host = found["HostConfig"]
    assert isinstance(host, dict)
    return host


def file_for(tool: Tool, folder: Path, image: str, handover: Handover, **flags: str) -> str:
    facts, plan = machines()[SHOWN[0]]
    facts = replace(facts, engine=replace(facts.engine, compose=tool.compose))
    settings = load(flags={"prefix": LABEL, **flags})
    passthrough = Passthrough(handover, "for the test")
    return stanza.compose_text(folder, settings, facts, plan, passthrough, image, None)


@pytest.mark.parametrize(
    ("handover", "driver", "ids"),
    [
        (Handover("cdi", ids=("nvidia.com/gpu=all",)), "cdi", ["nvidia.com/gpu=all"]),
        (Handover("cdi", ids=("nvidia.com/gpu=0:1",)), "cdi", ["nvidia.com/gpu=0:1"]),
        (Handover("device-request"), "nvidia", []),
        (Handover("device-request", ids=("0", "GPU-1")), "nvidia", ["0", "GPU-1"]),
    ],
    ids=["cdi", "cdi by place", "all", "selected"],
)
def test_the_engine_is_asked_for_the_gpus(
    tool: Tool,
    local_machine: LocalMachine,
    base_image: BaseImage,
    folder: Path,
    handover: Handover,
    driver: str,
    ids: list[str],
) -> None:
    text = file_for(tool, folder, base_image.ref, handover)
    host = created(tool, local_machine, folder, text)
    (request,) = host["DeviceRequests"]
    assert (request["Driver"], request["DeviceIDs"] or []) == (driver, ids)
    assert request["Count"] == (0 if ids else -1)
    if driver != "cdi":
        assert request["Capabilities"] == [["gpu"]]
    assert not host["Devices"]
    assert host["Privileged"] is False


def test_the_engine_is_asked_for_nodes_groups_and_limits(
    tool: Tool, local_machine: LocalMachine, base_image: BaseImage, folder: Path
) -> None:
    handover = Handover(
        "devices",
        devices=("/dev/kfd:/dev/kfd", "/dev/null:/dev/dri/renderD128"),
        group_add=(44, 993),
    )
    text = file_for(tool, folder, base_image.ref, handover, amd_profiling="yes", shm_size="2g")
    host = created(tool, local_machine, folder, text)
    pairs = [(item["PathOnHost"], item["PathInContainer"]) for item in host["Devices"]]
    assert pairs == [("/dev/kfd", "/dev/kfd"), ("/dev/null", "/dev/dri/renderD128")]
    assert host["GroupAdd"] == ["44", "993"]
    assert not host["DeviceRequests"]
    assert host["SecurityOpt"] == ["no-new-privileges:true", "seccomp=unconfined"]
    assert host["CapAdd"][-1].removeprefix("CAP_") == "SYS_PTRACE"
    assert host["ShmSize"] == 2 * 1024**3
    limits = {item["Name"]: (item["Soft"], item["Hard"]) for item in host["Ulimits"]}
    stack = 64 * 1024**2
    hard = stack if tool.compose.major == 1 else -1
    assert limits == {"memlock": (-1, -1), "stack": (stack, hard)}


@pytest.mark.parametrize(
    ("driver", "log_size", "config"),
    [
        ("json-file", None, {"max-size": "10240k", "max-file": "5"}),
        ("local", "1g", {"max-size": "209715k", "max-file": "5"}),
    ],
)
def test_the_engine_is_told_how_large_the_log_may_grow(
    tool: Tool,
    local_machine: LocalMachine,
    base_image: BaseImage,
    folder: Path,
    driver: str,
    log_size: str | None,
    config: dict[str, str],
) -> None:
    facts, plan = machines()[SHOWN[0]]
    engine = replace(facts.engine, compose=tool.compose, log_driver=driver)
    settings = load(flags={"prefix": LABEL, "log_size": log_size})
    none = Passthrough(Handover("none"), "No GPU was found.")
    text = stanza.compose_text(
        folder, settings, replace(facts, engine=engine), plan, none, base_image.ref, None
    )
    host = created(tool, local_machine, folder, text)
    assert host["LogConfig"] == {"Type": driver, "Config": config}


@pytest.mark.parametrize("name", ["lab", "a=b"])
def test_the_engine_is_given_our_profile_and_the_limit_of_processes(
    tool: Tool, local_machine: LocalMachine, base_image: BaseImage, folder: Path, name: str
) -> None:
    """Compose reads the profile and sends its text; version 1 reads it with the file, also for `config`."""
    project = folder / name
    (project / OWN).mkdir(parents=True)
    facts, plan = machines()[SHOWN[0]]
    engine = replace(facts.engine, compose=tool.compose, security_options=("name=seccomp",))
    settings = load(flags={"prefix": LABEL, "isolation": "enforced", "pids_limit": "4321"})
    none = Passthrough(Handover("none"), "No GPU was found.")
    file = stanza.compose_file(
        project, settings, replace(facts, engine=engine), plan, none, base_image.ref, None
    )
    (project / stanza.profile_file(file.rights.seccomp)).write_text(file.rights.seccomp)
    text = stanza.text_of(file)
    assert check(local_machine, tool.compose, text, folder=str(project)) is None
    (project / "docker-compose.yml").write_text(text)
    try:
        arguments = ["up", "--no-start", "--no-build"]
        run_compose(
            local_machine, tool.compose, str(project), arguments, project=LABEL, deadline_s=180
        )
        host = json.loads(docker("inspect", f"{LABEL}-slurm"))[0]["HostConfig"]
        assert host["PidsLimit"] == 4321
        (sent,) = [each for each in host["SecurityOpt"] if each.startswith("seccomp=")]
        assert json.loads(sent.removeprefix("seccomp=")) == json.loads(file.rights.seccomp)
    finally:
        docker("rm", "--force", f"{LABEL}-slurm")
        down = ["down", "--volumes"]
        run_compose(local_machine, tool.compose, str(project), down, project=LABEL, deadline_s=180)


def test_a_key_that_is_taken_may_yet_be_dropped(
    tool: Tool, local_machine: LocalMachine, base_image: BaseImage, folder: Path
) -> None:
    """Why the version decides and not `config -q`: before 2.30 `gpus` is refused or does nothing."""
    newest = Tool(Compose("2.30.0", tool.compose.argv))
    text = file_for(newest, folder, base_image.ref, Handover("device-request"))
    text = text.replace("hard: -1", "hard: 67108864")  # which version 1 would refuse first
    assert "\n    gpus:\n" in text
    refusal = check(local_machine, tool.compose, text, folder=str(folder))
    if tool.version >= (2, 30):
        assert refusal is None
        assert created(tool, local_machine, folder, text)["DeviceRequests"]
    elif refusal is None:
        assert not created(tool, local_machine, folder, text)["DeviceRequests"]
    else:
        assert "gpus" in refusal


def test_this_engine_grants_the_limits_that_it_is_asked_for(
    local_machine: LocalMachine, base_image: BaseImage
) -> None:
    limits = stanza.ulimits(probes.gather(local_machine))
    flags = [f"--ulimit={name}={soft}:{hard}" for name, (soft, hard) in limits.items()]
    ran = docker("run", "--rm", *flags, base_image.ref, "sh", "-c", "ulimit -l; ulimit -s")
    locked, stack = ran.split()
    if limits:
        assert (locked, stack) == ("unlimited", str(64 * 1024))


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("services:\n  slurm:\n    image: x\n    gpuz: all\n", "gpuz"),
        ("services:\n  slurm:\n    image: x: y\n", "mapping values are not allowed"),
        ("services:\n  slurm:\n    image: x\n    ulimits: lots\n", "ulimits"),
        ("services:\n  slurm:\n    image: '${NOT_SET:?is missing}'\n", "is missing"),
    ],
    ids=["key", "yaml", "value", "variable"],
)
def test_a_refusal_comes_in_the_tools_words(
    tool: Tool, local_machine: LocalMachine, tmp_path: Path, text: str, words: str
) -> None:
    said = check(local_machine, tool.compose, text, folder=str(tmp_path))
    assert said is not None
    assert words in said
    assert "Traceback" not in said


def test_the_folders_env_file_counts_and_the_shell_does_not(
    tool: Tool, local_machine: LocalMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "services:\n  slurm:\n    image: 'x:${TAG:?is missing}'\n"
    assert check(local_machine, tool.compose, text, folder=str(tmp_path)) is not None
    (tmp_path / ".env").write_text("TAG=1\n")
    monkeypatch.setenv("COMPOSE_FILE", "/nowhere/else.yml")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")  # no engine is needed
    assert check(local_machine, tool.compose, text, folder=str(tmp_path)) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == [".env"]


def test_a_deadline_is_no_refusal(tool: Tool, local_machine: LocalMachine, tmp_path: Path) -> None:
    text = "services:\n  slurm:\n    image: x\n"
    with pytest.raises(DshpcError) as caught:
        check(local_machine, tool.compose, text, folder=str(tmp_path), deadline_s=0.001)
    assert caught.value.exit_code == Exit.INCOMPLETE
