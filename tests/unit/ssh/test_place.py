"""Where a user's sessions are kept: in the cluster's home, or apart for each cluster in the machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.ssh import place


def test_two_clusters_in_one_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("lab", "test"):
        (tmp_path / name).write_text(f"{name}\n")
        monkeypatch.setattr(place, "_CLUSTER", str(tmp_path / name))
        found.append(place._in_home("/home/ada"))
    assert found == [f"/home/ada/.local/state/dshpc-ssh-{name}" for name in ("lab", "test")]


def test_the_clusters_own_home() -> None:
    home = "/var/lib/dshpc/home/ada"
    assert place._in_home(home) == f"{home}/.local/state/dshpc-ssh"
