"""Packages of npm's registry: which of a lock are taken, and what of an archive is written."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.machine import web
from dshpc_setup.notebooks import code_tree, npm

NOBODY = re.compile("@other/.*")


def package(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"resolved": f"{npm.REGISTRY}{name}/-/{name}-1.0.0.tgz", "integrity": "sha512-x", **more}


def lock(**packages: Any) -> str:
    return json.dumps({"lockfileVersion": 3, "packages": {"": {"name": "all"}, **packages}})


def folders(text: str, cpu: str = "x64") -> list[str]:
    return [each.folder for each in npm.locked(text, "lib", cpu, NOBODY)]


def test_what_this_machine_needs_of_a_lock() -> None:
    found = lock(**{
        "node_modules/a": package(),
        "node_modules/a/node_modules/@b/c": package(),
        "node_modules/tool": package(dev=True),
        "node_modules/mac": package(os=["darwin"], cpu=["x64"]),
        "node_modules/arm": package(os=["linux"], cpu=["arm64"]),
        "node_modules/intel": package(os=["linux"], cpu=["x64"], libc=["glibc"]),
        "node_modules/alpine": package(os=["linux"], cpu=["x64"], libc=["musl"]),
        "node_modules/@other/kit": package(),
        "node_modules/@other/kit/node_modules/below": package(),
    })  # fmt: skip
    both = ["lib/node_modules/a", "lib/node_modules/a/node_modules/@b/c"]
    assert folders(found) == [*both, "lib/node_modules/intel"]
    assert folders(found, "arm64") == [*both, "lib/node_modules/arm"]


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "null", "{", '{"lockfileVersion": 2, "packages": {}}',
     lock(**{"node_modules/../../etc": package()}), lock(**{"node_modules/a": {}}),
     lock(**{"node_modules/a": package(resolved="https://elsewhere.example/a.tgz")}),
     lock(**{"node_modules/a": package(resolved=f"git+{npm.REGISTRY}a")})],
)  # fmt: skip
def test_another_lock_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        folders(text)


def archive(*names: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w:gz") as made:
        for name in names:
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.linkname = kind, mode, "/etc/passwd"
            member.size = 4 if kind == tarfile.REGTYPE else 0
            made.addfile(member, io.BytesIO(b"text"))
    return into.getvalue()


def test_only_files_for_this_machine_are_written(tmp_path: Path) -> None:
    names = ("a.js", "a.js.map", "prebuilds/linux-x64/p.node", "prebuilds/linux-arm64/p.node",
             "prebuilds/win32-x64/p.node", "linux-notes")  # fmt: skip
    npm.unpack(archive(*(f"package/{name}" for name in names)), tmp_path, "x64")
    npm.unpack(archive("package/bin/node", mode=0o6777), tmp_path, "x64")
    npm.unpack(archive("package/link", kind=tarfile.SYMTYPE), tmp_path, "x64")
    found = sorted(
        str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if each.is_file()
    )
    assert found == ["a.js", "bin/node", "linux-notes", "prebuilds/linux-x64/p.node"]
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "bin/node").stat().st_mode & 0o7777 == 0o755


def test_nothing_is_written_elsewhere(tmp_path: Path) -> None:
    for name in ("package/../../x", "x", "package/a/../../../x"):
        with pytest.raises(ValueError, match="elsewhere"):
            npm.unpack(archive(name), tmp_path / "into", "x64")
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_ours_is_locked_by_hash() -> None:
    (_, text) = code_tree.declared().texts[1]
    for cpu in ("x64", "arm64"):
        code, node = npm.first(text.decode(), cpu)
        assert "/code-server-" in code.url
        assert f"node-linux-{cpu}-24." in node.url, "the release that code-server is made for"
        assert all(each.integrity.startswith("sha512-") for each in (code, node))


def test_of_several_hashes_the_strongest_counts() -> None:
    right = "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="
    assert web.is_whole(b"", right)
    assert web.is_whole(b"", f"sha1-AAAA {right}")
    assert not web.is_whole(b"x", f"sha1-AAAA {right}")
    assert not web.is_whole(b"", "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=")
    assert not web.is_whole(b"", "")
