"""NVIDIA's layers put together: what is listed, what is left out, what contradicts what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dshpc_setup import probes
from dshpc_setup.diagnose import CheckInput, diagnose
from dshpc_setup.facts import Cpu, Engine, Fabric, Gpus, HostFacts, Link, Memory, Platform
from dshpc_setup.machine import CommandResult, Reply
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.plan import plan_cluster
from dshpc_setup.probes.amd import probe as amd
from dshpc_setup.probes.nvidia import devices as nvidia_devices
from dshpc_setup.probes.nvidia import probe as nvidia
from dshpc_setup.probes.nvidia.layers import Layers
from dshpc_setup.probes.trace import Trace
from dshpc_setup.settings import Settings
from dshpc_setup.vendors.intel import probe as intel
from tests.unit.machine.in_place import EMPTY
from tests.unit.probes.nvidia_machine import (
    MACHINES,
    UUID,
    card,
    gpu,
    gpus,
    host,
    machine,
    present,
    probed,
)

XML = ["nvidia-smi", "-q", "-x"]
PLAIN = ["nvidia-smi", "-q"]
CSV = [
    "nvidia-smi",
    "--query-gpu=index,uuid,pci.bus_id,memory.total,driver_version,mig.mode.current,"
    "persistence_mode,compute_mode,ecc.mode.current,compute_cap,name",
    "--format=csv,noheader,nounits",
]
POORER = [[CSV[0], CSV[1].replace("compute_cap,", ""), CSV[2]]]
POORER += [[CSV[0], f"{CSV[1].partition(',mig')[0]},name", CSV[2]]]
LIST = ["nvidia-smi", "-L"]


def states(found: Any, probe: str) -> list[str]:
    return [item.state for item in found.evidence if item.probe == probe]


def test_a_host_that_is_well_has_no_contradiction(tmp_path: Path) -> None:
    found = nvidia.probe(machine(tmp_path, host(2), nvml=present(gpu(0), gpu(1))), 1.0).fact
    assert (found.state, found.detail) == ("present", None)
    assert (found.unused, found.disagreements) == ((), ())
    assert [device.minor for device in found.devices] == [0, 1]
    assert {device.driver for device in found.devices} == {"nvidia"}


@pytest.mark.parametrize(
    "probe", ["nvidia-pci", "nvidia-module", "nvidia-nodes", "nvml", "nvidia-proc"]
)
def test_every_layer_leaves_its_evidence(probe: str) -> None:
    assert states(probed("h100x8-nvlink"), probe) == ["present"]


def test_the_librarys_own_error_number_is_kept() -> None:
    found = probed("a100x2-version-mismatch")
    assert [item.code for item in found.evidence if item.probe == "nvml"] == [18]


def test_links_are_counted_by_peer() -> None:
    device = gpus("h100x8-nvlink").devices[0]
    assert device.links[0] == Link("nvlink", 5, "0000:07:00.0", "switch")
    assert sum(link.count for link in device.links) == 18
    assert device.fabric == Fabric("completed", 0)
    assert device.problems == ()


def test_links_whose_peer_is_not_told_are_counted_together() -> None:
    links = [{"link": 0, "kind": "switch"}, {"link": 1, "kind": "switch"}, {"link": 2}]
    value = present(gpu(0, nvlinks=links))["value"]
    (device,) = nvidia_devices.build(Trace(EMPTY), Layers(), value)
    assert device.links == (Link("nvlink", 2, None, "switch"), Link("nvlink", 1))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("h100x8-fabric-not-started", "DSH-NV-019"),
        ("a100x2-one-prohibited", "DSH-NV-028"),
        ("h100x8-one-lost", "DSH-NV-020"),
        ("h100-mig-no-instances", "DSH-NV-018"),
    ],
)
def test_what_keeps_jobs_away_is_a_problem(name: str, problem: str) -> None:
    assert any(problem in device.problems for device in gpus(name).devices)


@pytest.mark.parametrize(
    "name", ["h100x8-nvlink", "h100-guest-no-fabric", "a100-ecc-persistence-off", "gh200"]
)
def test_what_keeps_no_job_away_is_none(name: str) -> None:
    assert not any(device.problems for device in gpus(name).devices)


def test_persistence_ecc_mode_and_virtualization() -> None:
    (device,) = gpus("a100-ecc-persistence-off").devices
    assert (device.persistence, device.ecc) == (False, False)
    assert (device.compute_mode, device.virtualization) == ("exclusive-process", "none")
    assert gpus("l40s-vgpu-guest").devices[0].virtualization == "vgpu"
    assert gpus("a40-vgpu-host").devices[0].virtualization == "host-vgpu"
    assert gpus("h100-guest-no-fabric").devices[0].virtualization == "passthrough"


def test_refused_fields_are_not_known() -> None:
    (device,) = gpus("orin-jetpack6").devices
    fields = (device.persistence, device.ecc, device.compute_mode, device.virtualization)
    assert fields == (None, None, None, None)
    assert (device.memory_mib, device.pci_bus_id, device.minor) == (None, None, None)


def test_mixed_cards_and_modes() -> None:
    cut, whole, other = gpus("h100-mixed-mig").devices
    assert [part.profile for part in cut.mig] == ["3g.40gb", "3g.40gb"]
    assert cut.mig[1].device_files[1:] == (
        "/dev/nvidia-caps/nvidia-cap21",
        "/dev/nvidia-caps/nvidia-cap22",
    )
    assert (whole.mig_mode, other.mig_mode) == ("disabled", "unsupported")
    assert [device.slurm_type for device in (cut, whole, other)] == ["h100", "h100", "t4"]


def test_the_node_of_a_gpus_own_memory_is_not_the_node_it_hangs_on() -> None:
    (device,) = gpus("gh200").devices
    assert (device.numa_node, device.cores, device.unified_memory) == (0, "0-71", False)


@pytest.mark.parametrize(
    ("name", "address", "reason"),
    [
        ("h100x2-one-vfio", "0000:81:00.0", "vfio-pci: handed to virtual machines"),
        ("workstation-rtx4090-vfio", "0000:01:00.0", "vfio-pci: handed to virtual machines"),
        ("a5000-nouveau-beside", "0000:02:00.0", "bound to nouveau"),
        ("a5000-nouveau-beside", "0000:03:00.0", "no kernel driver"),
        ("a100x2-excluded-card", "0000:81:00.0", "excluded by a setting"),
        ("a100x2-one-not-started", "0000:81:00.0", "not listed by NVML"),
        ("a40-vgpu-host", "0000:65:00.5", "virtual function of 0000:65:00.0"),
        ("h100x4-nvml-hangs-halfway", "0000:c3:00.0", "ended before"),
    ],
)
def test_cards_that_are_not_counted(name: str, address: str, reason: str) -> None:
    (found,) = (item for item in gpus(name).unused if item.pci_bus_id == address)
    assert reason in found.reason


def test_a_container_says_nothing_of_its_hosts_other_cards() -> None:
    found = gpus("container-h100-two-of-eight")
    assert len(found.devices) == 2
    assert (found.unused, found.disagreements) == ((), ())


@pytest.mark.parametrize(
    ("name", "about", "finding"),
    [
        ("a100x2-version-mismatch", "driver version", "DSH-NV-001"),
        ("rtx4090-proc-disagrees", "driver version", "DSH-NV-001"),
        ("rtx4090-proc-disagrees", "/dev/nvidia1", "DSH-GP-009"),
        ("rtx4090-proc-disagrees", "0000:01:00.0", None),
        ("rtx4090-off-the-bus", "0000:21:00.0", None),
        ("a100x2-one-not-started", "0000:81:00.0", None),
        ("h100x4-nvml-hangs-halfway", "number of GPUs", None),
        ("h100x4-nvml-crashes-smi-lists", "number of GPUs", None),
        ("nvidia-smi-without-a-card", "NVIDIA driver", None),
        ("container-nvidia-smi-without-a-card", "NVIDIA driver", None),
        ("wsl2-linux-driver-inside", "NVIDIA driver in WSL", "DSH-NV-031"),
        ("wsl2-linux-driver-inside-unharmed", "NVIDIA driver in WSL", "DSH-NV-031"),
    ],
)
def test_contradictions_are_told(name: str, about: str, finding: str | None) -> None:
    found = [item for item in gpus(name).disagreements if item.about == about]
    assert found, "nobody told"
    assert found[0].finding == finding
    assert len(found[0].layers) > 1
    assert found[0].meaning


@pytest.mark.parametrize(
    "name",
    [
        "h100x8-nvlink", "h100x8-one-lost", "a100x2-excluded-card", "h100x2-one-vfio",
        "a40-vgpu-host", "a10x2-nvidia-smi-xml-only", "orin-jetpack6", "orin-jetpack5-no-nvml",
        "thor", "gh200", "gb10-unified-memory", "wsl2-rtx3080", "workstation-rtx4090",
    ],
)  # fmt: skip
def test_where_all_layers_agree_nothing_is_told(name: str) -> None:
    assert gpus(name).disagreements == ()


def test_the_file_of_the_library_tells_its_version(tmp_path: Path) -> None:
    root = host(1) + "-- usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 -> libnvidia-ml.so.570.1.2 --\n"
    refused = {"state": "error", "code": 18, "detail": "mismatch"}
    (told,) = nvidia.probe(machine(tmp_path, root, nvml=refused), 1.0).fact.disagreements
    assert "570.1.2" in told.layers[-1].says


def test_a_lost_card_keeps_the_name_that_the_kernel_has(tmp_path: Path) -> None:
    root = host(2) + (
        "-- proc/driver/nvidia/gpus/0000:02:00.0/information --\n"
        "Model: \t\t Tesla T4\nDevice Minor: \t 1\n"
    )
    lost = {"index": 1, "error": 15, "text": "GPU is lost"}
    found = nvidia.probe(machine(tmp_path, root, nvml=present(gpu(0), lost)), 1.0).fact
    assert (found.devices[1].name, found.devices[1].slurm_type) == ("Tesla T4", "t4")
    assert found.devices[1].problems == ("DSH-NV-020",)
    assert found.devices[0].problems == ()


def test_a_listed_card_that_nvidias_driver_does_not_hold(tmp_path: Path) -> None:
    nodes = "-- dev/nvidia0 device --\n-- dev/nvidiactl device --\n"
    root = card("0000:01:00.0", driver=None) + nodes
    found = nvidia.probe(machine(tmp_path, root, nvml=present(gpu(0))), 1.0).fact
    assert (found.state, found.unused) == ("present", ())
    (told,) = found.disagreements
    assert "held by no driver" in told.layers[1].says


# --- who is asked


def test_nvidia_smi_is_not_asked_where_nvml_answers_or_hangs_or_refuses() -> None:
    for name in ("workstation-rtx4090", "a100x2-nvml-denied", "workstation-rtx4090-nvml-hangs"):
        found = probed(name)
        assert states(found, "nvidia-smi") == []
        (conclusion,) = (item for item in found.conclusions if item.about == "gpus nvidia")
        assert any(item.source == "nvidia-smi" for item in conclusion.instead)


def test_xml_comes_first_then_the_log_then_csv_then_the_list(tmp_path: Path) -> None:
    commands: list[dict[str, Any]] = [
        {"argv": XML, "code": 2, "stderr": "unknown option"},
        {"argv": PLAIN, "code": 2, "stderr": "unknown option"},
        {"argv": CSV, "code": 2, "stderr": "unknown option"},
        *({"argv": argv, "code": 2, "stderr": "unknown option"} for argv in POORER),
        {"argv": LIST, "stdout": f"GPU 0: Tesla T4 (UUID: {gpu(0)['uuid']})\n"},
    ]
    found = nvidia.probe(machine(tmp_path, host(1), commands=commands), 1.0)
    assert states(found, "nvidia-smi") == ["error"] * 5 + ["present"]
    assert found.fact.devices[0].name == "Tesla T4"
    assert found.fact.devices[0].device_files == ("/dev/nvidia0",), "one GPU, one node"


def test_a_tool_that_gives_up_is_not_asked_again(tmp_path: Path) -> None:
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    commands = [{"argv": XML, "code": 9, "stdout": words}]
    found = nvidia.probe(machine(tmp_path, host(1), commands=commands), 1.0)
    assert states(found, "nvidia-smi") == ["error"]
    (item,) = (item for item in found.evidence if item.probe == "nvidia-smi")
    assert (item.detail, item.code) == (words, 9)
    assert found.fact.state == "error"


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (
            {"stdout": "<nvidia_smi_log><gpu id="},
            "error",
            "is not a list of GPUs: <nvidia_smi_log><gpu",
        ),
        ({"code": 0}, "error", "printed nothing (exit code 0)"),
        ({"code": -11}, "error", "printed nothing (exit code -11)"),
        ({"state": "denied", "stderr": "Exec format error"}, "error", "Exec format error"),
        (
            {"code": 4, "stdout": "Failed to initialize NVML: Insufficient Permissions\n"},
            "denied",
            "no permission",
        ),
        (
            {"code": 18, "stdout": "Failed to initialize NVML: Driver/library version mismatch\n"},
            "error",
            "different versions",
        ),
        (
            {"code": 255, "stdout": "Failed to initialize NVML: Unknown Error\n"},
            "error",
            "unknown error",
        ),
        ({"code": 6, "stdout": "No devices were found\n"}, "absent", "lists no GPU"),
        ({"code": 9, "stdout": "Failed to initialize NVML: Driver Not Loaded\n"}, "absent", "no"),
    ],
)
def test_only_a_tool_that_says_so_has_nothing(
    tmp_path: Path, answer: dict[str, Any], state: str, words: str
) -> None:
    commands = [{"argv": argv, **answer} for argv in (XML, PLAIN, CSV, *POORER, LIST)]
    found = nvidia.probe(machine(tmp_path, "", commands=commands), 1.0).fact
    assert (found.state, words in (found.detail or "")) == (state, True), found.detail


def test_a_log_has_no_compute_capability(tmp_path: Path) -> None:
    uuid = gpu(0)["uuid"]
    log = f"<nvidia_smi_log><gpu><product_name>L4</product_name><uuid>{uuid}</uuid></gpu>"
    row = f"0, {uuid}, 00000000:01:00.0, 23034, 550.1, [N/A], Enabled, Default, Enabled, 8.9, L4\n"
    commands = [{"argv": XML, "stdout": log}, {"argv": CSV, "stdout": row}]
    (device,) = nvidia.probe(machine(tmp_path, host(1), commands=commands), 1.0).fact.devices
    assert (device.compute, device.persistence, device.ecc) == ("8.9", True, True)


def test_an_older_tool_is_asked_for_less(tmp_path: Path) -> None:
    row = f"0, {gpu(0)['uuid']}, 00000000:01:00.0, 15360, 440.1, T4\n"
    refused = 'Field "compute_cap" is not a valid field to query.\n'
    commands = [
        {"argv": argv, "code": 2, "stdout": refused} for argv in (XML, PLAIN, CSV, POORER[0])
    ]
    commands.append({"argv": POORER[1], "stdout": row})
    (device,) = nvidia.probe(machine(tmp_path, host(1), commands=commands), 1.0).fact.devices
    assert (device.name, device.memory_mib, device.pci_bus_id) == ("T4", 15360, "0000:01:00.0")


def test_a_tool_that_hangs_is_a_timeout(tmp_path: Path) -> None:
    commands = [{"argv": XML, "state": "timeout"}]
    found = nvidia.probe(machine(tmp_path, host(1), commands=commands), 1.0)
    assert (found.fact.state, states(found, "nvidia-smi")) == ("timeout", ["timeout"])
    assert "nvidia-smi gave no answer" in (found.fact.detail or "")


def test_nodes_are_given_to_gpus_only_where_there_are_as_many(tmp_path: Path) -> None:
    lines = "".join(f"GPU {number}: L4 (UUID: {gpu(number)['uuid']})\n" for number in range(2))
    commands: list[dict[str, Any]] = [
        {"argv": XML, "code": 2},
        {"argv": PLAIN, "code": 2},
        *({"argv": argv, "code": 2} for argv in (CSV, *POORER)),
        {"argv": LIST, "stdout": lines},
    ]
    found = nvidia.probe(machine(tmp_path, host(3), commands=commands), 1.0).fact
    assert [device.device_files for device in found.devices] == [(), ()]


@pytest.mark.parametrize(
    "path",
    [
        "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "lib64/libnvidia-ml.so.1",
        "opt/stand-in/libnvidia-ml.so.1",
    ],
)
def test_a_library_on_the_loaders_path_is_used_as_the_real_one(tmp_path: Path, path: str) -> None:
    env = {"LD_LIBRARY_PATH": "/opt/stand-in/:"}
    found = nvidia.probe(machine(tmp_path, f"-- {path} --\n", nvml=present(gpu(0)), env=env), 1.0)
    assert found.fact.state == "present"
    told = [item.about for item in found.fact.disagreements]
    assert told == ["NVIDIA driver", "/dev/nvidia0", "/dev/nvidiactl"]
    assert found.fact.devices[0].problems == ("DSH-GP-009",), "no job gets what is not there"


def test_a_library_elsewhere_is_no_hint(tmp_path: Path) -> None:
    root = "-- opt/stand-in/libnvidia-ml.so.1 --\n"
    found = nvidia.probe(machine(tmp_path, root, nvml=present(gpu(0))), 1.0)
    assert (found.fact.state, states(found, "nvml")) == ("absent", [])


def test_in_a_container_of_a_host_with_cards_the_node_decides(tmp_path: Path) -> None:
    root = card("0000:01:00.0") + "-- .dockerenv --\n-- lib/libnvidia-ml.so.1 --\n"
    found = nvidia.probe(machine(tmp_path, root, nvml=present(gpu(0))), 1.0).fact
    assert found.state == "absent"
    assert "no device node" in (found.detail or "")


# --- lists that were cut short


def test_a_list_that_was_cut_short_is_planned_with_what_it_has() -> None:
    found = gpus("h100x4-nvml-hangs-halfway")
    facts = HostFacts(
        Platform("linux"), Cpu(64, usable=64), Memory(9000, 9000), found, Engine("absent")
    )
    plan = plan_cluster(facts, Settings())
    assert plan.gres_text == "gpu:h100:2"
    assert found.detail == "NVML stopped answering after 2 of 4 GPUs: 2 more are not known"
    assert states(probed("h100x4-nvml-hangs-halfway"), "nvml") == ["timeout"]


def test_a_crash_halfway_is_fixed_by_a_tool_that_lists_them_all() -> None:
    devices = gpus("h100x4-nvml-crashes-smi-lists").devices
    assert [device.minor for device in devices] == [0, 1, 2, 3]
    assert [device.compute for device in devices] == ["9.0", "9.0", None, None]


class NoDevices(RecordedMachine):
    """A machine whose record of NVML has a number where the devices belong."""

    def nvml(self, deadline_s: float) -> Reply:
        return replace(super().nvml(deadline_s), value={"devices": 1.5})


def test_a_record_without_a_list_of_devices_is_read() -> None:
    found = nvidia.probe(NoDevices(MACHINES / "h100x4-nvml-crashes-smi-lists"), 1.0).fact
    assert [device.minor for device in found.devices] == [0, 1, 2, 3]
    assert "number of GPUs" not in {each.about for each in found.disagreements}


def test_a_refused_count_is_no_zero(tmp_path: Path) -> None:
    reply = present(errors={"count": 999})
    found = nvidia.probe(machine(tmp_path, host(0), nvml=reply), 1.0).fact
    assert (found.state, found.detail) == (
        "error",
        "the NVIDIA driver answers with an unknown error",
    )


def test_a_library_that_cannot_be_loaded_is_there(tmp_path: Path) -> None:
    reply = {"state": "absent", "code": 12, "detail": "NVML Shared Library Not Found"}
    root = "-- usr/lib/libnvidia-ml.so.1 there --\n"
    found = nvidia.probe(machine(tmp_path, root, nvml=reply), 1.0).fact
    assert found.state == "absent"
    assert "/usr/lib/libnvidia-ml.so.1 cannot be loaded" in (found.detail or "")


@pytest.mark.parametrize(
    ("path", "state"),
    [
        ("sys/bus/pci/devices", "denied"),
        ("sys/bus/pci/devices/0000:01:00.0/vendor", "denied"),
        ("sys/class/drm", "absent"),
    ],
)
def test_what_may_not_be_read_is_no_absence(tmp_path: Path, path: str, state: str) -> None:
    made = machine(tmp_path, f"-- {path} denied --\nPermission denied\n")
    for probe in (nvidia.probe, amd.probe, intel.probe):
        fact = probe(made, 1.0).fact
        assert (fact.state, fact.state == "absent" or path[1:20] in (fact.detail or "")) == (
            state,
            True,
        )


def test_of_a_container_the_device_nodes_tell(tmp_path: Path) -> None:
    root = "-- .dockerenv --\n-- sys/bus/pci/devices denied --\nPermission denied\n"
    assert nvidia.probe(machine(tmp_path, root), 1.0).fact.state == "absent"


def test_an_excluded_card_alone_is_none(tmp_path: Path) -> None:
    root = host(1) + (
        "-- proc/driver/nvidia/gpus/0000:01:00.0/information --\nGPU Excluded:\t Yes\n"
    )
    found = nvidia.probe(machine(tmp_path, root, nvml=present()), 1.0).fact
    assert (found.state, found.detail) == (
        "absent",
        "a setting of the driver excludes every NVIDIA card",
    )


# --- conclusions


def test_each_gpu_has_a_conclusion_that_names_its_sources() -> None:
    found = probed("t4-nvidia-smi-only")
    (conclusion,) = (item for item in found.conclusions if item.about == "gpu 0000:00:1e.0")
    sources = [item.source for item in conclusion.because]
    assert "nvidia-smi" in sources
    assert "/proc/driver/nvidia/gpus/0000:00:1e.0/information" in sources, "the minor number"


@pytest.mark.parametrize("name", ["vm-no-gpu", "container-none-handed-over", "h100x8-nvlink"])
def test_the_number_is_always_concluded(name: str) -> None:
    abouts = [item.about for item in probed(name).conclusions]
    assert abouts.count("gpus nvidia") == 1


# --- anything at all

_KEYS = (
    "devices index name uuid pci_bus_id memory_bytes minor mig mig_mode compute error errors gi ci "
    "slices cpus numa_node persistence compute_mode ecc virtualization fabric state status nvlinks "
    "link peer kind driver_version cuda_version count text"
).split()
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 40) | st.text(max_size=9) | st.just("0000:01:00.0"),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=8)
    ),
    max_leaves=30,
)
_LISTS = st.lists(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=12), max_size=4)


class Says:
    """A machine whose NVML says what it is told to."""

    def __init__(self, base: Any, reply: Any) -> None:
        self.base, self.reply = base, reply

    def nvml(self, deadline_s: float) -> Any:
        return self.reply

    def run(self, argv: Any, **_: Any) -> CommandResult:
        return CommandResult(tuple(argv), "present", 2, "", "it fails", 1.0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)


@pytest.mark.parametrize("name", ["workstation-rtx4090", "orin-jetpack6", "wsl2-rtx3080", "thor"])
@settings(max_examples=40, deadline=None)
@given(devices=_LISTS, more=_JSON, state=st.sampled_from(["present", "timeout", "error", "denied"]))
def test_nothing_that_nvml_says_trips_the_probe(
    name: str, devices: Any, more: Any, state: Any
) -> None:
    value = {**(more if isinstance(more, dict) else {}), "devices": devices}
    reply = Reply(state, value, "lib", "so it ended", 999 if state == "error" else None)
    says: Any = Says(RecordedMachine(MACHINES / name), reply)
    found = nvidia.probe(says, 1.0).fact
    assert isinstance(found, Gpus)
    assert (found.state == "present") == bool(found.devices)
    assert found.devices or found.detail


# --- a list that was cut off, and a tool that names the cause


def smi_log(count: int) -> str:
    """`nvidia-smi -q -x` of a machine with so many cards."""
    cards = "".join(
        f'<gpu id="00000000:0{number + 1}:00.0"><product_name>NVIDIA A10</product_name>'
        f"<uuid>{UUID}{number}</uuid><minor_number>{number}</minor_number>"
        f"<fb_memory_usage><total>23028 MiB</total></fb_memory_usage></gpu>"
        for number in range(count)
    )
    return f"<nvidia_smi_log><attached_gpus>{count}</attached_gpus>{cards}</nvidia_smi_log>"


def test_a_log_that_breaks_off_is_no_whole_list(tmp_path: Path) -> None:
    text = smi_log(3)
    cut = text[: text.index("</gpu>", text.index("</gpu>") + 1)]
    refused = {"code": 2, "stderr": "unknown option"}
    commands: list[dict[str, Any]] = [
        {"argv": XML, "stdout": cut},
        *({"argv": argv, **refused} for argv in (PLAIN, CSV, *POORER, LIST)),
    ]
    found = nvidia.probe(machine(tmp_path, host(3), commands=commands), 1.0).fact
    assert (found.state, found.complete, len(found.devices)) == ("present", False, 1)
    assert "nvidia-smi broke off after 1 of 3 GPUs" in (found.detail or "")
    assert not any(gpu.problems for gpu in found.devices)
    assert {item.reason for item in found.unused} == {"nvidia-smi ended before it reported it"}
    assert not any("could not start" in item.meaning for item in found.disagreements)


def test_where_one_list_breaks_off_another_one_is_whole(tmp_path: Path) -> None:
    rows = "".join(f"{n}, {UUID}{n}, 00000000:0{n + 1}:00.0, 23028, 550.54.15, "
                   f"[N/A], Enabled, Default, Enabled, 8.6, NVIDIA A10\n" for n in range(2))  # fmt: skip
    text = smi_log(2)
    commands: list[dict[str, Any]] = [
        {"argv": XML, "stdout": text[: text.index("</gpu>") + 20]},
        {"argv": PLAIN, "code": 2, "stderr": "unknown option"},
        {"argv": CSV, "stdout": rows},
    ]
    found = nvidia.probe(machine(tmp_path, host(2), commands=commands), 1.0).fact
    assert (found.complete, len(found.devices), found.detail) == (True, 2, None)


def test_nvml_that_lists_fewer_than_it_counts_was_cut(tmp_path: Path) -> None:
    found = nvidia.probe(machine(tmp_path, host(2), nvml=present(gpu(0), count=2)), 1.0).fact
    assert (found.complete, len(found.devices)) == (False, 1)


@pytest.mark.parametrize(
    ("answer", "module", "finding"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", True, "DSH-NV-001"),
        ("No devices were found", True, "DSH-NV-003"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", False,
         "DSH-NV-062"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", True,
         "DSH-NV-080"),
        ("Failed to initialize NVML: Insufficient Permissions", True, "DSH-NV-003"),
    ],
)  # fmt: skip
def test_what_nvidia_smi_names_comes_before_the_library_that_is_not_there(
    tmp_path: Path, answer: str, module: bool, finding: str
) -> None:
    loaded = host(1)
    root = loaded if module else loaded.replace("-- sys/module/nvidia/version --\n550.54.15\n", "")
    commands = [
        {"argv": argv, "code": 9, "stdout": answer + "\n"}
        for argv in (XML, PLAIN, CSV, *POORER, LIST)
    ]
    facts = probes.gather(machine(tmp_path, root, commands=commands), engine=False)
    assert facts.gpus.state in ("error", "denied")
    assert "libnvidia-ml" not in (facts.gpus.detail or "")
    found = {item.id: item for item in diagnose(CheckInput(facts))}
    assert found[finding].state == "error"
    assert found["DSH-NV-006"].state == "ok", "the library is not the cause"
    assert found["DSH-GP-001"].caused_by == finding
    words = " ".join((found[finding].cause, *found[finding].evidence))
    assert answer[-16:].rstrip(".") in words
