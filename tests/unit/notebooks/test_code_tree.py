"""code-server's folder, of archives that lie in the cache: nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from dshpc_setup.debian import sources
from dshpc_setup.debian.faults import DebianError
from dshpc_setup.environment.declared_folder import Declared
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import web
from dshpc_setup.notebooks import code_tree, npm
from tests.unit.engine.fake import FakeMachine

PAGE = '<form class="login-form"></form></body>'


class Registry:
    """Archives, by the hash that a lock would have."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache / "dshpc" / "npm"
        self.cache.mkdir(parents=True)
        self.asked: list[str] = []

    def package(self, folder: str, **files: str) -> dict[str, str]:
        into = io.BytesIO()
        with tarfile.open(fileobj=into, mode="w:gz") as made:
            for name, text in files.items():
                member = tarfile.TarInfo(f"package/{name}")
                member.size = len(text)
                made.addfile(member, io.BytesIO(text.encode()))
        data = into.getvalue()
        digest = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        found = npm.Archive(folder, f"{npm.REGISTRY}{len(self.asked)}.tgz", digest)
        code_tree._place(self.cache, found).write_bytes(data)
        return {"folder": folder, "url": found.url, "integrity": digest}

    def fetched(self, _machine: object, files: list[web.File], *_: object) -> int:
        self.asked += [each.url for each in files]
        return 0


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    one = Registry(tmp_path / "cache")
    monkeypatch.setattr(sources, "route", lambda _: web.Route())
    monkeypatch.setattr(sources, "fetched", one.fetched)
    return one


def lock(*packages: dict[str, str]) -> str:
    listed = {
        each["folder"]: {"resolved": each["url"], "integrity": each["integrity"]}
        for each in packages
    }
    return json.dumps({"lockfileVersion": 3, "packages": {"": {}, **listed}})


def made(registry: Registry, into: Path, **changed: str) -> Path:
    pty = registry.package("node_modules/node-pty", **{"pty.js": "pty"})
    files = {
        "npm-shrinkwrap.json": lock(),
        "lib/vscode/npm-shrinkwrap.json": lock(pty),
        "lib/vscode/extensions/npm-shrinkwrap.json": lock(),
        "lib/vscode/extensions/copilot/main.js": "asks a service",
        "lib/vscode/bin/remote-cli/code-linux.sh": "opens a file",
        "lib/vscode/node_modules/@vscode/spdlog/index.js": "needs a compiled module",
        "src/browser/pages/login.html": PAGE,
    }
    ours = [
        registry.package("", **{**files, **changed}),
        registry.package("lib", **{"bin/node": "node", "include/node.h": ""}),
    ]
    machine = FakeMachine(env={"XDG_CACHE_HOME": str(registry.cache.parent.parent)})
    into.mkdir()
    texts = {"npm.json": json.dumps(ours).encode(), "spdlog.js": b"writes a log"}
    declared = Declared("code", "npm", tuple(texts.items()))
    code_tree.make(machine, declared, into, "", lambda _: None)
    return into / "tree"


def test_each_package_lies_where_its_lock_says(registry: Registry, tmp_path: Path) -> None:
    tree = made(registry, tmp_path / "new")
    assert (tree / "lib/vscode/node_modules/node-pty/pty.js").read_text() == "pty"
    assert (tree / "lib/node").read_text() == (tree / "lib/bin/node").read_text() == "node"
    assert (tree / "lib/vscode/bin/remote-cli/code").read_text() == "opens a file"
    log = tree / "lib/vscode/node_modules/@vscode/spdlog/index.js"
    assert log.read_text() == "writes a log"
    assert (tree / ".ignore").read_text() == "*\n"
    assert not (tree / "lib/include").exists()
    assert not (tree / "lib/vscode/extensions/copilot").exists()
    assert "form.submit()" in (tree / "src/browser/pages/login.html").read_text()
    assert "password" in (tree / "dshpc-config.yaml").read_text()
    assert registry.asked == []


def test_what_has_changed_is_not_used(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="not what it must be") as caught:
        made(registry, tmp_path / "new", **{"src/browser/pages/login.html": "another page"})
    assert "login.html" in caught.value.details
    for archive in registry.cache.iterdir():
        archive.write_bytes(archive.read_bytes() + b"\0")
    with pytest.raises(DshpcError, match="not what it must be") as caught:
        made(registry, tmp_path / "again", **{"lib/vscode/npm-shrinkwrap.json": "{}"})
    assert "npm-shrinkwrap.json" in caught.value.details


def test_an_archive_that_is_not_whole_is_fetched_again(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Registry.package

    def damaged(self: Registry, folder: str, **files: str) -> dict[str, str]:
        found = plain(self, folder, **files)
        for archive in registry.cache.iterdir():
            os.truncate(archive, 10)
        return found

    monkeypatch.setattr(Registry, "package", damaged)
    with pytest.raises(DshpcError, match="not what it must be") as caught:
        made(registry, tmp_path / "new")
    assert len(registry.asked) == 2
    assert "another content" in caught.value.details


def test_a_package_of_two_folders_is_fetched_once(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = registry.package("node_modules/a", **{"a.js": "a"})
    folders = ("node_modules/a", "node_modules/b/node_modules/a")
    wanted = [npm.Archive(folder, one["url"], one["integrity"]) for folder in folders]
    kept = {path: path.read_bytes() for path in registry.cache.iterdir()}

    def fetches(_machine: object, files: list[web.File], *_: object) -> int:
        registry.asked += [each.url for each in files]
        for path, data in kept.items():
            path.write_bytes(data)
        return 0

    for path in kept:
        path.unlink()
    monkeypatch.setattr(sources, "fetched", fetches)
    machine = FakeMachine(env={"XDG_CACHE_HOME": str(registry.cache.parent.parent)})
    code_tree._lay_out(machine, wanted, registry.cache, tmp_path, "x64")
    assert registry.asked == [one["url"]]
    assert [(tmp_path / folder / "a.js").read_text() for folder in folders] == ["a", "a"]


def test_a_registry_that_is_out_of_reach(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fault, says in (("unreachable", "could not be fetched"), ("no-room", "could not be kept")):

        def fails(*_: object, fault: str = fault) -> int:
            raise DebianError(fault, "why")  # type: ignore[arg-type]

        monkeypatch.setattr(sources, "fetched", fails)
        with pytest.raises(DshpcError, match=says) as caught:
            made(registry, tmp_path / fault)
        assert caught.value.details == "why"
        assert caught.value.resolution
