from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dshpc_setup import passthrough
from dshpc_setup.facts import (
    Cpu,
    Engine,
    GpuDevice,
    Gpus,
    HostFacts,
    Memory,
    MigInstance,
    Platform,
)
from dshpc_setup.machine import CommandResult
from dshpc_setup.passthrough import (
    Passthrough,
    candidates,
    docker_flags,
    explain,
    judge,
    needed_files,
)
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.settings import load


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"


def card(index: int) -> GpuDevice:
    return GpuDevice(
        index, "nvidia", "NVIDIA H100", uuid(index), slurm_type="h100",
        device_files=(f"/dev/nvidia{index}",), mig_mode="disabled",
    )  # fmt: skip


FACTS = HostFacts(
    Platform("linux"),
    Cpu(8, usable=8),
    Memory(16000, 16000),
    Gpus("present", (card(0), card(1)), driver_version="550.54"),
    Engine("present", "28.0", "1.48", "engine", engine_id="id", host="unix:///s"),
)
PLAN = plan_cluster(FACTS, load())


class Docker:
    """A machine on which only `docker run` and `docker rm` are known, by a list of endings."""

    def __init__(self, *endings: CommandResult | BaseException) -> None:
        self.endings = list(endings)
        self.calls: list[tuple[str, ...]] = []

    def run(self, argv: list[str], *, deadline_s: float, **_: Any) -> CommandResult:
        assert deadline_s > 0
        self.calls.append(tuple(argv))
        ending = self.endings.pop(0)
        if isinstance(ending, BaseException):
            raise ending
        return ending

    def group_of(self, path: str) -> int | None:
        return {"/dev/kfd": 993, "/dev/dri/renderD128": 993, "/dev/dri/renderD129": 0}.get(path)


def ended(
    code: int | None, stdout: str = "", stderr: str = "", state: Any = "present"
) -> CommandResult:
    return CommandResult((), state, code, stdout, stderr, 1.0)


NOTHING_LEFT = ended(1, "", "Error: No such container: dshpc-passthrough-0a")


def seen(*indexes: int) -> str:
    nodes = "".join(f"open /dev/nvidia{index}\n" for index in indexes)
    listing = "".join(f"GPU {index}: NVIDIA H100 (UUID: {uuid(index)})\n" for index in indexes)
    return f"{nodes}tool nvidia-smi\n{listing}"


def prove(machine: Docker, facts: HostFacts = FACTS, whole: bool = True) -> Passthrough:
    return passthrough.prove(machine, facts, PLAN, "base", whole)  # type: ignore[arg-type]


def test_the_first_mechanism_that_shows_all_gpus_is_taken() -> None:
    machine = Docker(ended(0, seen(0, 1)))
    proof = prove(machine)
    assert (proof.mechanism, proof.works, proof.failures) == ("device-request", True, ())
    (call,) = machine.calls
    assert call[:3] == ("docker", "run", "--rm")
    assert call[call.index("--gpus") + 1] == "all"


def test_cdi_is_tried_first_and_a_failure_is_kept_in_words() -> None:
    engine = replace(FACTS.engine, cdi_devices=("nvidia.com/gpu=all",), runtimes=("nvidia", "runc"))
    facts = replace(FACTS, engine=engine)
    machine = Docker(
        ended(125, "", "docker: Error response from daemon: CDI device injection failed: "
              "unresolvable CDI devices nvidia.com/gpu=all"),
        NOTHING_LEFT,
        ended(125, "", 'docker: Error response from daemon: could not select device driver "" '
              "with capabilities: [[gpu]]."),
        NOTHING_LEFT,
        ended(0, seen(0, 1)),
    )  # fmt: skip
    proof = prove(machine, facts)
    assert proof.mechanism == "runtime"
    assert [failure.split(":")[0] for failure in proof.failures] == ["cdi", "device-request"]
    assert "nvidia-ctk cdi generate" in proof.failures[0]
    assert "Container Toolkit is not installed" in proof.failures[1]


@pytest.mark.parametrize(
    ("result", "word"),
    [
        (ended(0, ""), "0 of 2"),
        (ended(0, seen(0)), "1 of 2"),
        (ended(0, "open /dev/nvidia0\ndenied /dev/nvidia1\n"), "may not open /dev/nvidia1"),
        (ended(0, "open /dev/nvidia0\nopen /dev/nvidia1\ntool nvidia-smi\nNo devices were found\n"),
         "No devices were found"),
        (ended(0, "open /dev/nvidia0\nopen /dev/nvidia1\n" + seen(0).split("\n", 1)[1]), uuid(1)),
        (ended(None, "", "", "timeout"), "did not end within"),
        (ended(125, "", "something new"), "something new"),
        (ended(1), "without a word"),
    ],
)  # fmt: skip
def test_what_is_no_proof(result: CommandResult, word: str) -> None:
    wrong = judge(result, PLAN, needed_files(PLAN, "linux"))
    assert wrong is not None
    assert word in wrong


def test_a_hanging_container_is_removed_by_its_name() -> None:
    machine = Docker(ended(None, "", "", "timeout"), ended(0))
    proof = prove(machine)
    assert not proof.works
    started, removed = machine.calls
    assert removed == ("docker", "rm", "--force", started[started.index("--name") + 1])
    assert "still there" not in proof.reason


def test_an_interrupted_container_is_removed_by_its_name() -> None:
    machine = Docker(KeyboardInterrupt(), ended(0))
    with pytest.raises(KeyboardInterrupt):
        prove(machine)
    started, removed = machine.calls
    assert removed == ("docker", "rm", "--force", started[started.index("--name") + 1])


def test_a_container_that_stays_is_named() -> None:
    machine = Docker(ended(None, "", "", "timeout"), ended(None, "", "", "timeout"))
    proof = prove(machine)
    name = machine.calls[0][machine.calls[0].index("--name") + 1]
    assert f"docker rm -f {name}" in proof.reason


CAPABILITIES = {
    name: (
        "/dev/nvidia0",
        f"/dev/nvidia-caps/nvidia-cap{number}",
        f"/dev/nvidia-caps/nvidia-cap{number + 1}",
    )
    for name, number in (("MIG-a", 12), ("MIG-b", 21))
}


def test_a_mig_instance_is_proven_by_its_capability_nodes_and_its_uuid() -> None:
    instances = tuple(
        MigInstance("1g.10gb", name, 9728, files) for name, files in CAPABILITIES.items()
    )
    cut = replace(card(0), mig_mode="enabled", mig=instances)
    facts = replace(FACTS, gpus=Gpus("present", (cut,)))
    plan = plan_cluster(facts, load(flags={"devices": "MIG-b"}))
    needed = needed_files(plan, "linux")
    assert needed == CAPABILITIES["MIG-b"]
    listing = f"tool nvidia-smi\nGPU 0: NVIDIA H100 (UUID: {uuid(0)})\n"
    other = "  MIG 1g.10gb     Device  0: (UUID: MIG-a)\n"
    own = "  MIG 1g.10gb     Device  0: (UUID: MIG-b)\n"
    nodes = "".join(f"open {file}\n" for file in needed)
    assert judge(ended(0, nodes + listing + own), plan, needed) is None
    assert judge(ended(0, nodes + listing + other), plan, needed) == (
        "the container does not see MIG-b"
    )
    card_alone = judge(ended(0, "open /dev/nvidia0\n"), plan, needed)
    assert card_alone is not None
    assert "1 of 3" in card_alone
    denied = judge(
        ended(0, nodes.replace(f"open {needed[2]}", f"denied {needed[2]}")), plan, needed
    )
    assert denied == f"the container may not open {needed[2]}"
    machine = Docker(ended(0, nodes + listing + own))
    assert passthrough.prove(machine, facts, plan, "base", False).works  # type: ignore[arg-type]
    assert machine.calls[0][-3:] == needed  # what the container is asked for


def test_wsl_needs_its_one_node_and_amd_the_common_one_too() -> None:
    assert needed_files(PLAN, "wsl2") == ("/dev/dxg",)
    assert judge(ended(0, "open /dev/dxg\n"), PLAN, ("/dev/dxg",)) is None
    assert judge(ended(0, ""), PLAN, ("/dev/dxg",)) is not None
    amd = GpuDevice(0, "amd", slurm_type="mi300x", device_files=("/dev/dri/renderD128",))
    plan = plan_cluster(replace(FACTS, gpus=Gpus("present", (amd,))), load())
    needed = needed_files(plan, "linux")
    assert needed == ("/dev/kfd", "/dev/dri/renderD128")
    assert judge(ended(0, "open /dev/dri/renderD128\n"), plan, needed) is not None


def test_selected_gpus_go_by_uuid() -> None:
    plan = plan_cluster(FACTS, load(flags={"devices": "1"}))
    (candidate,) = candidates(Docker(), FACTS, plan, whole=False)  # type: ignore[arg-type]
    assert candidate.ids == (uuid(1),)
    assert docker_flags(candidate) == ["--gpus", f'"device={uuid(1)}"']


def test_amd_by_device_nodes_and_numeric_groups() -> None:
    cards = tuple(
        GpuDevice(index, "amd", "AMD Instinct MI300X", slurm_type="mi300x",
                  device_files=(f"/dev/dri/renderD{128 + index}",))
        for index in range(2)
    )  # fmt: skip
    facts = replace(FACTS, gpus=Gpus("present", cards))
    plan = plan_cluster(facts, load())
    (candidate,) = candidates(Docker(), facts, plan, whole=True)  # type: ignore[arg-type]
    assert candidate.devices == (
        "/dev/kfd:/dev/kfd",
        "/dev/dri/renderD128:/dev/dri/renderD128",
        "/dev/dri/renderD129:/dev/dri/renderD129",
    )
    assert candidate.group_add == (993,)


def test_the_proof_is_kept_for_the_same_engine_driver_and_devices_only() -> None:
    proof = prove(Docker(ended(0, seen(0, 1))))
    assert Passthrough.from_json(proof.to_json()) == proof
    assert proof.key == passthrough.proof_key(FACTS, PLAN, True)
    others: list[tuple[HostFacts, ClusterPlan, bool]] = [
        (replace(FACTS, engine=replace(FACTS.engine, server_version="29.0")), PLAN, True),
        (replace(FACTS, gpus=replace(FACTS.gpus, driver_version="560.1")), PLAN, True),
        (FACTS, plan_cluster(FACTS, load(flags={"devices": "0"})), False),
    ]
    for facts, plan, whole in others:
        assert passthrough.proof_key(facts, plan, whole) != proof.key
    assert Passthrough.from_json({"mechanism": "cdi", "new": 1}) is None


def test_simulated_gpus_need_no_test() -> None:
    plan = replace(PLAN, simulated=True)
    proof = passthrough.without_test(plan, ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia9"))
    assert proof is not None
    assert proof.devices == ("/dev/null:/dev/nvidia0", "/dev/null:/dev/nvidia1")
    assert passthrough.without_test(PLAN, ()) is None


def test_an_unknown_error_text_is_shown_whole() -> None:
    text = "docker: Error\n response from daemon: flux capacitor"
    assert explain(text) == "docker: Error response from daemon: flux capacitor"
