"""What a release is made of, as far as it is values: versions that agree, a package that is put together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

import dshpc_setup
from scripts import debian_package, release

DATED = "# Changelog\n\nWords.\n\n## 1.2.0 (2026-12-01)\n\n- x\n\n## 1.1.0 (2026-11-01)\n"


@pytest.mark.parametrize(
    ("version", "tag", "changelog", "words"),
    [
        ("1.2.0", "v1.2.0", DATED, []),
        ("1.2.0", "1.2.0", DATED, ["the tag is 1.2.0"]),
        ("1.1.0", "v1.1.0", DATED, ["does not begin with"]),
        ("1.2.0", "v1.2.0", DATED.replace("2026-12-01", "unreleased"), ["has no date"]),
        ("1.2", "v1.2", "", ["does not begin with"]),
        ("1.2.0-rc1", "v1.2.0-rc1", DATED.replace("1.2.0", "1.2.0-rc1"), ["1.2.0rc1 by PEP 440"]),
        ("new", "v1", "", ["no version", "the tag is v1", "does not begin"]),
    ],
)
def test_version_tag_and_changelog(
    version: str, tag: str, changelog: str, words: list[str]
) -> None:
    said = release.said_of_versions(version, tag, changelog)
    assert len(said) == len(words)
    assert all(word in text for word, text in zip(words, said, strict=True))


def test_the_changelog_of_now_has_the_version_of_now() -> None:
    text = (release.ROOT / "CHANGELOG.md").read_text()
    said = release.said_of_versions(dshpc_setup.__version__, f"v{dshpc_setup.__version__}", text)
    assert all("has no date" in each for each in said)


def test_only_the_date_of_the_release_is_left_out_of_its_sums(tmp_path: Path) -> None:
    made = release.Release("1.2.0", "v1.2.0", tmp_path)
    made.wheel.write_bytes(b"wheel")
    assert release.checksums(made) == "1 files"
    digest, _, name = (tmp_path / "SHA256SUMS").read_text().strip().partition("  ")
    assert (len(digest), name) == (64, made.wheel.name)
    (tmp_path / "dshpc_setup-1.1.0-py3-none-any.whl").write_bytes(b"of the release before")
    with pytest.raises(release.NotReadyError, match=r"dshpc_setup-1\.1\.0"):
        release.checksums(made)


def test_a_step_that_fails_does_not_keep_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: release.Release) -> str:
        raise release.NotReadyError("no")

    def prints(_: release.Release) -> str:
        print("of a library")
        return "seen"

    monkeypatch.setattr(release, "steps", lambda **_: [("one", fails), ("two", prints)])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    monkeypatch.chdir(tmp_path)
    assert release.main([]) == 1
    out = capsys.readouterr().out.splitlines()
    assert [line.split() for line in out] == [
        ["!!", "one", "no"], ["ok", "two", "seen"], ["Not", "ready:", "one."]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("python", "debian"),
    [
        ("0.1.0", "0.1.0"), ("0.2.0a1", "0.2.0~a1"), ("0.2.0rc1", "0.2.0~rc1"),
        ("0.2.0rc1.dev3", "0.2.0~rc1~dev3"), ("0.2.0.dev3", "0.2.0~dev3"), ("0.2.0.post1", "0.2.0.post1"),
    ],
)  # fmt: skip
def test_a_version_as_debian_writes_it(python: str, debian: str) -> None:
    assert debian_package.debian_version(Version(python)) == debian


_RELEASES = st.tuples(*(st.integers(0, 20),) * 3)


@given(_RELEASES, st.sampled_from(["a", "b", "rc"]), st.integers(0, 20))
def test_what_comes_before_a_release_sorts_before_it(
    numbers: tuple[int, ...], kind: str, count: int
) -> None:
    """dpkg sorts ~ before the end of a text."""
    final = debian_package.debian_version(Version(".".join(map(str, numbers))))
    early = debian_package.debian_version(Version(f"{'.'.join(map(str, numbers))}{kind}{count}"))
    assert early.startswith(f"{final}~{kind}")


def _write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("--", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_what_pythons_have_in_common_is_there_once_and_compiled_modules_lie_beside(
    tmp_path: Path,
) -> None:
    into = tmp_path / "usr/lib/dshpc/lib/python3/site-packages"
    for minor in (11, 12):
        place = tmp_path / str(minor)
        _write(place, **{"a__b.py": "x", f"a__c.cpython-3{minor}.so": "y", "bin__uv": "uv"})
        _write(place, **{"a-1.dist-info__RECORD": f"c.cpython-3{minor}.so,,\n"})
        debian_package.merge(place, into)
    there = sorted(path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file())
    assert there == ["a-1.dist-info/RECORD", "a/b.py", "a/c.cpython-311.so", "a/c.cpython-312.so"]
    assert (into / "a-1.dist-info/RECORD").read_text() == "c.cpython-311.so,,\n"
    assert (into.parents[2] / "bin/uv").read_text() == "uv"
    _write(tmp_path / "13", **{"a__b.py": "for another Python"})
    with pytest.raises(SystemExit, match=r"a/b\.py is not the same"):
        debian_package.merge(tmp_path / "13", into)


def test_licences_of_what_it_has_with_it(tmp_path: Path) -> None:
    beginning = "Metadata-Version: 2.1\nVersion: 1\nName: "
    _write(
        tmp_path,
        **{
            "a-1.dist-info__METADATA": f"{beginning}A\nLicense-Expression: MIT\n",
            "b-1.dist-info__METADATA": f"{beginning}b\nClassifier: License :: OSI Approved :: ISC\n",
            "c-1.dist-info__METADATA": f"{beginning}c\n",
        },
    )
    assert debian_package.bundled(tmp_path) == {
        "A": ("1", "MIT"), "b": ("1", "ISC"), "c": ("1", "see its folder")
    }  # fmt: skip


def test_the_date_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    assert debian_package.source_date() == 1767225600
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(SystemExit, match="No date for what is built: yesterday"):
        debian_package.source_date()


@pytest.mark.parametrize("name", ["missing.whl", "there.tar.gz"])
def test_what_is_no_wheel_is_told(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there.tar.gz").write_text("")
    with pytest.raises(SystemExit, match="2"):
        debian_package.main([str(tmp_path / name)])
    assert f"{name} is no wheel; make one" in capsys.readouterr().err


def test_modes_and_dates_are_nobodys(tmp_path: Path) -> None:
    place = tmp_path / debian_package.PACKAGES
    _write(place, **{"dshpc_setup___share__container__run": "x", "a.py": "y"})
    (place / "dshpc_setup/_share/container/run").chmod(0o700)
    (place / "a.py").chmod(0o777)
    debian_package._settle(tmp_path, 1_000_000_000)
    modes = {
        path.name: oct(path.stat().st_mode & 0o777) for path in place.rglob("*") if path.is_file()
    }
    assert modes == {"run": "0o755", "a.py": "0o644"}
    assert {os.stat(path).st_mtime for path in tmp_path.rglob("*")} == {1_000_000_000.0}
