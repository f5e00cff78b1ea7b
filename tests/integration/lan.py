"""Machines on one network: a network namespace each, joined by a bridge in one of its own, and what is cut.

Each has a built-in engine with a store of its own, so that containers of one name are two.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.integration.cluster import (
    PREFIX,
    Outcome,
    as_root,
    command,
    new_folder,
    remove_folder,
    run,
)
from tests.integration.engines import BUILTIN

_NET = "10.231.{lan}.{number}"
_LAN = 17 + os.getpid() % 200


def address(number: int) -> str:
    """That of the network's machine of this number, or one that none has."""
    return _NET.format(lan=_LAN, number=number)


@dataclass(frozen=True)
class Member:
    """A machine of the network."""

    space: str
    address: str
    top: Path
    uid: int = 0  # whose commands are run there

    @property
    def folder(self) -> Path:
        return self.top / "project"

    def argv(self, *words: str) -> list[str]:
        """A command line on that machine."""
        become = ("setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups")
        there = ("ip", "netns", "exec", self.space, *(become if self.uid else ()))
        own = (f"XDG_CACHE_HOME={self.top / 'cache'}", *([f"HOME={self.top}"] if self.uid else ()))
        return as_root(*there, "env", *own, *words)

    def of_user(self, uid: int) -> Member:
        """The same machine, where an ordinary user does everything."""
        run(as_root("chown", "-R", f"{uid}:{uid}", str(self.top))).good()
        return replace(self, uid=uid)

    def configure(self, *words: str, before: tuple[str, ...] = ()) -> Outcome:
        """`before`: a program that runs the command line behind it."""
        flags = ("--yes", "--json", "--dir", str(self.folder), "--engine", "builtin")
        return run(self.argv(*before, *command("configure-environment", *flags, *words)))

    def dshpc(self, *words: str) -> Outcome:
        return run(self.argv(*command("dshpc", *words)), cwd=self.folder)

    def said(self, *words: str) -> str:
        return self.dshpc(*words).good().stdout.strip()

    def root(self, *words: str) -> str:
        """What a command of container root that has to succeed prints."""
        return self.said("exec", "--root", "--", *words)

    def user(self, uid: str, *words: str) -> Outcome:
        """A command of a user of the cluster's, in the container."""
        ids = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
        become = ("setpriv", *ids, "env", "HOME=/tmp")
        return self.dshpc("exec", "--root", "--", *become, *words)

    def engine(self, *words: str) -> str:
        """What a command of that machine's engine that has to succeed prints."""
        return run(self.argv(*BUILTIN.client.program, *words)).good().stdout.strip()

    def kill(self, container: str) -> None:
        """Its first process, and so all of it, at once."""
        pid = self.engine("inspect", "--format", "{{.State.Pid}}", container)
        run(self.argv("kill", "-KILL", pid)).good()

    def move(self, address: str) -> Member:
        """The same machine at another address of the network."""
        # The first address of a network takes its others along as it goes
        for verb, which in (("del", self.address), ("add", address)):
            run(self.argv("ip", "addr", verb, f"{which}/24", "dev", "eth0")).good()
        return replace(self, address=address)

    @contextlib.contextmanager
    def closed(self, *rule: str) -> Iterator[None]:
        """A firewall of that machine, for the block."""
        run(self.argv("iptables", "-A", "INPUT", *rule, "-j", "DROP")).good()
        try:
            yield
        finally:
            run(self.argv("iptables", "-D", "INPUT", *rule, "-j", "DROP")).good()

    @contextlib.contextmanager
    def unplugged(self) -> Iterator[None]:
        run(self.argv("ip", "link", "set", "eth0", "down")).good()
        try:
            yield
        finally:
            run(self.argv("ip", "link", "set", "eth0", "up")).good()


def _ip(*words: str) -> None:
    run(as_root("ip", *words)).good()


@contextlib.contextmanager
def network(*names: str) -> Iterator[tuple[Member, ...]]:
    """Machines by these names; nothing of them is left."""
    switch = f"{PREFIX}switch"
    spaces = [f"{PREFIX}{name}" for name in names]
    top = new_folder("lan")
    members = tuple(
        Member(space, address(number), top / name)
        for number, (space, name) in enumerate(zip(spaces, names, strict=True), 1)
    )
    for space in (switch, *spaces):
        run(as_root("ip", "netns", "del", space))  # of a run that crashed
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for number, each in enumerate(members):
            _ip("netns", "add", each.space)
            _ip("-n", switch, "link", "add", f"v{number}", "type", "veth",
                "peer", "name", "eth0", "netns", each.space)  # fmt: skip
            _ip("-n", switch, "link", "set", f"v{number}", "master", "br0", "up")
            _ip("-n", each.space, "addr", "add", f"{each.address}/24", "dev", "eth0")
            _ip("-n", each.space, "link", "set", "eth0", "up")
            _ip("-n", each.space, "link", "set", "lo", "up")
            each.folder.mkdir(parents=True)
        yield members
    finally:
        for each in members:
            if (each.folder / ".dshpc").is_dir():
                whose = replace(each, uid=each.top.stat().st_uid)
                whose.dshpc("node", "token", "--revoke")
                whose.dshpc("destroy", "--yes", "--stop-jobs", "--image")
        for space in (switch, *spaces):
            run(as_root("ip", "netns", "del", space))
        remove_folder(top)


def needs_namespaces() -> None:
    """Fails where this machine cannot make them."""
    if run(as_root("ip", "netns", "list")).code != 0:
        pytest.fail("ip netns is missing or refused: sudo apt-get install iproute2 iptables")
