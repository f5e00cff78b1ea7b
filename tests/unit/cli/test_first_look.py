"""`dshpc` without a word: ten lines at most, exit 0, whatever the engine does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import first_look
from dshpc_setup.facts import Cpu, Engine, GpuDevice, Gpus, HostFacts, Memory, Platform
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine

FACTS = HostFacts(
    Platform("linux", os_id="debian", os_version="13"),
    Cpu(logical=8),
    Memory(total_mib=16_000),
    Gpus("present", (GpuDevice(0, "nvidia", name="NVIDIA L4"),)),
    Engine("absent"),
)


@pytest.fixture(autouse=True)
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def gather(_: Any, **options: Any) -> HostFacts:
        found.update(options)
        return FACTS

    monkeypatch.setattr("dshpc_setup.probes.gather", gather)
    monkeypatch.chdir(tmp_path)
    return found


def _cluster(folder: Path, monkeypatch: pytest.MonkeyPatch, said: CommandResult) -> list[float]:
    (folder / ".dshpc").mkdir()
    runtime = {"container": "lab-slurm", "work": str(folder / "work"), "prefix": "lab"}
    (folder / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    deadlines: list[float] = []

    def run(_: Any, argv: Any, *, deadline_s: float, **__: Any) -> CommandResult:
        assert "inspect" in argv
        deadlines.append(deadline_s)
        return said

    monkeypatch.setattr(LocalMachine, "run", run)
    return deadlines


def look(capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.run([], "dshpc") == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 10
    return out


def test_a_machine_without_a_cluster(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    out = look(capsys)
    assert "Machine  Debian 13, 8 CPUs, 15.6 GiB; 1 x NVIDIA L4\n" in out
    assert "Cluster  none in this folder or above it\n" in out
    assert "configure-environment --simulate h100:2" in out
    assert "dshpc demo" in out
    assert asked["engine"] is False
    assert asked["deadline_s"] <= 2


@pytest.mark.parametrize(
    ("state", "code", "status", "says", "step"),
    [
        ("present", 0, "running\n", "lab-slurm of {}: running", "dshpc srun --pty bash"),
        ("present", 0, "exited\n", "lab-slurm of {}: not running (exited)", "dshpc up"),
        ("present", 1, "", "lab-slurm of {}: not running", "dshpc up"),
        ("timeout", None, "", "lab-slurm of {}: the engine did not answer within 1 s", "dshpc up"),
    ],
)
def test_a_cluster(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: Any,
    code: int | None,
    status: str,
    says: str,
    step: str,
) -> None:
    deadlines = _cluster(tmp_path, monkeypatch, CommandResult((), state, code, status, "", 1.0))
    out = look(capsys)
    assert f"Cluster  {says.format(tmp_path)}\n" in out
    assert step in out
    assert deadlines == [first_look._ENGINE_S]


def test_configure_environment_without_a_word_is_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []

    def plain(_: str, words: list[str]) -> Callable[[], int]:
        called.append(words)
        return lambda: 0

    monkeypatch.setattr(cli, "_plain", plain)
    monkeypatch.setattr("sys.argv", ["configure-environment"])
    assert cli.configure_environment_main() == 0
    assert called == [["configure"]]
