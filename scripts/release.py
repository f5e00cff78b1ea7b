"""All of a release but publishing it: `scripts/release-check [TAG] [--out DIR] [--quick]`.

Looks whether the version, CHANGELOG.md, the tag and the locks agree and what is generated is fresh; builds
wheel and sdist twice, with the same bytes, then the site, a bill of materials and Debian packages; installs
what was built where nothing else is. Prints a line for each step. All steps are made, also behind one that
failed. Exit code: 0, or 1 where a step failed.

    TAG      the tag that is to be made, v0.1.0; without one, that of the version
    --out    where what is to be published lies afterwards (default: dist/)
    --quick  without the Debian package, and without resolving the locks anew
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import hatchling.build
from packaging.version import InvalidVersion, Version

import dshpc_setup
from dshpc_setup.environment import pip_settings
from scripts import browser_files, debian_package, man_pages, rooms
from scripts.environment import pip_options, uv_environment

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
DEADLINE_S = 1800.0
LOCKS = {
    "requirements.lock": ("--group=build", "--extra=dashboard"),
    "requirements-dev.lock": (
        *("--group=build", "--group=dev", "--extra=dashboard", "--extra=docs"),
        "--constraints=requirements.lock",
    ),
}
_DATED = re.compile(r"(?m)^## (\S+) \((\d{4}-\d\d-\d\d|unreleased)\)$")


class NotReadyError(Exception):
    """What is wrong, and what to do."""


@dataclass(frozen=True)
class Release:
    """What is to be released, and where it is put."""

    version: str
    tag: str
    out: Path

    @property
    def wheel(self) -> Path:
        return self.out / f"dshpc_setup-{self.version}-py3-none-any.whl"

    @property
    def sdist(self) -> Path:
        return self.out / f"dshpc_setup-{self.version}.tar.gz"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="release-check", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("tag", nargs="?", metavar="TAG", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    version = dshpc_setup.__version__
    release = Release(version, given.tag or f"v{version}", given.out.resolve())
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(debian_package.source_date()))
    os.chdir(ROOT)
    failed = [name for name, step in steps(quick=given.quick) if not _made(name, step, release)]
    if failed:
        print(f"Not ready: {', '.join(failed)}.")
        return 1
    print(f"Ready: {release.out} holds what is to be published as {release.tag}.")
    return 0


def steps(*, quick: bool) -> list[tuple[str, Callable[[Release], str]]]:
    """Name and step; a step says what it has seen, or raises NotReadyError."""
    slow: list[tuple[str, Callable[[Release], str]]] = [
        ("locks", fresh_locks),
        ("deb", debian),
    ]
    return [
        ("version", versions_agree),
        ("checkout", nothing_uncommitted),
        ("generated", generated_is_fresh),
        ("browser", scripts_of_the_dashboard),
        ("packages", wheel_and_sdist),
        ("sbom", bill_of_materials),
        ("site", documents),
        ("install", installed),
        *([] if quick else slow),
        ("sums", checksums),
    ]


def versions_agree(release: Release) -> str:
    """The version is one, CHANGELOG.md begins with it and a date, and the tag is its."""
    said = said_of_versions(release.version, release.tag, (ROOT / "CHANGELOG.md").read_text())
    if said:
        raise NotReadyError("; ".join(said))
    return f"{release.version}, tag {release.tag}"


def said_of_versions(version: str, tag: str, changelog: str) -> list[str]:
    """What does not agree, and what to do."""
    said = []
    try:
        if str(Version(version)) != version:
            said.append(f"__version__ {version} is written {Version(version)} by PEP 440")
    except InvalidVersion:
        said.append(f"__version__ {version} is no version of PEP 440")
    if tag != f"v{version}":
        said.append(f"the tag is {tag}, and the version's is v{version}")
    first = _DATED.search(changelog)
    if first is None or first[1] != version:
        said.append(f"CHANGELOG.md does not begin with a chapter '## {version} (DATE)'")
    elif first[2] == "unreleased":
        said.append(f"CHANGELOG.md has no date for {version}: write it in place of 'unreleased'")
    return said


def nothing_uncommitted(release: Release) -> str:
    changed = _run("git", "status", "--porcelain").splitlines()
    if changed:
        raise NotReadyError(f"{len(changed)} files are not committed: git status")
    there = _run("git", "tag", "--list", release.tag).strip()
    if there and _run("git", "rev-parse", f"{there}^{{commit}}") != _run(
        "git", "rev-parse", "HEAD"
    ):
        raise NotReadyError(f"the tag {there} is there already, of another commit")
    return "all is committed"


def generated_is_fresh(_: Release) -> str:
    """Man pages and the table of the rooms."""
    page = rooms.PAGE.read_text()
    stale = {"man_pages": bool(man_pages.stale()), "rooms": rooms.written(page) != page}
    wrong = [f"python scripts/{name}.py --write" for name, is_stale in stale.items() if is_stale]
    if wrong:
        raise NotReadyError(f"not as the sources are; write them anew: {', '.join(wrong)}")
    return "man pages, table of the rooms"


def fresh_locks(_: Release) -> str:
    """Resolving again with what is locked gives the same files: pyproject.toml was locked.

    As CONTRIBUTING.md does it, without pip's settings: a site's index may have other files.
    """
    for name, options in LOCKS.items():
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / name
            shutil.copy(ROOT / name, made)  # uv keeps the versions that it finds there
            _run(
                str(BIN / "uv"), "pip", "compile", "--quiet", "--universal", "--generate-hashes",
                "--no-header", "--no-emit-index-url", "--python-version=3.10", *options,
                "pyproject.toml", f"--output-file={made}", env=uv_environment(os.environ),
            )  # fmt: skip
            if made.read_text() != (ROOT / name).read_text():
                raise NotReadyError(
                    f"{name} is not what pyproject.toml comes down to: CONTRIBUTING.md"
                )
    return ", ".join(LOCKS)


def scripts_of_the_dashboard(_: Release) -> str:
    if browser_files.main() != 0:
        raise NotReadyError("the scripts of the dashboard's pages could not be fetched")
    return "fetched"


def wheel_and_sdist(release: Release) -> str:
    """Both, twice, with the same bytes; and a wheel of the sdist is the wheel."""
    release.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for out in (release.out, Path(folder)):
            hatchling.build.build_sdist(str(out))
            hatchling.build.build_wheel(str(out))
        for path in (release.wheel, release.sdist):
            if path.read_bytes() != (Path(folder) / path.name).read_bytes():
                raise NotReadyError(f"{path.name} has other bytes when it is built again")
    return f"{release.wheel.name}, {release.sdist.name}, each twice with the same bytes"


def bill_of_materials(release: Release) -> str:
    """CycloneDX, from the lock."""
    path = release.out / f"dshpc_setup-{release.version}.cdx.json"
    _run(
        str(BIN / "cyclonedx-py"), "requirements", "--output-reproducible", "--spec-version=1.6",
        "--pyproject=pyproject.toml", f"--output-file={path}", "requirements.lock",
    )  # fmt: skip
    return f"{path.name}, {len(json.loads(path.read_text())['components'])} packages"


def documents(_: Release) -> str:
    with tempfile.TemporaryDirectory() as folder:
        _run(str(BIN / "mkdocs"), "build", "--quiet", "--strict", f"--site-dir={folder}")
        pages = len(list(Path(folder).rglob("*.html")))
    return f"{pages} pages, no warning"


def installed(release: Release) -> str:
    """In environments of their own: as pip does it, and as uvx does from wheel and sdist."""
    with tempfile.TemporaryDirectory() as folder:
        env = _uv_environment() | {"UV_TOOL_DIR": f"{folder}/tools"}
        uv = str(BIN / "uv")
        _run(uv, "venv", "--quiet", f"{folder}/venv", env=env)
        python = f"{folder}/venv/bin/python"
        _run(uv, "pip", "install", "--quiet", "--python", python, str(release.wheel), env=env)
        tried = [[f"{folder}/venv/bin/dshpc"]]
        tried += [
            [uv, "tool", "run", "--quiet", "--isolated", "--from", str(path), "dshpc"]
            for path in (release.wheel, release.sdist)
        ]
        for argv in tried:
            said = _run(*argv, "--version", env=env, cwd=folder).split()
            if release.version not in said:
                raise NotReadyError(f"{' '.join(argv)} --version says {' '.join(said)}")
            _run(
                *argv,
                "doctor",
                "--machine",
                str(ROOT / "tests/machines/h100x8"),
                env=env,
                codes=(0, 1),
            )
    return "by pip, and by uvx from wheel and sdist"


def debian(release: Release) -> str:
    if shutil.which("dpkg-deb") is None:
        raise NotReadyError("dpkg-deb is missing: build the release on Debian or Ubuntu")
    sizes = []
    for architecture in debian_package.PLATFORMS:
        path = debian_package.build(release.wheel, release.out, architecture)
        _run("dpkg-deb", "--info", str(path))
        sizes.append(f"{path.name} ({path.stat().st_size // 1_000_000} MB)")
    return ", ".join(sizes)


def checksums(release: Release) -> str:
    """SHA256SUMS of what is to be published, as `sha256sum --check` reads it."""
    path = release.out / "SHA256SUMS"
    names = sorted(each.name for each in release.out.iterdir() if each != path)
    foreign = [name for name in names if release.version not in name.replace("~", "")]
    if foreign:
        raise NotReadyError(f"{release.out} has more than this release: {', '.join(foreign)}")
    lines = [
        f"{hashlib.sha256((release.out / name).read_bytes()).hexdigest()}  {name}\n"
        for name in names
    ]
    path.write_text("".join(lines))
    return f"{len(names)} files"


def _made(name: str, step: Callable[[Release], str], release: Release) -> bool:
    try:
        with _quiet():
            said = step(release)
    except (NotReadyError, SystemExit, OSError, subprocess.SubprocessError) as error:
        print(f"!! {name:10} {error}", flush=True)
        return False
    print(f"ok {name:10} {said}", flush=True)
    return True


@contextmanager
def _quiet() -> Iterator[None]:
    """What a step prints by itself is no line of ours."""
    with open(os.devnull, "w") as nowhere:
        before, sys.stdout = sys.stdout, nowhere
        try:
            yield
        finally:
            sys.stdout = before


def _uv_environment() -> dict[str, str]:
    return uv_environment(os.environ) | pip_settings.for_uv(pip_options(), os.environ)


def _run(
    *argv: str,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    codes: Sequence[int] = (0,),
) -> str:
    done = subprocess.run(
        argv, env=env, cwd=cwd, capture_output=True, text=True, timeout=DEADLINE_S,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode not in codes:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise NotReadyError(
            f"{Path(argv[0]).name} {argv[1]}: exit code {done.returncode}: {' '.join(last)}"
        )
    return done.stdout


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
