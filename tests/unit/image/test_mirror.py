from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.image.mirror import (
    Entry,
    Mirror,
    choose,
    mirror_for,
    of_host,
    parse_deb822,
    parse_list,
)
from tests.unit.image.fakes import FakeMachine

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

DEB822 = f"""\
# written by the installer
Types: deb deb-src
# a comment between fields
URIs: http://mirror.example.org/debian/
Suites: bookworm bookworm-updates
Components: main
 contrib
Signed-By: {KEYRING}

Types: deb
URIs: http://mirror.example.org/debian-security
Suites: bookworm-security
Components: main
Signed-By: {KEYRING}

Enabled: no
Types: deb
URIs: http://off.example.org/debian
Suites: bookworm
Components: main
"""


def test_deb822() -> None:
    entries = parse_deb822(DEB822)
    assert [(entry.uri, entry.suite) for entry in entries] == [
        ("http://mirror.example.org/debian/", "bookworm"),
        ("http://mirror.example.org/debian/", "bookworm-updates"),
        ("http://mirror.example.org/debian-security", "bookworm-security"),
    ]
    assert entries[0].components == ("main", "contrib")
    assert choose(entries) == Mirror(
        "http://mirror.example.org/debian",
        updates=True,
        security="http://mirror.example.org/debian-security",
    )


def test_one_line_style() -> None:
    text = f"""
# deb http://commented.example.org/debian bookworm main
deb [arch=amd64 signed-by={KEYRING}] https://m.example.org/debian bookworm main contrib # here
deb-src https://m.example.org/debian bookworm main
deb https://m.example.org/debian-security bookworm-security main
deb
"""
    entries = parse_list(text, "/etc/apt/sources.list")
    assert entries[0] == Entry(
        "https://m.example.org/debian",
        "bookworm",
        ("main", "contrib"),
        KEYRING,
        "/etc/apt/sources.list",
    )
    assert len(entries) == 2
    assert choose(entries) == Mirror(
        "https://m.example.org/debian", security="https://m.example.org/debian-security"
    )


@pytest.mark.parametrize(
    "line",
    [
        "deb https://vendor.example.com/repos/code stable main",  # another vendor's
        "deb https://vendor.example.com/debian bookworm stable",  # no component main
        "deb cdrom:[Debian]/debian bookworm main",
        "deb file:/srv/debian bookworm main",
        "deb http://user:secret@m.example.org/debian bookworm main",  # would end up in the image
        "deb mirror+file:/etc/apt/mirrors.txt bookworm main",
    ],
)
def test_not_the_archive(line: str) -> None:
    assert choose(parse_list(line, "/etc/apt/sources.list.d/other.list")) is None


def test_vendor_beside_the_archive() -> None:
    machine = FakeMachine(
        files={
            "/etc/apt/sources.list.d/a-vendor.list": "deb https://v.example.com/x bookworm main",
            "/etc/apt/sources.list.d/debian.sources": DEB822,
            "/etc/apt/sources.list.d/old.sources.disabled": DEB822.replace("mirror", "gone"),
        }
    )
    found = of_host(machine, "debian")
    assert found is not None
    assert found.main == "http://mirror.example.org/debian"
    assert of_host(machine, "ubuntu") is None
    assert of_host(machine, None) is None


def test_the_users_choice_wins() -> None:
    machine = FakeMachine(files={"/etc/apt/sources.list.d/debian.sources": DEB822})
    assert mirror_for(machine, "debian", "https://own.example.org/debian/") == Mirror(
        "https://own.example.org/debian"
    )
    for bad in ("https://me:pw@own.example.org/debian", "ftp://x/y", "debian", "http://"):
        with pytest.raises(DshpcError) as caught:
            mirror_for(machine, "debian", bad)
        assert caught.value.exit_code == 64


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    for entry in (*parse_list(text), *parse_deb822(text)):
        assert entry.uri
        assert entry.suite


WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789.-", min_size=1, max_size=12)


@given(host=WORD, suite=WORD, components=st.lists(WORD, max_size=3))
def test_both_styles_say_the_same(host: str, suite: str, components: list[str]) -> None:
    uri = f"http://{host}/debian"
    line = f"deb {uri} {suite} {' '.join(components)}".rstrip()
    stanza = f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: {' '.join(components)}\n"
    assert parse_list(line) == parse_deb822(stanza)
