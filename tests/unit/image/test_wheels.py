from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from dshpc_setup import __version__
from dshpc_setup.errors import DshpcError
from dshpc_setup.image import wheels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wheels")
    wheels.write(path)
    return path


def names(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def test_there_is_all_that_the_container_needs(folder: Path) -> None:
    found = sorted(path.name.split("-")[0] for path in folder.glob("*-py3-none-any.whl"))
    assert found == ["dshpc_setup", "jinja2", "markupsafe", "nvidia_ml_py"]


def test_nothing_compiled_and_nothing_outside(folder: Path) -> None:
    for path in folder.iterdir():
        for name in names(path):
            assert not name.endswith((".so", ".pyc", ".pyd", ".c"))
            assert not name.startswith(("/", "..")), name
            assert "__pycache__" not in name


def test_ours_holds_its_shared_files(folder: Path) -> None:
    found = names(folder / f"dshpc_setup-{__version__}-py3-none-any.whl")
    assert "dshpc_setup/image/wheels.py" in found
    assert "dshpc_setup/_share/container/Dockerfile.j2" in found
    assert len(found) == len(set(found))


def test_the_pages_of_the_host_are_not_in_the_image(folder: Path) -> None:
    found = names(folder / f"dshpc_setup-{__version__}-py3-none-any.whl")
    assert not [name for name in found if name.startswith("dshpc_setup/dashboard/")]


def test_records_are_true(folder: Path) -> None:
    for path in folder.iterdir():
        with zipfile.ZipFile(path) as archive:
            (record,) = [name for name in archive.namelist() if name.endswith("/RECORD")]
            rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
            assert sorted(row[0] for row in rows) == sorted(archive.namelist())
            for name, digest, size in rows:
                if name == record:
                    continue
                content = archive.read(name)
                digits = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
                assert digest == f"sha256={digits.rstrip('=')}"
                assert int(size) == len(content)


def test_the_same_bytes_again(folder: Path, tmp_path: Path) -> None:
    wheels.write(tmp_path)
    for path in folder.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_scripts_stay_executable(tmp_path: Path) -> None:
    wheel = wheels.Wheel("A-b", "1", {"a/run": (b"#!/bin/sh\n", True), "a/data": (b"x", False)})
    assert wheel.filename == "a_b-1-py3-none-any.whl"
    wheels.write_wheel(wheel, tmp_path / wheel.filename)
    with zipfile.ZipFile(tmp_path / wheel.filename) as archive:
        modes = {item.filename: item.external_attr >> 16 & 0o777 for item in archive.infolist()}
    assert modes["a/run"] == 0o755
    assert modes["a/data"] == 0o644


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "CARRIED", ("no-such-distribution-anywhere",))
    with pytest.raises(DshpcError) as caught:
        wheels.wheels()
    assert "no-such-distribution-anywhere" in caught.value.details
