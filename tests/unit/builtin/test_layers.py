"""What images are laid on: made once, shared by second names, and gone where it is not used for long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.builtin import rootfs, trees
from dshpc_setup.builtin.ids import Ids
from tests.unit.engine.fake import FakeMachine

IDS = Ids("root")
DIGEST = "ab" * 32


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(env={"XDG_CACHE_HOME": str(tmp_path / "cache")})


def filled(folder: Path) -> None:
    (folder / "usr/bin").mkdir(parents=True)
    (folder / "etc").mkdir()
    (folder / "usr/bin/true").write_text("program")
    (folder / "etc/passwd").write_text("root")


def used(machine: FakeMachine, digest: str = DIGEST) -> Path:
    with rootfs.layer(machine, digest, IDS, filled) as found:
        return Path(found.folder)


def test_it_is_made_once_and_no_image(machine: FakeMachine) -> None:
    (used(machine) / "marked").touch()
    assert (used(machine) / "marked").exists()
    assert rootfs.known(machine, DIGEST, IDS) is None


def test_one_whose_making_was_killed_is_made_again(machine: FakeMachine) -> None:
    place = rootfs.layers_folder(machine.env) / DIGEST
    for name in (".root.new", "root"):  # half done, and done but for its record
        (place / name / "half").mkdir(parents=True)
    folder = used(machine)
    assert sorted(os.listdir(folder)) == ["etc", "usr"]
    assert sorted(os.listdir(place)) == ["lock", "root", "root.json"]


def aged(folder: Path, days: float) -> None:
    record = folder.with_suffix(".json")
    before = record.stat().st_mtime - days * 24 * 3600
    os.utime(record, (before, before))


def test_one_that_was_not_used_for_long_goes(machine: FakeMachine) -> None:
    kept, gone = used(machine), used(machine, "cd" * 32)
    for folder in (kept, gone):
        aged(folder, 8)
    used(machine)  # it counts from now on
    rootfs.prune_layers(machine, IDS)
    assert os.listdir(rootfs.layers_folder(machine.env)) == [DIGEST]
    rootfs.prune_layers(machine, IDS, unused_s=0.0)
    assert not rootfs.layers_folder(machine.env).exists()
    rootfs.prune_layers(machine, IDS)


def test_one_in_use_stays_and_what_a_killed_removal_left_goes(machine: FakeMachine) -> None:
    with rootfs.layer(machine, DIGEST, IDS, filled) as found:
        rootfs.prune_layers(machine, IDS, unused_s=0.0)
        assert Path(found.folder).is_dir()
    place = rootfs.layers_folder(machine.env) / DIGEST
    (place / "root.json").unlink()
    (place / "..root.new.new/half").mkdir(parents=True)
    for name in ("..root.new.log", "..root.new.lock"):
        (place / name).touch()
    os.utime(place, (1, 1))
    rootfs.prune_layers(machine, IDS)
    assert not place.exists()


def test_an_image_shares_the_files_of_programs_alone(machine: FakeMachine, tmp_path: Path) -> None:
    under, image = used(machine), tmp_path / "image"
    (under / "usr/bin/sh").symlink_to("true")
    os.link(under / "usr/bin/true", under / "etc/true")
    trees.copy_here(under, image, "usr")
    assert (image / "usr/bin/sh").readlink() == Path("true")
    assert (image / "usr/bin/true").samefile(under / "usr/bin/true")
    for name in ("etc/passwd", "etc/true"):  # written to in the image
        (image / name).write_text("other")
    assert ((under / "etc/passwd").read_text(), (under / "etc/true").read_text()) == (
        "root",
        "program",
    )
    trees.remove_here(image)
    assert (under / "usr/bin/true").read_text() == "program"


def test_a_file_that_can_have_no_other_name_is_copied(
    machine: FakeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    under, image = used(machine), tmp_path / "image"
    trees.copy_here(under, image, "usr")
    assert (image / "usr/bin/true").read_text() == "program"
    assert not (image / "usr/bin/true").samefile(under / "usr/bin/true")
