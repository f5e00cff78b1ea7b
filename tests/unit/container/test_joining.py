"""Key and users as a machine that joins takes them."""

from __future__ import annotations

import base64
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.container import daemons, joining, key_set, users
from dshpc_setup.errors import DshpcError
from dshpc_setup.slurm.nodes import FORMER_KEY, Node
from dshpc_setup.slurm.paths import Paths

OWN = (os.getuid(), os.getgid())


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setattr(users, "restore", lambda _: 0)
    return Paths(str(tmp_path))


def given(key: bytes, told: str = "4711:4711::ada\n") -> str:
    value = {"schema": joining.KEY_SCHEMA, "key": base64.b64encode(key).decode(), "users": told}
    return json.dumps(value)


def a_key(letter: str) -> bytes:
    return key_set.to_bytes(key_set.fresh(letter.encode() * 48, f"20261126T000000Z-{letter * 6}"))


def test_it_lies_for_slurms_user_alone_and_users_are_added(paths: Paths) -> None:
    os.makedirs(paths.state)
    (Path(paths.state) / "users").write_text("4711:4711::old\n4712:4712::bob\n")
    assert not joining.take(paths, OWN, given(a_key("a")))
    key = Path(paths.key)
    assert key.read_bytes() == a_key("a")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert (Path(paths.state) / "users").read_text() == "4712:4712::bob\n4711:4711::ada\n"


def test_another_key_than_before_is_told(paths: Paths) -> None:
    assert not joining.take(paths, OWN, given(a_key("a")))
    assert not joining.take(paths, OWN, given(a_key("a")))
    assert joining.take(paths, OWN, given(a_key("b")))


@pytest.mark.parametrize(
    "text",
    ["", "null", "{}", "[1]", given(b"short"), given(a_key("a"), "no line of ours\n"),
     given(a_key("b")).replace('"key": "', '"key": "\u00e9'), given(a_key("b"))[:-2]],
)  # fmt: skip
def test_a_damaged_one_changes_nothing(paths: Paths, text: str) -> None:
    assert not joining.take(paths, OWN, given(a_key("a")))
    before = Path(paths.key).read_bytes(), (Path(paths.state) / "users").read_text()
    with pytest.raises(DshpcError):
        joining.take(paths, OWN, text)
    assert before == (Path(paths.key).read_bytes(), (Path(paths.state) / "users").read_text())


@pytest.mark.parametrize("anew", [False, True])
def test_a_node_with_the_former_key_does_not_take_itself_back(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """For a minute it still could."""
    machine: Any = None
    found = Node("lab2", "idle+drain", FORMER_KEY, flags=("IDLE", "DRAIN"))
    monkeypatch.setattr(daemons, "show_node", lambda *_: found)
    joining.take(paths, OWN, given(a_key("a")))
    if anew:
        joining.take(paths, OWN, given(a_key("b")))
        joining.refuse_former_key(machine, paths, "lab2")
        joining.settle(paths)
    with pytest.raises(DshpcError, match="was changed while this node was away") as caught:
        joining.refuse_former_key(machine, paths, "lab2")
    assert any("--join TOKEN" in step for step in caught.value.resolution)


def test_a_start_that_fails_names_the_key_too_and_once() -> None:
    with pytest.raises(DshpcError, match="no answer") as caught, joining.explained():
        raise DshpcError("no answer", "", ("See the log.",))
    assert [bool("key" in step) for step in caught.value.resolution[:2]] == [False, True]
    with pytest.raises(DshpcError) as caught, joining.explained():
        raise DshpcError("former key", "", joining.join_anew())
    assert len(caught.value.steps) == 2
