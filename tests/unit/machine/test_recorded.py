"""A folder that is no machine says so, with the file and the key."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import probes
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import Binary, Read
from dshpc_setup.machine.recorded import RecordedMachine, Unrecorded

GOOD = "format: 1\nsystem: Linux\nrelease: 6.8.0\nmachine: x86_64\n"


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_no_machine_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="no recorded machine") as caught:
        RecordedMachine(tmp_path)
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("about", "word"),
    [
        (GOOD.replace("format: 1", "format: 2"), "reads 1 only"),
        (GOOD.replace("system: Linux\n", ""), "'system'"),
        (f"{GOOD}kernel: x\n", "'kernel'"),
        ("- a\n", "key: value"),
        ("a: [\n", "line 2"),
    ],
)
def test_a_bad_machine_file_names_the_key(tmp_path: Path, about: str, word: str) -> None:
    with pytest.raises(DshpcError) as caught:
        RecordedMachine(written(tmp_path, machine_yaml=about))
    assert word in caught.value.details
    assert "machine.yaml" in caught.value.brief


def test_a_command_without_words_is_named_by_its_number(tmp_path: Path) -> None:
    folder = written(tmp_path, machine_yaml=GOOD, commands_yaml="- argv: [a]\n- stdout: b\n")
    with pytest.raises(DshpcError) as caught:
        RecordedMachine(folder)
    assert "command 2" in caught.value.details


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("machine.yaml", GOOD.replace("format: 1", "format: 2"), "reads 1 only"),
        ("machine.yaml", GOOD.replace("format: 1", "format: '1'"), "'format' is '1'"),
        ("machine.yaml", GOOD.replace("format: 1", "format: true"), "'format'"),
        ("machine.yaml", GOOD.replace("format: 1\n", ""), "missing"),
        ("machine.yaml", f"{GOOD}uid: root\n", "'uid'"),
        ("machine.yaml", f"{GOOD}uid: -1\n", "'uid'"),
        ("machine.yaml", f"{GOOD}env: [A]\n", "'env'"),
        ("machine.yaml", f"{GOOD}env: {{A: 1}}\n", "'env': A"),
        ("machine.yaml", f"{GOOD}env: {{1: a}}\n", "'env'"),
        ("machine.yaml", f"{GOOD}programs: [docker]\n", "'programs'"),
        ("machine.yaml", f"{GOOD}disks: [/tmp]\n", "'disks'"),
        ("machine.yaml", f"{GOOD}disks: {{tmp: 5}}\n", "absolute path"),
        ("machine.yaml", f"{GOOD}disks: {{/tmp: 5g}}\n", "'disks': /tmp must be a size in MiB"),
        ("machine.yaml", f"{GOOD}disks: {{/tmp: 0}}\n", "'disks': /tmp"),
        ("machine.yaml", f"{GOOD}programs: {{docker: 1}}\n", "'programs': docker"),
        ("machine.yaml", f"{GOOD}origin: [a]\n", "'origin'"),
        ("machine.yaml", "a: &x [1]\nb: *x\n", "aliases"),
        ("machine.yaml", f"{GOOD}uid: {'9' * 9000}\n", ""),
        ("machine.yaml", f"{GOOD}env: {'[' * 3000}\n", ""),
        ("machine.yaml", f"{GOOD}when: 2001-99-99\n", ""),
        ("machine.yaml", "x: !!python/object/apply:os.getcwd []\n", "python/object"),
        ("machine.yaml", "{{{", ""),
        ("commands.yaml", "a: 1\n", "a list of commands"),
        ("commands.yaml", "- a\n", "command 1"),
        ("commands.yaml", "- argv: [a]\n- argv: docker\n", "command 2: 'argv'"),
        ("commands.yaml", "- argv: [getent, passwd, 1000]\n", "command 1: 'argv'"),
        ("commands.yaml", "- argv: []\n", "command 1: 'argv'"),
        ("commands.yaml", "- argv: [a]\n  code: x\n", "command 1: 'code'"),
        ("commands.yaml", "- argv: [a]\n  code: true\n", "command 1: 'code'"),
        ("commands.yaml", "- argv: [a]\n  stdout: 1\n", "command 1: 'stdout'"),
        ("commands.yaml", "- argv: [a]\n  stderr: [x]\n", "command 1: 'stderr'"),
        ("commands.yaml", "- argv: [a]\n  state: gone\n", "command 1: 'state'"),
        ("commands.yaml", "- argv: [a]\n  output: x\n", "'output'"),
        ("root.txtar", "-- a quoted --\nx\n", "JSON string"),
        ("nvml.json", '{"state": "ok"}', "'state'"),
        ("nvml.json", "{", "not JSON"),
        ("nvml.json", "[]", "'state'"),
        ("nvml.json", "[" * 100_000, "not JSON"),
        ("nvml.json", '{"state": "present"}', "'value'"),
        ("nvml.json", '{"state": "present", "value": []}', "'value' must be an object"),
        ("nvml.json", '{"state": "error", "code": "x"}', "'code'"),
        ("nvml.json", '{"state": "error", "detail": 1}', "'detail'"),
        ("nvml.json", '{"state": "error", "source": 1}', "'source'"),
        ("nvml.json", '{"state": "error", "reason": 1}', "'reason'"),
        ("nvml.json", '{"state": "present", "value": {"devices": {}}}', "'value.devices'"),
        ("nvml.json", '{"state": "present", "value": {"devices": [1]}}', "'value.devices[0]'"),
        ("nvml.json", '{"state": "present", "value": {"devices": [{}, {"memory_bytes": "1"}]}}',
         "'value.devices[1].memory_bytes' must be a whole number"),
        ("nvml.json", '{"state": "present", "value": {"devices": [{"uuid": 1}]}}',
         "'value.devices[0].uuid' must be a text"),
        ("nvml.json", '{"state": "present", "value": {"devices": [{"compute": ["9"]}]}}',
         "'value.devices[0].compute[0]'"),
        ("nvml.json", '{"state": "present", "value": {"devices": [{"mig": [{"gi": 1.5}]}]}}',
         "'value.devices[0].mig[0].gi'"),
        ("nvml-readings.json", '{"state": "present", "value": {"devices": [{"power_mw": true}]}}',
         "'value.devices[0].power_mw'"),
        ("amdsmi.json", '{"state": "present", "value": {"devices": [{"name": []}]}}',
         "'value.devices[0].name'"),
        ("docker.json", '{"state": "present", "value": {"info": []}}', "'value.info'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_file_and_key(
    tmp_path: Path, name: str, text: str, word: str
) -> None:
    written(tmp_path, machine_yaml=GOOD)
    (tmp_path / name).write_text(text)
    with pytest.raises(DshpcError) as caught:
        RecordedMachine(tmp_path)
    assert str(tmp_path / name) in caught.value.brief
    assert word in caught.value.details
    assert caught.value.exit_code == Exit.USAGE
    assert len(caught.value.details) < 2000


def test_a_newer_capture_says_what_to_do(tmp_path: Path) -> None:
    written(tmp_path, machine_yaml=GOOD.replace("format: 1", "format: 2"))
    with pytest.raises(DshpcError, match="newer version") as caught:
        RecordedMachine(tmp_path)
    assert "Update dshpc." in caught.value.resolution


def test_a_few_lines_cannot_fill_the_memory(tmp_path: Path) -> None:
    layers = "".join(
        f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9) if n else 'lol'}]\n" for n in range(30)
    )
    with pytest.raises(DshpcError, match=r"machine\.yaml"):
        RecordedMachine(written(tmp_path, machine_yaml=layers))


@pytest.mark.parametrize("name", ["machine.yaml", "root.txtar", "commands.yaml", "docker.json"])
def test_a_file_that_is_none(tmp_path: Path, name: str) -> None:
    written(tmp_path, machine_yaml=GOOD)
    path = tmp_path / name
    path.unlink(missing_ok=True)
    for make in (path.mkdir, lambda: os.mkfifo(path), lambda: path.write_bytes(b"\xff\xfe")):
        make()
        with pytest.raises(DshpcError) as caught:
            RecordedMachine(tmp_path)
        assert str(path) in caught.value.brief
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    written(tmp_path, machine_yaml=GOOD)
    with (tmp_path / "root.txtar").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DshpcError) as caught:
        RecordedMachine(tmp_path)
    assert "larger than" in caught.value.details


@pytest.mark.parametrize("name", ["none", "file", "file/below", "empty"])
def test_no_machine_at_all_is_wrong_usage(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DshpcError, match="no recorded machine") as caught:
        RecordedMachine(tmp_path / name)
    assert caught.value.exit_code == Exit.USAGE


# What the folder says


def test_the_tree(tmp_path: Path) -> None:
    archive = (
        "a remark\n-- sys/a/b --\n1\n-- dev/x device --\n-- sys/link -> a --\n-- etc/s denied --\n"
    )
    machine = RecordedMachine(written(tmp_path, machine_yaml=GOOD, root_txtar=archive))
    assert machine.read("/sys/a/b").text == "1\n"
    assert machine.read("/sys/link/b").text == "1\n"
    assert machine.readlink("/sys/link") == "a"
    assert machine.listdir("/sys") == ("a", "link")
    assert (machine.is_device("/dev/x"), machine.is_device("/sys/a/b")) == (True, False)
    assert (machine.read("/etc/s").state, machine.read("/etc/t").state) == ("denied", "absent")
    assert (machine.access("/etc/s"), machine.exists("/dev")) == ("denied", True)


def test_groups_and_failures(tmp_path: Path) -> None:
    archive = (
        "-- dev/kfd device denied 109 --\n-- dev/x device --\n-- run/docker.sock there error 998 --\n"
        "-- sys/e error --\nInput/output error\n-- sys/d denied --\n[Errno 13] no\n-- run/dri there --\n"
        '-- sys/compatible quoted --\n"nvidia,p3701\\u0000"\n"nvidia,tegra234\\u0000"\n'
    )
    machine = RecordedMachine(written(tmp_path, machine_yaml=GOOD, root_txtar=archive))
    assert (machine.group_of("/dev/kfd"), machine.group_of("/dev/x")) == (109, 0)
    assert (machine.access("/dev/kfd"), machine.access("/dev/x")) == ("denied", "present")
    assert machine.is_device("/dev/kfd")
    assert (machine.group_of("/run/docker.sock"), machine.group_of("/none")) == (998, None)
    assert (machine.access("/run/docker.sock"), machine.access("/none")) == ("error", "absent")
    assert machine.read("/sys/e") == Read("error", detail="Input/output error")
    assert machine.read("/sys/d") == Read("denied", detail="[Errno 13] no")
    assert machine.read("/sys/compatible").text == "nvidia,p3701\0nvidia,tegra234\0"
    assert machine.read("/sys").state == "error"
    assert machine.listdir("/run/dri") == ()
    assert machine.exists("/run/dri")


def test_programs_and_libraries(tmp_path: Path) -> None:
    (tmp_path / "machine.yaml").write_text("format: 1\nsystem: Linux\nrelease: r\nmachine: m\n")
    (tmp_path / "root.txtar").write_text(
        "-- lib/old there i686 --\n-- lib/new there x86_64 denied 44 --\n-- lib/some there --\n"
        "-- lib/link -> old --\n-- bin/tool --\n#!/bin/sh\n-- bin/other there none --\n"
    )
    machine = RecordedMachine(tmp_path)
    assert machine.binary("/lib/link") == Binary("present", "i686")
    assert machine.binary("/lib/some") == Binary("present"), "not known: it is taken for one"
    assert {machine.binary(f"/bin/{name}") for name in ("tool", "other", "")} == {
        Binary("unsupported")
    }
    assert (machine.binary("/lib/new").state, machine.binary("/x").state) == ("denied", "absent")


def test_times_and_device_numbers(tmp_path: Path) -> None:
    (tmp_path / "machine.yaml").write_text("format: 1\nsystem: Linux\nrelease: r\nmachine: m\n")
    (tmp_path / "root.txtar").write_text(
        "-- dev/kfd device 510:0 denied 109 @7 --\n-- dev/x device --\n-- etc/a @5.5 --\ntext\n"
        "-- etc/b -> a --\n"
    )
    machine = RecordedMachine(tmp_path)
    assert (machine.device_number("/dev/kfd"), machine.device_number("/dev/x")) == ((510, 0), None)
    assert (machine.changed("/etc/b"), machine.changed("/dev/kfd")) == (5.5, 7.0)
    assert (machine.changed("/dev/x"), machine.changed("/none")) == (None, None)
    assert (machine.access("/dev/kfd"), machine.group_of("/dev/kfd")) == ("denied", 109)
    assert machine.read("/etc/a").text == "text\n"


def test_sizes_of_file_systems(tmp_path: Path) -> None:
    (tmp_path / "machine.yaml").write_text(
        "format: 1\nsystem: Linux\nrelease: r\nmachine: m\ndisks: {/tmp: 5120}\n"
    )
    machine = RecordedMachine(tmp_path)
    assert (machine.disk_mib("/tmp"), machine.disk_mib("/tmp/")) == (5120, 5120)
    assert machine.disk_mib("/var") is None


def test_links_lead_on_as_the_kernels_do(tmp_path: Path) -> None:
    archive = (
        "-- sys/bus/card0 -> ../devices/p0/card0 --\n-- sys/devices/p0/card0/vendor --\n0x10de\n"
        "-- sys/devices/p0/card0/driver -> ../../../drivers/nvidia --\n-- sys/loop -> loop --\n"
        "-- sys/drivers/nvidia/module --\nx\n-- sys/gone -> nowhere --\n"
    )
    machine = RecordedMachine(written(tmp_path, machine_yaml=GOOD, root_txtar=archive))
    assert machine.read("/sys/bus/card0/vendor").text == "0x10de\n"
    assert machine.readlink("/sys/bus/card0/driver") == "../../../drivers/nvidia"
    assert machine.read("/sys/bus/card0/driver/module").text == "x\n"
    assert machine.listdir("/sys/bus/card0") == ("driver", "vendor")
    assert (machine.exists("/sys/gone"), machine.read("/sys/gone").state) == (True, "absent")
    assert machine.read("/sys/loop").state == "absent"


def test_what_hangs_is_a_timeout_at_once(tmp_path: Path) -> None:
    folder = written(tmp_path, machine_yaml=GOOD, root_txtar="-- proc/stuck hangs --\n")
    machine = RecordedMachine(folder)
    ended = machine.apart(
        {"a": lambda say: say(machine.read("/proc/stuck")), "b": lambda say: say(1)}, deadline_s=9
    )
    assert (ended["a"].state, ended["a"].detail) == ("timeout", "no answer within 9 s")
    assert ended["b"].items == (1,)


def test_where_programs_are(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        machine_yaml=f"{GOOD}programs: {{docker: /opt/bin/docker, rocm-smi: null}}\n",
        commands_yaml="- argv: [docker, info]\n  stdout: x\n- argv: [/w/nvidia-smi]\n  code: 9\n",
    )
    machine = RecordedMachine(folder)
    assert (machine.which("docker"), machine.which("rocm-smi")) == ("/opt/bin/docker", None)
    assert machine.run(["/opt/bin/docker", "info"], deadline_s=1).stdout == "x"
    assert machine.run(["/w/nvidia-smi"], deadline_s=1).code == 9
    assert machine.run(["rocm-smi", "-a"], deadline_s=1).state == "absent"
    with pytest.raises(Unrecorded, match="'programs'"):
        machine.which("xpu-smi")
    with pytest.raises(Unrecorded, match="does not hold the command"):
        machine.run(["docker", "ps"], deadline_s=1)


def test_what_is_there_and_was_not_read_is_no_fact(tmp_path: Path) -> None:
    folder = written(tmp_path, machine_yaml=GOOD, root_txtar="-- usr/lib/x.so there --\n")
    machine = RecordedMachine(folder)
    with pytest.raises(Unrecorded, match=r"/usr/lib/x\.so") as caught:
        machine.read("/usr/lib/x.so")
    error = caught.value.told()
    assert "root.txtar" in error.details
    assert error.exit_code == Exit.ERROR


# Whatever a folder holds

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
KEYS = st.sampled_from(
    ["state", "value", "devices", "code", "detail", "source", "index", "uuid", "mig", "compute", "name",
     "memory_bytes", "errors", "info", "version", "host", "pci_bus_id", "error", "mig_mode", "minor",
     "nvlinks", "fabric", "Runtimes", "DiscoveredDevices", "SecurityOptions", "MemTotal"]
)  # fmt: skip
VALUES = st.recursive(
    SCALARS | st.sampled_from(["present", "error", "timeout", "0000:1a:00.0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)
REPLIES = st.one_of(
    VALUES.map(json.dumps),
    st.builds(
        lambda devices: json.dumps({"state": "present", "value": {"devices": devices}}),
        st.lists(st.dictionaries(KEYS, VALUES, max_size=4), max_size=3),
    ),
    st.text(),
)
PIECES = st.sampled_from(
    ["-- dev/nvidia0 device --\n", "-- sys/bus/pci/devices/0000:1a:00.0/vendor --\n", "0x10de\n",
     "-- sys/bus/pci/devices/0000:1a:00.0/class --\n", "0x030200\n", "-- proc/meminfo hangs --\n",
     "-- sys/bus -> bus --\n", "-- proc/self/status denied --\n", "-- dev there error 3 --\n",
     "-- etc/os-release quoted --\n", '"ID=\\u0000"\n', "-- sys/module/nvidia/version --\n",
     "-- sys error --\n"]
)  # fmt: skip


@given(
    about=st.one_of(st.just(GOOD), VALUES.map(yaml.safe_dump), st.text().map(GOOD.__add__)),
    tree=st.lists(st.one_of(PIECES, st.text())).map("".join),
    commands=st.one_of(st.just(""), VALUES.map(yaml.safe_dump), st.text()),
    nvml=REPLIES,
    docker=REPLIES,
)
def test_a_folder_gives_facts_or_an_error_that_names_a_file(
    tmp_path_factory: pytest.TempPathFactory,
    about: str,
    tree: str,
    commands: str,
    nvml: str,
    docker: str,
) -> None:
    folder = tmp_path_factory.mktemp("m")
    texts = {"machine.yaml": about, "root.txtar": tree, "commands.yaml": commands,
             "nvml.json": nvml, "docker.json": docker}  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", errors="replace")
    try:
        machine = RecordedMachine(folder)
    except DshpcError as error:
        assert str(folder) in error.brief
        return
    try:
        json.dumps(probes.gather(machine).to_json(explain=True))
    except Unrecorded as error:
        assert str(folder) in error.told().details
