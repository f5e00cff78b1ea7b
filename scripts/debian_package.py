"""A Debian package of a wheel: `python scripts/debian_package.py WHEEL [--out DIR] [--architecture arm64]`.

It has the locked packages with it, and of the distribution it takes Python alone: what Debian 12 has of
typer and rich is older than what is needed, and uv it has not. One package is good for every Python of
PYTHONS, because compiled modules carry the version in their name. No root, nothing compiled, and the same
wheel gives the same bytes (SOURCE_DATE_EPOCH; else the date of the last commit). Why so:
docs/decisions/0064-packages.md.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from email.utils import format_datetime
from importlib import metadata
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from dshpc_setup.cli import completing
from dshpc_setup.environment import pip_settings
from scripts.environment import pip_options, uv_environment

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = (11, 12, 13, 14)
"""Minor versions of Python 3: Debian 12, Ubuntu 24.04, Debian 13, Ubuntu 26.04."""

PLATFORMS = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
HOME = "usr/lib/dshpc"
PACKAGES = f"{HOME}/lib/python3/site-packages"
COMMANDS = {"dshpc": "main", "configure-environment": "configure_environment_main"}
DEADLINE_S = 1800.0

_LEFT_OUT = ("pysequoia",)  # gpgv does its work, and Debian has that
_OF_INSTALLERS = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
_DESCRIPTION = """Slurm in a container, configured from the GPUs that are there
 configure-environment takes a machine from nothing to a job on a GPU: it
 detects the hardware, proves how a container gets the GPUs, writes Slurm's
 configuration, builds an image and starts Slurm in one unprivileged
 container, by Docker, by Podman or by an engine of its own.
 .
 dshpc submits jobs, shows GPUs and the queue, and finds what is wrong."""
_PROGRAM = """#!/usr/lib/dshpc/bin/python -I
import sys

from dshpc_setup.cli import {function}

sys.exit({function}())
"""
# What dh_python3 writes for private modules: py3compile makes bytecode, py3clean takes it away.
_SCRIPTS = {
    "postinst": 'if [ "$1" = configure ]; then\n    py3compile -p dshpc /usr/lib/dshpc\nfi\n',
    "prerm": "py3clean -p dshpc\n",
}
_OVERRIDES = """# Of the distribution it takes Python alone: docs/decisions/0064-packages.md
dshpc: embedded-library
dshpc: unstripped-binary-or-object
dshpc: statically-linked-binary
dshpc: extra-license-file
dshpc: package-contains-documentation-outside-usr-share-doc
dshpc: unusual-interpreter
dshpc: script-not-executable
dshpc: uses-dpkg-database-directly
dshpc: initial-upload-closes-no-bugs
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--architecture", choices=PLATFORMS, default=None)
    given = parser.parse_args(arguments)
    if not given.wheel.is_file() or given.wheel.suffix != ".whl":
        parser.error(f"{given.wheel} is no wheel; make one: uv build --wheel")
    try:
        print(build(given.wheel.resolve(), given.out, given.architecture or own_architecture()))
    except (OSError, subprocess.SubprocessError, InvalidWheelFilename) as error:
        raise SystemExit(f"The package could not be built: {error}") from None
    except KeyboardInterrupt:
        return 130
    return 0


def build(wheel: Path, out: Path, architecture: str) -> Path:
    """Write the package into `out`."""
    version = debian_version(parse_wheel_filename(wheel.name)[1])
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"dshpc_{version}_{architecture}.deb"
    with tempfile.TemporaryDirectory(prefix="dshpc-deb-") as fetched:
        fetch(wheel, architecture, Path(fetched))
        assemble(Path(fetched), path)
    return path


def fetch(wheel: Path, architecture: str, into: Path) -> None:
    """The wheel and what it needs, installed for each Python into a folder of its own."""
    for minor in PYTHONS:
        _install(wheel, PLATFORMS[architecture], minor, into / str(minor))


def assemble(fetched: Path, path: Path, *, level: int = 6) -> None:
    """The package `path`, whose name says version and architecture, of what was fetched. `level`: of xz."""
    _, version, architecture = path.stem.split("_")
    with tempfile.TemporaryDirectory(prefix="dshpc-deb-") as made:
        tree = Path(made)
        packages = tree / PACKAGES
        for minor in PYTHONS:
            merge(fetched / str(minor), packages)
        _lay_out(tree, packages)
        _describe(tree, packages, version)
        _control(tree, version, architecture)
        epoch = source_date()
        _settle(tree, epoch)
        _pack(tree, path, epoch, level)


def debian_version(version: Version) -> str:
    """0.2.0rc1 is 0.2.0~rc1: before 0.2.0, as dpkg sorts."""
    text = version.base_version
    if version.pre:
        text += "~" + "".join(map(str, version.pre))
    if version.post is not None:
        text += f".post{version.post}"
    if version.dev is not None:
        text += f"~dev{version.dev}"
    return text


def source_date() -> int:
    """The date of all files: SOURCE_DATE_EPOCH, else that of the last commit."""
    argv = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    named = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        return int(
            named or subprocess.run(argv, capture_output=True, timeout=60, check=True).stdout
        )
    except (ValueError, OSError, subprocess.SubprocessError):
        raise SystemExit(
            f"No date for what is built: {named or 'this is no checkout of git'}.\n"
            "Set SOURCE_DATE_EPOCH to seconds since 1970."
        ) from None


def merge(source: Path, into: Path) -> None:
    """Add what was installed for another Python; what both have must be the same.

    Of the lists that installers write (dist-info) the first one counts: each names its own compiled files.
    """
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_dir() or relative.parts[0] == "bin":
            continue
        target = into / relative
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        elif not relative.parts[0].endswith(".dist-info") and differ(target, path):
            raise SystemExit(f"{relative} is not the same for each Python 3 of {PYTHONS}")
    uv = source / "bin" / "uv"
    program = into.parents[2] / "bin" / "uv"
    if uv.exists() and not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(uv, program)


def differ(one: Path, other: Path) -> bool:
    return one.read_bytes() != other.read_bytes()


def bundled(packages: Path) -> Mapping[str, tuple[str, str]]:
    """Name -> version and licence, of what the package has with it."""
    found = {}
    for each in metadata.distributions(path=[str(packages)]):
        about = each.metadata
        classified = [
            text.rpartition(" :: ")[2]
            for text in about.get_all("Classifier", [])
            if text.startswith("License :: ") and text.count(" :: ") > 1
        ]
        said = (about["License-Expression"], ", ".join(classified), about["License"])
        first = next((text for text in said if text), "see its folder")
        found[about["Name"]] = (each.version, first.splitlines()[0])
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def own_architecture() -> str:
    argv = ["dpkg", "--print-architecture"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def _install(wheel: Path, platform: str, minor: int, into: Path) -> None:
    """The wheel and all that it needs, by the lock, as uv installs it for that Python."""
    told = pip_options()
    argv = [
        *(str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--no-config"),
        *(f"--target={into}", f"--python-platform={platform}", f"--python-version=3.{minor}"),
        *("--only-binary=:all:", "--verify-hashes", "--link-mode=hardlink"),
        *(f"--constraints={ROOT / 'requirements.lock'}", f"{wheel}[dashboard]"),
        *(("--no-index",) if pip_settings.is_on(told.get("no-index")) else ()),
    ]
    env = uv_environment(os.environ) | pip_settings.for_uv(told, os.environ)
    subprocess.run(argv, env=env, check=True, timeout=DEADLINE_S)


def _lay_out(tree: Path, packages: Path) -> None:
    """An environment as Python's venv makes them, of the distribution's Python, whichever that is."""
    for name in _LEFT_OUT:
        for path in packages.glob(f"{name}*"):
            shutil.rmtree(path)
    for info in packages.glob("*.dist-info"):
        for name in _OF_INSTALLERS:
            (info / name).unlink(missing_ok=True)
        _keep_record_true(info / "RECORD")
    pages = tree / "usr/share/man/man1"
    pages.mkdir(parents=True)
    for page in sorted((packages / "share/man/man1").glob("*.1")):
        (pages / f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
    (pages / "configure-environment.1.gz").symlink_to("dshpc-configure.1.gz")
    shutil.rmtree(packages / "share")
    home = tree / HOME
    (home / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (home / "bin/python").symlink_to("../../../bin/python3")
    for minor in PYTHONS:
        (home / f"lib/python3.{minor}").symlink_to("python3")
    (tree / "usr/bin").mkdir()
    for name, function in COMMANDS.items():
        (home / "bin" / name).write_text(_PROGRAM.format(function=function))
        (tree / "usr/bin" / name).symlink_to(f"../lib/dshpc/bin/{name}")
    scripts = completing.scripts("part of the package dshpc")
    for shell, place in {
        "bash": "bash-completion/completions/dshpc",
        "zsh": "zsh/vendor-completions/_dshpc",
        "fish": "fish/vendor_completions.d/dshpc.fish",
    }.items():
        path = tree / "usr/share" / place
        path.parent.mkdir(parents=True)
        path.write_text(scripts[shell])


def _keep_record_true(record: Path) -> None:
    """Without files that were left out: the image's packages are made from this list."""
    top = record.parent.parent
    kept = [
        line
        for line in record.read_text().splitlines()
        if (top / line.rsplit(",", 2)[0].strip('"')).is_file()
    ]
    record.write_text("".join(f"{line}\n" for line in kept))


def _describe(tree: Path, packages: Path, version: str) -> None:
    """Copyright, changes and what lintian shall pass over."""
    documents = tree / "usr/share/doc/dshpc"
    documents.mkdir(parents=True)
    date = datetime.fromtimestamp(source_date(), timezone.utc)
    listed = "".join(
        f"  {name} {number}: {licence}\n" for name, (number, licence) in bundled(packages).items()
    )
    (documents / "copyright").write_text(
        f"Copyright {date.year} the authors of dsHPC setup, licensed under the Apache License 2.0:\n"
        "  /usr/share/common-licenses/Apache-2.0\n\n"
        "This package has with it, each with its licence in its folder below\n"
        f"/{PACKAGES}:\n\n{listed}"
    )
    changes = (
        f"dshpc ({version}) unstable; urgency=medium\n\n  * CHANGELOG.md.gz says what has changed.\n\n"
        f" -- {_maintainer()}  {format_datetime(date)}\n"
    )
    for name, text in {
        "changelog.gz": changes,
        "CHANGELOG.md.gz": (ROOT / "CHANGELOG.md").read_text("utf-8"),
    }.items():
        (documents / name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    overrides = tree / "usr/share/lintian/overrides/dshpc"
    overrides.parent.mkdir(parents=True)
    overrides.write_text(_OVERRIDES)


def _maintainer() -> str:
    """As Debian's own tools know it."""
    name = os.environ.get("DEBFULLNAME", "dsHPC setup developers")
    return f"{name} <{os.environ.get('DEBEMAIL', 'dshpc-setup@example.invalid')}>"


def _control(tree: Path, version: str, architecture: str) -> None:
    folder = tree / "DEBIAN"
    folder.mkdir()
    kib = sum(-(-path.lstat().st_size // 1024) for path in tree.rglob("*") if not path.is_dir())
    fields = {
        "Package": "dshpc",
        "Version": version,
        "Architecture": architecture,
        "Maintainer": _maintainer(),
        "Installed-Size": str(kib),
        "Depends": f"python3 (>= 3.{PYTHONS[0]}), python3 (<< 3.{PYTHONS[-1] + 1}), "
        "libc6 (>= 2.28), libgcc-s1, gpgv, ca-certificates",
        "Recommends": "docker.io | docker-ce | podman, uidmap",
        "Suggests": "bash-completion, debootstrap",
        "Section": "admin",
        "Priority": "optional",
        "Description": _DESCRIPTION,
    }
    text = "".join(f"{key}: {value}\n" for key, value in fields.items())
    (folder / "control").write_text(text)
    for script, body in _SCRIPTS.items():
        (folder / script).write_text(f"#!/bin/sh\nset -e\n{body}")
        (folder / script).chmod(0o755)


def _settle(tree: Path, epoch: int) -> None:
    """Modes and dates that no umask and no clock has a part in."""
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            runs = path.is_dir() or _is_program(path, tree)
            path.chmod(0o755 if runs else 0o644)
    for path in sorted([tree, *tree.rglob("*")], reverse=True):
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def _is_program(path: Path, tree: Path) -> bool:
    relative = path.relative_to(tree).as_posix()
    if re.match(rf"DEBIAN/(?:{'|'.join(_SCRIPTS)})$|{HOME}/bin/", relative):
        return True
    ours = relative.startswith(f"{PACKAGES}/dshpc_setup/_share/")
    return ours and bool(path.stat().st_mode & 0o100)  # what runs in the container


def _pack(tree: Path, path: Path, epoch: int, level: int) -> None:
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "DPKG_DEB_THREADS_MAX": "1"}
    half = path.with_name(f".{path.name}.part")  # nothing that was cut off has a package's name
    argv = ["dpkg-deb", "--root-owner-group", "-Zxz", f"-z{level}", "--build", str(tree), str(half)]
    try:
        subprocess.run(
            argv, env=env, check=True, timeout=DEADLINE_S, stdout=subprocess.DEVNULL, umask=0o022
        )
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
