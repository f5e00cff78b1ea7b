"""`docker tag`: a second name of an image, by which it stays when the first is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.builtin_client import main
from dshpc_setup.builtin_client.store import Image, Store


def test_an_image_keeps_its_second_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = Store({"XDG_CACHE_HOME": str(tmp_path)})
    image = Image("p-slurm:none", "ab" * 32, 5, "2026-01-01T00:00:00Z")
    store.put("image", image.ref, image)
    assert main.main(["tag", "p-slurm:none", "kept:none"]) == 0
    assert main.main(["rmi", "p-slurm:none"]) == 0
    assert [each.ref for each in store.all("image")] == ["kept:none"]
    assert [each.id for each in store.all("image")] == [image.id]
    assert main.main(["tag", "p-slurm:none", "other:none"]) == 1
    assert "No such image: p-slurm:none" in capsys.readouterr().err
