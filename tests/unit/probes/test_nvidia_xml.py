"""`nvidia-smi -q -x` of every age, whole, cut off, broken and hostile."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.probes import naming
from dshpc_setup.probes.nvidia import smi_csv as nvidia_smi
from dshpc_setup.probes.nvidia import smi_xml as nvidia_xml

MIB = 1 << 20


def gpu(inside: str, address: str = "00000000:3B:00.0") -> str:
    return f'<gpu id="{address}">{inside}</gpu>'


def log(*gpus: str, general: str = "", schema: str = "v12") -> str:
    return (
        '<?xml version="1.0" ?>\n'
        f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_{schema}.dtd">\n'
        f"<nvidia_smi_log>\n{general}{''.join(gpus)}\n</nvidia_smi_log>\n"
    )


def parsed(*gpus: str, general: str = "") -> dict[str, Any]:
    value = nvidia_xml.parse(log(*gpus, general=general))
    assert value is not None
    return value


def first(inside: str) -> dict[str, Any]:
    device = parsed(gpu(inside))["devices"][0]
    assert isinstance(device, dict)
    return device


GENERAL = """<timestamp>Mon Mar  2 10:00:00 2026</timestamp>
<driver_version>570.124.06</driver_version><cuda_version>12.8</cuda_version>
<attached_gpus>2</attached_gpus>
"""
WHOLE = """
<product_name>NVIDIA H200</product_name><uuid>GPU-00000000-aaaa-0000-0000-000000000001</uuid>
<minor_number>3</minor_number><persistence_mode>Enabled</persistence_mode>
<mig_mode><current_mig>Disabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
<mig_devices>
    None
</mig_devices>
<gpu_virtualization_mode><virtualization_mode>Pass-Through</virtualization_mode>
</gpu_virtualization_mode>
<gpu_reset_status><reset_required>No</reset_required></gpu_reset_status>
<pci><pci_bus_id>00000000:3B:00.0</pci_bus_id></pci>
<fb_memory_usage><total>143771 MiB</total><used>1024 MiB</used></fb_memory_usage>
<bar1_memory_usage><total>262144 MiB</total></bar1_memory_usage>
<compute_mode>Exclusive_Process</compute_mode>
<utilization><gpu_util>37 %</gpu_util></utilization>
<ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
<temperature><gpu_temp>41 C</gpu_temp></temperature>
<gpu_power_readings><average_power_draw>120.50 W</average_power_draw>
<instant_power_draw>131.00 W</instant_power_draw>
<current_power_limit>700.00 W</current_power_limit></gpu_power_readings>
<fabric><state>Completed</state><status>Success</status><cliqueId>0</cliqueId></fabric>
<something_new><total>1 MiB</total></something_new>
"""


def test_every_fact_in_nvmls_shape() -> None:
    value = parsed(gpu(WHOLE), general=GENERAL)
    assert (value["driver_version"], value["cuda_version"]) == ("570.124.06", 12080)
    assert value["count"] == 2
    assert value["devices"] == [
        {
            "index": 0,
            "name": "NVIDIA H200",
            "uuid": "GPU-00000000-aaaa-0000-0000-000000000001",
            "pci_bus_id": "0000:3b:00.0",
            "memory_bytes": 143771 * MIB,
            "minor": 3,
            "mig_mode": 0,
            "mig_pending": 1,
            "persistence": 1,
            "compute_mode": 3,
            "ecc": 1,
            "virtualization": 1,
            "fabric": {"state": 3, "status": 0},
            "errors": {},
        }
    ]


def test_every_reading_in_nvmls_shape() -> None:
    value = nvidia_xml.readings(log(gpu(WHOLE)))
    assert value is not None
    assert value["devices"] == [
        {
            "index": 0,
            "uuid": "GPU-00000000-aaaa-0000-0000-000000000001",
            "pci_bus_id": "0000:3b:00.0",
            "memory_used_bytes": 1024 * MIB,
            "memory_total_bytes": 143771 * MIB,
            "utilization": 37,
            "temperature_c": 41,
            "power_mw": 120500,
            "power_limit_mw": 700000,
            "errors": {},
        }
    ]


def test_the_oldest_schema() -> None:
    inside = """<product_name>Tesla M2050</product_name><uuid>GPU-1</uuid>
    <memory_usage><total>2687 MB</total><used>7 MB</used></memory_usage>
    <compute_mode>Exclusive_Thread</compute_mode><utilization><gpu_util>9 %</gpu_util></utilization>
    <temperature><gpu_temp>N/A</gpu_temp></temperature>
    <power_readings><power_draw>26.78 W</power_draw><power_limit>225 W</power_limit>
    </power_readings>"""
    text = log(gpu(inside, "0000:06:00.0"), schema="v4")
    device = (nvidia_xml.parse(text) or {})["devices"][0]
    assert (device["pci_bus_id"], device["memory_bytes"]) == ("0000:06:00.0", 2687 * MIB)
    assert device["compute_mode"] == 1
    assert "ecc" not in device
    assert "ecc" not in device["errors"]  # this schema has no such element
    reading = (nvidia_xml.readings(text) or {})["devices"][0]
    assert (reading["power_mw"], reading["power_limit_mw"]) == (26780, 225000)
    assert reading["errors"] == {"temperature_c": 3}


@pytest.mark.parametrize(
    "general",
    [
        "<driver_version>610.57.04 [Deprecated; use another]</driver_version>"
        "<cuda_version>13.3 [Deprecated; use another]</cuda_version>",
        "<driver_version>N/A</driver_version><cuda_version>Not Found</cuda_version>"
        "<kmd_version>610.57.04</kmd_version><cuda_umd_version>13.3</cuda_umd_version>",
    ],
)
def test_the_drivers_version_under_its_names(general: str) -> None:
    value = parsed(gpu(WHOLE), general=general)
    assert (value["driver_version"], value["cuda_version"]) == ("610.57.04", 13030)


@pytest.mark.parametrize(
    ("printed", "code"),
    [
        ("N/A", 3),
        ("[N/A]", 3),
        ("[Not Supported]", 3),
        ("Insufficient Permissions", 4),
        ("[Unknown Error]", 999),
        ("ERR!", 999),
        ("GPU is lost", 15),
        ("GPU requires reset", 16),
        ("GPU requires restart", 16),
        ("Requested functionality has been deprecated", 26),
        ("as much as there is", -1),
    ],
)
def test_what_stands_in_place_of_a_value_is_an_error(printed: str, code: int) -> None:
    device = first(f"<fb_memory_usage><total>{printed}</total></fb_memory_usage>")
    assert "memory_bytes" not in device
    assert device["errors"] == {"memory_bytes": code}


def test_a_lost_card_is_one_whatever_field_says_so() -> None:
    inside = "<product_name>NVIDIA L4</product_name><serial>GPU is lost</serial>"
    assert list(first(inside)["errors"].values()) == [15]


def test_a_card_that_asks_for_a_reset() -> None:
    inside = "<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>"
    assert first(inside)["errors"] == {"recovery": 16}


@pytest.mark.parametrize(
    ("action", "number"),
    [("None", 0), ("Reset", 1), ("Reboot", 2), ("Drain P2P", 3), ("Drain and Reset", 4), ("N/A", None),
     ("Something new", None)],
)  # fmt: skip
def test_the_step_that_a_card_asks_for(action: str, number: int | None) -> None:
    """As NVML numbers it."""
    found = first(f"<gpu_recovery_action>{action}</gpu_recovery_action>")
    assert found.get("recovery_action") == number
    assert not {15, 16} & set(found["errors"].values())


@pytest.mark.parametrize(
    ("state", "status", "fabric"),
    [
        ("Completed", "Success", {"state": 3, "status": 0}),
        ("Completed", "Unknown Error", {"state": 3, "status": 999}),
        ("In Progress", "N/A", {"state": 2}),
        ("Not Started", "N/A", {"state": 1}),
    ],
)
def test_the_fabrics_state(state: str, status: str, fabric: dict[str, int]) -> None:
    inside = f"<fabric><state>{state}</state><status>{status}</status></fabric>"
    assert first(inside)["fabric"] == fabric


def test_no_fabric_is_not_supported() -> None:
    device = first("<fabric><state>N/A</state><status>N/A</status></fabric>")
    assert device["errors"] == {"fabric": 3}


@pytest.mark.parametrize(
    ("mode", "number"),
    [("None", 0), ("Pass-Through", 1), ("VGPU", 2), ("Host VGPU", 3), ("Host VSGA", 4)],
)
def test_virtualization_modes(mode: str, number: int) -> None:
    inside = (
        f"<gpu_virtualization_mode><virtualization_mode>{mode}</virtualization_mode>"
        "</gpu_virtualization_mode>"
    )
    assert first(inside)["virtualization"] == number


def instance(number: int, gi: int, mib: int, counts: tuple[int, int, int], more: str = "") -> str:
    processors, engines, flow = counts
    return f"""<mig_device><index>{number}</index><gpu_instance_id>{gi}</gpu_instance_id>
    <compute_instance_id>0</compute_instance_id>{more}<device_attributes><shared>
    <multiprocessor_count>{processors}</multiprocessor_count>
    <copy_engine_count>{engines}</copy_engine_count><ofa_count>{flow}</ofa_count>
    </shared></device_attributes>
    <fb_memory_usage><total>{mib} MiB</total><used>13 MiB</used></fb_memory_usage>
    <bar1_memory_usage><total>16383 MiB</total></bar1_memory_usage></mig_device>"""


def mig(card: str, *instances: str) -> str:
    return f"""<product_name>{card}</product_name><uuid>GPU-1</uuid>
    <mig_mode><current_mig>Enabled</current_mig></mig_mode>
    <mig_devices>{"".join(instances)}</mig_devices>
    <fb_memory_usage><total>81559 MiB</total><used>70 MiB</used></fb_memory_usage>"""


def test_mig_instances_and_the_card_are_not_confused() -> None:
    uuid = "<uuid>MIG-22222222-0000-0000-0000-000000000000</uuid>"
    inside = mig(
        "NVIDIA H100 PCIe",
        instance(0, 2, 40448, (60, 3, 0)),
        instance(1, 9, 9984, (16, 1, 0), uuid),
    )
    device = first(inside)
    assert (device["mig_mode"], device["memory_bytes"]) == (1, 81559 * MIB)
    assert device["uuid"] == "GPU-1"
    assert device["mig"] == [
        {
            "index": 0,
            "gi": 2,
            "ci": 0,
            "memory_bytes": 40448 * MIB,
            "slices": [3, 3, 40448],
            "errors": {},
        },
        {
            "index": 1,
            "uuid": "MIG-22222222-0000-0000-0000-000000000000",
            "gi": 9,
            "ci": 0,
            "memory_bytes": 9984 * MIB,
            "slices": [1, 1, 9984],
            "errors": {},
        },
    ]
    reading = (nvidia_xml.readings(log(gpu(inside))) or {})["devices"][0]
    assert [part["memory_used_bytes"] for part in reading["mig"]] == [13 * MIB, 13 * MIB]


@pytest.mark.parametrize(
    ("card", "mib", "counts", "profile"),
    [
        ("NVIDIA A100-SXM4-80GB", 19968, (14, 1, 0), "1g.20gb"),
        ("NVIDIA A100-SXM4-40GB", 20096, (42, 3, 0), "3g.20gb"),
        ("NVIDIA A30", 5952, (14, 1, 0), "1g.6gb"),
        ("NVIDIA H100 80GB HBM3", 81080, (132, 8, 1), "7g.80gb"),
        ("NVIDIA H200", 18176, (16, 1, 0), "1g.18gb"),
        # a part of a 3g instance; one with media engines; a card whose numbers are not known
        ("NVIDIA A100-SXM4-80GB", 40448, (14, 3, 0), None),
        ("NVIDIA H100 80GB HBM3", 9984, (16, 1, 1), None),
        ("NVIDIA RTX PRO 6000 Blackwell", 24192, (46, 1, 0), None),
    ],
)
def test_the_profile_where_it_is_certain(
    card: str, mib: int, counts: tuple[int, int, int], profile: str | None
) -> None:
    part = first(mig(card, instance(0, 3, mib, counts)))["mig"][0]
    assert naming.profile_of(None, part.get("slices")) == profile


def test_mig_without_instances_is_an_empty_list() -> None:
    assert first(mig("NVIDIA A30", "None"))["mig"] == []


def test_the_list_adds_what_most_schemas_leave_out() -> None:
    listed = nvidia_smi.parse_list(
        "GPU 0: NVIDIA H100 PCIe (UUID: GPU-1)\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-a)\n"
        "  MIG 1g.10gb+me  Device  1: (UUID: MIG-b)\n"
    )
    inside = mig(
        "NVIDIA H100 PCIe", instance(0, 2, 40448, (60, 3, 0)), instance(1, 9, 9984, (16, 1, 1))
    )
    device = nvidia_smi.add_list(parsed(gpu(inside)), listed)["devices"][0]
    assert [(part["uuid"], part["gi"]) for part in device["mig"]] == [("MIG-a", 2), ("MIG-b", 9)]
    profiles = [naming.profile_of(part["name"], part.get("slices")) for part in device["mig"]]
    assert profiles == ["3g.40gb", "1g.10gb.me"]
    assert nvidia_smi.add_list(parsed(gpu(inside)), None) == parsed(gpu(inside))


THREE = log(*(gpu(WHOLE, f"00000000:{n}B:00.0") for n in (1, 2, 3)), general=GENERAL)


def test_a_warning_before_or_after_is_passed_over() -> None:
    text = f"WARNING: infoROM is corrupted <at gpu 0>\n{THREE}Timeout while reading & waiting\n"
    assert nvidia_xml.parse(text) == nvidia_xml.parse(THREE)


def test_a_card_without_a_handle_stands_among_the_others() -> None:
    said = "Unable to determine the device handle for GPU0000:2A:00.0: GPU is lost.  Reboot\n"
    devices = (nvidia_xml.parse(said + THREE) or {})["devices"]
    assert [device["pci_bus_id"] for device in devices] == [
        "0000:1b:00.0",
        "0000:2a:00.0",
        "0000:2b:00.0",
        "0000:3b:00.0",
    ]
    assert [device["index"] for device in devices] == [0, 1, 2, 3]
    assert devices[1]["error"] == 15


@pytest.mark.parametrize(
    ("said", "index", "code"),
    [
        ("Unable to determine the device handle for GPU1: 0000:2A:00.0: Unknown Error", 1, 999),
        ("Unable to determine the device handle for GPU 0000:4A:00.0: GPU is lost.", 3, 15),
        ("Unable to determine the device handle for GPU 1: Unknown Error", 1, 999),
        ("Unable to determine the device handle for gpu", None, None),
        ("Unable to determine the device handle for GPU 0000:2B:00.0: listed below", None, None),
    ],
)
def test_how_a_card_without_a_handle_is_named(
    said: str, index: int | None, code: int | None
) -> None:
    devices = (nvidia_xml.parse(f"{said}\n{THREE}") or {})["devices"]
    found = [(device["index"], device["error"]) for device in devices if "error" in device]
    assert found == ([] if index is None else [(index, code)])


def test_a_document_that_is_cut_off_gives_the_whole_gpus() -> None:
    for end in range(0, len(THREE), 37):
        value = nvidia_xml.parse(THREE[:end])
        whole = THREE[:end].count("</gpu>")
        assert len((value or {"devices": ()})["devices"]) == whole


def test_names_of_processes_need_not_be_xml() -> None:
    processes = "<processes><process_info><process_name>a<b&&\x01</process_name></processes>"
    value = parsed(gpu(WHOLE + processes, "0000:01:00.0"), gpu(WHOLE, "0000:02:00.0"))
    assert len(value["devices"]) == 2


def test_names_with_prefixes_are_the_same() -> None:
    text = THREE.replace("<", "<n:").replace("<n:/", "</n:").replace("<n:?", "<?")
    text = text.replace("<n:!", "<!")
    assert nvidia_xml.parse(text) == nvidia_xml.parse(THREE)


@pytest.mark.parametrize(
    "head",
    [
        '<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]>',
        "<!DOCTYPE nvidia_smi_log [<!ELEMENT gpu ANY>]>",
        '<!DOCTYPE nvidia_smi_log SYSTEM "x.dtd" [\n<!ENTITY a SYSTEM "file:///etc/passwd">]>',
    ],
)
def test_a_document_with_a_grammar_of_its_own_is_refused(head: str) -> None:
    body = f"<nvidia_smi_log>{gpu('<product_name>&a;</product_name>')}</nvidia_smi_log>"
    assert nvidia_xml.parse(head + body) is None
    assert nvidia_xml.readings(head + body) is None


def test_an_entity_is_never_expanded() -> None:
    assert nvidia_xml.parse(log(gpu("<product_name>&a;</product_name>"))) is None


@pytest.mark.parametrize(
    "rubbish",
    [
        "<&x " * 5_000_000,
        "<nvidia_smi_log>" + "<gpu/>" * 3_000_000,
        "<nvidia_smi_log>" + "<a>" * 5_000_000,
        "<nvidia_smi_log>" + "<processes>" * 2_000_000,
        "<!DOCTYPE" * 2_000_000,
        "NVSMI LOG\n" + "a : b\n" * 3_000_000,
        "Unable to determine the device handle for GPU" + " " * 20_000_000,
    ],
    ids=["signs", "cards", "depth", "processes", "grammar", "lines", "blanks"],
)
def test_rubbish_costs_little(rubbish: str) -> None:
    started = time.process_time()  # what other processes take does not count
    nvidia_xml.parse(rubbish)
    nvidia_xml.readings(rubbish)
    assert time.process_time() - started < 5


PLAIN = """\
==============NVSMI LOG==============

Timestamp                        : Mon Mar  2 10:00:00 2026
Driver Version                   : 610.57.04 [Deprecated; use another]
KMD Version                      : 610.57.04
CUDA UMD Version                 : 13.3

Attached GPUs                    : 2
GPU 00000000:1A:00.0
    Product Name                 : NVIDIA H100 80GB HBM3
    Persistence Mode             : Enabled
    MIG Mode
        Current                  : Enabled
        Pending                  : Enabled
    MIG Device
        Index                    : 0
        GPU Instance ID          : 9
        Compute Instance ID      : 0
        Device Attributes
            Shared
                Multiprocessor count : 16
                Copy Engine count    : 1
                OFA count            : 0
        Shared FB Memory Usage
            Total                : 9984 MiB
            Used                 : 10 MiB
    GPU UUID                     : GPU-1
    Minor Number                 : 0
    PCI
        Bus Id                   : 00000000:1A:00.0
    FB Memory Usage
        Total                    : 81559 MiB
        Used                     : 60 MiB
    BAR1 Memory Usage
        Total                    : 131072 MiB
    Utilization
        GPU                      : N/A
    Temperature
        GPU Current Temp         : 42 C
    Fabric
        State                    : Completed
        Status                   : Success
GPU 00000000:3B:00.0
    Product Name                 : Tesla T4
    GPU UUID                     : GPU-2
    MIG Mode
        Current                  : N/A
    FB Memory Usage
        Total                    : 15360 MiB
"""


def test_the_log_in_plain_text() -> None:
    value = nvidia_xml.parse(PLAIN)
    assert value is not None
    assert (value["driver_version"], value["cuda_version"]) == ("610.57.04", 13030)
    h100, t4 = value["devices"]
    assert (h100["name"], h100["uuid"], h100["minor"]) == ("NVIDIA H100 80GB HBM3", "GPU-1", 0)
    assert (h100["pci_bus_id"], h100["memory_bytes"]) == ("0000:1a:00.0", 81559 * MIB)
    assert h100["fabric"] == {"state": 3, "status": 0}
    assert [(part["gi"], part["slices"]) for part in h100["mig"]] == [(9, [1, 1, 9984])]
    assert (t4["pci_bus_id"], t4["memory_bytes"]) == ("0000:3b:00.0", 15360 * MIB)
    assert t4["errors"] == {"mig_mode": 3}
    reading = (nvidia_xml.readings(PLAIN) or {})["devices"][0]
    assert (reading["temperature_c"], reading["errors"]) == (42, {"utilization": 3})
    assert reading["mig"][0]["memory_used_bytes"] == 10 * MIB


SOURCES = (THREE, log(gpu(mig("NVIDIA A30", instance(0, 3, 5952, (14, 1, 0))))), PLAIN)
PIECES = st.sampled_from(
    [
        "<gpu>", "</gpu>", '<gpu id="', "<mig_device>", "</mig_device>", "<uuid>", "</uuid>", "&",
        "]]>", "<![CDATA[", "<!--", "<processes>", "</processes>", "N/A", "GPU is lost", "9" * 30,
        "12.5 W", "1 GB", "-1 C", "\0", "\ud800", "\ufffe", "é", " : ", "\nGPU 0:0:0\n", "MIG Device",
    ]
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(SOURCES))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        text = text[:start] + draw(PIECES | st.text(max_size=10)) + text[end:]
    return text


def check(value: dict[str, Any] | None) -> None:
    """What comes out goes into JSON, and each value is of its own kind."""
    if value is None:
        return
    json.dumps(value)
    for index, device in enumerate(value["devices"]):
        assert device["index"] == index
        for item in (device, *device.get("mig", ())):
            for key, one in item.items():
                assert isinstance(one, KINDS.get(key, int)), (key, one)
                assert not (key.endswith("bytes") and isinstance(one, int) and one < 0)
            for path, code in item.get("errors", {}).items():
                assert isinstance(path, str)
                assert isinstance(code, int)


KINDS: dict[str, type] = {
    "name": str, "uuid": str, "pci_bus_id": str, "text": str, "errors": dict, "mig": list,
    "fabric": dict, "slices": list, "compute": list,
}  # fmt: skip


@given(text=mutated() | st.text())
def test_nothing_trips_it(text: str) -> None:
    check(nvidia_xml.parse(text))
    check(nvidia_xml.readings(text))
