"""Each finding of a test container, and the near miss that is none or another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import HostFacts, Platform, Toolkit
from dshpc_setup.machine import CommandResult
from dshpc_setup.passthrough import Cause, findings
from dshpc_setup.passthrough.expected import Expected, expect
from dshpc_setup.passthrough.handover import Handover, Mechanism
from dshpc_setup.passthrough.judge import judge
from tests.unit.passthrough.made import (
    COMMON,
    CUT,
    DRIVER,
    LIBRARIES,
    PARTS,
    TIMEOUT,
    amd,
    card,
    ended,
    facts,
    inside,
    intel,
    on,
    planned,
    seen,
    spec,
    two_cards_spec,
    uuid,
)

TWO = facts(card(0), card(1))
NUMBERS: dict[str, tuple[int, int]] = {
    "/dev/nvidia0": (195, 0),
    "/dev/nvidia1": (195, 1),
    "/dev/nvidiactl": (195, 255),
    "/dev/nvidia-uvm": (511, 0),
    "/dev/kfd": (235, 0),
    "/dev/dri/renderD128": (226, 128),
}
CDI = Handover("cdi", ids=("nvidia.com/gpu=all",))
REQUEST = Handover("device-request")


def promised(
    found: HostFacts, numbers: Mapping[str, tuple[int, int]] = NUMBERS, **settings: str
) -> Expected:
    return expect(found, planned(found, **settings), not settings, numbers)


def judged(
    result: CommandResult | str,
    found: HostFacts = TWO,
    handover: Handover | Mechanism = REQUEST,
    **settings: str,
) -> Cause | None:
    """A text is what a container that ended well has said."""
    way = handover if isinstance(handover, Handover) else Handover(handover)
    answer = ended(0, result) if isinstance(result, str) else result
    return judge(answer, promised(found, NUMBERS, **settings), way, found, 60.0)


def finding(*arguments: Any, **more: Any) -> str | None:
    cause = judged(*arguments, **more)
    assert cause is not None
    assert cause.says
    assert not cause.says.endswith(".")
    return cause.finding


# -- what is a proof ---------------------------------------------------------------------------------


def test_all_that_was_promised_is_a_proof() -> None:
    assert judged(seen(0, 1)) is None
    assert judged(seen(0, 1, uuids=None)) is None  # no nvidia-smi in the image


def test_a_warning_of_the_engine_does_no_harm() -> None:
    warning = "WARNING: Your kernel does not support swap limit capabilities"
    assert judged(ended(0, seen(0, 1), warning)) is None


def test_an_exit_code_of_nvidia_smi_beside_a_whole_list_does_no_harm() -> None:
    said = seen(0, 1).replace("listing 0", "listing 14\nsays WARNING: infoROM is corrupted")
    assert judged(said) is None


def test_the_selected_mig_instance_alone() -> None:
    found = facts(CUT)
    own = inside(*PARTS[1].device_files, *COMMON, libraries=LIBRARIES, uuids=(uuid(0), "MIG-b"))
    assert judged(own, found, devices="MIG-b") is None
    both = own.replace("end\n", "says   MIG 1g.10gb Device 0: (UUID: MIG-a)\nend\n")
    assert finding(both, found, devices="MIG-b") == findings.MORE_GPUS
    assert judged(own.replace("MIG-b", "MIG-a"), found, devices="MIG-b") == Cause(
        findings.OTHER_GPUS, "the container sees MIG-a in place of MIG-b"
    )
    bare = inside("/dev/nvidia0", *COMMON, libraries=LIBRARIES)
    assert finding(bare, found, devices="MIG-b") == findings.FEWER_GPUS


def test_wsl_amd_and_intel_are_proven_by_their_nodes() -> None:
    wsl = replace(facts(card(0, device_files=("/dev/dxg",))), platform=Platform("wsl2"))
    assert judged(inside("/dev/dxg", libraries=LIBRARIES, uuids=(uuid(0),)), wsl) is None
    assert finding(inside(libraries=LIBRARIES), wsl) == findings.FEWER_GPUS
    assert judged(inside("/dev/kfd", "/dev/dri/renderD128"), facts(amd(0)), "devices") is None
    assert judged(inside("/dev/dri/renderD128"), facts(intel(0)), "devices") is None


# -- the container did not come to say anything -----------------------------------------------------


def test_a_hang() -> None:
    cause = judged(TIMEOUT)
    assert cause is not None
    assert (cause.finding, "within 60 s" in cause.says) == (findings.TEST_HUNG, True)
    assert cause.fix


def test_a_refusal_that_is_known_and_one_that_is_not() -> None:
    known = ended(125, "", 'docker: Error response from daemon: could not select device driver "" with '
                  "capabilities: [[gpu]]")  # fmt: skip
    assert finding(known) == findings.NOT_RESTARTED
    assert finding(known, on(TWO, toolkits=())) == findings.NO_TOOLKIT
    unknown = judged(ended(125, "", "docker: Error\n response from daemon: flux capacitor"))
    assert unknown == Cause(
        None, "the engine refused: docker: Error response from daemon: flux capacitor"
    )
    assert judged(ended(125)) == Cause(None, "the engine refused: without a word")
    assert judged(ended(137, "", "Killed")) == Cause(
        None, "the test container ended with exit code 137: Killed"
    )
    assert judged(ended(None, "y" * 99, state="error")) == Cause(
        None, "the test container never stopped printing"
    )
    assert judged(ended(None, state="absent")) == Cause(
        None, "the docker command could not be run (absent)"
    )


def test_an_image_without_a_shell_is_told_from_a_missing_file_of_the_machine() -> None:
    no_shell = ended(127, "", 'docker: Error response from daemon: exec: "/bin/sh": stat /bin/sh: no such '
                     "file or directory")  # fmt: skip
    assert finding(no_shell) == findings.IMAGE_WITHOUT_SHELL
    no_node = ended(127, "", "docker: Error response from daemon: error gathering device information while "
                    'adding custom device "/dev/dri/renderD128": no such file or directory')  # fmt: skip
    assert finding(no_node, facts(intel(0)), "devices") == findings.NO_NODE
    other = ended(127, "", "docker: Error response from daemon: no such file or directory")
    assert finding(other) is None


@pytest.mark.parametrize("said", ["", "hello\n", seen(0, 1).replace("end\n", "")])
def test_a_shell_that_does_not_run_the_test(said: str) -> None:
    assert finding(said) == findings.IMAGE_WITHOUT_SHELL


# -- nodes -------------------------------------------------------------------------------------------


def test_fewer_gpus_in_numbers() -> None:
    one = judged(seen(0, uuids=None))
    assert one is not None
    assert one.finding == findings.FEWER_GPUS
    assert one.says == "the container sees 1 of 2 GPUs: there is no /dev/nvidia1"
    none = judged(inside())
    assert none is not None
    assert none.says.startswith("the container sees none of the 2 GPUs: there is no /dev/nvidia0")
    only = judged(inside(), facts(intel(0)), "devices")
    assert only is not None
    assert only.says == "the container sees no GPU: there is no /dev/dri/renderD128"


def test_without_unified_memory_cuda_does_not_start() -> None:
    said = seen(0, 1).replace("open /dev/nvidia-uvm -", "absent /dev/nvidia-uvm")
    without = {path: number for path, number in NUMBERS.items() if path != "/dev/nvidia-uvm"}
    here = promised(TWO, without)
    lost = judge(ended(0, said), here, REQUEST, TWO, 60)
    assert lost is not None
    assert lost.finding == findings.NO_UVM
    assert "nvidia-modprobe" in (lost.fix[0].command or "")
    by_cdi = judge(ended(0, said), here, CDI, TWO, 60)
    assert by_cdi is not None
    assert len(by_cdi.fix) > len(lost.fix)  # the specification is written anew as well
    assert (
        finding(said) == findings.FEWER_GPUS
    )  # this machine has it: the mechanism did not bring it
    assert judge(ended(0, seen(0, 1)), here, REQUEST, TWO, 60) is None  # the toolkit made it


def test_another_device_under_the_same_name() -> None:
    said = seen(0, 1).replace("open /dev/nvidia1 -", "open /dev/nvidia1 195:7")
    assert finding(said) == findings.OTHER_GPUS
    assert judged(seen(0, 1).replace("open /dev/nvidia1 -", "open /dev/nvidia1 195:1")) is None
    closed = seen(0, 1).replace(
        "open /dev/nvidia1 -", "closed /dev/nvidia1 195:7 sh: No such device"
    )
    assert finding(closed) == findings.OTHER_GPUS  # why it does not open


def test_another_card_under_the_same_node() -> None:
    said = "user 0\nopen /dev/kfd -\nopen /dev/dri/renderD128 226:128 {}\nend\n"
    found = facts(amd(0))
    assert judged(said.format("0000:00:00.0"), found, "devices") is None
    assert finding(said.format("0000:63:00.0"), found, "devices") == findings.OTHER_GPUS
    cut = facts(amd(0, partition_of="0000:00:00.0"))
    assert judged(said.format("0000:63:00.0"), cut, "devices") is None  # not to be compared


def test_gpus_that_were_not_asked_for() -> None:
    all_of_them = seen(0, 1)
    assert finding(all_of_them, devices="0") == findings.MORE_GPUS
    assert judged(seen(0), devices="0") is None
    other = judged(seen(1), devices="0")
    assert other is not None
    assert other.says == "the container sees /dev/nvidia1 in place of /dev/nvidia0"


def denied(node: str, words: str = "Permission denied") -> str:
    return f"user 1000\nclosed {node} - sh: 14: cannot open {node}: {words}\nend\n"


def test_a_node_that_jobs_may_not_open() -> None:
    assert (
        finding(denied("/dev/dri/renderD128"), facts(intel(0)), "devices") == findings.NODE_DENIED
    )
    node = denied("/dev/kfd").replace("end\n", "open /dev/dri/renderD128 -\nend\n")
    assert finding(node, facts(amd(0)), "devices") == findings.AMD_GROUP
    rootless = on(facts(amd(0)), rootless=True)  # where a group of this machine helps nobody
    assert finding(node, rootless, "devices") == findings.NODE_DENIED
    nvidia = seen(0, 1).replace("open /dev/nvidia1 -", "closed /dev/nvidia1 - Permission denied")
    mixed = facts(card(0), card(1), amd(2))
    said = nvidia.replace("end\n", "open /dev/kfd -\nopen /dev/dri/renderD130 -\nend\n")
    assert finding(said, mixed) == findings.NODE_DENIED  # NVIDIA's, though there is AMD


def test_selinux_only_where_it_keeps_containers_apart() -> None:
    enforcing = replace(facts(intel(0)), platform=Platform("linux", selinux="enforcing"))
    said = denied("/dev/dri/renderD128")
    assert (
        finding(said, enforcing, "devices") == findings.NODE_DENIED
    )  # Docker was not told of SELinux
    told = on(enforcing, security_options=("name=seccomp,profile=builtin", "name=selinux"))
    assert finding(said, told, "devices") == findings.SELINUX
    assert finding(said, on(enforcing, kind="podman"), "devices") == findings.SELINUX
    permissive = replace(told, platform=Platform("linux", selinux="permissive"))
    assert finding(said, permissive, "devices") == findings.NODE_DENIED


def test_the_device_cgroup_says_not_permitted() -> None:
    said = seen(0, 1).replace(
        "open /dev/nvidia1 -", "closed /dev/nvidia1 - sh: Operation not permitted"
    )
    toolkit = Toolkit("nvidia", "present", hook="/usr/bin/hook", no_cgroups=True)
    assert finding(said, on(TWO, toolkits=(toolkit,))) == findings.NO_CGROUPS
    assert finding(said, on(TWO, toolkits=(toolkit,), rootless=True)) == findings.NODE_DENIED
    assert finding(said) == findings.NODE_DENIED


def test_a_node_that_fails_in_another_way() -> None:
    said = seen(0, 1).replace("open /dev/nvidia1 -", "closed /dev/nvidia1 - sh: Input/output error")
    cause = judged(said)
    assert cause is not None
    assert (cause.finding, cause.says) == (
        findings.NODE_DOES_NOT_OPEN,
        "/dev/nvidia1 does not open in the container: Input/output error",
    )


# -- libraries ---------------------------------------------------------------------------------------

GONE = (
    "unloaded {} ERROR: ld.so: object '{}' from LD_PRELOAD cannot be preloaded (cannot open shared object "
    "file): ignored."
)


def with_library(name: str, line: str) -> str:
    kept = [item for item in seen(0, 1).splitlines() if not item.startswith(f"loaded {name} ")]
    return "\n".join([line, *kept]) + "\n"


def test_one_of_two_libraries_is_left_out_by_a_capability() -> None:
    nvml, cuda = LIBRARIES
    assert finding(with_library(cuda, GONE.format(cuda, cuda))) == findings.NO_COMPUTE_CAPABILITY
    utility = judged(with_library(nvml, GONE.format(nvml, nvml)))
    assert utility is not None
    assert utility.finding == findings.LIBRARY_DOES_NOT_LOAD
    assert "`utility`" in utility.says
    needy = (
        f"unloaded {cuda} libneeded.so: cannot open shared object file: No such file or directory"
    )
    assert finding(with_library(cuda, needy)) == findings.LIBRARY_DOES_NOT_LOAD


def test_no_library_at_all() -> None:
    lines = "\n".join(GONE.format(name, name) for name in LIBRARIES)
    said = seen(0, 1, libraries=()).replace("user 1000 1000", f"user 1000\n{lines}")
    cause = judged(said)
    assert cause is not None
    assert cause.finding == findings.LIBRARY_DOES_NOT_LOAD
    assert "libnvidia-ml.so.1, libcuda.so.1" in cause.says
    alpine = said.replace("user 1000", "user 1000\nmusl /lib/ld-musl-x86_64.so.1")
    assert finding(alpine) == findings.IMAGE_WITHOUT_GLIBC
    beside = seen(0, 1).replace("user 1000", "musl /lib/ld-musl-x86_64.so.1\nuser 1000")
    assert judged(beside) is None  # musl lies there, and glibc loads the driver


def test_an_image_without_a_loader_cannot_be_tested() -> None:
    assert finding(seen(0, 1, libraries=())) == findings.IMAGE_WITHOUT_SHELL
    assert judged(inside("/dev/dri/renderD128"), facts(intel(0)), "devices") is None


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("libcuda.so.1", "535.54.03", findings.LIBRARY_OF_ANOTHER_VERSION),
        ("libnvidia-ml.so.1", "535.54.03", findings.LIBRARY_OF_ANOTHER_VERSION),
        ("libnvidia-ml.so.1", "560.35.03", findings.LIBRARY_OF_ANOTHER_VERSION),
        ("libcuda.so.1", "560.35.03", None),  # forward compatibility, as CUDA images bring it
        ("libcuda.so.1", "1.1", None),  # Jetson and WSL: no version in the name
    ],
)
def test_a_library_of_another_version(name: str, version: str, expected: str | None) -> None:
    file = f"/usr/lib/{name[:-1]}"
    cause = judged(seen(0, 1).replace(file + DRIVER, file + version))
    assert (cause and cause.finding) == expected


# -- nvidia-smi --------------------------------------------------------------------------------------


def test_what_to_do_about_fewer_gpus() -> None:
    def steps(found: HostFacts, way: Mechanism | Handover) -> list[str | None]:
        cause = judged(inside("/dev/nvidia0", *COMMON), found, way)
        assert cause is not None
        assert cause.finding == findings.FEWER_GPUS
        return [step.command for step in cause.fix]

    assert steps(TWO, "device-request") == ["nvidia-container-cli list"]
    assert steps(on(TWO, toolkits=()), "device-request") == []
    told_of = on(TWO, cdi_specs=(two_cards_spec(),))
    assert steps(told_of, Handover("cdi", ids=("nvidia.com/gpu=all",))) == [
        "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    ]


def test_a_missing_library_by_what_is_known_of_the_toolkit() -> None:
    def steps(**toolkit: Any) -> list[str | None]:
        found = on(TWO, toolkits=(Toolkit("nvidia", "present", **toolkit),))
        cause = judged(seen(0, 1, libraries=LIBRARIES[:1]), found)
        assert cause is not None
        assert cause.finding == findings.NO_COMPUTE_CAPABILITY
        return [step.command for step in cause.fix]

    assert "supported-driver-capabilities" in (steps(capabilities=("utility",))[0] or "")
    assert steps()[1] == "sudo apt-get update && sudo apt-get install -y libcuda1 libnvidia-ml1"


def test_an_nvidia_smi_that_crashes_is_told_by_its_exit_code() -> None:
    crashed = inside(
        "/dev/nvidia0", "/dev/nvidia1", *COMMON, libraries=LIBRARIES, more="listing 139"
    )
    cause = judged(crashed)
    assert cause is not None
    assert (cause.finding, "exit code 139" in cause.says) == (findings.FEWER_GPUS, True)


def test_a_podman_that_does_not_read_cdi_devices() -> None:
    empty = "\n".join(
        [*(f"absent {node}" for node in ("/dev/nvidia0", "/dev/nvidia1", *COMMON)), "end"]
    )

    def found(version: str, said: str = empty, kind: str = "podman") -> str | None:
        old = on(TWO, kind=kind, server_version=version, cdi_specs=(two_cards_spec(),))
        return finding(said, old, "cdi")

    cause = judged(empty, on(TWO, kind="podman", server_version="4.9.3"), "cdi")
    assert cause is not None
    assert (cause.finding, "Podman (4.9.3)" in cause.says) == (findings.PODMAN, True)
    assert [step.text for step in cause.fix] == ["Install Podman 5.4 or newer"]
    assert found("5.4.2") == findings.FEWER_GPUS
    assert found("4.9.3", kind="engine") == findings.FEWER_GPUS
    assert found("4.9.3", empty.replace("absent /dev/nvidiactl", "open /dev/nvidiactl -")) in (
        findings.FEWER_GPUS, findings.STALE_CDI_SPEC,
    )  # fmt: skip


def test_the_list_of_nvidia_smi() -> None:
    short = judged(seen(0, 1, uuids=(uuid(0),)))
    assert short is not None
    assert short.finding == findings.FEWER_GPUS
    assert short.says == f"the container sees 1 of 2 GPUs: there is no {uuid(1)}"
    assert finding(seen(0, 1, uuids=(uuid(0), uuid(7)))) == findings.OTHER_GPUS
    assert finding(seen(0, 1, uuids=(uuid(0), uuid(1), uuid(7)))) == findings.MORE_GPUS
    halfway = replace(TWO, gpus=replace(TWO.gpus, complete=False))
    assert judged(seen(0, 1, uuids=(uuid(0), uuid(1), uuid(7))), halfway) is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("No devices found.", findings.FEWER_GPUS),
        ("Failed to initialize NVML: Driver/library version mismatch", findings.VERSIONS_DIFFER),
        ("", findings.FEWER_GPUS),
    ],
)
def test_a_tool_that_lists_none(words: str, expected: str) -> None:
    said = seen(0, 1, uuids=None).replace("end\n", f"listing 6\nsays {words}\nend\n")
    assert finding(said) == expected


def test_a_jetson_is_not_asked_for_a_list() -> None:
    orin = facts(card(0, uuid=None, driver="nvgpu", device_files=("/dev/nvmap",)))
    said = inside(
        "/dev/nvmap", libraries=("libcuda.so.1",), more="listing 9\nsays NVIDIA-SMI has failed"
    )
    assert judged(said, orin, "runtime") is None


# -- a CDI specification that is out of date --------------------------------------------------------


def cdi(said: CommandResult | str, **more: Any) -> Cause | None:
    return judged(said, on(TWO, cdi_specs=(two_cards_spec(**more),)), CDI)


def test_a_working_specification_is_never_called_stale() -> None:
    assert cdi(seen(0, 1), missing=("/usr/share/x.json",), driver_version="535.54.03") is None


def test_a_specification_of_another_driver() -> None:
    old = seen(0, 1).replace(DRIVER, "535.54.03")
    cause = cdi(old, driver_version="535.54.03")
    assert cause is not None
    assert cause.finding == findings.STALE_CDI_SPEC
    assert cause.says == (
        "the CDI specification /etc/cdi/nvidia.yaml is out of date: it is of driver 535.54.03, and this "
        f"machine's is {DRIVER}"
    )
    assert any("/etc/cdi/nvidia.yaml" in (step.command or "") for step in cause.fix)
    image = cdi(old)  # the specification is right: the image brings its own
    assert image is not None
    assert image.finding == findings.LIBRARY_OF_ANOTHER_VERSION


def test_a_specification_without_a_card() -> None:
    one = spec({"all": ("/dev/nvidia0",)})
    lacking = seen(0).replace("end\n", "absent /dev/nvidia1\nend\n")
    cause = judged(lacking, on(TWO, cdi_specs=(one,)), CDI)
    assert cause is not None
    assert cause.finding == findings.STALE_CDI_SPEC
    assert cause.says.endswith("it does not name /dev/nvidia1")
    fits = cdi(lacking)
    assert fits is not None
    assert fits.finding == findings.FEWER_GPUS
    request = judged(lacking, on(TWO, cdi_specs=(one,)), REQUEST)
    assert request is not None
    assert request.finding == findings.FEWER_GPUS  # another mechanism does not read it


def test_a_specification_that_names_what_is_gone() -> None:
    refused = ended(127, "", "docker: Error response from daemon: CDI device injection failed: failed to "
                    'inject devices: failed to stat CDI host device "/dev/nvidia2": no such file or '
                    "directory")  # fmt: skip
    cause = cdi(refused, missing=("/dev/nvidia2",))
    assert cause is not None
    assert cause.finding == findings.STALE_CDI_SPEC
    assert cause.says.endswith("it names /dev/nvidia2, which this machine does not have")
    unread = judged(refused, TWO, CDI)  # by the engine's words alone
    assert unread is not None
    assert unread.finding == findings.STALE_CDI_SPEC


def test_a_stale_specification_is_not_blamed_for_what_it_cannot_do() -> None:
    hang = cdi(TIMEOUT, driver_version="535.54.03")
    assert hang is not None
    assert hang.finding == findings.TEST_HUNG
    other = on(
        TWO,
        cdi_specs=(two_cards_spec(kind="amd.com/gpu", driver_version=None, missing=("/dev/x",)),),
    )
    cause = judged(seen(0), other, CDI)
    assert cause is not None
    assert cause.finding == findings.FEWER_GPUS


# -- anything ----------------------------------------------------------------------------------------


@given(st.text(), st.integers(0, 255), st.sampled_from([CDI, REQUEST, Handover("devices")]))
def test_any_ending_is_judged(text: str, code: int, handover: Handover) -> None:
    for result in (ended(code, text, ""), ended(code, "", text)):
        cause = judge(result, promised(TWO), handover, TWO, 60)
        assert cause is not None  # and no text that was not the look's is a proof
        assert cause.finding is None or cause.finding in findings.TITLES
