"""A recording: it answers as the machine did, and holds nothing of whose machine it is."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dshpc_setup import probes
from dshpc_setup.checkup import kernel
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import Binary
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed.model import KernelLog
from dshpc_setup.passthrough.driver_files import driver_files
from dshpc_setup.probes.amd import rocm_smi
from dshpc_setup.probes.nvidia import smi_csv as nvidia_smi
from dshpc_setup.record import capture, places, scrubbed
from dshpc_setup.record import recorder as recording
from dshpc_setup.record.scrub import Scrubber
from dshpc_setup.terminal.reporter import Silent
from tests.unit.bundle.made import Made

MACHINES = Path(__file__).parents[2] / "machines"
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.yaml"))


VOCABULARY = "what is neither in a list of record/vocabulary nor in record/shapes.py is replaced"


def seen(facts: HostFacts) -> dict[str, Any]:
    """All of the facts but the times."""
    found: dict[str, Any] = json.loads(json.dumps(facts.to_json(explain=True)))
    for item in found["evidence"]:
        del item["ms"]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_machine_has_the_facts_of_the_real_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Made(MACHINES / name)
    scrubber = scrubbed.scrubber_of(machine)
    monkeypatch.setattr(scrubbed, "scrubber_of", lambda _: scrubber)
    done = recording.record(machine, tmp_path / "r", Silent())
    assert done.differs == (), VOCABULARY
    wanted = seen(probes.gather(machine))
    if wanted["docker"]["name"]:
        wanted["docker"]["name"] = scrubber.host(wanted["docker"]["name"])
    found = seen(probes.gather(RecordedMachine(tmp_path / "r")))
    wanted = scrubber.value(wanted)
    for facts in (found, wanted):
        facts["docker"]["cdi_devices"].sort()  # by names, which are others now
    assert timeless(found) == timeless(wanted), VOCABULARY


def timeless(value: Any) -> Any:
    """Without the seconds that were left for an answer, and without the numbers of what was answered.

    In a driver's file they are kept, in a sentence that quotes it they are not.
    """
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items()}
    if isinstance(value, list):
        return [timeless(item) for item in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\bnumber\d+|\d{4,}", "N", re.sub(r"within [\d.e-]+ s", "in time", value))


# Secrets

UNIQUE = 0x79CCD55167A2124A
SECRETS = {
    "node name": "rack4-n3",
    "domain": "hpc.corp-zeta.test",
    "other host": "login-zeta9",
    "alias": "zetaalias",
    "search domain": "lab-zeta.test",
    "user": "carolz",
    "other user": "davez",
    "home": "/net/people/carolz",
    "other home": "/srv/homes/davez",
    "uid": "61234",
    "container id": "3f2a9c1b7d5e" + "0a1b" * 13,
    "pod": "1a2b3c4d_5e6f_7a8b_9c0d_112233445566",
    "gpu uuid": "8a5c1b2d-1111-4222-8333-444455556666",
    "second gpu uuid": "77aa1b2d-1111-4222-8333-444455557777",
    "mig uuid": "9b6d2c3e-1111-4222-8333-444455558888",
    "visible part": "GPU-8a5c1b2d-1111",
    "serial": "1741903615528",
    "board serial": "PCB0312-0034",
    "chassis serial": "CZ2D4K0091",
    "csv serial": "1650522003999",
    "module serial": "1420719055321",
    "unique id decimal": str(UNIQUE),
    "unique id hex": f"{UNIQUE:x}",
    "sysfs serial": "692239001234",
    "amd uuid": "b8ff74a1-0000-1000-80b8-12ab34cd56ef",
    "fru": "FRU-77Q-31X9",
    "dmi serial": "VMW-56-4d-aa-17",
    "dmi uuid": "564daa17-0f0f-4e4e-9d9d-abcdefabcdef",
    "asset tag": "ASSET-99871",
    "board id of a tree": "1421020012345",
    "machine id": "b2f1c0ffee00b2f1c0ffee00b2f1c0ff",
    "root disk": "7d1e2f30-aaaa-4bbb-8ccc-ddddeeeeffff",
    "kernel address": "0xffffffffc0a04321",
    "builder": "zbuilder@forge-77",
    "mount source": "nas-zeta:/export",
    "process": "/opt/secretproject/train.py",
    "vm name": "customer-vm-17",
    "modprobe remark": "ticket ZZ-4411",
    "environment token": "envtok-5512",
    "engine id": "AB2D:CDEF:EFGH:GHIJ:IJKL:KLMN:MNOP:OPQR:QRST:STUV:UVWX:WXYZ",
    "label": "costcentre=8841",
    "mirror": "mirror-zeta.test:5000",
    "insecure registry": "10.99.0.0/16",
    "proxy host": "proxyzeta",
    "proxy password": "pr0xyPa55",
    "no proxy": "intranet-zeta",
    "swarm node": "k3jd8s0zxq",
    "swarm address": "10.44.0.7",
    "swarm manager": "10.44.0.8",
    "pool": "tank/zetapool",
    "runtime argument": "--licence=QX-1177",
    "docker host": "tcp://10.55.1.9:2376",
    "context": "zeta-prod",
    "ipv6": "2a02:8071:22c1::17",
    "mac": "3c:ec:ef:1a:2b:3c",
    "error path": "/home/erinz/run",
    "address in an error": "192.168.77.12",
    "remote user": "frankz@jump-zeta.test",
    "access token": "ghp_0123456789abcdefghijABCDEF",
    "web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ6In0.c2lnbmF0dXJl",
    "infiniband": "0c42:a103:00e9:1b2a",
    "library folder": "/home/gracez/cuda",
}

S = SECRETS
XML = f"""<?xml version="1.0" ?>
<nvidia_smi_log><timestamp>Tue Apr  8 12:28:20 2025</timestamp>
<driver_version>550.163.01</driver_version><cuda_version>12.4</cuda_version>
<attached_gpus>1</attached_gpus>
<gpu id="00000000:1A:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name>
<serial>{S["serial"]}</serial><uuid>GPU-{S["gpu uuid"]}</uuid>
<vbios_version>96.00.61.00.01</vbios_version><board_id>0x1a00</board_id>
<platformInfo><chassis_serial_number>{S["chassis serial"]}</chassis_serial_number></platformInfo>
<vm_name>{S["vm name"]}</vm_name>
<processes><process_info><pid>77</pid><process_name>{S["process"]}</process_name></process_info>
</processes></gpu></nvidia_smi_log>
"""

ROOT = f"""-- proc/sys/kernel/hostname --
{S["node name"]}
-- etc/hostname --
{S["node name"]}.{S["domain"]}
-- etc/hosts --
127.0.0.1 localhost
10.44.0.7 {S["other host"]}.{S["domain"]} {S["other host"]} {S["alias"]}
-- etc/resolv.conf --
search {S["search domain"]}
nameserver 10.44.0.1
-- etc/passwd --
root:x:0:0:root:/root:/bin/sh
{S["other user"]}:x:61235:61235::{S["other home"]}:/bin/sh
-- etc/os-release --
ID=ubuntu
VERSION_ID="24.04"
-- etc/machine-id --
{S["machine id"]}
-- etc/modprobe.d/site.conf --
# {S["modprobe remark"]}
blacklist nouveau
-- proc/cmdline --
root=UUID={S["root disk"]} ip=10.44.0.7 modprobe.blacklist=nouveau token={S["environment token"]}
-- proc/version --
Linux version 6.8.0-60-generic ({S["builder"]}) (gcc 13.2.0)
-- proc/modules --
nvidia 1 0 - Live {S["kernel address"]} (POE)
-- proc/cpuinfo --
processor : 0
Serial : {S["module serial"]}
-- proc/meminfo --
MemTotal: 16281600 kB
-- proc/1/environ quoted --
"HOME=/x\\u0000TOKEN={S["environment token"]}\\u0000"
-- proc/self/status --
Uid: {S["uid"]}
Cpus_allowed_list: 0-7
-- proc/self/cgroup --
0::/kubepods-pod{S["pod"]}.slice/cri-containerd-{S["container id"]}.scope
-- proc/self/mountinfo --
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:5 / {S["home"]} rw - nfs {S["mount source"]} rw
-- sys/devices/system/cpu/online --
0-7
-- sys/class/dmi/id/product_serial --
{S["dmi serial"]}
-- sys/class/dmi/id/product_uuid --
{S["dmi uuid"]}
-- sys/class/dmi/id/chassis_asset_tag --
{S["asset tag"]}
-- sys/class/dmi/id/sys_vendor --
Supermicro
-- proc/device-tree/serial-number --
{S["board id of a tree"]}
-- proc/driver/nvidia/version --
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01  ({S["builder"]})
-- proc/driver/nvidia/gpus/0000:1a:00.0/information --
Model: NVIDIA H100 80GB HBM3
GPU UUID: GPU-{S["gpu uuid"]}
Serial Number: {S["serial"]}
Device Minor: 0
-- proc/driver/nvidia/params --
RegistryDwords: "host={S["node name"]} mac={S["mac"]} ib={S["infiniband"]}"
-- sys/module/nvidia/version --
550.163.01
-- dev/nvidia0 device --
-- dev/nvidiactl device --
-- dev/kfd device denied 109 --
-- dev/dri/renderD128 device 109 --
-- sys/bus/pci/devices/0000:1a:00.0/vendor --
0x10de
-- sys/bus/pci/devices/0000:1a:00.0/device --
0x2330
-- sys/bus/pci/devices/0000:1a:00.0/class --
0x030200
-- sys/bus/pci/devices/0000:83:00.0/vendor --
0x1002
-- sys/bus/pci/devices/0000:83:00.0/device --
0x74a1
-- sys/bus/pci/devices/0000:83:00.0/class --
0x120000
-- sys/bus/pci/devices/0000:83:00.0/unique_id --
{S["unique id hex"]}
-- sys/bus/pci/devices/0000:83:00.0/product_number --
102-G30211-00 {S["sysfs serial"]}
-- sys/bus/pci/devices/0000:83:00.0/serial_number --
{S["sysfs serial"]}
-- sys/class/kfd/kfd/topology/nodes/1/properties --
simd_count 1216
gfx_target_version 90402
location_id 33536
domain 0
drm_render_minor 128
device_id 29857
unique_id {S["unique id decimal"]}
-- sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties --
heap_type 1
size_in_bytes 206141652992
-- opt/rocm/bin/rocm-smi there --
"""

NVML = {
    "state": "present",
    "source": f"{S['library folder']}/libnvidia-ml.so.1",
    "value": {
        "driver_version": "550.163.01",
        "cuda_version": 12040,
        "devices": [
            {
                "index": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": f"GPU-{S['gpu uuid']}",
                "pci_bus_id": "00000000:1A:00.0", "memory_bytes": 85899345920, "minor": 0,
                "serial": S["serial"], "board_serial": S["board serial"], "mig_mode": 1,
                "mig": [{"index": 0, "uuid": f"MIG-{S['mig uuid']}", "gi": 1, "ci": 0,
                         "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb"}],
            },
            {"index": 1, "error": 15, "text": f"GPU is lost on {S['node name']}"},
        ],
    },
}  # fmt: skip
AMDSMI = {
    "state": "present",
    "value": {"devices": [{"index": 0, "name": "AMD Instinct MI300X", "pci_bus_id": "0000:83:00.0",
                           "unique_id": UNIQUE, "uuid": S["amd uuid"], "fru_id": S["fru"]}]},
}  # fmt: skip
DOCKER = {
    "state": "present",
    "value": {
        "host": S["docker host"],
        "context": S["context"],
        "version": {"Version": "28.0.1", "ApiVersion": "1.48"},
        "info": {
            "ID": S["engine id"], "Name": S["node name"], "ServerVersion": "28.0.1", "NCPU": 8,
            "KernelVersion": "6.8.0-60-generic", "DockerRootDir": f"{S['home']}/docker",
            "Labels": [S["label"]], "MemTotal": 1 << 34,
            "HttpProxy": f"http://{S['user']}:{S['proxy password']}@{S['proxy host']}:3128",
            "NoProxy": S["no proxy"],
            "RegistryConfig": {"Mirrors": [f"https://{S['mirror']}"],
                               "InsecureRegistryCIDRs": [S["insecure registry"]]},
            "Swarm": {"NodeID": S["swarm node"], "NodeAddr": S["swarm address"],
                      "LocalNodeState": "active",
                      "RemoteManagers": [{"Addr": f"{S['swarm manager']}:2377"}]},
            "DriverStatus": [["Parent Dataset", S["pool"]]],
            "Runtimes": {"nvidia": {"path": "x", "runtimeArgs": [S["runtime argument"]]}},
            "Warnings": [f"WARNING: {S['ipv6']} {S['access token']} {S['remote user']}"],
        },
    },
}  # fmt: skip
COMMANDS = [
    {"argv": ["nvidia-smi", "-L"],
     "stdout": f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-{S['gpu uuid']})\n"
     f"  MIG 1g.10gb Device 0: (UUID: MIG-{S['mig uuid']})\n"},
    {"argv": ["nvidia-smi", "-q", "-x"], "stdout": XML},
    {"argv": ["nvidia-smi", *nvidia_smi.ARGUMENTS],
     "stdout": f"0, GPU-{S['gpu uuid']}, 00000000:1A:00.0, 81559, 550.163.01, Enabled, "
     f"NVIDIA H100 80GB HBM3\n1, GPU-{S['second gpu uuid']}, 00000000:1B:00.0, 81559, 550.163.01, "
     "Enabled, NVIDIA H100 80GB HBM3\n"},
    {"argv": ["nvidia-smi", "topo", "-m"], "code": 1,
     "stderr": f"Serial Number : {S['csv serial']}\n{S['web token']}\n"},
    {"argv": ["/opt/rocm/bin/rocm-smi", *rocm_smi.ARGUMENTS],
     "stdout": json.dumps({"card0": {"Unique ID": f"0x{UNIQUE:X}", "PCI Bus": "0000:83:00.0",
                                     "Serial Number": S["sysfs serial"]},
                           "system": {"Driver version": "6.10.5"}})},
    {"argv": ["docker", "--version"], "stdout": "Docker version 28.0.1, build abcdef0\n"},
    {"argv": ["docker", "context", "show"], "stdout": f"{S['context']}\n"},
    {"argv": ["docker", "version", "--format", "{{json .}}"],
     "stdout": json.dumps({"Client": {"Version": "28.0.1", "Context": S["context"]}})},
    {"argv": ["docker", "compose", "version", "--short"], "code": 1,
     "stderr": f"cannot read {S['error path']}: dial {S['address in an error']}\n"},
]  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> Made:
    folder = tmp_path / "made"
    folder.mkdir()
    about = {
        "format": 1, "system": "Linux", "release": "6.8.0-60-generic", "machine": "x86_64",
        "uid": int(S["uid"]),
        "env": {
            "HOSTNAME": f"{S['node name']}.{S['domain']}", "USER": S["user"], "HOME": S["home"],
            "LD_LIBRARY_PATH": f"{S['library folder']}:{S['home']}/lib", "SECRET": S["environment token"],
            "DOCKER_HOST": S["docker host"], "CUDA_VISIBLE_DEVICES": S["visible part"],
            "container": "docker",
        },
    }  # fmt: skip
    (folder / "machine.yaml").write_text(yaml.safe_dump(about))
    (folder / "root.txtar").write_text(ROOT)
    (folder / "commands.yaml").write_text(yaml.safe_dump(COMMANDS))
    for name, value in (("nvml", NVML), ("amdsmi", AMDSMI), ("docker", DOCKER)):
        (folder / f"{name}.json").write_text(json.dumps(value))
    return Made(folder)


def test_no_secret_is_in_the_recording(made: Made, tmp_path: Path) -> None:
    assert len(SECRETS) >= 50
    given = "\n".join(path.read_text().lower() for path in made.folder.iterdir())
    for what, secret in SECRETS.items():
        there = secret.lower() in given or secret.lower() in json.dumps(DOCKER).lower()
        assert there or what.startswith("unique") or what == "remote user", f"{what} is not planted"
    done = recording.record(made, tmp_path / "r", Silent())
    files = {path.name: path.read_text() for path in (tmp_path / "r").iterdir()}
    for what, secret in SECRETS.items():
        for name, text in files.items():
            assert secret.lower() not in text.lower(), f"{what} is in {name}"
    for word in ("zeta", "carolz", "davez", "erinz", "frankz", "gracez", "secretproject", "61234"):
        for name, text in files.items():
            assert word not in text.lower(), f"{word} is in {name}"
    assert sum(done.scrubbed.values()) > 30
    assert done.differs == ()


def test_a_recording_brings_what_the_kernel_says_of_gpus(made: Made, tmp_path: Path) -> None:
    said = (
        "NVRM: Xid (PCI:0000:01:00): 79, pid=4711, name=annegret, GPU has fallen off the bus.",
        "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    )
    done = recording.record(made, tmp_path / "r", Silent(), lambda _: KernelLog("present", said))
    assert "kernel.log" in done.files
    text = (tmp_path / "r/kernel.log").read_text()
    assert "annegret" not in text
    assert kernel.parse(text)[1] == said[1]
    assert RecordedMachine(tmp_path / "r").kernel_log == text
    assert "kernel.log" not in recording.record(made, tmp_path / "none", Silent()).files
    denied = recording.record(made, tmp_path / "denied", Silent(), lambda _: KernelLog("denied"))
    assert ("kernel.log" in denied.files, denied.denied[-1]) == (False, "dmesg")


def test_the_recording_still_says_what_the_machine_is(made: Made, tmp_path: Path) -> None:
    recording.record(made, tmp_path / "r", Silent())
    text = "".join(path.read_text() for path in (tmp_path / "r").iterdir())
    for word in ("550.163.01", "96.00.61.00.01", "6.8.0-60-generic", "0000:1a:00.0", "85899345920",
                 "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X", "Supermicro", "blacklist nouveau",
                 "206141652992", "102-G30211-00", "6.10.5", "0x74a1"):  # fmt: skip
        assert word in text, word
    again = RecordedMachine(tmp_path / "r")
    assert again.group_of("/dev/kfd") == 109
    assert again.access("/dev/kfd") == "denied"
    assert again.is_device("/dev/kfd")
    assert set(again.env) == {
        "HOME",
        "container",
        "LD_LIBRARY_PATH",
        "DOCKER_HOST",
        "CUDA_VISIBLE_DEVICES",
    }


def test_one_gpu_has_one_name_in_all_files(made: Made, tmp_path: Path) -> None:
    recording.record(made, tmp_path / "r", Silent())
    machine = RecordedMachine(tmp_path / "r")
    identity = machine.nvml(1).value["devices"][0]["uuid"]
    listed = machine.run(["nvidia-smi", "-L"], deadline_s=1).stdout
    information = machine.read("/proc/driver/nvidia/gpus/0000:1a:00.0/information").text or ""
    assert identity in listed
    assert identity in information
    assert machine.env["CUDA_VISIBLE_DEVICES"] == identity[:17]
    number = machine.amdsmi(1).value["devices"][0]["unique_id"]
    assert f"unique_id {number}\n" in (
        machine.read("/sys/class/kfd/kfd/topology/nodes/1/properties").text or ""
    )
    assert machine.read("/sys/bus/pci/devices/0000:83:00.0/unique_id").text == f"{number:x}\n"
    host = (machine.read("/proc/sys/kernel/hostname").text or "").strip()
    assert machine.docker(1).value["info"]["Name"] == host


def test_every_variable_that_is_read_is_recorded() -> None:
    root = Path(recording.__file__).parents[1]
    read: set[str] = set()
    files = [path for room in ("probes", "machine") for path in root.glob(f"{room}/**/*.py")]
    for path in files:
        read.update(re.findall(r"\benv(?:\.get\(|\[)\s*\"(\w+)\"", path.read_text()))
    assert read <= set(capture.ENVIRONMENT)


# The folder


def test_a_folder_with_something_in_it_is_left_alone(made: Made, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("x")
    (tmp_path / "file").write_text("x")
    for name, word in (
        ("full", "not empty"),
        ("file", "is a file"),
        ("none/of/these", "no folder"),
    ):
        with pytest.raises(DshpcError, match=word) as caught:
            recording.record(made, tmp_path / name, Silent())
        assert caught.value.exit_code == Exit.USAGE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full", "made"]


def test_an_empty_folder_stays_what_it_is(made: Made, tmp_path: Path) -> None:
    """It may be where somebody stands, a mount, or one that others may not look into."""
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o700)
    before = empty.stat()
    (tmp_path / "link").symlink_to("empty")
    recording.record(made, tmp_path / "link", Silent())
    assert (empty.stat().st_ino, empty.stat().st_mode) == (before.st_ino, before.st_mode)
    assert RecordedMachine(tmp_path / "link").system == made.system
    assert not [path for path in empty.iterdir() if path.name.startswith(".")]


def test_nothing_is_left_in_an_empty_folder_either(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, done = os.rename, []

    def third_fails(old: str, new: Path) -> None:
        done.append(new)
        if len(done) == 3:
            raise OSError(28, "No space left on device")
        rename(old, new)

    monkeypatch.setattr("os.rename", third_fails)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DshpcError, match="the disk is full"):
        recording.record(made, tmp_path / "empty", Silent())
    assert list((tmp_path / "empty").iterdir()) == []


def test_nothing_is_left_where_writing_fails(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DshpcError, match="the disk is full"):
        recording.record(made, tmp_path / "r", Silent())
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


TEXTS = [
    "plain\n", "no end", "\n", "a\n\n\nb\n", " leading\n  more\n", "trailing  \nx\n", "tab\there\n",
    "nul\0here", "cr\r\nlf\r\n", "\x1b[31mred\x1b[0m\n", "nel\x85x\n", "line\u2028sep\n", "é€😀\n",
    "- a: b\n# c\n", "'\"\\\n", "%YAML\n---\n...\n", "yes", "0x10", "1e3", "null", "~", "", ": x", "\udcff",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_comes_back_from_yaml(text: str) -> None:
    written = scrubbed._yaml([{"argv": ["x", text], "stdout": text}])
    wanted = text.encode(errors="replace").decode()
    assert yaml.safe_load(written) == [{"argv": ["x", wanted], "stdout": wanted}]


def test_the_scrubber_of_a_machine_knows_its_names(made: Made) -> None:
    scrubber: Scrubber = scrubbed.scrubber_of(made)
    found = scrubber.text(f"{S['node name']} {S['other user']} {S['other home']}/x {S['alias']}")
    assert "zeta" not in found
    assert "davez" not in found


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/etc/hostname",
            "/etc/hosts",
            "/etc/passwd",
            "/etc/group",
            "/etc/shadow",
            "/etc/machine-id",
        ),
        *("/etc/ssh/sshd_config", "/etc/fstab", "/etc/resolv.conf", "/proc/sys/kernel/domainname"),
        *("/sys/class/dmi/id/product_uuid", "/proc/device-tree/serial-number", "/proc/self/mounts"),
    ],
)
def test_of_a_file_that_says_whose_the_machine_is_nothing_is_kept(path: str) -> None:
    assert places.kept(path, "quark") is None
    assert places.kept("/etc/os-release", "ID=debian\n") == "ID=debian\n"


class OfItsProcessor(Made):
    """Machines that were made by hand do not say for which processor a library is."""

    def binary(self, path: str) -> Binary:
        found = super().binary(path)
        return replace(found, architecture="x86_64") if found.state == "present" else found


@pytest.mark.parametrize("name", ["h100-mig", "workstation-rtx4090", "wsl2-rtx3080"])
def test_what_the_built_in_engine_would_bind_is_replayed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = OfItsProcessor(MACHINES / name)
    scrubber = scrubbed.scrubber_of(machine)
    monkeypatch.setattr(scrubbed, "scrubber_of", lambda _: scrubber)
    recording.record(machine, tmp_path / "r", Silent())
    facts = probes.gather(machine)
    wanted = driver_files(machine, facts)
    assert wanted.nodes
    assert wanted.files
    assert driver_files(RecordedMachine(tmp_path / "r"), facts) == wanted
