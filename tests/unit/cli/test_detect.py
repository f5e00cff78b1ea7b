"""`dshpc detect`: what it takes, what it prints, how it ends."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import cli
from dshpc_setup.cli import app
from dshpc_setup.cli.detect import DetectOptions, parsed, sections_of
from dshpc_setup.cli.facts import lines
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import (
    SECTIONS,
    Because,
    Compose,
    Cpu,
    Disagreement,
    Engine,
    Evidence,
    GpuDevice,
    Gpus,
    HostFacts,
    Link,
    Memory,
    MigInstance,
    Platform,
    UnusedGpu,
)
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.plan import plan_cluster
from dshpc_setup.plan.devices import asked_as
from dshpc_setup.settings import Settings

MACHINES = Path(__file__).parents[2] / "machines"

# Which command line is read without typer

_COMMAND: Any = typer.main.get_command(app.app).commands["detect"]  # type: ignore[attr-defined]
_OPTIONS = ["--json", "--explain", "--only", "--deadline", "--root", "--machine", "--simulate"]
_VALUES = ["gpus", "gpus,cpu", "5", "0.5", "1e3", "nan", " 7", "1_0", "/", "/tmp", "a b", "h100:2"]
_ODD = ["", "-", "--", "-h", "--help", "-j", "--js", "--no-json", "--jsonx", "x", "-1", "--only="]
_WORD = st.one_of(
    st.sampled_from(_OPTIONS),
    st.sampled_from(_OPTIONS),
    st.sampled_from(_VALUES),
    st.sampled_from(_ODD),
    st.builds("{}={}".format, st.sampled_from(_OPTIONS), st.sampled_from(_VALUES + _ODD)),
    st.text(max_size=4),
)
_WELL_FORMED = st.lists(
    st.one_of(
        st.just(["--json"]),
        st.just(["--explain"]),
        st.tuples(st.sampled_from(_OPTIONS[2:]), st.sampled_from(_VALUES)).map(list),
        st.builds("{}={}".format, st.sampled_from(_OPTIONS[2:]), st.sampled_from(_VALUES)).map(
            lambda word: [word]
        ),
    ),
    max_size=5,
).map(lambda parts: [word for part in parts for word in part])


def as_typer_reads(arguments: list[str]) -> Mapping[str, Any] | None:
    """The values that the command is called with; None where typer does not call it."""
    try:
        found = dict(_COMMAND.make_context("detect", list(arguments)).params)
    except Exception:  # noqa: BLE001 -- any of the parser's
        return None
    found["json"] = found.pop("json_output")
    return found


@given(st.one_of(st.lists(_WORD, max_size=6), _WELL_FORMED))
def test_the_quick_reader_agrees_with_typer_or_declines(arguments: list[str]) -> None:
    mine = parsed(arguments)
    if mine is not None:
        theirs = as_typer_reads(arguments)
        assert repr(asdict(mine)) == repr({key: (theirs or {})[key] for key in asdict(mine)})


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["-h"], ["--only"], ["--bogus"], ["--json", "--json"], ["--deadline", "x"],
     ["x"], ["--"], ["--json=1"], ["--only", "--json"]],
)  # fmt: skip
def test_what_it_is_not_sure_of_goes_to_typer(arguments: list[str]) -> None:
    assert parsed(arguments) is None


def test_a_plain_line_needs_no_typer() -> None:
    assert parsed([]) == DetectOptions()
    line = ["--json", "--only=gpus", "--deadline", "5", "--root", "/r", "--explain"]
    assert parsed(line) == DetectOptions(True, True, "gpus", 5.0, "/r")
    assert as_typer_reads([]) == {**asdict(DetectOptions())}


def test_typer_is_not_imported_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dshpc_setup.cli.app", None)  # importing it fails
    assert cli.run(["detect", "--machine", str(MACHINES / "h100x8"), "--json"], "dshpc") == 0


# What it does


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = cli.run(["detect", "--json", *arguments], "dshpc")
    return code, json.loads(capsys.readouterr().out)


def replayed(name: str) -> tuple[str, str]:
    return "--machine", str(MACHINES / name)


def test_sections_not_asked_for_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, *replayed("h100x8"), "--only", "gpus")
    assert (code, found["schema"]) == (0, "dshpc.facts/1")
    assert [key for key in SECTIONS if found[key] is not None] == ["gpus"]
    assert len(found["gpus"]["devices"]) == 8
    assert "conclusions" not in found
    assert not {"engine", "cpu", "memory"} & {item["probe"] for item in found["evidence"]}


def test_explained_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = run(capsys, *replayed("h100x8"), "--explain")
    said = {item["about"]: item for item in found["conclusions"]}
    assert said["gpus"]["says"] == "8 GPUs of NVIDIA"
    assert {"source": "NVIDIA", "says": "8 GPUs"} in said["gpus"]["because"]


def test_which_engine_of_another_machine_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *replayed("h100x8"))[1]["cluster_engine"] is None


@pytest.mark.parametrize(
    ("variables", "dshpc_yaml", "found"),
    [
        ({}, "engine: builtin", {"kind": "builtin", "why": "setting"}),
        ({"DSHPC_ENGINE": "docker"}, "engine: builtin", {"kind": "docker", "why": "setting"}),
        ({}, "engine: [", None),  # broken
    ],
)
def test_which_engine_as_the_folder_has_it(
    variables: dict[str, str],
    dshpc_yaml: str,
    found: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "dshpc.yaml").write_text(dshpc_yaml + "\n")
    monkeypatch.setenv("DSHPC_DIR", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    machine = RecordedMachine(MACHINES / "h100x8")
    monkeypatch.setattr("dshpc_setup.cli.detect.seen_machine", lambda *_: machine)
    assert run(capsys)[1]["cluster_engine"] == found
    assert run(capsys, "--only", "gpus")[1]["cluster_engine"] is None
    cli.run(["detect"], "dshpc")
    told = " ".join(capsys.readouterr().out.split())
    assert ("would start a cluster here: the setting engine names it" in told) == bool(found)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("h100x8", 0),
        ("vm-no-gpu", 0),
        ("macos-arm", 0),
        ("vm-docker-denied", 3),
        ("workstation-rtx4090-nvml-hangs", 3),
        ("a100x2-nvml-denied", 3),
    ],
)
def test_exit_codes(name: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *replayed(name))[0] == code
    assert cli.run(["detect", *replayed(name)], "dshpc") == code
    assert ("Not everything could be asked" in capsys.readouterr().out) == (code == 3)


def test_what_was_not_asked_for_is_not_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *replayed("vm-docker-denied"), "--only", "cpu,gpus")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "gpu"], "Did you mean 'gpus'?"),
        (["--only", "GPUS"], "Did you mean 'gpus'?"),
        (["--only", "gpus,,cpu"], "There are: platform, cpu, memory, gpus, docker."),
        (["--deadline", "0"], "not a usable number"),
        (["--deadline", "inf"], "not a usable number"),
        (["--deadline=nan"], "not a usable number"),
        (["--root", "/nonexistent"], "not a folder"),
        (["--machine", "/nonexistent"], "no recorded machine"),
        (["--bogus"], "--bogus"),
        (["--only"], "--only"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, *arguments)
    assert (code, found["schema"], found["exit_code"]) == (64, "dshpc.error/1", 64)
    assert said in f"{found['error']['brief']} {found['error']['details']}"
    assert cli.run(["detect", *arguments], "dshpc") == 64
    out, err = capsys.readouterr()
    assert out == ""
    assert said in " ".join(err.split())


def test_a_defect_is_an_object_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("dshpc_setup.cli.detect.gather", broken)
    code, found = run(capsys, *replayed("h100x8"))
    assert (code, found["schema"]) == (2, "dshpc.error/1")


@given(st.text(alphabet="gpus,cdocker mlatfor", max_size=30))
def test_any_sections(only: str) -> None:
    try:
        found = sections_of(only)
    except DshpcError as error:
        assert error.exit_code == 64
    else:
        assert found
        assert set(found) <= set(SECTIONS)


# What it prints

SHOWN = HostFacts(
    Platform("linux", True, "docker", "kvm", "debian", "13", kernel="6.12.30-amd64"),
    Cpu(64, 2, 16, 2, 48, "cpuset"),
    Memory(515072, 257536, "cgroup"),
    Gpus(
        "present",
        (
            GpuDevice(
                0,
                "nvidia",
                "NVIDIA H100 80GB HBM3",
                pci_bus_id="0000:1a:00.0",
                memory_mib=81559,
                slurm_type="h100",
                device_files=("/dev/nvidia0",),
                mig_mode="enabled",
                mig=(MigInstance("1g.10gb"), MigInstance("1g.10gb"), MigInstance("3g.40gb")),
                links=(Link("nvlink", 6, peer_kind="switch"), Link("nvlink", 12)),
            ),
            GpuDevice(1, "amd", unified_memory=True, problems=("DSH-AM-001",)),
        ),
        driver_version="550.163.01",
        detail="nvidia: one thing that is to be known of them",
        unused=(UnusedGpu("nvidia", "it is handed to virtual machines", "0000:3b:00.0"),),
        disagreements=(
            Disagreement(
                "the driver's version",
                (Because("kernel module", "550.163.01"), Because("library", "550.90.07")),
                "The driver was updated without a restart.",
                "DSH-NV-001",
            ),
        ),
    ),
    Engine(
        "present",
        "28.3.2",
        compose=Compose("2.38.2", ("docker", "compose")),
        composes=(
            Compose("2.38.2", ("docker", "compose")),
            Compose("1.29.2", ("docker-compose",)),
        ),
    ),
    (Evidence("nvml", "timeout", "libnvidia-ml.so.1", 9600.0, "no answer within 9.6 s"),),
)

TEXT = """\
System  Debian 13 (linux), kernel 6.12.30-amd64, x86_64
        in a container (docker), in a virtual machine (KVM)
CPUs    48 of 64 usable, limited by cpuset
        2 sockets x 16 cores x 2 threads
Memory  503.0 GiB, 226.4 GiB for jobs, limited by cgroup
Docker  Docker 28.3.2, compose 2.38.2
        beside it compose 1.29.2 (docker-compose)
GPUs    2, driver 550.163.01
        nvidia: one thing that is to be known of them
        0: NVIDIA H100 80GB HBM3, 79.6 GiB, --gres=gpu:1g.10gb:1,
        --gres=gpu:3g.40gb:1
           0000:1a:00.0  /dev/nvidia0  NVLink x 18
           MIG on: 2 x 1g.10gb, 1 x 3g.40gb
        1: AMD GPU, memory shared with the CPUs, not for jobs
           PCI address unknown  no device file
           problem: DSH-AM-001
        not used: NVIDIA graphics at 0000:3b:00.0: it is handed to virtual
        machines
        the layers disagree about the driver's version: kernel module:
        550.163.01; library: 550.90.07. The driver was updated without a
        restart. (DSH-NV-001)

Not everything could be asked:
  - nvml: no answer within 9.6 s
  To wait longer: dshpc detect --deadline 30
  Where each answer came from: dshpc detect --explain
  How to fix it: dshpc doctor
"""


def test_the_summary() -> None:
    assert "\n".join(lines(SHOWN)) + "\n" == TEXT


MIXED = HostFacts(
    SHOWN.platform, SHOWN.cpu, SHOWN.memory,
    Gpus("present", (
        GpuDevice(0, "nvidia", "H100", memory_mib=81559, slurm_type="h100", mig_mode="disabled"),
        GpuDevice(2, "nvidia", "T4", memory_mib=15360, slurm_type="t4"),
        GpuDevice(3, "nvidia", "A100", memory_mib=40960, slurm_type="a100", mig_mode="enabled",
                  mig=(MigInstance("1g.5gb", "MIG-0"), MigInstance("1g.5gb", "MIG-1"))),
        GpuDevice(4, "nvidia", "A100", memory_mib=40960, slurm_type="a100", mig_mode="enabled"),
    )),
    SHOWN.engine,
)  # fmt: skip


@pytest.mark.parametrize(
    ("gres_type", "said"),
    [
        ("model", ["--gres=gpu:h100:1", "--gres=gpu:t4:1", "--gres=gpu:1g.5gb:1", "not for jobs"]),
        (
            "index",
            ["--gres=gpu:gpu0:1", "--gres=gpu:gpu2:1", "--gres=gpu:gpu3.0:1, --gres=gpu:gpu3.1:1",
             "not for jobs"],
        ),
    ],
)  # fmt: skip
def test_how_jobs_ask_for_each_gpu(gres_type: str, said: list[str]) -> None:
    text = " ".join("\n".join(lines(MIXED, ("gpus",), Settings(gres_type=gres_type))).split())
    assert re.findall(r"GiB, (.+?) PCI", text) == said


def test_a_broken_gpu_is_for_jobs_where_that_is_set() -> None:
    """Its own firmware calls it broken and it computes; what no program can use stays out."""
    whole = replace(MIXED.gpus.devices[0], device_files=("/dev/nvidia0",), problems=())
    for found, setting, shown in (
        (("DSH-NV-106",), "exclude", False),
        (("DSH-NV-106", "DSH-NV-107"), "use", True),
        (("DSH-NV-106", "DSH-NV-020"), "use", False),
    ):
        gpus = replace(MIXED.gpus, devices=(replace(whole, problems=found),))
        facts, chosen = replace(MIXED, gpus=gpus), Settings(unhealthy_gpus=setting)
        text = "\n".join(lines(facts, ("gpus",), chosen))
        assert ("--gres=gpu:" in text) == shown == bool(plan_cluster(facts, chosen).gres)
        assert ("not for jobs" in text) != shown
        assert "DSH-NV-106" in text


def test_the_types_are_those_of_the_plan() -> None:
    """What is shown is what Slurm is told."""
    files = {0: "/dev/nvidia0", 2: "/dev/nvidia2", 3: "/dev/nvidia3"}
    devices = tuple(
        replace(each, device_files=(files[each.index],),
                mig=tuple(replace(part, device_files=(f"/dev/{part.uuid}",)) for part in each.mig))
        for each in MIXED.gpus.devices if each.index in files
    )  # fmt: skip
    facts = replace(MIXED, gpus=replace(MIXED.gpus, devices=devices))
    for gres_type in ("model", "index"):
        chosen = Settings(gres_type=gres_type)
        made = plan_cluster(facts, chosen)
        shown = [(each.index, kind) for each in devices for kind in asked_as(each, chosen)]
        assert shown == [(line.index, line.slurm_type) for line in made.gres]


@pytest.mark.parametrize(
    ("folder", "type_"), [("", "gpu0"), ("elsewhere", "h100"), ("broken", "h100")]
)
def test_the_settings_of_the_project_say_what_jobs_call_them(
    folder: str,
    type_: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / ".dshpc").mkdir()
    (tmp_path / "dshpc.yaml").write_text("gres_type: index\n")
    for name in ("elsewhere", "broken"):
        (tmp_path / name / ".dshpc").mkdir(parents=True)
    (tmp_path / "broken/dshpc.yaml").write_text("gres_type: [\n")
    monkeypatch.chdir(tmp_path / folder)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    monkeypatch.setattr("dshpc_setup.cli.detect.gather", lambda *_, **__: MIXED)
    monkeypatch.setattr("dshpc_setup.cli.detect.seen_machine", lambda *_: None)
    monkeypatch.setattr("dshpc_setup.cli.detect._toolkits", lambda _: None)
    assert cli.run(["detect", "--only", "gpus"], "dshpc") == 0
    assert f"--gres=gpu:{type_}:1" in capsys.readouterr().out
    assert cli.run(["detect", "--only", "gpus", "--root", "/other"], "dshpc") == 0
    assert "--gres=gpu:h100:1" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(path.parent.name for path in MACHINES.glob("*/root.txtar")))
def test_each_machine_fits_on_a_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["detect", *replayed(name), "--explain"], "dshpc")
    for line in capsys.readouterr().out.splitlines():
        assert len(line) <= 80 or max(map(len, line.split())) > 60, line


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("ec2-guest", "        in a virtual machine (Amazon EC2)"),
        ("macos-arm-desktop-not-limited", "        in a virtual machine"),
        ("macos-arm-desktop-not-limited", "System  macOS 15.5, kernel 24.5.0, arm64"),
        ("macos-arm-colima", "        in a virtual machine or on another one:"),
        ("vm-remote-engine", "        on another machine: tcp://build.example:2376"),
        ("vm-docker-denied", "Docker  not known (denied)"),
        ("vm-docker-denied", "        unix:///var/run/docker.sock: Permission denied"),
        ("vm-no-docker", "Docker  no Docker"),
        ("a100x2-nvml-denied", "GPUs    not known (denied)"),
        ("vm-no-gpu", "GPUs    none"),
        ("macos-arm", "GPUs    none can be used"),
        ("h100x8-one-lost", "        3: NVIDIA GPU, memory unknown, not for jobs"),
        ("h100x8-one-lost", "           problem: it has fallen off the bus (DSH-NV-020)"),
        ("rtx4090-beside-rx7900xtx", "GPUs    2, NVIDIA driver 570.124.06, CUDA 12.8"),
        ("gb10-unified-memory", "        0: NVIDIA GB10, memory shared with the CPUs,"),
    ],
)
def test_words_of_a_machine(name: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["detect", *replayed(name)], "dshpc")
    assert any(each.startswith(line) for each in capsys.readouterr().out.splitlines())


def test_a_summary_of_nothing() -> None:
    empty = HostFacts(
        Platform("linux", state="error", arch=None),
        Cpu(state="error"),
        Memory(state="timeout"),
        Gpus("error", detail="no"),
        Engine("timeout"),
    )
    assert "\n".join(lines(empty, ("cpu", "memory"))).startswith(
        "CPUs    unknown (error)\nMemory  unknown (timeout)\n\nNot everything could be asked:\n"
        "  - cpu: error\n"
    )


class Full(io.StringIO):
    """A file on a disk that is full, or a pipe whose reader is gone."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str, /) -> int:
        raise self.error


@pytest.mark.parametrize(
    "command", [["detect"], ["detect", "--json"], ["gpus"], ["gpus", "--json"]]
)
@pytest.mark.parametrize(
    ("stdout", "code", "words"),
    [
        (None, 2, "The standard output is closed."),
        (Full(OSError(28, "No space left on device")), 2, "No space left on device"),
        (Full(BrokenPipeError(32, "Broken pipe")), 141, ""),
    ],
)
def test_what_cannot_be_printed(
    command: list[str],
    stdout: io.StringIO | None,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = Kept()
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", stderr)
    assert cli.run([*command, *replayed("vm-no-gpu")], "dshpc") == code
    assert words in stderr.getvalue()
    assert "defect" not in stderr.getvalue()


class Kept(io.StringIO):
    """A stderr that can be read after it was closed."""

    def close(self) -> None:
        pass
