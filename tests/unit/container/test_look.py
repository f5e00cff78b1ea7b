"""Names of our own for device nodes that stand for several GPUs."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.container import check, hardware, look
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.run import Run
from dshpc_setup.container.status import Status
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.plan import DeviceLink
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.paths import Paths
from tests.unit.diagnose.known import known

LINKS = tuple(DeviceLink(f"/run/dshpc/gpus/dxg{number}", "/dev/null") for number in (0, 1))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    paths = Paths(str(tmp_path))
    return Run(LocalMachine(), paths, Status(paths), Settings(), (0, 0))


def test_links_are_made_and_made_right(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run/dshpc/gpus"
    look.make_links(run, LINKS)
    assert {name: os.readlink(folder / name) for name in os.listdir(folder)} == {
        "dxg0": "/dev/null",
        "dxg1": "/dev/null",
    }
    (folder / "dxg1").unlink()
    (folder / "dxg1").symlink_to("/dev/other")
    look.make_links(run, LINKS)
    assert os.readlink(folder / "dxg1") == "/dev/null"
    assert sorted(os.listdir(folder)) == ["dxg0", "dxg1"]


def test_a_link_to_a_device_is_a_device_and_one_to_nothing_is_none(run: Run) -> None:
    look.make_links(run, (*LINKS, DeviceLink("/run/dshpc/gpus/gone", "/dev/no-such-device")))
    for name, good in (("dxg0", True), ("gone", False)):
        path = run.paths.at(f"/run/dshpc/gpus/{name}")
        found = Candidate({"gres.conf": f"Name=gpu File={path}\n"}, {}, {})
        assert (check.device_error(found, run.machine.is_device) is None) is good


def test_where_no_link_can_be_made_it_is_said(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run/dshpc").mkdir(parents=True)
    (tmp_path / "run/dshpc/gpus").write_text("in the way")
    with pytest.raises(DshpcError, match="cannot write"):
        look.make_links(run, LINKS)


@pytest.mark.parametrize(
    ("setting", "words"), [("exclude", "Jobs do not get it."), ("use", "Jobs get it")]
)
def test_a_gpu_that_its_firmware_calls_broken_is_in_the_status(
    run: Run, monkeypatch: pytest.MonkeyPatch, setting: str, words: str
) -> None:
    seen = known("a100x2-one-broken").facts
    monkeypatch.setattr(hardware, "look_surely", lambda *_: seen)
    monkeypatch.setattr(hardware, "only_visible", lambda facts, _: (facts, ()))
    run = replace(run, settings=Settings(unhealthy_gpus=setting))
    assert len(look.look(run).plan.gres) == (1 if setting == "exclude" else 2)
    (note,) = (text for text in run.status.values["notes"] if "DSH-NV-106" in text)
    assert note.startswith("GPU 1 (NVIDIA A100 80GB PCIe): its firmware calls it broken")
    assert words in note
