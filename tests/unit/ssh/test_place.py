"""Where a user's sessions are kept, and the way to a listener's socket that lies on this machine."""

from __future__ import annotations

from dshpc_setup.ssh import place


def test_two_clusters_in_one_home() -> None:
    found = [place.in_home("/home/ada", name) for name in ("lab", "test")]
    assert found == [f"/home/ada/.local/state/dshpc-ssh-{name}" for name in ("lab", "test")]


def test_the_clusters_own_home() -> None:
    home = "/var/lib/dshpc/home/ada"
    assert place.in_home(home, "lab") == f"{home}/.local/state/dshpc-ssh"
