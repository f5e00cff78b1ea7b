"""The wheel, the sdist and the lock files hold what an installation without the checkout needs."""

from __future__ import annotations

import re
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import hatchling.build
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dshpc_setup

ROOT = Path(__file__).parents[2]
SHARED = (
    "templates",
    "container",
    "methods",
    "docker-compose.yml.j2",
    "docs/findings",
    "docs/schemas",
    "configure-environment",
    "dshpc",
    "pyproject.toml",
    "requirements.lock",
    "README.md",
    "LICENSE",
    "scripts/launch.sh",
    "scripts/others.sh",
    "scripts/packages.sh",
    "scripts/environment.py",
    "scripts/share_in_wheel.py",
    *(name for name in ("browser",) if (ROOT / name).is_dir()),  # fetched before a release
)
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?P<marker>[^\\]*)\\$")


@pytest.fixture(scope="module")
def in_checkout() -> Iterator[None]:
    """hatchling works on the current folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield


@pytest.fixture(scope="module")
def wheel(in_checkout: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return folder / hatchling.build.build_wheel(str(folder))


def test_built_again_they_have_the_same_bytes(
    wheel: Path, sdist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hatchling dates what is in them by SOURCE_DATE_EPOCH, else by a constant."""
    again = tmp_path / hatchling.build.build_wheel(str(tmp_path))
    assert again.read_bytes() == wheel.read_bytes()
    again = tmp_path / hatchling.build.build_sdist(str(tmp_path))
    assert again.read_bytes() == sdist.read_bytes()


@pytest.fixture(scope="module")
def sdist(in_checkout: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    return folder / hatchling.build.build_sdist(str(folder))


def shared_files() -> set[str]:
    """The shared files of the checkout, less what Python leaves behind."""
    found = set()
    for name in SHARED:
        top = ROOT / name
        for path in [top] if top.is_file() else top.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.add(path.relative_to(ROOT).as_posix())
    return found


def test_wheel_carries_every_shared_file_byte_for_byte(wheel: Path) -> None:
    prefix = "dshpc_setup/_share/"
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith(prefix)}
        assert {name.removeprefix(prefix) for name in packed} == shared_files()
        for name in packed:
            assert archive.read(name) == (ROOT / name.removeprefix(prefix)).read_bytes(), name


def test_wheel_keeps_the_mode_of_programs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in shared_files():
            mode = archive.getinfo(f"dshpc_setup/_share/{name}").external_attr >> 16
            assert bool(mode & stat.S_IXUSR) == bool((ROOT / name).stat().st_mode & stat.S_IXUSR)


def test_wheel_carries_the_whole_package_and_nothing_beside_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "dshpc_setup"
    pages = [*package.glob("dashboard/templates/*"), *package.glob("dashboard/static/*.*")]
    modules = {path.relative_to(ROOT).as_posix() for path in (*package.rglob("*.py"), *pages)}
    assert modules <= names
    assert {name.partition("/")[0] for name in names} == {
        "dshpc_setup",
        f"dshpc_setup-{dshpc_setup.__version__}.dist-info",
        f"dshpc_setup-{dshpc_setup.__version__}.data",
    }
    data = {name.partition(".data/")[2] for name in names if ".data/" in name}
    assert data == {f"data/share/man/man1/{path.name}" for path in (ROOT / "docs/man").glob("*.1")}


def test_wheel_declares_both_commands_and_the_version_of_the_package(wheel: Path) -> None:
    info = f"dshpc_setup-{dshpc_setup.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
    assert "configure-environment = dshpc_setup.cli:configure_environment_main\n" in entry_points
    assert "dshpc = dshpc_setup.cli:main\n" in entry_points
    assert f"\nVersion: {dshpc_setup.__version__}\n" in metadata
    assert "\nRequires-Python: >=3.10\n" in metadata


def test_editable_installation_gets_no_copy_that_goes_stale(
    in_checkout: None, tmp_path: Path
) -> None:
    built = tmp_path / hatchling.build.build_editable(str(tmp_path))
    with zipfile.ZipFile(built) as archive:
        assert not [name for name in archive.namelist() if "_share" in name]
        links = [name for name in archive.namelist() if name.endswith(".pth")]
        assert [archive.read(name).decode().strip() for name in links] == [str(ROOT)]


def test_sdist_holds_what_the_launchers_and_the_wheel_are_made_from(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {
        "LICENSE",
        "configure-environment",
        "dshpc",
        "pyproject.toml",
        "requirements-dev.lock",
        "requirements.lock",
        "run-tests",
        "scripts/environment.py",
        "scripts/launch.sh",
        "scripts/packages.sh",
        "scripts/share_in_wheel.py",
        "tests/unit/test_packaging.py",
    }
    assert needed | shared_files() <= names


def pins(lock_file: str) -> dict[tuple[str, str], str]:
    """Version by name and marker: one package may have a version for each Python."""
    found: dict[tuple[str, str], str] = {}
    for line in (ROOT / lock_file).read_text().splitlines():
        if match := PIN.match(line):
            marker = match["marker"].strip(" ;")
            found[canonicalize_name(match["name"]), marker] = match["version"]
    return found


@pytest.mark.parametrize("lock_file", ["requirements.lock", "requirements-dev.lock"])
def test_lock_file_hashes_everything_and_names_no_index(lock_file: str) -> None:
    text = (ROOT / lock_file).read_text()
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert len(blocks) == len(pins(lock_file)) > 20
    for block in blocks:
        assert "--hash=sha256:" in block, block
    assert "://" not in text
    assert "index-url" not in text


def test_lock_file_fulfils_the_declared_dependencies(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = archive.read(name).decode()
    declared = [
        Requirement(line.partition(": ")[2])
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist: ")
    ]
    assert {"docker", "jinja2", "typer"} <= {requirement.name for requirement in declared}
    for requirement in declared:
        extra = "extra ==" in str(requirement.marker or "")
        locked = pins("requirements-dev.lock" if extra else "requirements.lock")
        versions = [
            version
            for (name, _), version in locked.items()
            if name == canonicalize_name(requirement.name)
        ]
        assert versions, f"{requirement} is not locked"
        assert all(requirement.specifier.contains(version) for version in versions)


def test_the_tests_run_on_the_versions_that_users_get() -> None:
    users, developers = pins("requirements.lock"), pins("requirements-dev.lock")
    assert users.items() <= developers.items()
    assert {"pytest", "hypothesis", "mypy", "ruff"} <= {name for name, _ in developers}
