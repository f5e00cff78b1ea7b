"""code-server's folder: fetched from npm's registry, each package checked by its hash, nothing compiled.

The list of ours has the hashes of code-server and of Node; the locks inside code-server those of the others.
See docs/decisions/0068-code-server.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dshpc_setup import resources
from dshpc_setup.builtin import cache
from dshpc_setup.debian import sources
from dshpc_setup.debian.faults import DebianError
from dshpc_setup.environment.declared_folder import Declared
from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.machine import Machine, web
from dshpc_setup.notebooks import code_server, npm

_LIST, _LOG = "npm.json", "spdlog.js"
_FOLDER = resources.package() / "notebooks" / "code"
_LOCKS = ("", "lib/vscode", code_server.EXTENSIONS)
# Assistants that ask a service on the internet, 170 MB of programs; nothing else needs them
_WITHOUT = re.compile(r"@github/copilot-.*|@microsoft/mxc-sdk")
_LEFT_OUT = f"{code_server.EXTENSIONS}/copilot"
_LOG_MODULE = "lib/vscode/node_modules/@vscode/spdlog"
_COMMANDS = "lib/vscode/bin/remote-cli"
_CPUS = {"amd64": "x64", "arm64": "arm64"}
_MOST_BYTES = 128 << 20  # of a package as it is fetched
_DEADLINE_S = 3600.0
_UNUSED_S = 30 * 86400.0
_FORM = "2"  # of what is made of the list: another one is made anew


def declared() -> Declared:
    """As an environment: known by the list of its packages, and by what is made of them."""
    made = json.dumps([_FORM, code_server.login('class="login-form"</body>')]).encode()
    files = ((name, (_FOLDER / name).read_bytes()) for name in (_LIST, _LOG))
    return Declared(str(_FOLDER), "npm", (("form", made), *files))


def make(
    machine: Machine, wanted: Declared, into: Path, _final: str, say: Callable[[str], None]
) -> None:
    """Lay it out as `into`/tree. DshpcError where it cannot be fetched, OSError where not written."""
    cpu = _CPUS[wanted.architecture]
    tree, kept = into / "tree", Path(cache.place(machine.env)) / "npm"
    kept.mkdir(parents=True, exist_ok=True)
    say("code-server: making it; the first time, some 160 MB are fetched from npm's registry")
    texts = dict(wanted.texts)
    _lay_out(machine, npm.first(texts[_LIST].decode(), cpu), kept, tree, cpu)
    found: list[npm.Archive] = []
    for below in _LOCKS:
        lock = (tree / below / npm.LOCK).read_text(encoding="utf-8")
        try:
            found += npm.locked(lock, below, cpu, _WITHOUT)
        except ValueError as error:
            raise _unusable(f"{below}/{npm.LOCK}: {error}") from None
    _lay_out(machine, found, kept, tree, cpu)
    _finish(tree)
    (tree / _LOG_MODULE / "index.js").write_bytes(texts[_LOG])
    _clean(kept)


def _lay_out(
    machine: Machine, wanted: Sequence[npm.Archive], kept: Path, tree: Path, cpu: str
) -> None:
    # One package may lie in several folders; two fetches of it would write the same file
    missing = {_place(kept, each): each for each in wanted if _read(kept, each) is None}
    files = [
        web.File(_address(machine, each.url), str(path), most=_MOST_BYTES)
        for path, each in missing.items()
    ]
    try:
        sources.fetched(machine, files, sources.route(machine), _DEADLINE_S)
    except DebianError as error:
        raise _not_fetched(error) from None
    for each in wanted:
        data = _read(kept, each)
        if data is None:
            raise _unusable(f"{each.url} has another content than the lock says.")
        try:
            npm.unpack(data, tree / each.folder, cpu)
        except ValueError as error:
            raise _unusable(f"{each.url}: {error}") from None


def _read(kept: Path, each: npm.Archive) -> bytes | None:
    """The archive where it is there and is the right one; the time of its file is that of its last use."""
    path = _place(kept, each)
    try:
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    return data if web.is_whole(data, each.integrity) else None


def _place(kept: Path, each: npm.Archive) -> Path:
    return kept / f"{hashlib.sha256(each.integrity.encode()).hexdigest()[:32]}.tgz"


def _address(machine: Machine, url: str) -> str:
    """A site's own registry, as npm is told of it; what it gives is checked by the same hash."""
    named = machine.env.get("NPM_CONFIG_REGISTRY") or machine.env.get("npm_config_registry")
    return url.replace(npm.REGISTRY, f"{named.rstrip('/')}/") if named else url


def _finish(tree: Path) -> None:
    import shutil

    shutil.rmtree(tree / _LEFT_OUT, ignore_errors=True)
    shutil.rmtree(tree / "lib" / "include", ignore_errors=True)
    # Where its programs look for Node
    (tree / "lib" / "node").symlink_to("bin/node")
    # Its terminals know it as code-server alone
    (tree / _COMMANDS / "code").symlink_to("code-linux.sh")
    (tree / code_server.CONFIG).write_text("auth: password\n", encoding="utf-8")
    # It may lie in the folder that is searched
    (tree / ".ignore").write_text("*\n", encoding="utf-8")
    page = tree / "src" / "browser" / "pages" / "login.html"
    try:
        page.write_text(code_server.login(page.read_text(encoding="utf-8")), encoding="utf-8")
    except ValueError as error:
        raise _unusable(f"{page.name}: {error}") from None


def _clean(kept: Path) -> None:
    """Archives that nothing was made of for a month."""
    before = time.time() - _UNUSED_S
    for path in kept.glob("*.tgz"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()


def _not_fetched(error: DebianError) -> DshpcError:
    if error.fault in ("no-room", "write"):
        return DshpcError(
            "The packages of code-server could not be kept.", error.what,
            (Fix("See what is full", "df -h", step="look"),),
        )  # fmt: skip
    return DshpcError(
        "The packages of code-server could not be fetched from npm's registry.",
        error.what or error.fault,
        (
            "Check the network and the proxy settings (http_proxy, https_proxy).",
            "Where this site has a registry of its own: NPM_CONFIG_REGISTRY=ADDRESS dshpc code",
        ),
        Exit.INCOMPLETE,
    )


def _unusable(why: str) -> DshpcError:
    return DshpcError(
        "A package of code-server is not what it must be.", why,
        ("Run this again. If it stays so, the registry gives other files than it did.",),
    )  # fmt: skip
