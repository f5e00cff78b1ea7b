"""The steps of scripts/release-check that start other programs: bill of materials, site, installations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dshpc_setup
from scripts import release
from tests.integration.cluster import ROOT

NONE_OF_THEM = {
    "version": "has a date when there is a release",
    "checkout": "is not committed while somebody works",
    "browser": "writes into the checkout that other tests read",
    "locks": "asks the public index, which a site's machine may not reach",
    "deb": "is built and installed by test_installed.py",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> release.Release:
    version = dshpc_setup.__version__
    return release.Release(version, f"v{version}", tmp_path_factory.mktemp("release"))


def test_each_step_in_its_order(
    made: release.Release, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    steps = [(name, step) for name, step in release.steps(quick=False) if name not in NONE_OF_THEM]
    assert [name for name, step in steps if not release._made(name, step, made)] == []
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["ok", name] for name, _ in steps]


def test_the_bill_of_materials_has_each_locked_package_with_its_hashes(
    made: release.Release,
) -> None:
    path = made.out / f"dshpc_setup-{made.version}.cdx.json"
    found = json.loads(path.read_text())
    assert (found["bomFormat"], found["metadata"]["component"]["name"]) == (
        "CycloneDX",
        "dshpc-setup",
    )
    told = {
        (item["name"], item["version"]): {
            hashed["content"] for place in item["externalReferences"] for hashed in place["hashes"]
        }
        for item in found["components"]
    }
    locked: dict[tuple[str, str], set[str]] = {}
    last: set[str] = set()
    for block in (ROOT / "requirements.lock").read_text().split("\n"):
        if "==" in block:
            name, _, rest = block.partition("==")
            last = locked.setdefault((name, rest.split()[0]), set())
        elif "--hash=sha256:" in block:
            last.add(block.partition("--hash=sha256:")[2].rstrip(" \\"))
    assert told == locked
    assert str(ROOT) not in path.read_text()


def test_the_sums_are_those_of_the_files(made: release.Release) -> None:
    names = {line.split()[1] for line in (made.out / "SHA256SUMS").read_text().splitlines()}
    assert names == {each.name for each in Path(made.out).iterdir()} - {"SHA256SUMS"}
    assert {made.wheel.name, made.sdist.name} < names
