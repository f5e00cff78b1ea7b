"""What stays in the cache of packages, and what is said while it is filled."""

from __future__ import annotations

import hashlib
import lzma
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.debian import sources
from dshpc_setup.debian.index import Package
from dshpc_setup.files import locks
from dshpc_setup.machine import Ended
from dshpc_setup.machine.web import Fetched, Route

DAY_S = 24 * 3600


class Cache:
    """A user's cache, in which each thing was used so many days ago."""

    def __init__(self, home: Path) -> None:
        self.env = {"XDG_CACHE_HOME": str(home)}
        self.folder = sources.cache_folder(self.env)
        self.folder.mkdir(parents=True)

    def put(self, name: str, content: bytes, days: float = 0) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        at = time.time() - days * DAY_S
        os.utime(path, (at, at))
        return path

    def deb(self, word: str, days: float = 0) -> Path:
        return self.put(f"{of(word)}.deb", word.encode(), days)

    def archive(self, word: str, packages: list[str], days: float = 0) -> None:
        """A signed file that names one list, and that list."""
        text = "".join(f"Package: {name}\nSHA256: {of(name)}\n\n" for name in packages)
        content = lzma.compress(text.encode())
        digest = hashlib.sha256(content).hexdigest()
        self.put(f"{digest}.packages.xz", content, days)
        self.put(f"{of(word)[:16]}.InRelease", f"SHA256:\n {digest} 1 main".encode(), days)

    def left(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


def of(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def test_what_no_list_names_and_what_is_old_goes(cache: Cache) -> None:
    cache.archive("main", ["used", "old"])
    cache.archive("forgotten", ["of-forgotten"], days=31)
    stale = cache.put(f"{of('stale')}.packages.xz", b"of an archive's day before")
    used, old = cache.deb("used", 29), cache.deb("old", 31)
    gone, lost = cache.deb("gone"), cache.deb("of-forgotten")
    other = cache.put("notes.txt", b"nobody's", 99)
    assert sources.prune(cache.env) > 0
    left = cache.left()
    assert {used.name, other.name} <= left
    assert not {old.name, gone.name, lost.name, stale.name} & left
    assert len(left) == 5  # with the archive that is asked, its list, and the lock
    assert sources.prune(cache.env) == 0
    assert cache.left() == left


def test_nothing_goes_while_a_run_uses_it(cache: Cache) -> None:
    cache.deb("gone")
    with locks.held(cache.folder / "lock") as ours:
        assert ours
        assert sources.prune(cache.env) == 0
    assert cache.folder.joinpath(f"{of('gone')}.deb").exists()


def test_without_a_cache_there_is_nothing(tmp_path: Path) -> None:
    assert sources.prune({"XDG_CACHE_HOME": str(tmp_path / "none")}) == 0


def test_a_list_that_cannot_be_read_costs_nothing(cache: Cache) -> None:
    digest = of("broken")
    cache.put(f"{digest}.packages.xz", b"no list")
    cache.put(f"{of('main')[:16]}.InRelease", f" {digest} 7 main".encode())
    kept = cache.deb("used")
    assert sources.prune(cache.env) == 0
    assert kept.exists()


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([0.0, 5.0, 29.0, 31.0, 400.0])),
    st.sets(st.sampled_from("abcdef")),
)
def test_what_stays(ages: Mapping[str, float], listed: set[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(Path(folder))
        cache.archive("main", sorted(listed))
        for word, days in ages.items():
            cache.deb(word, days)
        sources.prune(cache.env)
        left = {word for word in ages if f"{of(word)}.deb" in cache.left()}
    assert left == {word for word, days in ages.items() if word in listed and days < 30}


class Web:
    """A machine on which each file comes, the largest first."""

    def apart(
        self,
        questions: Mapping[str, Any],
        *,
        deadline_s: float,
        meanwhile: Any = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        assert on_item is not None
        items = [Fetched(f"http://m/{name}", size) for name, size in (("b", 6 << 20), ("a", 0))]
        for item in items:
            on_item(item)
        return {"fetch": Ended("present", tuple(items), None, 1.0)}


def test_how_much_has_come_is_said(cache: Cache) -> None:
    packages = [
        Package(name=name, version="1", size=size << 20, sha256=of(name), filename=name)
        for name, size in (("a", 3), ("b", 6))
    ]
    for each in packages:
        cache.deb(each.name, 20)
    said: list[str] = []
    machine: Any = Web()
    came = sources.debs(
        machine, cache.folder, [sources.Source("http://m", "s")], packages, Route(), 5, said.append
    )
    assert came == 6 << 20
    assert said == ["Debian: fetched 6 of 9 MiB", "Debian: fetched 9 of 9 MiB"]
    used = [path.stat().st_mtime for path in cache.folder.glob("*.deb")]
    assert min(used) > time.time() - DAY_S  # the month begins anew
