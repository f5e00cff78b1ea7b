"""What dpkg is told to do, and the errors of a run."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from dshpc_setup.builtin.ids import Ids
from dshpc_setup.debian import base, faults, sources
from dshpc_setup.debian.faults import DebianError, in_words
from dshpc_setup.debian.index import Index, closure
from dshpc_setup.errors import DshpcError
from tests.unit.debian.test_index import stanza
from tests.unit.engine.fake import FakeMachine

SMALL = Index(
    "\n".join(
        (
            stanza("libc6", Priority="optional", SHA256="1" * 64),
            stanza("dpkg", Essential="yes", Pre_Depends="libc6", SHA256="2" * 64),
            stanza("base-passwd", Essential="yes", SHA256="3" * 64),
            stanza("apt", SHA256="4" * 64),
            stanza("ca-certificates", SHA256="5" * 64),
            stanza("slurmd", Depends="apt", SHA256="6" * 64),
        )
    )
)


def test_the_order_is_that_of_debootstrap() -> None:
    every = closure(SMALL, (*SMALL.base(), "slurmd"))
    small = closure(SMALL, SMALL.base())
    from_ = [sources.Source("http://m/debian", "trixie")]
    made = base.text(small, every, from_, Path("/cache"))
    lines = [line for line in made.splitlines() if line.startswith("dpkg")]
    seen = [
        (line.split("--")[-1].split()[0], [word[-68] for word in line.split() if ".deb" in word])
        for line in lines
    ]
    assert seen == [
        ("install", ["3"]),
        ("install", ["2"]),
        ("install", ["1"]),
        ("unpack", ["4", "5"]),
        ("pending", []),
        ("unpack", ["6"]),
        ("configure", []),
    ]
    assert "dpkg.cfg.d/dshpc-made <<'END'\nEND\n" in made
    lean = base.text(small, every, from_, Path("/cache"), "path-exclude=/usr/share/man/*\n")
    before, options, after = lean.partition("<<'END'\npath-exclude=/usr/share/man/*\nEND\n")
    assert (bool(options), "--install" in before, "--install" in after) == (True, False, True)
    assert "URIs: http://m/debian\nSuites: trixie\nComponents: main\n" in made


def test_an_archive_has_its_updates_in_each_part() -> None:
    plain = base.Archive("http://m/debian", "trixie")
    assert plain.sources == [sources.Source("http://m/debian", "trixie", "main")]
    both = base.Archive("http://m/debian", "trixie", ("main", "contrib"), "http://s")
    assert [(each.url, each.suite, each.component) for each in both.sources] == [
        ("http://m/debian", "trixie", "main"),
        ("http://m/debian", "trixie", "contrib"),
        ("http://s", "trixie-security", "main"),
        ("http://s", "trixie-security", "contrib"),
    ]


@pytest.mark.parametrize(("name", "version"), [("slurmd", "0.9"), ("gone", "1.0")])
def test_a_locked_version_that_is_gone_is_named(name: str, version: str) -> None:
    base.need_pinned(SMALL, {"slurmd": "1", "apt": "1"})
    with pytest.raises(DebianError) as raised:
        base.need_pinned(SMALL, {"apt": "1", name: version})
    told = in_words(raised.value)
    assert told.details.startswith(f"{name}: {version} is locked")
    assert told.fixes[0].command == "dshpc env lock"


@pytest.mark.parametrize(
    "mirror",
    ["ftp://m/debian", "http://", "http://me:secret@m/debian", "http://m/a b", "m/debian", ""],
)
def test_an_address_that_is_none_is_refused(mirror: str, tmp_path: Path) -> None:
    machine = FakeMachine(env={"XDG_CACHE_HOME": str(tmp_path)})
    with pytest.raises(DshpcError) as raised:
        base.make_base(machine, mirror, "trixie", Ids("root"), tmp_path / "made")
    assert raised.value == in_words(DebianError("mirror", mirror if "@" not in mirror else ""))
    assert "secret" not in str(raised.value)


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    machine = FakeMachine(env={"XDG_CACHE_HOME": str(tmp_path)})
    (tmp_path / "made").mkdir()
    with pytest.raises(DshpcError, match="is there already"):
        base.make_base(machine, "http://m/debian", "trixie", Ids("root"), tmp_path / "made")
    assert (tmp_path / "made").is_dir()


def test_each_fault_has_its_own_words() -> None:
    known = {name for part in get_args(faults.Fault) for name in get_args(part)}
    said = {name: in_words(DebianError(name)).brief for name in known}
    assert len(set(said.values())) == len(known)
    assert all(in_words(DebianError(name)).steps for name in known)


def test_apt_names_the_proxy_where_it_has_one() -> None:
    machine = FakeMachine(
        env={"http_proxy": "http://one:1", "no_proxy": "x"}, programs={"apt-config"}
    )
    from tests.unit.engine.fake import Answer

    machine.commands["apt-config"] = Answer('Acquire::http::Proxy "http://two:2";\n')
    assert sources.route(machine).proxies == {"http": "http://two:2", "no": "x"}
    machine.commands["apt-config"] = Answer('Acquire::http::Proxy "DIRECT";\n')
    assert sources.route(machine).proxies == {"http": "", "no": "x"}
