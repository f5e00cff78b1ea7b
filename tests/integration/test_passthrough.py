"""The test-run of GPU passthrough on the real engine: its refusals, raw device nodes, its clearing up."""

from __future__ import annotations

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
from dshpc_setup.facts import GpuDevice, Gpus, HostFacts, Vendor
from dshpc_setup.image.base import BaseImage
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.settings import Settings
from tests.integration.conftest import docker

GROUP = 4321
NODES = ("/dev/dri/renderD200", "/dev/dri/renderD201")


def gpu(index: int, vendor: Vendor, node: str) -> GpuDevice:
    return GpuDevice(index, vendor, slurm_type="x", device_files=(node,))


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


def test_an_engine_without_nvidia_support_is_named_as_the_cause(
    local_machine: LocalMachine, image_facts: HostFacts, base_image: BaseImage
) -> None:
    facts, plan = planned(image_facts, gpu(0, "nvidia", "/dev/nvidia0"))
    proof = passthrough.prove(local_machine, facts, plan, base_image.ref, True)
    assert (proof.mechanism, proof.works) == ("none", False)
    assert "NVIDIA Container Toolkit is not installed" in proof.reason
    assert "could not select device driver" in proof.reason  # the engine's own words
    assert left_behind() == []


def test_a_cdi_name_and_a_runtime_that_are_not_there(
    local_machine: LocalMachine, image_facts: HostFacts, base_image: BaseImage
) -> None:
    engine = replace(
        image_facts.engine, cdi_devices=("nvidia.com/gpu=all",), runtimes=("runc", "nvidia")
    )
    facts, plan = planned(replace(image_facts, engine=engine), gpu(0, "nvidia", "/dev/nvidia0"))
    proof = passthrough.prove(local_machine, facts, plan, base_image.ref, True)
    assert not proof.works
    assert [failure.split(":")[0] for failure in proof.failures] == [
        "cdi",
        "device-request",
        "runtime",
    ]
    assert "the runtime nvidia is not registered" in proof.failures[2]
    assert left_behind() == []


@pytest.mark.parametrize("vendor", ["amd", "intel"])
def test_raw_nodes_reach_the_container_with_their_numeric_group(
    vendor: Vendor,
    device_nodes: tuple[str, ...],
    local_machine: LocalMachine,
    image_facts: HostFacts,
    base_image: BaseImage,
) -> None:
    cards = [gpu(index, vendor, node) for index, node in enumerate(device_nodes)]
    facts, plan = planned(image_facts, *cards)
    proof = passthrough.prove(local_machine, facts, plan, base_image.ref, True)
    assert proof.works, proof.reason
    assert proof.mechanism == "devices"
    assert ("/dev/kfd:/dev/kfd" in proof.devices) == (vendor == "amd")
    assert GROUP in proof.group_add
    flags = passthrough.docker_flags(proof)
    groups = docker("run", "--rm", *flags, "--entrypoint", "/usr/bin/id", base_image.ref, "-G")
    assert str(GROUP) in groups.split()
    assert left_behind() == []


def test_a_node_that_the_container_lacks_is_no_proof(
    device_nodes: tuple[str, ...],
    local_machine: LocalMachine,
    image_facts: HostFacts,
    base_image: BaseImage,
) -> None:
    cards = [gpu(0, "intel", device_nodes[0]), gpu(1, "intel", "/dev/dri/renderD202")]
    facts, plan = planned(image_facts, *cards)
    proof = passthrough.prove(local_machine, facts, plan, base_image.ref, True)
    assert not proof.works
    assert "renderD202" in proof.reason
    assert left_behind() == []


def test_a_container_that_hangs_ends_at_the_deadline_and_is_removed(
    device_nodes: tuple[str, ...],
    local_machine: LocalMachine,
    image_facts: HostFacts,
    hanging_image: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passthrough, "DEADLINE_S", 3.0)
    facts, plan = planned(image_facts, gpu(0, "intel", device_nodes[0]))
    started = time.monotonic()
    proof = passthrough.prove(local_machine, facts, plan, hanging_image, True)
    assert time.monotonic() - started < 15
    assert proof.reason == "devices: the test container did not end within 3 s"
    assert left_behind() == []


_PROVE = """
import sys
from dshpc_setup import passthrough
from dshpc_setup.facts import Cpu, Engine, GpuDevice, Gpus, HostFacts, Memory, Platform
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.plan import plan_cluster
from dshpc_setup.settings import Settings

gpu = GpuDevice(0, "intel", slurm_type="x", device_files=(sys.argv[1],))
facts = HostFacts(
    Platform("linux"), Cpu(1), Memory(1024, 1024), Gpus("present", (gpu,)), Engine("present")
)
passthrough.prove(LocalMachine(), facts, plan_cluster(facts, Settings()), sys.argv[2], True)
"""


def test_a_container_is_removed_on_ctrl_c(
    device_nodes: tuple[str, ...], hanging_image: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROVE, device_nodes[0], hanging_image],
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        until = time.monotonic() + 30
        while not docker("ps", "--quiet", "--filter", "label=org.dshpc.test=1"):
            assert time.monotonic() < until, "the test container never ran"
            assert child.poll() is None
            time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=30)
    assert "KeyboardInterrupt" in said
    assert left_behind() == []
