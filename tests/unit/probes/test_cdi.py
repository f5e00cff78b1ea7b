"""CDI specifications: good, stale, broken and closed ones, and whatever else a file may hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import probes
from dshpc_setup.documents import yaml_nodes
from dshpc_setup.facts import CdiDevice, CdiSpec, Engine
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.probes import cdi
from tests.unit.probes.made_machine import MadeMachine

MACHINES = Path(__file__).parents[2] / "machines"
PATH = "/etc/cdi/a.yaml"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01"
GOOD = f"""---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  additionalGids: [44]
  mounts:
  - hostPath: {LIBRARY}
    containerPath: /usr/lib/libcuda.so.1
  - containerPath: /tmp
    hostPath: tmpfs
    type: tmpfs
devices:
- name: 0
  containerEdits:
    deviceNodes:
    - path: /dev/renamed0
      hostPath: /dev/nvidia0
    additionalGids: [109]
- name: "1:0"
  containerEdits:
    env: [A=b]
"""


def specs(name: str) -> tuple[CdiSpec, ...]:
    return probes.gather(RecordedMachine(MACHINES / name), only=["docker"]).engine.cdi_specs


def only(name: str) -> CdiSpec:
    (found,) = specs(name)
    return found


def detail(text: str) -> str:
    """What is wrong with it."""
    spec = cdi.parse(PATH, text).spec
    assert (spec.state, spec.kind, spec.devices) == ("error", None, ())
    return spec.detail or ""


def test_a_specification() -> None:
    found = cdi.parse(PATH, GOOD)
    assert found.spec == CdiSpec(
        PATH,
        "present",
        "nvidia.com/gpu",
        (
            CdiDevice("nvidia.com/gpu=0", ("/dev/nvidia0",), (44, 109)),
            CdiDevice("nvidia.com/gpu=1:0", (), (44,)),
        ),
        ("/dev/nvidiactl",),
        driver_version="550.163.01",
        version="0.5.0",
    )
    assert found.files == (LIBRARY,)


def test_json_says_the_same() -> None:
    value = yaml.safe_load(GOOD)
    assert cdi.parse(PATH, json.dumps(value)) == cdi.parse(PATH, GOOD)
    assert cdi.parse(PATH, yaml.dump(value, default_flow_style=True)) == cdi.parse(PATH, GOOD)


def test_an_alias_stands_for_what_it_names() -> None:
    text = GOOD.replace("additionalGids: [44]", "additionalGids: &g [44]").replace("[109]", "*g")
    assert cdi.parse(PATH, text).spec.devices[0].group_ids == (44,)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("# nothing\n", "it is empty"),
        ("just words", "no 'key: value'"),
        ("- a\n", "no 'key: value'"),
        ("kind: a.b/c\n", "'cdiVersion' is missing"),
        ("cdiVersion: 0.5.0\n", "'kind' is missing"),
        (GOOD.replace("nvidia.com/gpu", "nvidia.com"), "'kind' is 'nvidia.com'"),
        (GOOD.replace("nvidia.com/gpu", "/gpu"), "'kind' is '/gpu'"),
        (GOOD.replace("- name: 0", "- named: 0"), "devices[0] has no name"),
        (GOOD.replace("- name: 0", "- name: a b"), "its name is odd"),
        (GOOD.replace("env: [A=b]", "env: []"), "devices[1] (1:0) gives a container nothing"),
        (
            GOOD.replace("  containerEdits:\n    env: [A=b]\n", ""),
            "(1:0) gives a container nothing",
        ),
        (GOOD.partition("devices:")[0], "it names no device"),
        (GOOD.partition("- name")[0], "it names no device"),
        (GOOD.replace('"1:0"', '"1=0"'), "devices[1]: its name is odd"),
        (GOOD.replace('"1:0"', '"0"'), "a second device is called '0'"),
        (GOOD.replace("- path: /dev/nvidiactl", "- type: c"), "deviceNodes[0] has no path"),
        (GOOD.replace("[44]", "[video]"), "additionalGids holds what is no number"),
        (GOOD.replace("devices:", "devices: none\nx:"), "devices is no list"),
        (GOOD.replace("0.5.0", "0.5"), "'cdiVersion' is '0.5'"),
        (GOOD.replace("0.5.0", "newest"), "'cdiVersion' is 'newest'"),
        (GOOD.replace("0.5.0", "0.5: 0"), "line 2, column "),
        (GOOD.replace("  - path: /dev/nvidiactl", "\t- path: x"), "line 6, column "),
        (GOOD.replace("[44]", "*nobody"), "nothing is called *nobody"),
        (GOOD + "}" * 3, "line "),
        ("{" + '"a": {' * 5000, "line "),
        ("- " * 200_000, "nested too deeply"),
        ("a: " + "[" * 50_000, "nested too deeply"),
        ("a" * (1 << 21), "larger than 1 MiB"),
        ("a: \x00", "character 3: control characters"),
    ],
)
def test_what_is_wrong_and_where(text: str, why: str) -> None:
    assert why in detail(text)


def test_a_few_lines_of_aliases_are_no_million_devices() -> None:
    rows = "".join(f"- {{name: d{n}, containerEdits: *e}}\n" for n in range(2000))
    nodes = ", ".join("{path: /dev/a}" for _ in range(100))
    text = f"cdiVersion: 0.5.0\nkind: a.b/c\nx: &e {{deviceNodes: [{nodes}]}}\ndevices:\n{rows}"
    assert "more than 20000 entries" in detail(text)


def test_merge_keys_do_not_explode() -> None:
    lines = ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}"
                                 for n in range(1, 30))]  # fmt: skip
    assert "'cdiVersion' is missing" in detail("\n".join(lines))


@given(st.text())
def test_any_text_is_a_specification_or_an_error(text: str) -> None:
    spec = cdi.parse(PATH, text).spec
    assert spec.state == "error"
    assert spec.detail


@given(st.integers(0, len(GOOD)), st.text(max_size=5))
def test_a_damaged_one_is_one_or_an_error(at: int, text: str) -> None:
    spec = cdi.parse(PATH, GOOD[:at] + text + GOOD[at:]).spec
    assert (spec.state == "error") == bool(spec.detail)
    assert (spec.state == "present") == bool(spec.kind)


NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.:-]{0,20}[A-Za-z0-9])?", fullmatch=True)
PATHS = st.lists(st.sampled_from("abc012"), min_size=1).map(lambda parts: f"/dev/{'/'.join(parts)}")


@given(
    st.dictionaries(
        NAMES,
        st.tuples(st.lists(PATHS, min_size=1), st.lists(st.integers(0, 1 << 31))),
        min_size=1,
    ),
    st.lists(PATHS),
)
def test_every_device_comes_back(devices: dict[str, Any], common: list[str]) -> None:
    edits = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": p} for p in nodes],
                                          "additionalGids": groups}}
        for name, (nodes, groups) in devices.items()
    ]  # fmt: skip
    value = {"cdiVersion": "0.7.0", "kind": "a.b/c", "devices": edits,
             "containerEdits": {"deviceNodes": [{"path": path} for path in common]}}  # fmt: skip
    for text in (json.dumps(value), yaml.safe_dump(value)):
        spec = cdi.parse(PATH, text).spec
        assert {item.name: (item.nodes, item.group_ids) for item in spec.devices} == {
            f"a.b/c={name}": (tuple(dict.fromkeys(nodes)), tuple(dict.fromkeys(groups)))
            for name, (nodes, groups) in devices.items()
        }
        assert spec.nodes == tuple(dict.fromkeys(common))


PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.text(st.characters(max_codepoint=0x2FF, exclude_categories=["Cc"]), min_size=1),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text("abc", min_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_yaml_comes_back(value: Any) -> None:
    assert yaml_nodes.load(yaml.safe_dump(value, allow_unicode=True)) == value


# Files


def made(files: dict[str, str | None], *devices: str) -> tuple[CdiSpec, ...]:
    return cdi.probe(MadeMachine(files, devices=devices), 1.0).fact


def test_what_the_machine_does_not_have_is_missing() -> None:
    (spec,) = made({PATH: GOOD, LIBRARY: ""}, "/dev/nvidiactl", "/dev/nvidia0")
    assert spec.missing == ()
    (spec,) = made({PATH: GOOD}, "/dev/nvidiactl")
    assert spec.missing == ("/dev/nvidia0", LIBRARY)


def test_of_a_closed_folder_nothing_is_said() -> None:
    files = {PATH: GOOD, LIBRARY.rpartition("/")[0]: None}
    (spec,) = made(files, "/dev/nvidiactl", "/dev/nvidia0")
    assert spec.missing == ()


def test_only_yaml_and_json_in_the_folder_itself_count() -> None:
    texts = dict.fromkeys(("/etc/cdi/a.yml", "/etc/cdi/b.yaml.bak", "/etc/cdi/old/c.yaml"), GOOD)
    assert made({**texts, "/var/run/cdi/d.json": "{}"}) == (
        CdiSpec("/var/run/cdi/d.json", "error", detail="'cdiVersion' is missing"),
    )


def test_a_folder_that_may_not_be_listed_is_no_absence() -> None:
    (spec,) = made({"/etc/cdi": None})
    assert (spec.path, spec.state) == ("/etc/cdi", "denied")


def test_paths_of_the_snap_are_those_of_the_machine() -> None:
    text = GOOD.replace(LIBRARY, f"/var/lib/snapd/hostfs{LIBRARY}")
    assert cdi.parse(PATH, text) == cdi.parse(PATH, GOOD)


@pytest.mark.parametrize(
    ("engine", "folders"),
    [
        (Engine("absent"), cdi.FOLDERS),
        (Engine("present", kind="engine"), cdi.FOLDERS),
        (Engine("present", kind="engine", cdi_folders=("/opt/cdi", "/run/cdi/")),
         ("/opt/cdi", "/var/run/cdi")),
        (Engine("present", kind="desktop", cdi_folders=("/opt/cdi",)), cdi.FOLDERS),
        (Engine("present", kind="snap"), (*cdi.FOLDERS, "/var/snap/docker/current/etc/cdi")),
    ],
)  # fmt: skip
def test_where_an_engine_looks(engine: Engine, folders: tuple[str, ...]) -> None:
    assert cdi.folders(engine) == folders


def test_of_the_folders_that_were_looked_at_only_the_engines_count() -> None:
    of = [CdiSpec(f"{folder}/a.yaml", "present", "a.b/c") for folder in ("/etc/cdi", "/opt/cdi")]
    closed = CdiSpec("/var/run/cdi", "denied")
    assert cdi.of_folders([*of, closed], ("/opt/cdi", "/var/run/cdi")) == (of[1], closed)


def test_a_folder_that_only_the_engine_knows_is_looked_at() -> None:
    class Told(RecordedMachine):
        def docker(self, deadline_s: float) -> Any:
            reply = super().docker(deadline_s)
            reply.value["info"]["CDISpecDirs"] = ["/opt/cdi"]
            return reply

    machine = Told(MACHINES / "max1550-cdi")
    text = machine.tree.texts["/etc/cdi/intel.com-gpu.yaml"]
    assert probes.gather(machine, only=["docker"]).engine.cdi_specs == ()
    machine.tree.texts["/opt/cdi/x.yaml"] = text  # type: ignore[index]
    machine._children["/opt/cdi"] = {"x.yaml"}
    (spec,) = probes.gather(machine, only=["docker"]).engine.cdi_specs
    assert (spec.path, len(spec.devices)) == ("/opt/cdi/x.yaml", 2)


# Which of several counts


def named(path: str, *names: str) -> CdiSpec:
    return CdiSpec(
        path, "present", "a.b/c", tuple(CdiDevice(f"a.b/c={name}", (path,)) for name in names)
    )


def in_force(*specs: CdiSpec) -> tuple[dict[str, list[str]], Any]:
    """The names that each gives, and which one is replaced by which."""
    kept, replaced = cdi.in_force(specs, cdi.FOLDERS)
    given = {spec.path: [item.name.partition("=")[2] for item in spec.devices] for spec in kept}
    return given, replaced


def test_of_a_name_in_two_folders_the_later_ones_counts() -> None:
    old, new = named("/etc/cdi/n.yaml", "0", "all"), named("/var/run/cdi/n.yaml", "0", "all", "x")
    assert in_force(old, new) == ({new.path: ["0", "all", "x"]}, {old.path: new.path})
    more = named("/etc/cdi/n.yaml", "0", "1")
    assert in_force(more, new) == ({more.path: ["1"], new.path: ["0", "all", "x"]}, {})
    other = named("/etc/cdi/n.yaml", "2")
    assert in_force(other, new)[1] == {}


def test_a_name_twice_in_one_folder_is_a_clash() -> None:
    first, second = named("/etc/cdi/a.yaml", "0", "1"), named("/etc/cdi/b.yaml", "1")
    kept, replaced = cdi.in_force((first, second), cdi.FOLDERS)
    assert [spec.detail for spec in kept] == [
        "/etc/cdi/b.yaml names the same devices",
        "/etc/cdi/a.yaml names the same devices",
    ]
    assert not replaced
    apart = (first, named("/etc/cdi/b.yaml", "2"))
    assert cdi.in_force(apart, cdi.FOLDERS) == (apart, {})


def test_one_that_cannot_be_read_replaces_none() -> None:
    old = named("/etc/cdi/n.yaml", "0")
    broken = CdiSpec("/var/run/cdi/n.yaml", "error", detail="line 1")
    assert cdi.in_force((old, broken), cdi.FOLDERS) == ((old, broken), {})


# Whole machines


def mig_names(name: str) -> tuple[set[str], set[str | None]]:
    """The MIG devices that the specification names, and those that NVML knows."""
    facts = probes.gather(RecordedMachine(MACHINES / name))
    named = {
        item.name.partition("=")[2] for spec in facts.engine.cdi_specs for item in spec.devices
    }
    known = {part.uuid for device in facts.gpus.devices for part in device.mig}
    return {item for item in named if item.startswith("MIG-")}, known


def test_good_and_stale_names_of_mig() -> None:
    named, known = mig_names("h100-mig")
    assert named == known
    named, known = mig_names("h100-mig-cdi-stale")
    assert len(named) == 3
    assert not named & known


def test_a_good_one_and_one_of_the_driver_before() -> None:
    good, old = only("workstation-rtx4090"), only("rtx4090-cdi-old-driver")
    assert (good.driver_version, good.missing) == ("570.124.06", ())
    assert old.driver_version == "550.163.01"
    assert LIBRARY in old.missing
    assert not [path for path in old.missing if path.startswith(("/dev/", "/usr/bin/"))]


def test_an_old_one_without_effect() -> None:
    """Made by hand for the driver before; newer toolkits keep one of their own in /var/run/cdi."""
    found = only("rtx4090-cdi-old-replaced")
    assert (found.path, found.missing) == ("/var/run/cdi/nvidia.yaml", ())
    assert only("rtx4090-cdi-old-driver").path == "/etc/cdi/nvidia.yaml"


def test_a_broken_and_a_closed_one() -> None:
    assert (only("rtx4090-cdi-broken").state, only("rtx4090-cdi-denied").state) == (
        "error",
        "denied",
    )
    assert "line 6, column 4" in (only("rtx4090-cdi-broken").detail or "")


def test_those_of_other_vendors() -> None:
    amd, intel, wsl = (
        only("mi210x4-toolkit-cdi"),
        only("max1550-cdi"),
        only("wsl2-rtx3080-engine-cdi"),
    )
    assert (amd.kind, len(amd.devices), amd.missing) == ("amd.com/gpu", 5, ())
    assert amd.devices[0].nodes == ("/dev/dri/card1", "/dev/dri/renderD128", "/dev/kfd")
    assert (intel.kind, intel.missing) == ("intel.com/gpu", ())
    assert [item.group_ids for item in intel.devices] == [(), (486,)]
    assert [(item.name, item.nodes) for item in wsl.devices] == [
        ("nvidia.com/gpu=all", ("/dev/dxg",))
    ]
    assert (wsl.driver_version, wsl.missing) == (None, ()), "WSL's libraries name no version"
