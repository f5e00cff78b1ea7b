"""The bench itself: each engine is real and private, and says to each fault what engines say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.bench import cdi, hardware
from tests.integration.bench.compose import ComposeTool
from tests.integration.bench.engines import KINDS, Bench, Kind
from tests.integration.conftest import docker

pytest_plugins = ("tests.integration.bench.fixtures",)

LIST = "nvidia-smi -L"
SELECT = "could not select device driver"
CDI_ALL = ("--device", "nvidia.com/gpu=all")
GPUS_ALL = ("--gpus", "all")
RUNTIME = ("--runtime", "nvidia", "--env", "NVIDIA_VISIBLE_DEVICES=all")

# The mechanisms that an engine has, once all is installed.
WORKING: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "host": (GPUS_ALL, RUNTIME),
    "trixie": (GPUS_ALL, RUNTIME, CDI_ALL),
    "newest": (GPUS_ALL, RUNTIME, CDI_ALL),
    "podman": (CDI_ALL,),
}


# For what only Docker has, and what only engines with CDI have.
EACH = pytest.mark.parametrize("kind", KINDS, indirect=True)
DOCKERS = pytest.mark.parametrize("kind", ["host", "trixie", "newest"], indirect=True)
WITH_CDI = pytest.mark.parametrize("kind", ["trixie", "newest", "podman"], indirect=True)
PODMAN = pytest.mark.parametrize("kind", ["podman"], indirect=True)


def uuids(text: str) -> list[str]:
    return re.findall(r"\(UUID: (GPU-[^)]+)\)", text)


ALL = [card.uuid for card in hardware.CARDS]


# Before anything is installed; these tests stand first, so that no machine has to be opened twice.


@EACH
def test_an_engine_of_its_own(bare: Bench) -> None:
    shown = bare.container(script="id -u").stdout.strip()
    assert shown == "0"
    info = json.loads(bare.docker("info", "--format", "{{json .}}"))
    assert info["DockerRootDir"].startswith(str(bare.folder))
    assert info["CgroupDriver"] == "cgroupfs"
    assert bare.run(["nvidia-smi", "-L"]).stdout.count("NVIDIA H100") == 2


@EACH
def test_nothing_of_a_machine_is_seen_outside(bare: Bench) -> None:
    name = f"bench-{os.getpid()}"
    bare.docker("create", "--name", name, "--network", "none", bare.image)
    try:
        assert name not in docker("ps", "--all", "--format", "{{.Names}}")
    finally:
        bare.docker("rm", "--force", name)
    assert bare.outer.path("/dev/nvidia0").is_char_device()
    for path in ("/etc/dshpc-standin", "/run/bench", "/run/bench-daemon.pid"):
        assert bare.outer.path(path).exists() or bare.inner.path(path).exists()
        assert not Path(path).exists()


@PODMAN
def test_podman_takes_no_notice_of_device_requests_and_runtimes(bare: Bench) -> None:
    for flags in (GPUS_ALL, RUNTIME):
        seen = bare.container(*flags, script=f"ls /dev; {LIST}")
        assert "null" in seen.stdout  # the container started
        assert "nvidia" not in seen.stdout
        assert "nvidia-smi: not found" in seen.stderr


@DOCKERS
def test_no_toolkit(bare: Bench) -> None:
    refused = bare.container(*GPUS_ALL, script=LIST)
    assert refused.returncode == 125
    assert f'{SELECT} "" with capabilities: [[gpu]]' in refused.stderr
    unknown = bare.container(*RUNTIME)
    assert re.search(
        r"unknown (runtime specified|or invalid runtime name:?) nvidia", unknown.stderr, re.I
    )


@EACH
def test_no_specification(bare: Bench) -> None:
    refused = bare.container("--name", "no-spec", *CDI_ALL, script=LIST)
    assert refused.returncode != 0
    words = {
        "host": f'{SELECT} "cdi" with capabilities: []',
        "trixie": f'{SELECT} "cdi" with capabilities: []',
        "newest": "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
        "podman": "unable to upgrade to tcp, received 500",  # and the container stays
    }
    assert words[bare.kind] in refused.stderr
    left = bare.docker("ps", "--all", "--quiet")
    assert bool(left.strip()) == (bare.kind == "podman")
    if left:
        bare.docker("rm", "--force", "no-spec")


@DOCKERS
def test_a_hook_that_came_after_the_engine_started(bare: Bench) -> None:
    hardware.add_hook(bare)
    assert f'{SELECT} ""' in bare.container(*GPUS_ALL).stderr
    hardware.remove_hook(bare)


# With everything installed.


@EACH
def test_every_mechanism_of_the_engine(whole: Bench) -> None:
    for flags in WORKING[whole.kind]:
        seen = whole.container(
            *flags, script=f"{LIST} && ls /usr/lib/x86_64-linux-gnu/libcuda.so.1"
        )
        assert uuids(seen.stdout) == ALL, (flags, seen.stderr)
    for flags in {GPUS_ALL, RUNTIME, CDI_ALL}.difference(WORKING[whole.kind]):
        assert not uuids(whole.container(*flags, script=LIST).stdout)


@EACH
def test_one_card_by_its_uuid(whole: Bench) -> None:
    second = hardware.CARDS[1].uuid
    flags = {
        GPUS_ALL: ("--gpus", f'"device={second}"'),
        CDI_ALL: ("--device", f"nvidia.com/gpu={second}"),
    }
    for way, one in flags.items():
        if way in WORKING[whole.kind]:
            seen = whole.container(*one, script=f"{LIST}; ls /dev")
            assert uuids(seen.stdout) == [second]
            assert "nvidia0" not in seen.stdout


@EACH
def test_what_the_engine_tells_of_cdi(whole: Bench) -> None:
    info = json.loads(whole.docker("info", "--format", "{{json .}}"))
    names = [item["ID"] for item in info.get("DiscoveredDevices") or ()]
    assert ("nvidia.com/gpu=all" in names) == (whole.kind == "newest")
    assert bool(info.get("CDISpecDirs")) == (whole.kind in ("trixie", "newest"))
    assert ("nvidia" in info["Runtimes"]) == (whole.kind != "podman")


REFUSALS = {
    "no such card": ('--gpus "device=7"', "device error: 7: unknown device"),
    "image too new": (
        "--gpus all --env NVIDIA_REQUIRE_CUDA=cuda>=12.9",
        "requirement error: unsatisfied condition: cuda>=12.9, please update your driver",
    ),
    "versions differ": ("--gpus all", "nvml error: driver/library version mismatch"),
    "no library": (
        "--gpus all",
        "load library failed: libnvidia-ml.so.1: cannot open shared object",
    ),
}


@DOCKERS
@pytest.mark.parametrize("fault", REFUSALS)
def test_the_hook_refuses_in_the_real_words(broken: Bench, fault: str) -> None:
    if fault == "versions differ":
        broken.put(hardware.DESCRIPTION, hardware.nvml_text(more="fail nvmlInit_v2 18"))
    if fault == "no library":
        hardware.remove_library(broken, "libnvidia-ml")
    flags, words = REFUSALS[fault]
    refused = broken.container(*[part.strip('"') for part in flags.split(" ")])
    assert refused.returncode in (125, 127)  # 127 where the text says that a file is not there
    assert "nvidia-container-cli: " in refused.stderr
    assert words in refused.stderr
    assert broken.docker("ps", "--all", "--quiet") == ""


@DOCKERS
def test_a_library_that_the_image_has_already(broken: Bench) -> None:
    baked = "dshpc-bench-baked"
    library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    try:
        broken.docker(
            "run",
            "--name",
            baked,
            "--network",
            "none",
            broken.image,
            "sh",
            "-c",
            f"echo > {library}",
        )
        broken.docker("commit", baked, baked)
        argv = ["docker", "run", "--rm", "--network", "none", *GPUS_ALL, baked, "true"]
        refused = broken.run(argv)
        assert re.search(
            r"mount error: file creation failed: \S+libnvidia-ml.so.1: file exists", refused.stderr
        )
    finally:
        broken.docker("rm", "--force", baked)
        broken.docker("rmi", baked)


@WITH_CDI
def test_the_specification_is_older_than_the_machine(broken: Bench) -> None:
    unknown = broken.container("--name", "stale", "--device", "nvidia.com/gpu=9")
    assert unknown.returncode != 0
    broken.run(["docker", "rm", "--force", "stale"])
    spec = cdi.nvidia_spec(driver="535.00")
    cdi.write_spec(broken, spec)
    cdi.wait_taken_up(broken)
    gone = broken.container("--name", "stale", *CDI_ALL)
    broken.run(["docker", "rm", "--force", "stale"])
    assert gone.returncode != 0
    if broken.kind != "podman":  # whose socket hides the words
        assert re.search(r"lib\S+\.so\.535\.00: no such file or directory", gone.stderr)


@DOCKERS
def test_what_is_missing_inside(broken: Bench) -> None:
    script = f"{LIST}; ls /usr/lib/x86_64-linux-gnu"
    utility = broken.container(
        *GPUS_ALL, "--env", "NVIDIA_DRIVER_CAPABILITIES=utility", script=script
    )
    assert uuids(utility.stdout) == ALL
    assert "libcuda" not in utility.stdout
    hardware.break_hook(broken, LIMIT=1)
    assert uuids(broken.container(*GPUS_ALL, script=LIST).stdout) == ALL[:1]
    hardware.break_hook(broken, NODE_MODE=600)
    denied = broken.container(*GPUS_ALL, "--user", "1000", script=LIST)
    assert (denied.returncode, denied.stdout.strip()) == (
        4,
        "Failed to initialize NVML: Insufficient Permissions",
    )
    hardware.break_hook(broken, OMIT="libnvidia-ml")
    assert "couldn't find libnvidia-ml.so" in broken.container(*GPUS_ALL, script=LIST).stdout


@WITH_CDI
def test_a_driver_that_hangs_in_the_container(broken: Bench) -> None:
    broken.put(hardware.DESCRIPTION, hardware.nvml_text(more="hang nvmlInit_v2"))
    flags = ("--name", "hangs", "--stop-timeout", "0", *CDI_ALL)  # Podman waits 10 s otherwise
    begun = broken.container("--detach", *flags, script=LIST)
    assert begun.returncode == 0, begun.stderr
    with pytest.raises(subprocess.TimeoutExpired):
        broken.run(["docker", "wait", "hangs"], 3)
    broken.docker("rm", "--force", "hangs", deadline_s=30)
    assert broken.docker("ps", "--all", "--quiet") == ""


@DOCKERS
def test_a_hook_that_hangs_holds_its_container(broken: Bench) -> None:
    broken.put(hardware.HANG, "")
    broken.docker("create", "--rm", "--name", "held", "--network", "none", *GPUS_ALL, broken.image)
    start = broken.outer.start(["docker", "start", "held"], broken.env, broken.folder / "held.log")
    try:
        until = time.monotonic() + 60
        while broken.run(["pgrep", "-f", "nvidia-container-runtime-hook"]).returncode != 0:
            assert start.poll() is None, (broken.folder / "held.log").read_text()
            assert time.monotonic() < until, "the hook was not called"
            time.sleep(0.05)
        with pytest.raises(subprocess.TimeoutExpired):
            broken.run(["docker", "rm", "--force", "held"], 3)
        assert start.poll() is None
    finally:
        broken.remove(hardware.HANG)
        start.wait(60)
    until = time.monotonic() + 60  # the first request to remove it is still being worked on
    while broken.docker("ps", "--all", "--quiet"):
        assert time.monotonic() < until, "the container is still there"
        broken.run(["docker", "rm", "--force", "held"], 30)


@WITH_CDI
def test_compose_tools(whole: Bench, compose_tools: dict[str, ComposeTool]) -> None:
    assert [tool.release[0] for tool in compose_tools.values()] == [1, 2, 2]
    assert compose_tools["v2"].release < (2, 30) <= compose_tools["newest"].release
    reservation = {"driver": "cdi", "device_ids": ["nvidia.com/gpu=all"], "capabilities": ["gpu"]}
    service = {
        "image": whole.image,
        "network_mode": "none",
        "command": ["sh", "-c", LIST],
        "deploy": {"resources": {"reservations": {"devices": [reservation]}}},
    }
    file = whole.folder / "compose.json"
    file.write_text(json.dumps({"version": "3.8", "services": {"s": service}}))
    for name, tool in compose_tools.items():
        argv = [*tool.argv, "--file", str(file), "--project-name", f"bench-{name}"]
        done = whole.run([*argv, "up"], 60)
        # `up` may see no more than the end of one that is done at once
        logs = whole.run([*argv, "logs"], 60)
        whole.run([*argv, "down", "--timeout", "0"], 60)
        assert uuids(logs.stdout) == ALL, (name, done.stderr, logs.stderr)


@WITH_CDI
def test_specifications_of_other_vendors(whole: Bench) -> None:
    hardware.add_nodes(whole, hardware.AMD_NODES)
    try:
        cdi.write_spec(whole, cdi.intel_spec(), "intel")
        cdi.write_spec(whole, cdi.amd_spec(), "amd")
        cdi.wait_taken_up(whole)
        script = "cd /dev; ls -d kfd dri/*"
        intel = whole.container("--device", "intel.com/gpu=card0", script=script)
        assert intel.stdout.split() == ["dri/renderD128"], intel
        amd = whole.container("--device", "amd.com/gpu=1", script=script)
        assert amd.stdout.split() == ["dri/renderD129", "kfd"], amd
    finally:
        cdi.remove_spec(whole, "intel")
        cdi.remove_spec(whole, "amd")
        hardware.remove_nodes(whole, list(hardware.AMD_NODES))


_OPEN_AND_WAIT = """
import sys, time
from pathlib import Path
from tests.integration.bench.room import room
with room(Path(sys.argv[1])) as opened:
    opened.start(["sleep", "300"], {"PATH": "/usr/bin:/bin"}, Path(sys.argv[1]) / "log")
    print(opened.pid, flush=True)
    time.sleep(300)
"""


def test_a_room_ends_with_whoever_opened_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _OPEN_AND_WAIT, str(tmp_path)]
    checkout = str(Path(__file__).parents[2])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=checkout) as child:
        assert child.stdout is not None
        pid = child.stdout.readline().strip()
        assert Path(f"/proc/{pid}/root/run/bench").exists()
        child.kill()
    until = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until, "the room is still there"
        time.sleep(0.05)
