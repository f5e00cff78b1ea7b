"""Which engine starts a cluster, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.builtin import rights
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.engine import privilege
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult, Reply
from dshpc_setup.podman_client import trial
from dshpc_setup.setup.engine_choice import Choice, Why, choose, ends_with_login, need


@dataclass
class Machine:
    """`engine`: the state of its answer; `sudo`: the exit code of sudo, None without one."""

    uid: int = 1000
    engine: Any = "absent"
    sudo: int | None = None
    system: tuple[str, str, str] = ("Linux", "6.1", "x86_64")
    sudo_state: Any = "present"
    podman: bool = False
    there: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    def docker(self, _: float) -> Reply:
        return Reply(self.engine)

    def which(self, program: str) -> str | None:
        there = {"sudo": self.sudo is not None, "podman": self.podman}
        return f"/usr/bin/{program}" if there.get(program) else None

    def exists(self, path: str) -> bool:
        return path in self.there

    def run(self, argv: list[str], **_: Any) -> CommandResult:
        return CommandResult(tuple(argv), self.sudo_state, self.sudo, "", "", 1.0)


@pytest.fixture(autouse=True)
def able(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """The kernel lets users have containers, until a test says otherwise."""

    def set_to(it: bool) -> None:
        monkeypatch.setattr(
            rights,
            "find",
            lambda _: rights.Rights(Ids("single")) if it else rights.Rights(None, "seccomp"),
        )

    set_to(True)
    return set_to


REFUSED = DshpcError("Podman cannot start a container here.", "crun: no\nmore", ("Do this.",))


@pytest.fixture(autouse=True)
def tried(monkeypatch: pytest.MonkeyPatch) -> dict[str, DshpcError | None]:
    """What Podman is found to lack: nothing, until a test says otherwise."""
    found: dict[str, DshpcError | None] = {"lack": None}
    monkeypatch.setattr(trial, "why_not", lambda _, **__: found["lack"])
    return found


@pytest.mark.parametrize(
    ("machine", "interactive", "kind", "why"),
    [
        (Machine(), False, "builtin", "no-root"),
        (Machine(engine="denied"), True, "builtin", "no-root"),
        (Machine(uid=0), False, "docker", "root"),
        (Machine(engine="present"), False, "docker", "answers"),
        (Machine(engine="timeout"), False, "docker", "no-answer"),
        (Machine(engine="unsupported"), False, "docker", "no-answer"),
        (Machine(sudo=0), False, "docker", "sudo"),
        (Machine(sudo=1), False, "builtin", "no-root"),
        (Machine(sudo=1), True, "docker", "sudo"),  # who may be asked for a password
        (Machine(system=("Darwin", "24", "arm64")), False, "docker", "not-linux"),
        (Machine(engine="present", podman=True), False, "docker", "answers"),
        (Machine(engine="timeout", podman=True), False, "docker", "no-answer"),
        (Machine(podman=True), False, "podman", "podman"),
        (Machine(podman=True, engine="denied", sudo=0), True, "podman", "podman"),
        (Machine(podman=True, uid=0), False, "podman", "podman"),
        (Machine(podman=True, uid=0, engine="present"), False, "docker", "answers"),
        # Somebody has named an engine of Docker's kind
        (Machine(podman=True, uid=0, env={"DOCKER_HOST": "unix:///x"}), False, "docker", "root"),
    ],
)
def test_who_gets_which_unasked(machine: Any, interactive: bool, kind: str, why: str) -> None:
    found = choose(machine, "auto", {}, interactive=interactive)
    assert found.to_json() == {"kind": kind, "why": why}


def test_where_the_kernel_refuses(able: Callable[[bool], None]) -> None:
    able(False)
    machine: Any = Machine()
    found = choose(machine, "auto", {}, interactive=False)
    assert found == Choice("docker", "no-containers", "seccomp")
    assert "A filter of system calls refuses it" in (found.note or "")


def test_only_what_may_surprise_is_noted() -> None:
    noted = {why: Choice("docker", why).note for why in get_args(Why)}
    assert {why for why, note in noted.items() if note} == {"no-root", "podman"}


def test_a_podman_that_does_not_work_is_said_where_another_takes_its_place(
    tried: dict[str, DshpcError | None],
) -> None:
    tried["lack"] = REFUSED
    for asked, kind in ((Machine(podman=True), "builtin"), (Machine(podman=True, uid=0), "docker")):
        machine: Any = asked
        found = choose(machine, "auto", {}, interactive=False)
        assert found.kind == kind
        assert found.note is not None
        assert found.note.endswith(
            "Podman is no way: Podman cannot start a container here. crun: no"
        )


def test_where_it_has_to_be_podman_a_refusal_is_an_error(
    tried: dict[str, DshpcError | None],
) -> None:
    machine: Any = Machine(podman=True)
    gone: Any = Machine()
    named = choose(machine, "podman", {}, interactive=False)
    own = choose(machine, "auto", {"engine": "podman"}, interactive=False)
    need(machine, named, {}, looks_only=False)
    tried["lack"] = REFUSED
    need(machine, own, {"engine": "podman"}, looks_only=False)  # a folder's own is not tried again
    for asked, chosen, runtime in ((machine, named, {}), (gone, own, {"engine": "podman"})):
        with pytest.raises(DshpcError) as raised:
            need(asked, chosen, runtime, looks_only=False)
        assert raised.value == REFUSED
    need(machine, Choice("docker", "root"), {}, looks_only=False)


@pytest.mark.parametrize(
    ("uid", "there", "said"),
    [
        (1000, ("/run/systemd/system",), True),
        (1000, ("/run/systemd/system", "/var/lib/systemd/linger/ada"), False),
        (1000, (), False),
        (0, ("/run/systemd/system",), False),
    ],
)
def test_who_is_told_that_it_ends_with_the_login(
    uid: int, there: tuple[str, ...], said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = privilege.Caller(uid, uid, "ada", "/home/ada")
    monkeypatch.setattr(privilege, "caller", lambda _: ada)
    machine: Any = Machine(uid=uid, there=there)
    assert (ends_with_login(machine) is not None) == said


@pytest.mark.parametrize(
    ("setting", "runtime", "kind", "why"),
    [
        ("builtin", {}, "builtin", "setting"),
        ("docker", {"engine": "builtin"}, "docker", "setting"),
        ("auto", {"engine": "builtin"}, "builtin", "cluster"),
        ("auto", {"prefix": "c"}, "docker", "cluster"),
        ("docker", {"engine": "podman"}, "docker", "setting"),
        ("auto", {"engine": "podman"}, "podman", "cluster"),
        ("podman", {"engine": "podman"}, "podman", "setting"),
    ],
)
def test_a_word_of_the_users_and_what_is_there_come_first(
    setting: str, runtime: dict[str, str], kind: str, why: str
) -> None:
    nobody: Any = None  # is asked
    found = choose(nobody, setting, runtime, interactive=False)
    assert found.to_json() == {"kind": kind, "why": why}


def test_of_root_the_engine_is_asked_by_the_probes_alone() -> None:
    root: Any = Machine(uid=0, engine="timeout")
    assert choose(root, "auto", {}, interactive=False).code == "root"
    assert choose(root, "auto", {}, interactive=False, docker="present").code == "answers"


_STATES = st.sampled_from(["present", "absent", "denied", "timeout", "error", "unsupported"])
_MACHINES = st.builds(Machine, st.sampled_from([0, 1000]), _STATES, st.sampled_from([None, 0, 1]))


@given(_MACHINES, st.booleans())
def test_what_was_asked_before_decides_alike(machine: Any, interactive: bool) -> None:
    """Whoever has asked the engine before, as detect has, comes to the same engine."""
    asks = choose(machine, "auto", {}, interactive=interactive)
    told = choose(machine, "auto", {}, interactive=interactive, docker=machine.engine)
    assert told.kind == asks.kind
    assert told.words


def test_each_reason_has_its_words() -> None:
    assert all(Choice("docker", why).words for why in get_args(Why))


def test_sudo_that_does_not_answer_is_told() -> None:
    machine: Any = Machine(sudo=1, sudo_state="timeout")
    with pytest.raises(DshpcError) as told:
        choose(machine, "auto", {}, interactive=False)
    assert told.value.exit_code == 3
