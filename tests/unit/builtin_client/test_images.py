"""An image gets its name while another run may remove the root filesystem that both have."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from dshpc_setup.builtin import image_file, rootfs
from dshpc_setup.builtin.archive import Unpacked
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin.rootfs import Rootfs
from dshpc_setup.builtin.wanted import Wanted
from dshpc_setup.builtin_client import containers, describe, images, looking
from dshpc_setup.builtin_client.store import Container, Image, Store
from dshpc_setup.machine import Machine

DIGEST = "cd" * 32


def test_one_that_is_removed_before_it_has_its_name_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Rootfs(DIGEST, cast("Ids", None), str(tmp_path), Unpacked(1, 7, 0, None))
    made: list[str] = []
    there = iter([None, root])

    def make(*_: Any) -> Rootfs:
        made.append("made")
        return root

    monkeypatch.setattr(rootfs, "make", make)
    monkeypatch.setattr(rootfs, "known", lambda *_: next(there))
    store = Store({"XDG_CACHE_HOME": str(tmp_path)})
    described = image_file.Described("p-slurm:none", {}, {}, ())
    machine = cast("Machine", None)
    image = images.make(machine, store, root.ids, described, DIGEST, lambda _: None)
    assert (made, image.id) == (["made", "made"], f"sha256:{DIGEST}")
    assert [each.ref for each in store.all("image")] == ["p-slurm:none"]


def named(store: Store) -> list[str]:
    return [each.ref for each in store.all("image")]


def test_one_whose_name_is_taken_stays_as_long_as_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store({"XDG_CACHE_HOME": str(tmp_path)})
    machine = cast("Machine", None)
    gone: list[str] = []
    monkeypatch.setattr(rootfs, "remove_all", lambda _, digest: gone.append(digest))
    monkeypatch.setattr(containers, "ids_of", lambda _: None)

    def register(digest: str) -> None:
        root = Rootfs(digest, cast("Ids", None), str(tmp_path), Unpacked(1, 7, 0, None))
        images.register(machine, store, image_file.Described("p-slurm:none"), root)

    first, second = "ab" * 32, "cd" * 32
    register(first)
    root = Rootfs(first, Ids("root"), "/r", Unpacked(1, 7, 0, None))
    wanted = Wanted("c", root, "/run", ("init",), "c")
    store.put("container", "c", Container("c" * 64, "c", "p-slurm:none", "", wanted))
    register(second)
    assert (named(store), gone) == (["p-slurm:none", f"sha256:{first}"], []), "a container has it"
    told = describe.image(cast("Image", store.find("image", first)))
    assert told["RepoTags"] == []
    assert looking.answer(store, ["images"]) == "p-slurm:none\n"
    register(first)
    assert (named(store), gone) == (["p-slurm:none"], [second]), "it has its name back"
    register(second)
    store.forget("container", "c")
    images.remove(machine, store, f"sha256:{first}")
    assert (named(store), gone) == (["p-slurm:none"], [second, first])
