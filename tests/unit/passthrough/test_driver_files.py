"""What the built-in engine binds of a driver: machines of a few lines, each with its files elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import HostFacts, Platform
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.passthrough import Attempt, findings
from dshpc_setup.passthrough.candidates import candidates
from dshpc_setup.passthrough.driver_files import DriverFiles, Node, driver_files
from dshpc_setup.passthrough.driver_search import Lack
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.probes import loader
from tests.unit.passthrough.made import (
    CUT,
    DRIVER,
    PARTS,
    amd,
    card,
    facts,
    intel,
    on,
    planned,
    spec,
)
from tests.unit.probes.written import written

ONE = facts(card(0))
NODES = "-- dev/nvidiactl device --\n-- dev/nvidia-uvm device --\n-- dev/nvidia0 device --\n"
VERSION = (
    "-- proc/driver/nvidia/version --\n"
    f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build\n"
)
TRIPLE = "/usr/lib/x86_64-linux-gnu"
CUDA, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
OLD = "535.54.03"


def library(folder: str, soname: str, version: str = DRIVER, arch: str = "x86_64") -> str:
    """A library and the link by which programs load it."""
    own = f"{soname.partition('.so')[0]}.so.{version}"
    return f"-- {folder}/{own} there {arch} --\n-- {folder}/{soname} -> {own} --\n"


def both(folder: str, version: str = DRIVER, arch: str = "x86_64") -> str:
    return "".join(library(folder, name, version, arch) for name in (CUDA, NVML))


def machine(folder: Path, tree: str, **about: Any) -> RecordedMachine:
    return written(folder, NODES + VERSION + tree, **{"programs": {"nvidia-smi": None}, **about})


def found(folder: Path, tree: str, known: HostFacts = ONE, **about: Any) -> DriverFiles:
    return driver_files(machine(folder, tree, **about), known)


def bound(files: DriverFiles) -> dict[str, str]:
    """Target -> source."""
    return {file.target: file.source for file in files.files}


def codes(files: DriverFiles) -> list[str]:
    return [lack.code for lack in files.missing]


def rows(known: HostFacts, files: DriverFiles | None, **settings: str) -> dict[str, Attempt]:
    by_us = on(known, kind="builtin", runtimes=())
    every = candidates(by_us, planned(by_us, **settings), not settings, files)
    return {row.mechanism: row for row in every}


def handed(known: HostFacts, files: DriverFiles | None, **settings: str) -> Handover:
    row = rows(known, files, **settings)["devices"]
    assert row.handover is not None, row.reason
    return row.handover


# -- where the files are found ----------------------------------------------------------------------


def test_by_the_name_that_programs_load_and_by_their_own(tmp_path: Path) -> None:
    files = found(tmp_path, both("usr/lib/x86_64-linux-gnu"))
    assert bound(files) == {
        f"{TRIPLE}/{name}": f"{TRIPLE}/{stem}.so.{DRIVER}"
        for stem, names in (
            ("libcuda", (CUDA, "libcuda.so", f"libcuda.so.{DRIVER}")),
            ("libnvidia-ml", (NVML, f"libnvidia-ml.so.{DRIVER}")),
        )
        for name in names
    }
    assert set(files.evidence.values()) == {TRIPLE}
    assert not files.missing


@pytest.mark.parametrize(
    "folder",
    ["usr/lib64", "usr/lib", "usr/lib/nvidia", "usr/lib/nvidia-550", "usr/local/nvidia/lib64",
     "usr/local/nvidia/lib", "opt/nvidia/lib64", "run/opengl-driver/lib", "my/own",
     "usr/lib/x86_64-linux-gnu/nvidia/current", "home/kubernetes/bin/nvidia/lib64"],
)  # fmt: skip
def test_in_each_folder(folder: str, tmp_path: Path) -> None:
    files = found(tmp_path, both(folder), env={"LD_LIBRARY_PATH": "relative::/my/own/"})
    assert bound(files)[f"{TRIPLE}/{CUDA}"] == f"/{folder}/libcuda.so.{DRIVER}"
    assert not files.missing


def test_by_the_loaders_index(tmp_path: Path) -> None:
    index = "".join(
        f"/{folder}/{name}\\u0000" for folder in ("lib", "drv") for name in (CUDA, NVML)
    )
    links = f"-- lib/{CUDA} -> /drv/{CUDA} --\n-- lib/{NVML} -> ../drv/{NVML} --\n"
    files = found(tmp_path, f'{both("drv")}{links}-- etc/ld.so.cache quoted --\n"{index}"\n')
    assert bound(files)[f"{TRIPLE}/{NVML}"] == f"/drv/libnvidia-ml.so.{DRIVER}"
    assert set(files.evidence.values()) == {"/etc/ld.so.cache"}


def test_by_a_cdi_specification_first(tmp_path: Path) -> None:
    names = (f"libcuda.so.{DRIVER}", f"libnvidia-ml.so.{DRIVER}", f"libnvidia-gpucomp.so.{DRIVER}",
             f"libGLX_nvidia.so.{DRIVER}", f"libnvidia-gone.so.{DRIVER}")  # fmt: skip
    mounts = [{"hostPath": f"/store/{name}", "containerPath": f"/lib/{name}"} for name in names]
    mounts += [{"hostPath": "/store/nvidia-smi", "containerPath": "/usr/bin/nvidia-smi"}]
    edits = {
        "mounts": mounts,
        "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}],
    }
    text = json.dumps({
        "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "containerEdits": edits,
        "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
    })  # fmt: skip
    tree = "".join(f"-- store/{name} there x86_64 --\n" for name in (*names[:4], "nvidia-smi"))
    tree += f"-- etc/cdi/nvidia.yaml --\n{text}\n{both('usr/lib/x86_64-linux-gnu')}"
    known = on(ONE, cdi_specs=(spec({"0": ("/dev/nvidia0",)}),))
    files = found(tmp_path, tree, known)
    assert {file.by for file in files.files} == {"/etc/cdi/nvidia.yaml"}
    assert bound(files) == {
        f"{TRIPLE}/libcuda.so": f"/store/libcuda.so.{DRIVER}",
        f"{TRIPLE}/{CUDA}": f"/store/libcuda.so.{DRIVER}",
        f"{TRIPLE}/libcuda.so.{DRIVER}": f"/store/libcuda.so.{DRIVER}",
        f"{TRIPLE}/{NVML}": f"/store/libnvidia-ml.so.{DRIVER}",
        f"{TRIPLE}/libnvidia-ml.so.{DRIVER}": f"/store/libnvidia-ml.so.{DRIVER}",
        f"{TRIPLE}/libnvidia-gpucomp.so.{DRIVER}": f"/store/libnvidia-gpucomp.so.{DRIVER}",
        "/usr/bin/nvidia-smi": "/store/nvidia-smi",
    }


def test_on_another_processor(tmp_path: Path) -> None:
    tree = both("usr/lib64", arch="aarch64")
    files = found(tmp_path, tree, machine="aarch64")
    assert f"/usr/lib/aarch64-linux-gnu/{CUDA}" in bound(files)


def test_libraries_of_32_bits_are_passed_over(tmp_path: Path) -> None:
    files = found(tmp_path, both("usr/lib", arch="i686") + both("usr/lib64"))
    assert {Path(source).parent for source in bound(files).values()} == {Path("/usr/lib64")}


def test_a_library_whose_name_tells_no_version_is_taken(tmp_path: Path) -> None:
    tree = f"-- usr/lib64/{CUDA} there x86_64 --\n-- usr/lib64/{NVML} there x86_64 --\n"
    files = found(tmp_path, tree)
    assert set(bound(files)) == {f"{TRIPLE}/{name}" for name in (CUDA, NVML, "libcuda.so")}


def test_without_the_kernels_word_the_first_library_tells_the_version(tmp_path: Path) -> None:
    nameless = facts(card(0, driver_version=None))
    tree = both("usr/lib64") + f"-- usr/lib64/libnvidia-gpucomp.so.{DRIVER} there x86_64 --\n"
    files = driver_files(written(tmp_path, NODES + tree, programs={"nvidia-smi": None}), nameless)
    assert f"{TRIPLE}/libnvidia-gpucomp.so.{DRIVER}" in bound(files)


# -- what is missing --------------------------------------------------------------------------------


def test_none_is_there(tmp_path: Path) -> None:
    files = found(tmp_path, library("usr/lib64", NVML))
    assert codes(files) == ["no-libcuda"]
    row = rows(ONE, files)["devices"]
    assert (row.state, row.finding) == ("impossible", findings.LIBRARY_DOES_NOT_LOAD)
    assert row.reason == "the driver's libcuda.so.1 was not found on this machine"
    assert "ldconfig" in str(row.fix)


def test_an_old_drivers_are_not_taken(tmp_path: Path) -> None:
    files = found(tmp_path, both("usr/lib64", OLD))
    assert not files.files
    assert files.missing[0] == Lack(
        "version-mismatch", "nvidia", CUDA, f"/usr/lib64/libcuda.so.{OLD}", OLD, DRIVER
    )
    row = rows(ONE, files)["devices"]
    assert row.finding == findings.LIBRARY_OF_ANOTHER_VERSION
    assert f"is of driver {OLD}, and this machine runs {DRIVER}" in row.reason


def test_beside_an_old_drivers_the_running_ones_are_found(tmp_path: Path) -> None:
    tree = both("usr/lib64", OLD) + "".join(
        f"-- usr/lib64/{stem}.so.{DRIVER} there x86_64 --\n" for stem in ("libcuda", "libnvidia-ml")
    )
    files = found(tmp_path, tree)
    assert bound(files)[f"{TRIPLE}/{CUDA}"] == f"/usr/lib64/libcuda.so.{DRIVER}"
    assert not files.missing


def test_one_that_may_not_be_read(tmp_path: Path) -> None:
    tree = f"-- usr/lib64/libcuda.so.{DRIVER} denied --\n" + library("usr/lib64", NVML)
    files = found(tmp_path, tree)
    assert codes(files) == ["unreadable"]
    assert f"may not read /usr/lib64/libcuda.so.{DRIVER}" in rows(ONE, files)["devices"].reason


def test_a_jetsons_files_are_others(tmp_path: Path) -> None:
    board = facts(card(0, driver="nvgpu"))
    files = found(tmp_path, both("usr/lib64"), board)
    assert (codes(files), files.files) == (["other-driver"], ())
    assert "nvgpu" in rows(board, files)["devices"].reason


@pytest.mark.parametrize("name", ["a:b", "a b", "a,b", "ä"])
def test_a_path_that_reads_as_something_else_is_passed_over(name: str, tmp_path: Path) -> None:
    tree = "".join(
        f"-- {json.dumps(f'{name}/{stem}.so.{DRIVER}')} there x86_64 --\n"
        for stem in ("libcuda", "libnvidia-ml")
    )
    files = found(tmp_path, tree, env={"LD_LIBRARY_PATH": f"/{name}"})
    assert not files.files


# -- nvidia-smi -------------------------------------------------------------------------------------

SCRIPT = "-- usr/bin/nvidia-smi --\n#!/bin/sh\nexec /usr/local/nvidia/bin/nvidia-smi\n"


@pytest.mark.parametrize(
    ("folder", "tool"),
    [
        ("usr/local/nvidia/lib64", "usr/local/nvidia/bin/nvidia-smi"),
        ("usr/lib/x86_64-linux-gnu/driver", "usr/lib/bin/nvidia-smi"),
        ("opt/nvidia/lib64", "opt/nvidia/lib64/nvidia-smi"),
        ("usr/lib64", "own/bin/nvidia-smi"),
    ],
)
def test_the_tool_itself_and_not_the_script_that_starts_it(
    folder: str, tool: str, tmp_path: Path
) -> None:
    files = found(
        tmp_path,
        f"{both(folder)}{SCRIPT}-- {tool} there x86_64 --\n",
        env={"LD_LIBRARY_PATH": f"/{folder}", "PATH": "/usr/bin:bin:/own/bin"},
        programs={"nvidia-smi": "/usr/bin/nvidia-smi"},
    )
    assert bound(files)["/usr/bin/nvidia-smi"] == f"/{tool}"


def test_a_script_alone_is_none(tmp_path: Path) -> None:
    where = {"nvidia-smi": "/usr/bin/nvidia-smi"}
    files = found(tmp_path, both("usr/lib64") + SCRIPT, programs=where)
    assert "/usr/bin/nvidia-smi" not in bound(files)
    assert not files.missing


# -- device nodes -----------------------------------------------------------------------------------


def test_nodes_and_who_may_open_them(tmp_path: Path) -> None:
    tree = "-- dev/nvidia-uvm-tools device 238:1 --\n-- dev/nvidia1 device denied 44 --\n"
    known = facts(card(0), card(1), card(2))
    files = found(tmp_path, both("usr/lib64") + tree, known)
    assert files.nodes == (
        Node("/dev/nvidiactl", "present", 0), Node("/dev/nvidia-uvm", "present", 0),
        Node("/dev/nvidia-uvm-tools", "present", 0), Node("/dev/nvidia0", "present", 0),
        Node("/dev/nvidia1", "denied", 44), Node("/dev/nvidia2", "absent", None),
    )  # fmt: skip
    assert [node.path for node in files.denied] == ["/dev/nvidia1"]
    row = rows(known, files)["devices"]
    assert (row.finding, row.reason) == (
        findings.NODE_DENIED, "this user may not open /dev/nvidia1 (group 44)"
    )  # fmt: skip
    assert 'usermod -aG 44 "$USER"' in str(row.fix)
    assert handed(known, files, devices="0").devices == tuple(
        f"/dev/{name}:/dev/{name}"
        for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia-uvm-tools")
    )


def test_capability_nodes_are_not_opened_for_writing(tmp_path: Path) -> None:
    caps = [f"dev/nvidia-caps/nvidia-cap{number}" for number in (12, 13, 21, 22)]
    tree = "".join(f"-- {path} device denied --\n" for path in caps)
    known = facts(CUT)
    files = found(tmp_path, both("usr/lib64") + tree, known)
    assert not files.denied
    devices = handed(known, files, devices=str(PARTS[0].uuid)).devices
    assert [node for node in devices if "caps" in node] == [
        f"/{path}:/{path}" for path in caps[:2]
    ], "those of the instance alone"


def test_a_node_that_hangs_ends_with_the_deadline(tmp_path: Path) -> None:
    tree = NODES.replace("nvidia0 device", "nvidia0 hangs") + VERSION + both("usr/lib64")
    files = driver_files(written(tmp_path, tree, programs={"nvidia-smi": None}), ONE)
    assert files.nodes[-1] == Node("/dev/nvidia0", "timeout")
    assert not files.missing


def test_of_others_the_nodes_do(tmp_path: Path) -> None:
    known = facts(amd(0), intel(1))
    tree = "-- dev/kfd device denied 993 --\n-- dev/dri/renderD128 device denied 993 --\n"
    tree += "-- dev/dri/renderD129 device 109 --\n"
    files = driver_files(written(tmp_path, tree), known)
    assert (files.files, files.missing) == ((), ())
    row = rows(known, files)["devices"]
    assert row.finding == findings.AMD_GROUP
    assert row.reason == (
        "this user may not open /dev/kfd (group 993), /dev/dri/renderD128 (group 993)"
    )
    handover = handed(known, files, gpu="intel")
    assert handover == Handover("devices", devices=("/dev/dri/renderD129:/dev/dri/renderD129",))


def test_what_one_vendor_lacks_keeps_no_other_out(tmp_path: Path) -> None:
    known = facts(card(0), intel(1))
    files = found(tmp_path, "-- dev/dri/renderD129 device 109 --\n", known)
    assert codes(files) == ["no-libcuda", "no-libnvidia-ml"]
    assert handed(known, files, gpu="intel").volumes == ()
    assert rows(known, files, gpu="nvidia")["devices"].state == "impossible"


# -- WSL 2 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [True, False])
def test_windows_driver_is_a_folder_and_one_node(there: bool, tmp_path: Path) -> None:
    known = facts(card(0, device_files=("/dev/dxg",)), platform=Platform("wsl2"))
    names = (CUDA, NVML) if there else (NVML,)
    tree = "".join(f"-- usr/lib/wsl/lib/{name} there --\n" for name in names)
    files = driver_files(written(tmp_path, f"-- dev/dxg device --\n{tree}"), known)
    assert codes(files) == ([] if there else ["no-libcuda"])
    if there:
        assert handed(known, files) == Handover(
            "devices",
            devices=("/dev/dxg:/dev/dxg",),
            volumes=("/usr/lib/wsl:/usr/lib/wsl:ro",),
            environment={"LD_LIBRARY_PATH": "/usr/lib/wsl/lib"},
        )


# -- mechanisms -------------------------------------------------------------------------------------


def test_the_built_in_engine_has_this_way_alone(tmp_path: Path) -> None:
    files = found(tmp_path, both("usr/lib64"))
    every = rows(ONE, files)
    assert {name for name, row in every.items() if row.state == "impossible"} == {
        "cdi", "device-request", "runtime"
    }  # fmt: skip
    says = "the built-in engine hands over device nodes and the driver's files itself"
    assert {row.reason for row in every.values()} == {says, "it was not tested"}
    handover = handed(ONE, files)
    assert f"/usr/lib64/libcuda.so.{DRIVER}:{TRIPLE}/{CUDA}:ro" in handover.volumes
    assert (handover.group_add, handover.environment) == ((), {})
    assert {flag for flag in handover.docker_flags() if flag.startswith("--")} == {
        "--device", "--volume"
    }  # fmt: skip


def test_by_the_facts_alone_the_nodes_are_known() -> None:
    handover = handed(ONE, None)
    assert (len(handover.devices), handover.volumes) == (3, ())


def test_no_other_engine_gets_files(tmp_path: Path) -> None:
    files = found(tmp_path, both("usr/lib64"))
    every = candidates(ONE, planned(ONE), True, files)
    assert all(row.handover is None or not row.handover.volumes for row in every)


def test_each_library_that_is_needed_is_looked_for() -> None:
    for vendor in gpu_vendors.all_of_them():
        wanted = vendor.driver_files
        assert (wanted is None) == vendor.nodes_suffice
        if wanted is not None:
            assert set(wanted.needed) | set(wanted.also.values()) <= set(wanted.libraries)
            assert all(".so." in name for name in wanted.libraries)


# -- whatever is read -------------------------------------------------------------------------------

PIECES = st.sampled_from(
    ["/usr/lib64/", "/lib/", CUDA, NVML, f"libcuda.so.{DRIVER}", "\0", " ", "/", "..", ":", "\ufffd",
     "a" * 5000, "/x/" + CUDA + "\0"]
)  # fmt: skip
INDEXES = st.lists(PIECES | st.text(max_size=10), max_size=30).map("".join)


@given(INDEXES)
def test_of_any_index_come_whole_paths(text: str) -> None:
    for path in loader.indexed(text, (CUDA, NVML)):
        assert path.startswith("/")
        assert path.endswith((f"/{CUDA}", f"/{NVML}"))
        assert "\0" not in path


@given(INDEXES, INDEXES, INDEXES, st.lists(st.sampled_from([CUDA, "x", "../usr", "/usr/lib64"])))
def test_whatever_the_machine_says_each_volume_has_three_parts(
    index: str, banner: str, given_folders: str, targets: list[str]
) -> None:
    with TemporaryDirectory() as folder:
        links = "".join(
            f"-- usr/lib64/l{number} -> {target} --\n" for number, target in enumerate(targets)
        )
        loops = f"-- usr/lib64/{CUDA} -> {targets[0]} --\n" if targets else ""
        tree = (
            f"{NODES}{links}{loops}-- etc/ld.so.cache quoted --\n{json.dumps(index)}\n"
            f"-- proc/driver/nvidia/version quoted --\n{json.dumps(banner)}\n"
            f"-- x/{CUDA} there --\n-- x/{NVML} there --\n"
        )
        env = {"LD_LIBRARY_PATH": given_folders, "PATH": given_folders}
        known = written(Path(folder), tree, env=env, programs={"nvidia-smi": None})
        files = driver_files(known, replace(ONE, gpus=ONE.gpus))
    for file in files.files:
        assert len(f"{file.source}:{file.target}:ro".split(":")) == 3
        assert file.source.startswith("/")
