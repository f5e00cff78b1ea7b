"""An ssh server on a machine of the test's own network, and a client that knows its key alone."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.cluster import as_root, run, wait_until
from tests.integration.lan import Member

_SSHD = "/usr/sbin/sshd"


@dataclass(frozen=True)
class Client:
    """`folder`: keys, known_hosts, and a program `ssh` that takes the configuration beside it."""

    folder: Path

    @property
    def path(self) -> str:
        return f"PATH={self.folder}:{os.environ['PATH']}"

    def says(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    @contextlib.contextmanager
    def with_file(self, name: str, text: str) -> Iterator[None]:
        """Another content of one of its files, for the block."""
        before = (self.folder / name).read_text()
        self.says(name, text)
        try:
            yield
        finally:
            self.says(name, before)


def _key(path: Path) -> str:
    """A new one without a passphrase; its public half."""
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]).good()
    return path.with_suffix(".pub").read_text()


@contextlib.contextmanager
def serving(member: Member, folder: Path, hidden: Path) -> Iterator[Client]:
    """Root comes in by the client's key, and sees another folder in the place of `hidden`."""
    if not Path(_SSHD).exists():
        pytest.fail("sshd is missing: sudo apt-get install openssh-server")
    folder.mkdir(mode=0o755)
    host_key = _key(folder / "host")
    (folder / "authorized").write_text(_key(folder / "key"))
    (folder / "known").write_text(f"{member.address} {host_key}")
    (folder / "config").write_text(
        f"Host *\n  User root\n  IdentityFile {folder}/key\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {folder}/known\n  GlobalKnownHostsFile none\n"
    )
    (folder / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/config "$@"\n')
    (folder / "ssh").chmod(0o755)
    (folder / "sshd").write_text(
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nPidFile none\nStrictModes no\n"
        f"PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM yes\n"
        f"ListenAddress {member.address}\n"
        f"SetEnv XDG_CACHE_HOME={member.top}/cache PATH={os.environ['PATH']}\n"
    )
    run(as_root("mkdir", "-p", "/run/sshd")).good()
    # `ip netns exec` gives each its own mounts
    start = f'mount -t tmpfs none "$0" && exec {_SSHD} -D -e -f "$1"'
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            member.argv("sh", "-c", start, str(hidden), f"{folder}/sshd"),
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        wait_until(lambda: "listening" in (folder / "log").read_text().lower(), "sshd listens", 20)
        yield Client(folder)
    finally:
        run(as_root("kill", str(server.pid)))
        server.wait(20)
