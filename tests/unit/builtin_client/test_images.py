"""An image gets its name while another run may remove the root filesystem that both have."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from dshpc_setup.builtin import image_file, rootfs
from dshpc_setup.builtin.archive import Unpacked
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin.rootfs import Rootfs
from dshpc_setup.builtin_client import images
from dshpc_setup.builtin_client.store import Store
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
