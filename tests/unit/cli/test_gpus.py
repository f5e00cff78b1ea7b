"""`dshpc gpus`: options, the table at every width, nothing that commands a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import gpus as gpus_command
from dshpc_setup.cluster.gpu_jobs import ClusterGpus, Job
from dshpc_setup.cluster.gpus import GpusNow
from dshpc_setup.facts import GpuDevice, Gpus, MigInstance
from dshpc_setup.probes.readings import PartReading, Reading, Readings
from dshpc_setup.slurm.gpus import SlurmGpu

MACHINES = Path(__file__).parents[2] / "machines"
LONG_ID = "4294967290_1000000"
NAME = "NVIDIA H100 80GB HBM3"


@pytest.fixture(autouse=True)
def _plain(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")


def now(**more: Any) -> GpusNow:
    """Two cards, the second one cut; a job with a long id and one with a hostile name."""
    part = MigInstance("1g.10gb", "MIG-1", 9728, ("/dev/nvidia1", "/dev/c1", "/dev/c2"))
    devices = (
        GpuDevice(0, "nvidia", NAME, "GPU-0", memory_mib=81559, slurm_type="h100",
                  device_files=("/dev/nvidia0",), mig_mode="disabled"),
        GpuDevice(1, "nvidia", NAME, "GPU-1", memory_mib=81559, slurm_type="h100",
                  device_files=("/dev/nvidia1",), mig_mode="enabled", mig=(part,)),
        GpuDevice(2, "nvidia", "Tesla T4", "GPU-2", slurm_type="t4",
                  device_files=("/dev/nvidia2",), problems=("DSH-NV-003",)),
    )  # fmt: skip
    readings = (
        Reading(40960, 81559, 97, 65, 512.3, 700.0),
        Reading(12, 81559, None, 40, 80.0, 700.0, (PartReading("MIG-1", 5, 9728),)),
        Reading(),
    )
    cluster = ClusterGpus(
        "p-slurm",
        "ready",
        simulated=False,
        listed=(SlurmGpu("h100", ("/dev/nvidia0",)), SlurmGpu("1g.10gb", part.device_files)),
        jobs=(
            Job(LONG_ID, "anna", "train-a-large-model", 1, (0,)),
            Job("7", "bob", "\x1b[2Jred\n[bold]", 1, (1,)),
        ),
    )
    value: dict[str, Any] = {
        "gpus": Gpus("present", devices, driver_version="550.163.01"),
        "readings": Readings(readings, (("nvidia", "present"),)),
        "cluster": cluster,
    }
    return GpusNow(**{**value, **more})


def shown(
    what: GpusNow, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.setattr(gpus_command, "look", lambda *_, **__: what)
    cli.run(["gpus"], "dshpc")
    return capsys.readouterr().out.splitlines()


def test_one_line_each_where_nobody_sees_the_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(now(), monkeypatch, capsys)
    assert lines[0] == "3 GPUs, driver 550.163.01"
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "GPU Model Type Memory GiB Util Temp Power W Job",
        f"0 {NAME} h100 40.0/79.6 97% 65 C 512/700 {LONG_ID} anna train-a-large-model",
        f"1 {NAME} - 0.0/79.6 - 40 C 80/700",
        "MIG 1g.10gb 1g.10gb 0.0/9.5 - - - 7 bob ?[2Jred?[bold]",
        "2 Tesla T4 t4 - - - - -",
        "GPU 2: the driver does not open it (DSH-NV-003)",
    ]
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize("columns", [120, 100, 80, 72, 60, 50])
def test_it_fits(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = shown(now(), monkeypatch, capsys)
    assert max(map(len, lines)) <= columns
    text = "\n".join(lines)
    assert LONG_ID in text
    assert "40.0/79.6" in text
    assert "1g.10gb" in text
    if columns >= 80:
        assert "512/700" in text


def test_what_is_free_and_what_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = now().cluster
    assert cluster is not None
    free = ClusterGpus("p-slurm", "ready", simulated=False, listed=cluster.listed, jobs=())
    lines = shown(now(cluster=free), monkeypatch, capsys)
    assert [line.split()[-1] for line in lines[2:]][:4] == ["free", "80/700", "free", "-"]
    down = ClusterGpus("p-slurm", "missing", "It is down. Start it: dshpc up")
    lines = shown(now(cluster=down), monkeypatch, capsys)
    assert lines[2].endswith(" -")
    assert lines[-1] == "Cluster p-slurm: missing. It is down. Start it: dshpc up"


def test_made_up_gpus_are_called_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up = Gpus("present", now().gpus.devices, simulated=True)
    lines = shown(now(gpus=made_up, readings=Readings(), cluster=None), monkeypatch, capsys)
    assert "SIMULATED" in lines[0]
    assert lines[2].split()[-6:] == ["h100", "-/79.6", "-", "-", "-", "-"]


def test_no_gpu_and_a_driver_that_gives_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    none = GpusNow(Gpus("absent", detail="there is no GPU"), Readings(), None)
    assert shown(none, monkeypatch, capsys) == ["No GPU: there is no GPU"]
    hung = GpusNow(Gpus("timeout", detail="NVML gave no answer"), Readings(), None)
    assert shown(hung, monkeypatch, capsys) == [
        "The GPUs cannot be listed (timeout): NVML gave no answer"
    ]
    old = now(no_answer=True, age_s=12.4)
    assert shown(old, monkeypatch, capsys)[0].endswith(
        "no answer for 12 s: these are the last values"
    )
    refused = now(readings=Readings((), (("nvidia", "denied"),)))
    assert "The nvidia driver's values could not be read (denied)." in shown(
        refused, monkeypatch, capsys
    )
    assert refused.exit_code == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["--watch", "--json"],
        ["--interval", "5"],
        ["--watch", "--interval", "0.1"],
        ["--watch", "--interval", "nan"],
        ["--watch", "--interval", "inf"],
        ["--watch", "--interval", "x"],
        ["--root", "/nonexistent"],
        ["--machine", "/nonexistent"],
        ["--dir", "/nonexistent"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["gpus", *arguments], "dshpc") == 64
    assert capsys.readouterr().err


def test_watching_without_a_terminal_ends_with_ctrl_c_and_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(gpus_command, "watch", lambda *_: iter([now()] * 9))
    monkeypatch.setattr("time.sleep", sleep)
    assert cli.run(["gpus", "--watch", "--interval", "0.5"], "dshpc") == 130
    said = capsys.readouterr()
    assert said.err == ""
    tables = said.out.split("\n\n")
    assert len(tables) == 4
    assert tables[3] == ""
    assert tables[0] == tables[1] == tables[2].rstrip("\n")
    assert slept == [0.5] * 3


def test_a_recorded_machine_with_its_measurements(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (MACHINES / "h100x8").iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    listed = json.loads((tmp_path / "nvml.json").read_text())["value"]["devices"]
    said = [{"index": each["index"], "uuid": each["uuid"]} for each in listed]
    said[2] |= {"utilization": 55, "power_mw": 301_000}
    values = {"devices": said}
    (tmp_path / "nvml-readings.json").write_text(json.dumps({"state": "present", "value": values}))
    assert cli.run(["gpus", "--machine", str(tmp_path), "--json"], "dshpc") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cluster"], found["simulated"], len(found["gpus"])) == (None, False, 8)
    assert [gpu["utilization_percent"] for gpu in found["gpus"]][1:4] == [None, 55, None]
    assert found["gpus"][2]["power_w"] == 301.0
    assert found["gpus"][0]["jobs"] is None
    values = {"devices": said[:5] + said[6:]}
    (tmp_path / "nvml-readings.json").write_text(json.dumps({"state": "present", "value": values}))
    assert cli.run(["gpus", "--machine", str(tmp_path)], "dshpc") == 3, "one is gone meanwhile"
    assert "GPU 5: the driver listed it, and no longer tells of it" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", sorted(each.parent.name for each in MACHINES.glob("*/machine.yaml"))
)
def test_every_machine_can_be_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["gpus", "--machine", str(MACHINES / name)], "dshpc") in (0, 3)
    assert capsys.readouterr().out
