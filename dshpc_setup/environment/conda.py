"""The environment of a job out of conda's packages, as an environment.yml asks for it: made on the host, by
py-rattler, which is fetched by uv as it is needed first.

No code of a package is run. What `pip:` names is installed beside conda's packages by uv, as wheels alone.
See docs/decisions/0079-conda.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dshpc_setup import resources
from dshpc_setup.builtin import cache
from dshpc_setup.documents import foreign
from dshpc_setup.engine.site import gather_site
from dshpc_setup.environment import conda_failures, conda_file, prefix, target
from dshpc_setup.environment import uv as uv_module
from dshpc_setup.environment.conda_file import Wanted
from dshpc_setup.environment.declared_folder import CONDA, OVERRIDE, Declared
from dshpc_setup.environment.uv import Uv
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.terminal.sanitize import counted

ACTIVATION = "etc/conda/activate.d"
_TOOL = resources.package() / "environment" / "rattler" / "requirements.txt"
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from dshpc_setup.environment import conda_worker; "
    "conda_worker.main(sys.argv[2])"
)
_SUBDIRS = {"amd64": "linux-64", "arm64": "linux-aarch64"}
_UNUSED_S = 30 * 86400.0
_LARGE = 5 << 20  # a package of which it is said that it is fetched
_OF_PIP = ("share", "etc", "man", "include")  # what wheels lay down beside their modules


def make(
    machine: Machine, declared: Declared, into: Path, final: str, say: Callable[[str], None]
) -> None:
    """As prefix.make, of an environment.yml; DshpcError where it cannot be had."""
    texts = dict(declared.texts)
    here = conda_file.site(machine.env, lambda path: machine.read(path).text)
    name = next(each for each in CONDA if each in texts)
    wanted = conda_file.read(texts[name], f"{declared.folder}/{name}", here)
    uv = uv_module.find(machine, declared.architecture, gather_site(machine))
    tool = _tool(machine, uv, say)
    say(f"environment: making it from {declared.folder}")
    tree = into / "tree"
    env = dict(uv.env)
    if here.certificates:
        env["SSL_CERT_FILE"] = here.certificates
    if OVERRIDE in texts:
        env[OVERRIDE] = texts[OVERRIDE].decode()
    asked = {
        "channels": wanted.channels,
        "packages": wanted.packages,
        "subdir": _SUBDIRS[declared.architecture],
        "virtual": _virtual(declared.architecture, machine),
        "tree": str(tree),
        "final": final,
        "cache": str(cache.folder(machine.env) / "conda"),
    }
    python = _laid_out(machine, tool, asked, env, say)
    if wanted.pip:
        _add_wheels(machine, uv_module.of_jobs(machine, uv), wanted, python, into, final, say)
    prefix.name_kernels(tree, f"{final}/bin/python")
    if wanted.variables:
        _set_variables(tree, wanted)


def _tool(machine: Machine, uv: Uv, say: Callable[[str], None]) -> Path:
    """The folder with py-rattler, for the Python that runs us: out of sight of jobs, which could change what
    runs on this machine."""
    kept = cache.folder(machine.env) / "rattler"
    cache.make_folder(kept)
    version = f"{sys.implementation.cache_tag}-{os.uname().machine}\n".encode()
    final = kept / hashlib.sha256(version + _TOOL.read_bytes()).hexdigest()[:20]
    with contextlib.suppress(FileNotFoundError):
        os.utime(final)
        return final
    before = time.time() - _UNUSED_S
    for other in kept.iterdir():  # of versions before, and what a killed run has left
        with contextlib.suppress(OSError):
            if other.stat().st_mtime < before:
                shutil.rmtree(other)
    say("environment: fetching py-rattler, which installs conda's packages, once: 25 MB")
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=kept))
    try:
        uv_module.install_own(machine, uv, _TOOL, new / "tree")
        with contextlib.suppress(OSError):  # another run may have been quicker
            os.rename(new / "tree", final)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return final


def _virtual(architecture: str, machine: Machine) -> list[tuple[str, str, str]]:
    """What packages may ask of the system: the image's, on the oldest processor of its kind, as a job may
    run on any node."""
    return [
        ("__unix", "0", "0"),
        ("__linux", _kernel(machine), "0"),
        ("__glibc", target.GLIBC, "0"),
        ("__archspec", "1", target.MACHINES[architecture]),
    ]


def _kernel(machine: Machine) -> str:
    system, release = machine.system[:2]
    found = re.match(r"\d+(\.\d+){1,2}", release)
    return found[0] if system == "Linux" and found else "5.10"


def _laid_out(
    machine: Machine,
    tool: Path,
    asked: Mapping[str, Any],
    env: Mapping[str, str],
    say: Callable[[str], None],
) -> str | None:
    """The version of the environment's Python, None without one."""
    top = str(resources.package().parent)
    done = machine.run(
        [sys.executable, "-I", "-c", _PROGRAM, top, str(tool)],
        deadline_s=uv_module.DEADLINE_S,
        stdin=json.dumps(asked),
        env=env,
        cwd=os.path.dirname(asked["tree"]),
        on_line=_shown(say),
    )
    found = _answer(done)
    if not done.ok or "python" not in found:
        raise conda_failures.error(done, found, asked["channels"])
    python = found["python"]
    return python if isinstance(python, str) else None


def _answer(done: CommandResult) -> Mapping[str, Any]:
    """The object in the last line that is one."""
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                found = foreign.value(line)
                return found if isinstance(found, dict) else {}
    return {}


def _shown(say: Callable[[str], None]) -> Callable[[str], None]:
    def show(line: str) -> None:
        found = re.fullmatch(r"(=|\+) (\S+) (\d+)", line)
        if found is None or (found[1] == "+" and int(found[3]) < _LARGE):
            return
        size = f"{-(-int(found[3]) // (1 << 20))} MiB"
        if found[1] == "=":
            say(f"environment: {counted(int(found[2]), 'package')} of conda, {size} packed")
        else:
            say(f"packages: downloading {found[2]} ({size})")

    return show


def _add_wheels(
    machine: Machine,
    uv: Uv,
    wanted: Wanted,
    python: str | None,
    into: Path,
    final: str,
    say: Callable[[str], None],
) -> None:
    """What `pip:` names, where it is not there yet as a package of conda's."""
    tree = into / "tree"
    if python is None:
        raise conda_failures.without_python()
    there = sorted(path for path in tree.glob("lib/python3*/site-packages") if path.is_dir())
    name = f"python{'.'.join(python.split('.')[:2])}"
    site = there[0] if there else tree / "lib" / name / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    file = into / "requirements.txt"
    file.write_text("".join(f"{each}\n" for each in wanted.pip), encoding="utf-8")
    own = {path.name for path in site.iterdir()}
    uv_module.install_beside(machine, uv, file, site, python, say)
    (site / ".lock").unlink(missing_ok=True)
    started = f"{final}/bin/{site.parent.name}"
    if "bin" not in own and (site / "bin").is_dir():
        prefix.start_scripts(site / "bin", uv.python, started)
        shutil.copytree(site / "bin", tree / "bin", symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(site / "bin")
    for name in _OF_PIP:
        if name not in own and (site / name).is_dir():
            shutil.copytree(site / name, tree / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(site / name)


def _set_variables(tree: Path, wanted: Wanted) -> None:
    """By the first of the scripts that a job runs before its program."""
    folder = tree / ACTIVATION
    folder.mkdir(parents=True, exist_ok=True)
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in wanted.variables)
    (folder / "00-environment.sh").write_text("".join(lines), encoding="utf-8")
