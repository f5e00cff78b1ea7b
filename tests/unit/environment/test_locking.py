"""Locking through a machine that replies as pip and apt did; what the build gets of it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.environment import debian, layer, locking, pip
from dshpc_setup.environment.model import DebianPackage, Declaration, Lock, Requirement, Wheel
from dshpc_setup.errors import DshpcError
from dshpc_setup.image import standing
from dshpc_setup.image.context import dockerfile, write_context
from dshpc_setup.image.standing import Standing, lines
from dshpc_setup.machine import CommandResult
from dshpc_setup.project.folder import Project
from dshpc_setup.terminal.reporter import Silent
from tests.unit.image.fakes import FakeMachine, ended

SITE = SiteFiles("-----BEGIN CERTIFICATE-----\nx", 'Acquire::Retries "3";', {})
WHEEL = "MarkupSafe-3.0.2-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
PIP_WHEEL = "pip-26.3-py3-none-any.whl"
DECLARED = Declaration((Requirement("markupsafe", (), "==3.0.2"),), ("libgomp1",), ())


@dataclass
class PipMachine(FakeMachine):
    """Lays `files_of` (name -> content) where pip was told to put what it fetches."""

    index: Callable[[Sequence[str]], dict[str, bytes]] = lambda _: {}

    def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
        if "--dest" in argv:
            into = Path(argv[argv.index("--dest") + 1])
            for name, content in self.index(argv).items():
                (into / name).write_bytes(content)
        return super().run(argv, **more)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def index(call: Sequence[str]) -> dict[str, bytes]:
    return {PIP_WHEEL: b"pip"} if call[-1] == "pip" else {WHEEL: b"wheel"}


LOCK = Lock(
    "3.13",
    "amd64",
    DECLARED.texts(),
    (Wheel("MarkupSafe", "3.0.2", WHEEL, sha(b"wheel")),),
    Wheel("pip", "26.3", PIP_WHEEL, sha(b"pip")),
    (DebianPackage("libgomp1", "14.2.0-19", "apt"),),
)


def declare(folder: Path) -> Project:
    (folder / "environment").mkdir()
    (folder / "environment/requirements.txt").write_text("markupsafe==3.0.2\n")
    (folder / "environment/system_deps.json").write_text('{"apt_packages": ["libgomp1"]}')
    return Project(folder)


def test_wheels_are_locked_with_their_hashes_and_kept(tmp_path: Path) -> None:
    machine = PipMachine({"": [ended()]}, index=index)
    wheels, installer = locking.lock_python(
        machine, Project(tmp_path), DECLARED.python, ("amd64", SITE), lambda _: None
    )
    assert (wheels, installer) == (LOCK.wheels, LOCK.installer)
    assert {path.name for path in (tmp_path / ".dshpc/wheels").iterdir()} == {WHEEL, PIP_WHEEL}
    assert [path.name for path in (tmp_path / ".dshpc").iterdir()] == ["wheels"]  # no scratch
    assert machine.ran[1][-2:] == ("--", "markupsafe==3.0.2")
    assert machine.envs[1]["REQUESTS_CA_BUNDLE"].endswith(".pem")


def test_a_source_archive_is_never_locked(tmp_path: Path) -> None:
    machine = PipMachine({"": [ended()]}, index=lambda _: {"evil-1.0.tar.gz": b"x"})
    with pytest.raises(DshpcError, match="no wheel"):
        locking.lock_python(
            machine, Project(tmp_path), DECLARED.python, ("amd64", SITE), lambda _: None
        )


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    project = declare(tmp_path)
    locking.write(project, LOCK)
    assert locking.read(tmp_path) == LOCK
    text = (tmp_path / "environment/lock.json").read_text()
    assert "http" not in text  # no index is named


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("file", "../../etc/x-1-py3-none-any.whl"),
        ("file", "x.whl --index-url=y"),
        ("sha256", "short"),
        ("name", "other\n--pre"),
        ("version", "1 --pre"),
    ],
)
def test_a_lock_that_was_tampered_with_is_refused(tmp_path: Path, part: str, value: str) -> None:
    project = declare(tmp_path)
    whole = LOCK.to_json()
    whole["wheels"][0][part] = value
    project.write_json("environment/lock.json", whole)
    with pytest.raises(DshpcError, match="not a lock"):
        locking.read(tmp_path)


def test_a_locked_name_of_debian_is_no_option(tmp_path: Path) -> None:
    project = declare(tmp_path)
    whole = LOCK.to_json()
    whole["debian"][0]["name"] = "--allow-unauthenticated"
    project.write_json("environment/lock.json", whole)
    with pytest.raises(DshpcError, match="not a lock"):
        locking.read(tmp_path)


def test_what_is_declared_must_be_locked(tmp_path: Path) -> None:
    assert layer.current_lock(tmp_path, "amd64") is None
    project = declare(tmp_path)
    with pytest.raises(DshpcError, match="not locked yet") as caught:
        layer.current_lock(tmp_path, "amd64")
    assert "dshpc env lock" in caught.value.resolution[0]
    locking.write(project, LOCK)
    assert layer.current_lock(tmp_path, "amd64") == LOCK
    with pytest.raises(DshpcError, match="something else") as caught:
        layer.current_lock(tmp_path, "arm64")
    assert "for amd64, and the engine is of type arm64" in caught.value.details
    (tmp_path / "environment/requirements.txt").write_text("markupsafe==3.0.1\n")
    with pytest.raises(DshpcError) as caught:
        layer.current_lock(tmp_path, "amd64")
    assert caught.value.details.splitlines() == [
        "python: markupsafe==3.0.1 is declared and not locked",
        "python: markupsafe==3.0.2 is locked and not declared any more",
    ]


def test_a_missing_wheel_is_fetched_by_its_hash(tmp_path: Path) -> None:
    project = declare(tmp_path)
    both = {WHEEL: b"wheel", PIP_WHEEL: b"pip"}
    machine = PipMachine({"": [ended()]}, index=lambda _: both)
    files = locking.wheel_files(machine, project, LOCK, SITE)
    assert {name: path.read_bytes() for name, path in files.items()} == both
    assert {"--require-hashes", "--no-deps"} <= set(machine.ran[-1])
    quiet = PipMachine({})
    assert locking.wheel_files(quiet, project, LOCK, SITE) == files
    assert quiet.ran == []  # nothing is asked where all is here


def test_what_has_not_changed_since_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = declare(tmp_path)
    both = {WHEEL: b"wheel", PIP_WHEEL: b"pip"}
    machine = PipMachine({"": [ended()]}, index=lambda _: both)
    files = locking.wheel_files(machine, project, LOCK, SITE)
    read: list[Path] = []
    real = locking._sha256

    def noted(path: Path) -> str:
        read.append(path)
        return real(path)

    monkeypatch.setattr(locking, "_sha256", noted)
    assert locking.wheel_files(PipMachine({}), project, LOCK, SITE) == files
    assert read == []
    # As long, and another: it is fetched anew
    files[WHEEL].write_bytes(b"wheeL")
    os.utime(files[WHEEL], ns=(1, 1))
    assert locking.wheel_files(machine, project, LOCK, SITE)[WHEEL].read_bytes() == b"wheel"
    assert files[WHEEL] in read
    (tmp_path / ".dshpc/wheels.json").write_text("{")
    assert locking.wheel_files(PipMachine({}), project, LOCK, SITE) == files


def test_what_is_being_fetched_is_told_with_its_size(tmp_path: Path) -> None:
    words: list[str] = []
    lines = (
        "Collecting torch==2.15.0",
        "  Downloading https://h.example/p/torch-2.15.0-cp313.whl (539.2 MB)",
        "  Using cached x.whl (1 kB)",
    )

    class Talking(PipMachine):
        def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
            for line in lines if more.get("on_line") else ():
                more["on_line"](line)
            return super().run(argv, **more)

    both = {WHEEL: b"wheel", PIP_WHEEL: b"pip"}
    machine = Talking({"": [ended()]}, index=lambda _: both)
    locking.wheel_files(machine, declare(tmp_path), LOCK, SITE, words.append)
    assert words == [
        "packages: fetching what is locked",
        "packages: collecting torch==2.15.0",
        "packages: downloading torch-2.15.0-cp313.whl (539.2 MB)",
    ]


def test_what_a_killed_run_has_left_goes(tmp_path: Path) -> None:
    left = tmp_path / ".dshpc/.packages.killed/new"
    left.mkdir(parents=True)
    (left / "torch.whl").write_bytes(b"half")
    test_wheels_are_locked_with_their_hashes_and_kept(tmp_path)
    assert not left.exists()


@pytest.mark.parametrize("by", ["lock", "configure"])
def test_where_nothing_is_declared_any_more_the_wheels_go(by: str, tmp_path: Path) -> None:
    project = declare(tmp_path)
    locking.write(project, LOCK)
    wheel = tmp_path / ".dshpc/wheels" / WHEEL
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"wheel")
    (tmp_path / "environment/requirements.txt").unlink()
    (tmp_path / "environment/system_deps.json").unlink()
    quiet = PipMachine({})
    assert layer.prepare(quiet, project, "amd64", SITE, fetch=False) is None
    assert wheel.exists()  # a dry run
    if by == "lock":
        assert standing.make_lock(quiet, project, Silent()) is None
        assert not (tmp_path / "environment/lock.json").exists()
        with pytest.raises(DshpcError, match="Nothing is declared"):
            standing.make_lock(quiet, project, Silent())
    else:
        assert layer.prepare(quiet, project, "amd64", SITE, fetch=True) is None
    assert not wheel.exists()
    assert quiet.ran == []


def test_another_file_of_the_same_name_is_refused(tmp_path: Path) -> None:
    project = declare(tmp_path)
    machine = PipMachine({"": [ended()]}, index=lambda _: {WHEEL: b"evil", PIP_WHEEL: b"pip"})
    with pytest.raises(DshpcError, match="another file"):
        locking.wheel_files(machine, project, LOCK, SITE)


# --- pip's own words, as pip 23.2 and 26.3 print them

NOT_FOUND = (
    "ERROR: Could not find a version that satisfies the requirement x==9 (from versions: none)\n"
    "ERROR: No matching distribution found for x==9"
)
CONFLICT = (
    "ERROR: Cannot install requests==2.31.0 and urllib3==1.20 because these package versions have "
    "conflicting dependencies.\n\nThe conflict is caused by:\n    The user requested urllib3==1.20\n"
    "    requests 2.31.0 depends on urllib3<3 and >=1.21.1\n\nERROR: ResolutionImpossible: for help"
)
TLS = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'SSLError(SSLCertVerificationError"
    "(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in "
    "certificate chain'))': /simple/x/\n" + NOT_FOUND
)
OFFLINE = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(': Failed to "
    "establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/x/\n"
    + NOT_FOUND
)


def failed(words: str, index_knows: bool = True, code: int = 1) -> DshpcError:
    known = ended("x (9)\nAvailable versions: 9, 8\n") if index_knows else ended(code=1)
    machine = FakeMachine({"py -m pip index": [known], "py -c": [ended(stderr=words, code=code)]})
    pip_here = pip.Pip("py", "amd64", {})
    with pytest.raises(DshpcError) as caught:
        pip.fetch(machine, pip_here, pip.argv(pip_here, Path("/new"), ()), Path("/"))
    return caught.value


@pytest.mark.parametrize(
    ("words", "brief"),
    [
        (CONFLICT, "The Python packages that are declared contradict each other."),
        (TLS, "The certificate of the Python package index is not trusted here."),
        (OFFLINE, "The Python package index could not be reached."),
        ("OSError: [Errno 28] No space left on device", "The disk is full."),
        ("Something new", "pip could not fetch the packages."),
    ],
)
def test_the_reason_is_said_in_plain_words(words: str, brief: str) -> None:
    error = failed(words)
    assert error.brief == brief
    assert error.resolution


def test_why_the_network_failed_is_shown_once() -> None:
    retry = OFFLINE.splitlines()[0].replace(
        "NewConnectionError('", "NewConnectionError('<pip._vendor.urllib3.X object at 0x7fee5>: "
    )
    error = failed("\n".join([retry, retry, retry, NOT_FOUND]))
    assert error.details.count("Retrying") == 1
    assert "0x7fee5" not in error.details
    assert "name resolution" in error.details


def test_the_conflict_itself_is_shown() -> None:
    assert "requests 2.31.0 depends on urllib3<3 and >=1.21.1" in failed(CONFLICT).details


def test_no_such_package_is_told_from_no_wheel() -> None:
    assert failed(NOT_FOUND, index_knows=False).brief == (
        "There is no Python package x on the index."
    )
    error = failed(NOT_FOUND)
    assert error.brief.startswith("No version of x that fits the declaration has a wheel for")
    assert "nothing is built from source" in error.resolution[0]


def test_a_pip_that_cannot_be_told_its_target_is_said() -> None:
    assert "cannot be told" in failed("", code=3).brief


def test_without_pip_it_is_said_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="needs pip"):
        pip.find(FakeMachine({"": [ended(code=1)]}), "amd64", SITE, tmp_path / "cwd")


# --- Debian


def test_debians_versions_are_locked() -> None:
    said = "dshpc-version libgomp1 14.2.0-19\ndshpc-version r-base-core 4.5.0-3\n"
    said += "dshpc-version r-cran-dplyr 1.1.4-1\n"
    machine = FakeMachine({"/usr/bin/docker run": [ended(said)]})
    declared = Declaration((), ("libgomp1",), ("dplyr",))
    assert debian.lock(machine, "base", "", SITE, declared) == (
        DebianPackage("libgomp1", "14.2.0-19", "apt"),
        DebianPackage("r-base-core", "4.5.0-3", "r"),
        DebianPackage("r-cran-dplyr", "1.1.4-1", "r"),
    )


def test_what_debian_has_not_is_named() -> None:
    machine = FakeMachine({"/usr/bin/docker run": [ended("dshpc-version r-base-core 4.5\n")]})
    with pytest.raises(DshpcError) as caught:
        debian.lock(machine, "base", "", SITE, Declaration((), ("nosuch",), ("myR",)))
    assert caught.value.details.splitlines() == [
        "nosuch: Debian trixie has no package of that name.",
        "myR: Debian has neither r-cran-myr nor r-bioc-myr.",
    ]
    assert "cannot be installed here yet" in caught.value.resolution[1]


def test_without_debian_packages_no_container_is_started() -> None:
    assert debian.lock(FakeMachine({}), "base", "", SITE, Declaration(DECLARED.python)) == ()


# --- the build


def test_without_a_layer_the_dockerfile_knows_none() -> None:
    assert "org.dshpc.environment" not in dockerfile(buildkit=True)
    assert "AS environment" not in dockerfile(buildkit=False)


def test_the_layer_is_in_the_context(tmp_path: Path) -> None:
    wheel, tool = tmp_path / WHEEL, tmp_path / PIP_WHEEL
    wheel.write_bytes(b"wheel")
    tool.write_bytes(b"pip")
    one = layer.Layer(LOCK, {WHEEL: wheel, PIP_WHEEL: tool})
    made = write_context(tmp_path / "build", buildkit=True, site=SITE, layer=one)
    text = (made.folder / "Dockerfile").read_text()
    assert f'org.dshpc.environment="{LOCK.digest}"' in text
    assert "COPY --from=environment /run/dshpc-layer/ /" in text
    assert text.count("type=secret,id=apt") == 2  # a mirror is asked for Debian's packages alone
    folder = made.folder / "environment"
    assert (folder / "debian").read_text() == "libgomp1=14.2.0-19\n"
    assert (folder / "python/requirements.txt").read_text() == (
        f"MarkupSafe==3.0.2 --hash=sha256:{sha(b'wheel')}\n"
    )
    assert [path.name for path in (folder / "python/wheels").iterdir()] == [WHEEL]
    assert [path.name for path in (folder / "python/installer").iterdir()] == [PIP_WHEEL]
    bare = write_context(tmp_path / "bare", buildkit=True, site=SITE)
    assert bare.digest != made.digest
    # a dry run has no wheels, and yet says the same image
    dry = write_context(tmp_path / "dry", buildkit=True, site=SITE, layer=layer.Layer(LOCK))
    assert dry.digest == made.digest


@pytest.mark.parametrize("part", ["sha256", "version"])
def test_another_wheel_is_another_image(tmp_path: Path, part: str) -> None:
    def digest(lock: Lock) -> str:
        one = layer.Layer(lock)
        return write_context(tmp_path / "build", buildkit=True, site=SITE, layer=one).digest

    (wheel,) = LOCK.wheels
    assert LOCK.installer is not None
    changed: dict[str, Any] = {part: "0"}
    assert digest(replace(LOCK, wheels=(replace(wheel, **changed),))) != digest(LOCK)
    assert digest(replace(LOCK, installer=replace(LOCK.installer, **changed))) != digest(LOCK)


def test_only_what_ends_up_in_the_image_counts_for_its_digest() -> None:
    assert replace(LOCK, declared={}).digest == LOCK.digest
    assert replace(LOCK, debian=()).digest != LOCK.digest


# --- what is shown


@pytest.mark.parametrize(
    ("now", "step"),
    [
        (Standing(Declaration(), None, (), None), None),
        (Standing(Declaration(), None, (), ""), None),
        (Standing(Declaration(), None, (), "old"), "configure-environment"),
        (Standing(DECLARED, None, (), ""), "dshpc env lock"),
        (Standing(DECLARED, LOCK, ("differs",), LOCK.digest), "dshpc env lock"),
        (Standing(DECLARED, LOCK, (), ""), "configure-environment"),
        (Standing(DECLARED, LOCK, (), None), "configure-environment"),
        (Standing(DECLARED, LOCK, (), LOCK.digest), None),
    ],
)
def test_what_to_type_next(now: Standing, step: str | None) -> None:
    assert now.next_step == step
    assert json.loads(json.dumps(now.to_json()))["next"] == step
    assert any(f"Next: {step}" == line for line in lines(now)) == (step is not None)


@pytest.mark.parametrize(
    ("now", "holds"),
    [
        (Standing(Declaration(), None, (), ""), True),
        (Standing(DECLARED, None, (), ""), False),
        (Standing(Declaration(), None, (), None), False),
        (Standing(DECLARED, LOCK, (), "old"), False),
        (Standing(DECLARED, LOCK, (), LOCK.digest), True),
    ],
)
def test_whether_the_image_holds_them(now: Standing, holds: bool) -> None:
    assert now.to_json()["in_image"] is holds
