"""Which mechanisms an engine may have: a table of machines, and all recorded ones."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import probes
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import CdiSpec, Gpus, HostFacts, Platform, Toolkit
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.passthrough import Attempt, findings
from dshpc_setup.passthrough.candidates import candidates
from dshpc_setup.passthrough.handover import MECHANISMS, Handover
from tests.unit.passthrough.made import (
    CUT,
    ENGINE,
    PARTS,
    amd,
    card,
    facts,
    intel,
    on,
    planned,
    spec,
    told,
    two_cards_spec,
    uuid,
)

MACHINES = Path(__file__).parents[2] / "machines"
TWO = facts(card(0), card(1))
SPEC = two_cards_spec()
COMPUTE = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
AMD_TOOLKIT = Toolkit("amd", "present", runtime="/usr/bin/amd-container-runtime")


def rows(found: HostFacts, whole: bool = True, **settings: str) -> dict[str, Attempt]:
    every = candidates(found, planned(found, **settings), whole)
    assert tuple(row.mechanism for row in every) == MECHANISMS
    return {row.mechanism: row for row in every}


def handover(found: HostFacts, mechanism: str, **settings: str) -> Handover:
    row = rows(found, not settings, **settings)[mechanism]
    assert (row.state, row.finding) == ("untested", None), row.reason
    assert row.handover is not None
    return row.handover


def impossible(found: HostFacts, mechanism: str, **settings: str) -> Attempt:
    row = rows(found, not settings, **settings)[mechanism]
    assert (row.state, row.handover) == ("impossible", None)
    return row


# -- CDI ---------------------------------------------------------------------------------------------


def test_cdi_by_all_and_by_uuid() -> None:
    lists = on(TWO, cdi_devices=told(SPEC), cdi_specs=(SPEC,))
    assert handover(lists, "cdi") == Handover(
        "cdi", ids=("nvidia.com/gpu=all",), environment=COMPUTE
    )
    assert handover(lists, "cdi", devices="1").ids == (f"nvidia.com/gpu={uuid(1)}",)


def test_an_engine_that_does_not_list_devices_knows_those_of_the_files() -> None:
    older = on(TWO, server_version="26.1.5", cdi_specs=(SPEC,))
    assert handover(older, "cdi").ids == ("nvidia.com/gpu=all",)
    newest = on(older, server_version="28.5.2")  # would list them, and does not: a clash, or unread
    row = impossible(newest, "cdi")
    assert row.finding == findings.CDI_SPEC_UNREADABLE
    assert SPEC.path in row.reason


def test_a_device_without_a_name_of_its_uuid_goes_by_its_nodes_not_by_its_place() -> None:
    swapped = spec(
        {"0": ("/dev/nvidia1",), "1": ("/dev/nvidia0",), "all": ("/dev/nvidia0", "/dev/nvidia1")}
    )
    found = on(TWO, cdi_devices=told(swapped), cdi_specs=(swapped,))
    assert handover(found, "cdi", devices="0").ids == ("nvidia.com/gpu=1",)


def test_by_its_place_only_where_no_file_could_be_read() -> None:
    denied = CdiSpec("/etc/cdi/nvidia.yaml", "denied", detail="permission denied")
    found = on(TWO, cdi_devices=("nvidia.com/gpu=0", "nvidia.com/gpu=1"), cdi_specs=(denied,))
    assert handover(found, "cdi", devices="1").ids == ("nvidia.com/gpu=1",)
    assert handover(found, "cdi").ids == (
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=1",
    )  # there is no "all"


def test_a_file_that_only_the_engine_may_read_is_worth_a_try() -> None:
    denied = CdiSpec("/etc/cdi/nvidia.yaml", "denied", detail="permission denied")
    found = on(TWO, server_version="26.1.5", cdi_specs=(denied,))
    assert handover(found, "cdi").ids == ("nvidia.com/gpu=all",)
    assert impossible(found, "cdi", devices="0").finding == findings.CDI_SPEC_UNREADABLE


def test_mig_instances_by_uuid_or_by_their_capability_nodes() -> None:
    cut = facts(CUT)
    by_uuid = spec({"MIG-a": PARTS[0].device_files, "MIG-b": PARTS[1].device_files})
    found = on(cut, cdi_devices=told(by_uuid), cdi_specs=(by_uuid,))
    assert handover(found, "cdi").ids == ("nvidia.com/gpu=MIG-a", "nvidia.com/gpu=MIG-b")
    by_index = spec(
        {"0:0": PARTS[1].device_files, "0:1": PARTS[0].device_files, "0": ("/dev/nvidia0",)}
    )
    found = on(cut, cdi_devices=told(by_index), cdi_specs=(by_index,))
    assert handover(found, "cdi", devices="MIG-a").ids == ("nvidia.com/gpu=0:1",)
    # without the file nobody knows which of them 0:1 is
    assert impossible(on(found, cdi_specs=()), "cdi").finding == findings.STALE_CDI_SPEC


def test_a_whole_card_is_not_taken_for_a_part_of_a_stale_file() -> None:
    stale = spec(
        {"0:0": PARTS[0].device_files, "MIG-a": PARTS[0].device_files, "all": ("/dev/nvidia0",)}
    )
    found = on(facts(card(0)), cdi_devices=told(stale), cdi_specs=(stale,))
    row = impossible(found, "cdi", devices="0")
    assert row.finding == findings.STALE_CDI_SPEC
    assert SPEC.path in row.reason
    assert uuid(0) in row.reason
    assert any("cdi" in (step.command or "") for step in row.fix)


def test_a_card_with_a_problem_is_left_out_by_naming_the_others() -> None:
    lame = facts(card(0), card(1, problems=("DSH-NV-020",)))
    found = on(lame, cdi_devices=told(SPEC), cdi_specs=(SPEC,), runtimes=("nvidia",))
    assert handover(found, "cdi").ids == (f"nvidia.com/gpu={uuid(0)}",)
    assert handover(found, "device-request").ids == (uuid(0),)
    assert handover(found, "runtime").environment["NVIDIA_VISIBLE_DEVICES"] == uuid(0)


@pytest.mark.parametrize(
    ("engine", "finding", "word"),
    [
        ({"server_version": "20.10.24+dfsg1", "cdi_folders": ()}, findings.ENGINE_WITHOUT_CDI, "25.0"),
        ({"server_version": "24.0.9"}, findings.ENGINE_WITHOUT_CDI, "25.0"),
        ({"server_version": "25.0.5", "cdi_folders": ()}, findings.CDI_OFF, "not switched on"),
        ({"server_version": "28.1.1", "cdi_folders": ()}, findings.CDI_OFF, "not switched on"),
        ({"server_version": None, "cdi_folders": ()}, findings.CDI_OFF, "not switched on"),
        ({"server_version": "28.5.2"}, findings.NO_CDI_SPEC, "nvidia.com/gpu"),
        ({"kind": "podman", "server_version": "4.0.3"}, findings.ENGINE_WITHOUT_CDI, "4.1"),
        ({"kind": "podman", "server_version": "5.4.2", "cdi_folders": ()}, findings.NO_CDI_SPEC, "names"),
        ({"state": "absent", "server_version": None, "cdi_folders": ()}, None, "none answers"),
        ({"cdi_specs": (CdiSpec("/etc/cdi/nvidia.yaml", "error", detail="line 6"),)},
         findings.CDI_SPEC_UNREADABLE, "line 6"),
        ({"cdi_devices": ("amd.com/gpu=all", "nvidia.com/gpux=all")}, findings.NO_CDI_SPEC, "nvidia.com/gpu"),
    ],
)  # fmt: skip
def test_why_an_engine_has_no_cdi(engine: dict[str, Any], finding: str | None, word: str) -> None:
    row = impossible(on(TWO, **engine), "cdi")
    assert row.finding == finding
    assert word in row.reason


def test_without_a_toolkit_it_is_installed_before_a_specification_is_written() -> None:
    bare = on(TWO, toolkits=(Toolkit("nvidia", "absent"),))
    commands = [step.command or "" for step in impossible(bare, "cdi").fix]
    install = next(
        i for i, item in enumerate(commands) if "install -y nvidia-container-toolkit" in item
    )
    assert "cdi" in commands[-1]
    assert install < len(commands) - 1


# -- NVIDIA's other ways -----------------------------------------------------------------------------


def test_a_device_request_for_all_or_by_uuid() -> None:
    assert handover(TWO, "device-request") == Handover("device-request", environment=COMPUTE)
    chosen = handover(TWO, "device-request", devices="1")
    assert chosen.ids == (uuid(1),)
    assert chosen.docker_flags()[:2] == ("--gpus", f'"device={uuid(1)}"')
    old = facts(card(0, uuid=None), card(1))
    assert handover(old, "device-request", devices="0,1").ids == ("0", uuid(1))
    assert handover(facts(CUT), "device-request", devices="MIG-b").ids == ("MIG-b",)


def test_the_runtime_where_it_is_registered() -> None:
    found = on(TWO, runtimes=("nvidia", "runc"))
    assert handover(found, "runtime").environment == {"NVIDIA_VISIBLE_DEVICES": "all", **COMPUTE}
    one = handover(found, "runtime", devices="0,1")
    assert one.environment["NVIDIA_VISIBLE_DEVICES"] == f"{uuid(0)},{uuid(1)}"


@pytest.mark.parametrize(
    ("engine", "finding", "word"),
    [
        ({"registered": ("nvidia",)}, findings.NOT_RESTARTED, "daemon.json"),
        ({"toolkits": (Toolkit("nvidia", "absent"),)}, findings.NO_TOOLKIT, "not installed"),
        ({"toolkits": ()}, findings.NO_TOOLKIT, "not installed"),
        ({}, findings.RUNTIME_NOT_REGISTERED, "not registered"),
        ({"kind": "desktop"}, None, "Docker Desktop"),
        ({"kind": "podman", "runtimes": ("nvidia",)}, findings.PODMAN, "CDI"),
        ({"state": "timeout"}, None, "not known"),
    ],
)
def test_why_an_engine_has_no_runtime(
    engine: dict[str, Any], finding: str | None, word: str
) -> None:
    machine = replace(TWO, platform=Platform("wsl2")) if engine.get("kind") == "desktop" else TWO
    row = impossible(on(machine, **engine), "runtime")
    assert row.finding == finding
    assert word in row.reason


def test_podman_takes_no_device_request() -> None:
    assert impossible(on(TWO, kind="podman"), "device-request").finding == findings.PODMAN


def test_nvidia_has_no_raw_nodes() -> None:
    assert "driver" in impossible(TWO, "devices").reason


# -- AMD, Intel, both with NVIDIA -------------------------------------------------------------------


def test_amd_by_nodes_and_numeric_groups() -> None:
    found = facts(amd(0, group_ids=(993, 44)), amd(1))
    assert handover(found, "devices") == Handover(
        "devices",
        devices=(
            "/dev/kfd:/dev/kfd",
            "/dev/dri/renderD128:/dev/dri/renderD128",
            "/dev/dri/renderD129:/dev/dri/renderD129",
        ),
        group_add=(44, 993),
    )
    assert impossible(found, "runtime").finding == findings.NO_TOOLKIT
    assert impossible(found, "device-request").finding == findings.NO_TOOLKIT


def test_a_rootless_engine_counts_its_own_groups() -> None:
    assert handover(facts(amd(0)), "devices").group_add == (993,)
    assert handover(on(facts(amd(0)), rootless=True), "devices").group_add == ()


def test_a_snap_is_told_to_be_one_in_place_of_steps_that_it_does_not_see() -> None:
    for more in ({}, {"toolkits": ()}, {"registered": ("nvidia",)}):
        assert impossible(on(TWO, kind="snap", **more), "runtime").finding == findings.SNAP
    assert handover(on(TWO, kind="snap", runtimes=("nvidia",)), "runtime").driver == "nvidia"


def test_cdi_from_nothing_in_the_order_in_which_it_is_made() -> None:
    off = on(TWO, server_version="27.5.1", cdi_folders=(), cdi_specs=())
    bare = impossible(on(off, toolkits=()), "cdi").fix
    words = [step.text.split()[0] for step in bare]
    assert words == ["Add", "Install", "Register", "Write", "Switch", "Restart"]
    assert [step.text.split()[0] for step in impossible(off, "cdi").fix] == [
        "Write",
        "Switch",
        "Restart",
    ]
    with_spec = impossible(on(off, cdi_specs=(SPEC,)), "cdi").fix
    assert [step.text.split()[0] for step in with_spec] == ["Switch", "Restart"]


@pytest.mark.parametrize(
    ("engine", "word", "step"),
    [
        ({"rootless": True}, "sees only what was there", "systemctl --user restart docker"),
        ({"rootless": False}, "clashes", "docker info"),
        ({"rootless": True, "kind": "podman"}, None, None),  # it lists none: the file itself counts
    ],
)
def test_a_specification_that_the_engine_does_not_list(
    engine: dict[str, Any], word: str | None, step: str | None
) -> None:
    row = rows(on(TWO, cdi_specs=(SPEC,), cdi_devices=(), **engine))["cdi"]
    assert (row.finding == findings.CDI_SPEC_UNREADABLE) is (word is not None)
    assert word is None or word in row.reason
    assert step is None or (row.fix[0].command or "").startswith(step)


def test_partitions_of_one_amd_card_each_by_its_node() -> None:
    cut = [amd(index, pci_bus_id="0000:05:00.0", partition_of="0000:05:00.0") for index in range(8)]
    found = facts(*cut)
    assert len(handover(found, "devices").devices) == 9
    assert handover(found, "devices", devices="3,5").devices == (
        "/dev/kfd:/dev/kfd",
        "/dev/dri/renderD131:/dev/dri/renderD131",
        "/dev/dri/renderD133:/dev/dri/renderD133",
    )


def test_amd_by_its_toolkit() -> None:
    amd_spec = spec(
        {
            "0": ("/dev/dri/card1", "/dev/dri/renderD128"),
            "1": ("/dev/dri/card2", "/dev/dri/renderD129"),
        },
        "amd.com/gpu",
        "/etc/cdi/amd.json",
        nodes=("/dev/kfd",),
    )
    engine = replace(
        ENGINE, runtimes=("amd", "runc"), toolkits=(AMD_TOOLKIT,),
        cdi_devices=told(amd_spec), cdi_specs=(amd_spec,),
    )  # fmt: skip
    found = facts(amd(0), amd(1), engine=engine)
    assert handover(found, "cdi").ids == ("amd.com/gpu=0", "amd.com/gpu=1")
    assert handover(found, "cdi", devices="1").ids == ("amd.com/gpu=1",)
    assert handover(found, "cdi").environment == {}
    assert handover(found, "runtime") == Handover(
        "runtime", driver="amd", environment={"AMD_VISIBLE_DEVICES": "all"}, group_add=(993,)
    )
    assert handover(found, "runtime", devices="1").environment == {"AMD_VISIBLE_DEVICES": "1"}
    request = handover(found, "device-request", devices="1")
    assert request.docker_flags()[:2] == ("--gpus", '"device=1",driver=amd')


@pytest.mark.parametrize(
    ("engine", "works"),
    [
        ({"server_version": "28.2.2", "toolkits": (AMD_TOOLKIT,)}, False),
        ({"server_version": "28.3.0", "toolkits": (AMD_TOOLKIT,)}, True),
        ({"server_version": "28.3.0", "cdi_devices": ("amd.com/gpu=all",)}, False),
        ({"server_version": "29.3.0", "cdi_devices": ("amd.com/gpu=all",)}, True),
        ({"server_version": "29.3.0", "cdi_devices": ("nvidia.com/gpu=all",)}, False),
    ],
)
def test_which_engines_know_amd_by_a_device_request(engine: dict[str, Any], works: bool) -> None:
    row = rows(on(facts(amd(0)), **engine))["device-request"]
    assert (row.state == "untested") is works


def test_intel_by_cdi_or_by_nodes() -> None:
    names = {"0000:00:00.0-0x0bd5": ("/dev/dri/card0", "/dev/dri/renderD128"),
             "0000:01:00.0-0x0bd5": ("/dev/dri/card1", "/dev/dri/renderD129")}  # fmt: skip
    item = spec(names, "intel.com/gpu", "/etc/cdi/intel.yaml", nodes=())
    found = on(facts(intel(0), intel(1)), cdi_devices=told(item), cdi_specs=(item,))
    assert handover(found, "cdi", devices="1").ids == ("intel.com/gpu=0000:01:00.0-0x0bd5",)
    assert len(handover(found, "cdi").ids) == 2
    assert handover(found, "devices").group_add == (109,)
    assert impossible(found, "runtime").finding is None
    assert impossible(found, "device-request").finding is None


def test_another_vendors_nodes_join_nvidias_mechanism() -> None:
    found = on(
        facts(card(0), amd(1)), cdi_devices=told(SPEC), cdi_specs=(SPEC,), runtimes=("nvidia",)
    )
    nodes = ("/dev/kfd:/dev/kfd", "/dev/dri/renderD129:/dev/dri/renderD129")
    for mechanism in ("cdi", "device-request", "runtime"):
        joined = handover(found, mechanism)
        assert joined.devices == nodes
        assert joined.group_add == (993,)
    both = on(found, cdi_devices=(*told(SPEC), "amd.com/gpu=all"))
    assert handover(both, "cdi").ids == ("nvidia.com/gpu=all", "amd.com/gpu=all")
    assert handover(both, "cdi").devices == ()
    assert handover(found, "device-request", devices="0").devices == ()
    assert impossible(found, "devices").finding is None


# -- WSL, Docker Desktop, elsewhere -----------------------------------------------------------------

WSL = replace(
    facts(
        card(0, device_files=("/dev/dxg",), driver=None),
        card(1, device_files=("/dev/dxg",), driver=None),
    ),
    platform=Platform("wsl2", os_id="ubuntu"),
)


def test_wsl_with_an_engine_inside() -> None:
    item = spec({"all": ("/dev/dxg",)}, nodes=())
    found = on(WSL, cdi_devices=told(item), cdi_specs=(item,))
    assert handover(found, "cdi").ids == ("nvidia.com/gpu=all",)
    row = impossible(found, "cdi", devices="0")
    assert (row.finding, "WSL" in row.reason) == (None, True)
    assert handover(found, "devices") == Handover(
        "devices",
        devices=("/dev/dxg:/dev/dxg",),
        volumes=("/usr/lib/wsl:/usr/lib/wsl:ro",),
        environment={"LD_LIBRARY_PATH": "/usr/lib/wsl/lib"},
    )


def test_wsl_with_docker_desktop() -> None:
    found = on(WSL, kind="desktop", runtimes=("nvidia",), cdi_devices=("docker.com/gpu=webgpu",))
    assert impossible(found, "cdi").finding == findings.DESKTOP_CDI
    assert handover(found, "device-request").ids == ()
    assert handover(found, "runtime").driver == "nvidia"


def test_amd_on_wsl_is_told_to_look_for_the_node() -> None:
    gpu = amd(0, device_files=("/dev/dxg",), driver=None, group_ids=())
    found = replace(facts(gpu), platform=Platform("wsl2"))
    given = handover(found, "devices")
    assert given.environment["HSA_ENABLE_DXG_DETECTION"] == "1"
    assert given.devices == ("/dev/dxg:/dev/dxg",)


@pytest.mark.parametrize(
    ("kind", "platform", "finding"),
    [
        ("remote", "linux", findings.REMOTE_ENGINE),
        ("remote", "wsl2", findings.REMOTE_ENGINE),
        ("desktop", "linux", findings.DESKTOP_VM),
        ("desktop", "macos", findings.DESKTOP_VM),
    ],
)
def test_engines_that_reach_no_gpu_of_this_machine(kind: Any, platform: Any, finding: str) -> None:
    found = replace(on(TWO, kind=kind, host="ssh://other"), platform=Platform(platform))
    every = rows(found)
    assert {row.finding for row in every.values()} == {finding}
    assert len({row.reason for row in every.values()}) == 1
    assert all(row.fix for row in every.values())


def test_an_engine_that_is_not_there_yet_will_have_device_requests() -> None:
    none = on(TWO, state="absent", kind=None, server_version=None, cdi_folders=(), runtimes=())
    assert [row.state for row in rows(none).values()] == [
        "impossible", "untested", "impossible", "impossible",
    ]  # fmt: skip


# -- all recorded machines, and odd names -----------------------------------------------------------

_FLAG = re.compile(r"--(?:device|gpus|runtime|volume|group-add|env)")


def check(row: Attempt) -> None:
    assert row.reason
    assert not row.reason.endswith(".")
    assert row.finding is None or row.finding in findings.TITLES
    assert row.state in ("untested", "impossible")
    if row.state == "impossible":
        assert row.handover is None
        return
    assert row.handover is not None
    assert row.handover.mechanism == row.mechanism
    flags = row.handover.docker_flags()
    assert len(flags) % 2 == 0
    assert all(_FLAG.fullmatch(flag) for flag in flags[::2])
    assert not any(value.startswith("-") or not value.isprintable() for value in flags[1::2])
    devices = [
        value for flag, value in zip(flags[::2], flags[1::2], strict=True) if flag == "--device"
    ]
    named = row.handover.ids if row.mechanism == "cdi" else ()
    assert all(value in named or re.fullmatch(r"(/dev/[^:,]+):\1", value) for value in devices)


@pytest.mark.parametrize("name", sorted(path.name for path in MACHINES.iterdir() if path.is_dir()))
def test_every_recorded_machine_has_its_rows(name: str) -> None:
    found = probes.gather(RecordedMachine(str(MACHINES / name)))
    try:
        plan = planned(found)
    except DshpcError:  # its CPUs or memory cannot be read: no cluster
        return
    if not plan.gres:
        return
    every = candidates(found, plan)
    assert tuple(row.mechanism for row in every) == MECHANISMS
    for row in every:
        check(row)
    one = candidates(found, planned(found, devices=str(plan.gres[0].index)), False)
    for row in one:
        check(row)


odd = st.text(max_size=12) | st.sampled_from(
    ["--privileged", "-v", '0","driver=x', "0,1", "all", "", "GPU-1 ", 'a"b', "a=b", "../x", "a\nb"]
)


@given(odd, odd, st.booleans())
def test_no_name_that_a_machine_tells_becomes_another_option(
    name: str, file: str, whole: bool
) -> None:
    gpus = (card(0, uuid=name), amd(1, device_files=(f"/dev/{file}",)), card(2))
    engine = replace(
        ENGINE,
        runtimes=("nvidia", "amd"),
        cdi_devices=(f"nvidia.com/gpu={name}", f"amd.com/gpu={file}", f"nvidia.com/gpu={uuid(2)}"),
    )
    found = replace(facts(engine=engine), gpus=Gpus("present", gpus))
    for row in candidates(found, planned(found), whole):
        check(row)
        if row.handover is None:
            continue
        for value in (*row.handover.ids, *row.handover.environment.values()):
            assert not set(value) & set('"\n\r ')
        if row.mechanism == "device-request" and row.handover.ids:
            _, wanted = row.handover.docker_flags()[:2]
            assert wanted == '"device=' + ",".join(row.handover.ids) + '"'
            assert wanted.count(",") == len(row.handover.ids) - 1
