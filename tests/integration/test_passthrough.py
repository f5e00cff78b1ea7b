"""The test-run of GPU passthrough on the real engine: its refusals, raw device nodes, its clearing up."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup import passthrough
from dshpc_setup.facts import GpuDevice, Gpus, HostFacts, Toolkit, Vendor
from dshpc_setup.image.base import BaseImage
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.passthrough import Bench, Passthrough, findings
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.settings import Settings
from tests.integration.conftest import docker

GROUP = 4321
NODES = ("/dev/dri/renderD200", "/dev/dri/renderD201")


def gpu(index: int, vendor: Vendor, node: str) -> GpuDevice:
    groups = () if vendor == "nvidia" else (GROUP,)
    return GpuDevice(index, vendor, slurm_type="x", device_files=(node,), group_ids=groups)


def planned(facts: HostFacts, *devices: GpuDevice) -> tuple[HostFacts, ClusterPlan]:
    facts = replace(facts, gpus=Gpus("present", devices))
    return facts, plan_cluster(facts, Settings())


def left_behind() -> list[str]:
    """Containers of the test that are still there, running or not."""
    names = docker("ps", "--all", "--filter", "label=org.dshpc.test=1", "--format", "{{.Names}}")
    return names.split()


@pytest.fixture
def device_nodes() -> Iterator[tuple[str, ...]]:
    """Render nodes and AMD's common node, where this host has none: names of /dev/null."""
    made = [node for node in (*NODES, "/dev/kfd") if not os.path.lexists(node)]
    folder = Path("/dev/dri")
    new_folder = not folder.exists()
    folder.mkdir(exist_ok=True)
    try:
        for node in made:
            os.mknod(node, 0o660 | stat.S_IFCHR, os.makedev(1, 3))
            os.chmod(node, 0o660)  # the umask has taken the group's right to write
            os.chown(node, 0, GROUP)
        yield NODES
    finally:
        for node in made:
            os.unlink(node)
        if new_folder:
            folder.rmdir()


@pytest.fixture(scope="module")
def hanging_image(base_image: BaseImage) -> Iterator[str]:
    """An image in which the shell of the test never ends."""
    name = f"dshpc-test-hangs-{os.getpid()}"
    script = (
        "printf '#!/bin/bash\\nexec sleep 900\\n' >/usr/bin/sh.new && chmod 755 /usr/bin/sh.new"
    )
    try:
        docker(
            "run", "--name", name, "--entrypoint", "/bin/bash", base_image.ref, "-c",
            f"{script} && mv /usr/bin/sh.new /usr/bin/sh",
        )  # fmt: skip
        docker("commit", name, f"{name}:1")
        yield f"{name}:1"
    finally:
        docker("rm", "--force", name)
        docker("rmi", "--force", f"{name}:1")


def proven(
    facts: HostFacts,
    plan: ClusterPlan,
    image: str,
    *,
    deadline_s: float = 60.0,
    every: bool = False,
) -> Passthrough:
    bench = Bench(image, (0, 0), deadline_s)
    return passthrough.prove(LocalMachine(), facts, plan, bench, every=every)


def states(proof: Passthrough) -> list[tuple[str, str, str | None]]:
    return [(row.mechanism, row.state, row.finding) for row in proof.attempts]


def test_an_engine_without_nvidia_support_is_named_as_the_cause(
    image_facts: HostFacts, base_image: BaseImage
) -> None:
    engine = replace(image_facts.engine, toolkits=(Toolkit("nvidia", "absent"),))
    facts, plan = planned(replace(image_facts, engine=engine), gpu(0, "nvidia", "/dev/nvidia0"))
    proof = proven(facts, plan, base_image.ref)
    assert (proof.handover.mechanism, proof.works) == ("none", False)
    assert states(proof)[1] == ("device-request", "fails", findings.NO_TOOLKIT)
    assert proof.to_fix is proof.attempts[1]
    assert (
        "could not select device driver" in proof.attempts[1].evidence[0]
    )  # the engine's own words
    assert any("nvidia-container-toolkit" in (step.command or "") for step in proof.to_fix.fix)
    assert left_behind() == []


def test_a_cdi_name_and_a_runtime_that_are_not_there(
    image_facts: HostFacts, base_image: BaseImage
) -> None:
    """As an engine has them that says more than it can: its refusals are real."""
    engine = replace(
        image_facts.engine,
        server_version="28.5.2",
        cdi_folders=("/etc/cdi",),
        cdi_devices=("nvidia.com/gpu=all",),
        runtimes=("runc", "nvidia"),
        toolkits=(Toolkit("nvidia", "present", "1.17.8", "/usr/bin/hook"),),
    )
    facts, plan = planned(replace(image_facts, engine=engine), gpu(0, "nvidia", "/dev/nvidia0"))
    proof = proven(facts, plan, base_image.ref)
    assert not proof.works
    assert states(proof) == [
        ("cdi", "fails", findings.CDI_OFF),
        ("device-request", "fails", findings.NOT_RESTARTED),
        ("runtime", "fails", findings.RUNTIME_NOT_REGISTERED),
        ("devices", "impossible", None),
    ]
    assert left_behind() == []


@pytest.mark.parametrize("vendor", ["amd", "intel"])
def test_raw_nodes_reach_the_container_with_their_numeric_group(
    vendor: Vendor,
    device_nodes: tuple[str, ...],
    image_facts: HostFacts,
    base_image: BaseImage,
) -> None:
    cards = [gpu(index, vendor, node) for index, node in enumerate(device_nodes)]
    facts, plan = planned(image_facts, *cards)
    proof = proven(facts, plan, base_image.ref)
    assert proof.works, proof.reason
    handover = proof.handover
    assert handover.mechanism == "devices"
    assert ("/dev/kfd:/dev/kfd" in handover.devices) == (vendor == "amd")
    assert handover.group_add == (GROUP,)
    assert proof.reason == "Proven by a test container: 2 GPUs by device nodes."
    flags = handover.docker_flags()
    groups = docker("run", "--rm", *flags, "--entrypoint", "/usr/bin/id", base_image.ref, "-G")
    assert str(GROUP) in groups.split()
    assert left_behind() == []


def test_the_nodes_open_for_a_user_by_their_group(
    device_nodes: tuple[str, ...], image_facts: HostFacts, base_image: BaseImage
) -> None:
    facts, plan = planned(image_facts, gpu(0, "amd", device_nodes[0]))
    proof = passthrough.prove(LocalMachine(), facts, plan, Bench(base_image.ref, (1234, 1234)))
    assert proof.works, proof.reason


@pytest.mark.parametrize(
    ("vendor", "finding"), [("amd", findings.AMD_GROUP), ("intel", findings.NODE_DENIED)]
)
def test_a_node_whose_group_is_not_handed_over_is_denied(
    vendor: Vendor,
    finding: str,
    device_nodes: tuple[str, ...],
    image_facts: HostFacts,
    base_image: BaseImage,
) -> None:
    card = replace(gpu(0, vendor, device_nodes[0]), group_ids=())
    facts, plan = planned(image_facts, card)
    proof = passthrough.prove(LocalMachine(), facts, plan, Bench(base_image.ref, (1234, 1234)))
    assert proof.attempts[3].finding == finding
    assert "Permission denied" in proof.attempts[3].reason
    assert left_behind() == []


def test_a_node_that_the_machine_lacks_is_named(
    device_nodes: tuple[str, ...], image_facts: HostFacts, base_image: BaseImage
) -> None:
    cards = [gpu(0, "intel", device_nodes[0]), gpu(1, "intel", "/dev/dri/renderD202")]
    facts, plan = planned(image_facts, *cards)
    proof = proven(facts, plan, base_image.ref)
    assert not proof.works
    assert proof.attempts[3].finding == findings.NO_NODE
    assert "renderD202" in proof.reason
    assert left_behind() == []


def test_an_image_that_is_not_here_is_not_pulled(
    device_nodes: tuple[str, ...], image_facts: HostFacts
) -> None:
    facts, plan = planned(image_facts, gpu(0, "intel", device_nodes[0]))
    proof = proven(facts, plan, "dshpc-test-no-such-image:1")
    assert proof.attempts[3].finding == findings.NO_IMAGE


def test_a_container_that_hangs_ends_at_the_deadline_and_is_removed(
    device_nodes: tuple[str, ...], image_facts: HostFacts, hanging_image: str
) -> None:
    facts, plan = planned(image_facts, gpu(0, "intel", device_nodes[0]))
    started = time.monotonic()
    proof = proven(facts, plan, hanging_image, deadline_s=6.0, every=True)
    assert time.monotonic() - started < 90  # its container would hang for 900
    assert proof.attempts[3].finding == findings.TEST_HUNG
    assert "did not end within 6 s" in proof.reason
    assert left_behind() == []


# The whole command, on a machine whose probes found an Intel GPU.
_COMMAND = """
import sys
from dataclasses import replace
from dshpc_setup import cli, probes
from dshpc_setup.facts import GpuDevice, Gpus

gpu = GpuDevice(0, "intel", slurm_type="x", device_files=(sys.argv[1],), group_ids=(int(sys.argv[2]),))
real = probes.gather
probes.gather = lambda machine: replace(real(machine), gpus=Gpus("present", (gpu,)))
sys.exit(cli.run(["passthrough", *sys.argv[3:]], "dshpc"))
"""


def command(tmp_path: Path, node: str, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND, node, str(GROUP), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,  # and of no cluster that somebody has chosen by `dshpc use`
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "XDG_STATE_HOME": str(tmp_path),
        },
    )


def test_the_command_proves_what_works(
    device_nodes: tuple[str, ...], base_image: BaseImage, tmp_path: Path
) -> None:
    with command(tmp_path, device_nodes[0], "--json", "--image", base_image.ref) as child:
        out, said = child.communicate(timeout=180)
    found = json.loads(out)
    assert (child.returncode, found["exit_code"], found["works"]) == (0, 0, True), said
    assert [row["state"] for row in found["attempts"]] == ["impossible"] * 3 + ["works"]
    assert found["image"] == base_image.ref
    assert left_behind() == []


def test_the_command_names_an_image_that_is_not_here(
    device_nodes: tuple[str, ...], tmp_path: Path
) -> None:
    with command(tmp_path, device_nodes[0], "--json", "--image", "dshpc-no-such:1") as child:
        out, _ = child.communicate(timeout=180)
    assert child.returncode == 2
    assert "dshpc-no-such:1 is not on this machine" in json.loads(out)["error"]["brief"]


def test_on_ctrl_c_the_container_is_removed_and_the_command_ends_with_130(
    device_nodes: tuple[str, ...], hanging_image: str, tmp_path: Path
) -> None:
    with command(tmp_path, device_nodes[0], "--json", "--image", hanging_image) as child:
        until = time.monotonic() + 90
        while not docker("ps", "--quiet", "--filter", f"ancestor={hanging_image}"):
            assert time.monotonic() < until, "the test container never ran"
            assert child.poll() is None
            time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        out, said = child.communicate(timeout=90)
    assert child.returncode == 130, said
    assert json.loads(out)["exit_code"] == 130
    assert left_behind() == []
