"""Locking through a machine that replies as uv and apt did; what the build gets of it."""

from __future__ import annotations

import errno
import json
import os
import re
import sysconfig
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.environment import debian, layer, locking, packing, target, uv, uv_failures
from dshpc_setup.environment.model import DebianPackage, Declaration, Lock, Requirement, Wheel
from dshpc_setup.environment.uv_failures import Why
from dshpc_setup.errors import DshpcError
from dshpc_setup.image import standing
from dshpc_setup.image.context import dockerfile, write_context
from dshpc_setup.image.standing import Standing, lines
from dshpc_setup.machine import CommandResult
from dshpc_setup.project.folder import Project
from dshpc_setup.terminal.reporter import Silent
from tests.unit.image.fakes import TIMEOUT, FakeMachine, ended

SITE = SiteFiles("-----BEGIN CERTIFICATE-----\nx", 'Acquire::Retries "3";', {})
WHEEL = "MarkupSafe-3.0.2-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
DECLARED = Declaration((Requirement("markupsafe", (), "==3.0.2"),), ("libgomp1",), ())
HASH = "15ab75ef81add55874e7ab7055e9c397312385bd9ced94920f2802310c930396"
# As uv 0.13.9 writes it
PYLOCK = f"""\
lock-version = "1.0"
created-by = "uv"
requires-python = ">=3.13.5"

[[packages]]
name = "markupsafe"
version = "3.0.2"
wheels = [{{ url = "https://files.pythonhosted.org/packages/0c/91/{WHEEL}", \
upload-time = 2024-10-18T15:21:27Z, size = 23085, hashes = {{ sha256 = "{HASH}" }} }}]
"""
FONTTOOLS = (
    "fonttools-4.68.0-cp313-cp313-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    "fonttools-4.68.0-py3-none-any.whl",
)
TWO = f"""
[[packages]]
name = "fonttools"
version = "4.68.0"
wheels = [
    {{ url = "https://h.example/79/{FONTTOOLS[0]}", hashes = {{ sha256 = "{"0" * 64}" }} }},
    {{ url = "file:///opt/{FONTTOOLS[1]}", hashes = {{ sha256 = "{"1" * 64}" }} }},
    {{ url = "https://h.example/35/{FONTTOOLS[1]}", hashes = {{ sha256 = "{"1" * 64}" }} }},
]
"""


@dataclass
class UvMachine(FakeMachine):
    """Replies as uv: with `pylock`, and with `tree` (path -> content) where it was told to install."""

    pylock: str = PYLOCK
    tree: dict[str, str] = field(default_factory=lambda: {"markupsafe/__init__.py": "x = 1\n"})
    asked: list[str] = field(default_factory=list)  # the requirements

    def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
        if "compile" in argv:
            self.asked.append(more["stdin"])
            self.replies = {"": [ended(self.pylock)]}
        elif "install" in argv:
            named = {word.partition("=")[0]: word.partition("=")[2] for word in argv}
            self.asked.append(Path(named["--requirements"]).read_text())
            for name, content in {".lock": "", **self.tree}.items():
                path = Path(named["--target"]) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
            self.replies = {"": [ended("Installed 1 package in 5ms")]}
        return super().run(argv, **more)


LOCK = Lock(
    "3.13",
    "amd64",
    DECLARED.texts(),
    (Wheel("MarkupSafe", "3.0.2", WHEEL, HASH),),
    (DebianPackage("libgomp1", "14.2.0-19", "apt"),),
)
HASHED = f"MarkupSafe==3.0.2 --hash=sha256:{HASH}\n"


def lock_it(machine: FakeMachine, folder: Path) -> tuple[Wheel, ...]:
    project = Project(folder)
    return locking.lock_python(machine, project, DECLARED.python, ("amd64", SITE), lambda _: None)


def declare(folder: Path) -> Project:
    (folder / "environment").mkdir()
    (folder / "environment/requirements.txt").write_text("markupsafe==3.0.2\n")
    (folder / "environment/system_deps.json").write_text('{"apt_packages": ["libgomp1"]}')
    return Project(folder)


def test_wheels_are_locked_with_their_hashes_and_packed(tmp_path: Path) -> None:
    machine = UvMachine()
    assert lock_it(machine, tmp_path) == LOCK.wheels
    assert machine.asked == ["markupsafe==3.0.2\n", HASHED]
    assert {"--no-deps", "--require-hashes", "--only-binary=:all:"} <= set(machine.ran[1])
    (path,) = (tmp_path / ".dshpc/packages").iterdir()
    assert {each.name for each in (tmp_path / ".dshpc").iterdir()} == {"packages", "packages.json"}
    quiet = UvMachine()
    assert locking.archive(quiet, Project(tmp_path), LOCK, SITE) == path
    assert quiet.ran == []  # nothing is asked where it is here


def test_of_several_wheels_that_one_is_locked_which_uv_takes(tmp_path: Path) -> None:
    for tag, file, sha256 in (
        ("cp313-cp313-manylinux_2_17_x86_64", FONTTOOLS[0], "0" * 64),
        ("py3-none-any", FONTTOOLS[1], "1" * 64),
    ):
        tree = {"fonttools-4.68.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n"}
        machine = UvMachine(pylock=PYLOCK + TWO, tree=tree)
        wheels = lock_it(machine, tmp_path / tag)
        assert wheels[1] == Wheel("fonttools", "4.68.0", file, sha256)
        assert machine.asked[1] == (
            f"fonttools==4.68.0 --hash=sha256:{'0' * 64} --hash=sha256:{'1' * 64}\n"
        )
        assert machine.asked[2] == f"{HASHED}fonttools==4.68.0 --hash=sha256:{sha256}\n"


def test_a_source_archive_is_never_locked(tmp_path: Path) -> None:
    bare = '[[packages]]\nname = "evil"\nsdist = { url = "https://h.example/evil-1.0.tar.gz" }\n'
    with pytest.raises(DshpcError, match="has no wheel"):
        lock_it(UvMachine(pylock=bare), tmp_path)


SCRIPTS = {
    "bin/plain": "#!{python}\nimport idna\n",
    "bin/blank": "#!/bin/sh\n'''exec' '/a b/{python}' \"$0\" \"$@\"\n' '''\nimport idna\n",
    "bin/shell": "#!/bin/sh\nexec true\n",
    "bin/env": "#!/usr/bin/env -S python3 -u\n",
    "idna/bin/asset": "#!{python}\n",
}


def test_what_is_packed_is_root_s_readable_and_starts_the_image_s_python(tmp_path: Path) -> None:
    python = "/home/ada/.venv/bin/python+"
    tree = tmp_path / "tree"
    for name, text in SCRIPTS.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(python=python))
        path.chmod(0o600 if name == "idna/bin/asset" else 0o700)
    (tree / ".lock").write_text("")
    os.link(tree / "bin/env", tree / "bin/again")  # as uv links from its cache
    for name in ("one.tar", "two.tar"):
        packing.pack(tree, tmp_path / name, python)
        os.utime(tree / "bin/plain", (1, 1))
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as archive:
        root = f"{target.SITE}/"
        members = {each.name.removeprefix(root): each for each in archive.getmembers()}
        texts = {
            name: archive.extractfile(each).read().decode()  # type: ignore[union-attr]
            for name, each in members.items()
            if each.isfile()
        }
    assert texts == {
        "bin/plain": "#!/usr/bin/python3\nimport idna\n",
        "bin/blank": "#!/usr/bin/python3\nimport idna\n",
        "bin/shell": SCRIPTS["bin/shell"],
        "bin/env": SCRIPTS["bin/env"],
        "bin/again": SCRIPTS["bin/env"],
        "idna/bin/asset": f"#!{python}\n",
    }
    assert {name: each.mode for name, each in members.items() if each.mode != 0o755} == {
        "idna/bin/asset": 0o644
    }
    assert {(each.uid, each.gid) for each in members.values()} == {(0, 0)}
    assert (tree / "bin/plain").read_text() == SCRIPTS["bin/plain"].format(python=python)


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    project = declare(tmp_path)
    locking.write(project, LOCK)
    assert locking.read(tmp_path) == LOCK
    text = (tmp_path / "environment/lock.json").read_text()
    assert "http" not in text  # no index is named


def test_a_lock_of_the_time_of_pip_is_read(tmp_path: Path) -> None:
    """It names the pip that installed its wheels."""
    project = declare(tmp_path)
    pip = {
        "name": "pip",
        "version": "26.3",
        "file": "pip-26.3-py3-none-any.whl",
        "sha256": "0" * 64,
    }
    project.write_json("environment/lock.json", {**LOCK.to_json(), "installer": pip})
    assert layer.current_lock(tmp_path, "amd64") == LOCK


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


def test_what_is_locked_is_fetched_by_its_hashes(tmp_path: Path) -> None:
    project = declare(tmp_path)
    machine = UvMachine(env={"PIP_CONSTRAINT": "/mine.txt"})
    path = locking.archive(machine, project, LOCK, SITE)
    assert path is not None
    assert path.is_file()
    assert machine.asked == [HASHED]
    assert {"--require-hashes", "--no-deps"} <= set(machine.ran[-1])
    assert (machine.environments[-1] or {})["UV_CONSTRAINT"] == ""
    other = replace(LOCK, architecture="arm64")
    assert locking.archive(machine, project, other, SITE) != path
    assert locking.archive(machine, project, replace(LOCK, wheels=()), SITE) is None


def test_what_was_changed_since_is_made_anew(tmp_path: Path) -> None:
    project = declare(tmp_path)
    path = locking.archive(UvMachine(), project, LOCK, SITE)
    assert path is not None
    whole = path.read_bytes()
    spoiled: tuple[Callable[[], object], ...] = (
        lambda: path.write_bytes(whole[:-1]),
        lambda: os.utime(path, ns=(1, 1)),
        path.unlink,
        lambda: (tmp_path / ".dshpc/packages.json").write_text("{"),
    )
    for spoil in spoiled:
        spoil()
        machine = UvMachine()
        assert locking.archive(machine, project, LOCK, SITE) == path
        assert path.read_bytes() == whole
        assert machine.asked == [HASHED]


def test_an_archive_that_was_made_on_another_disk_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.replace

    def replace_on_one_disk(path: Path, to: Path) -> Path:
        if path.parent.name.startswith(".packages."):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return real(path, to)

    monkeypatch.setattr(Path, "replace", replace_on_one_disk)
    path = locking.archive(UvMachine(), declare(tmp_path), LOCK, SITE)
    assert path is not None
    assert tarfile.is_tarfile(path)
    assert list(path.parent.iterdir()) == [path]


def test_what_is_being_fetched_is_told_with_its_size(tmp_path: Path) -> None:
    words: list[str] = []

    class Talking(UvMachine):
        def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
            for line in SAID["installed"].splitlines() if more.get("on_line") else ():
                more["on_line"](line)
            return super().run(argv, **more)

    locking.archive(Talking(), declare(tmp_path), LOCK, SITE, words.append)
    assert words == [
        "packages: fetching what is locked",
        "packages: downloading numpy (15.0 MiB)",
        "packages: packing",
    ]


def test_what_a_killed_run_has_left_goes(tmp_path: Path) -> None:
    left = tmp_path / ".dshpc/.packages.killed/new"
    left.mkdir(parents=True)
    (left / "torch.whl").write_bytes(b"half")
    test_wheels_are_locked_with_their_hashes_and_packed(tmp_path)
    assert not left.exists()


@pytest.mark.parametrize("by", ["lock", "configure"])
def test_where_nothing_is_declared_any_more_the_wheels_go(by: str, tmp_path: Path) -> None:
    project = declare(tmp_path)
    locking.write(project, LOCK)
    wheel = tmp_path / ".dshpc/wheels" / WHEEL  # of the time of pip
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"wheel")
    locking.archive(UvMachine(), project, LOCK, SITE)
    packages = tmp_path / ".dshpc/packages"
    (tmp_path / "environment/requirements.txt").unlink()
    (tmp_path / "environment/system_deps.json").unlink()
    quiet = UvMachine()
    assert layer.prepare(quiet, project, "amd64", SITE, fetch=False) is None
    assert wheel.exists()  # a dry run
    assert any(packages.iterdir())
    if by == "lock":
        assert standing.make_lock(quiet, project, "docker", Silent()) is None
        assert not (tmp_path / "environment/lock.json").exists()
        with pytest.raises(DshpcError, match="Nothing is declared"):
            standing.make_lock(quiet, project, "docker", Silent())
    else:
        assert layer.prepare(quiet, project, "amd64", SITE, fetch=True) is None
    assert not wheel.exists()
    assert not any(packages.iterdir())
    assert quiet.ran == []


# --- uv's own words

SAID = dict(
    re.findall(
        r"^== (\S+)\n(.*?)(?=^== |\Z)",
        Path(__file__).with_name("uv-0.13.txt").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)


def failed(said: CommandResult) -> DshpcError:
    uv_here = uv.Uv("uv", "py", "amd64", {}, secrets=("hunter2",))
    with pytest.raises(DshpcError) as caught:
        uv.resolve(FakeMachine(replies={"uv pip compile": [said]}), uv_here, (), Path("/"))
    return caught.value


@pytest.mark.parametrize("name", sorted(set(SAID) - {"installed"}))
def test_the_reason_is_told_with_uv_s_words(name: str) -> None:
    """A section's name begins with its reason."""
    said = ended(stderr=SAID[name], code=1)
    assert name.startswith(uv_failures.why(said).value.replace(" ", "-"))
    error = failed(said)
    assert error.resolution
    assert SAID[name].strip().splitlines()[-1] in error.details


def test_every_reason_was_seen() -> None:
    seen = {uv_failures.why(ended(stderr=words, code=1)) for words in SAID.values()}
    assert seen == set(Why) - {Why.SLOW}  # UNKNOWN: what is no failure


def test_the_rest_is_told_as_it_is() -> None:
    assert uv_failures.why(TIMEOUT) is Why.SLOW
    assert failed(TIMEOUT).brief == "Fetching Python packages did not finish in time."
    error = failed(ended(stderr="Something new of https://ada:pw@h.example/ hunter2", code=1))
    assert error == DshpcError(
        "uv could not fetch the packages.",
        "Something new of https://***@h.example/ ***",
        ("See its message above.",),
    )


def test_uv_is_our_environment_s_own_or_that_of_the_path() -> None:
    own = f"{sysconfig.get_path('scripts')}/uv"
    assert uv.find(FakeMachine(files={own: ""}), "amd64", SITE).program == own
    assert uv.find(FakeMachine(), "amd64", SITE).program == "/usr/bin/uv"
    with pytest.raises(DshpcError, match="needs uv"):
        uv.find(FakeMachine(missing=("uv",)), "amd64", SITE)


# --- Debian


def test_debians_versions_are_locked() -> None:
    said = "dshpc-version libgomp1 14.2.0-19\ndshpc-version r-base-core 4.5.0-3\n"
    said += "dshpc-version r-cran-dplyr 1.1.4-1\n"
    machine = FakeMachine(replies={"/usr/bin/docker run": [ended(said)]})
    declared = Declaration((), ("libgomp1",), ("dplyr",))
    assert debian.lock(machine, "base", "", SITE, declared) == (
        DebianPackage("libgomp1", "14.2.0-19", "apt"),
        DebianPackage("r-base-core", "4.5.0-3", "r"),
        DebianPackage("r-cran-dplyr", "1.1.4-1", "r"),
    )


def test_what_debian_has_not_is_named() -> None:
    machine = FakeMachine(
        replies={"/usr/bin/docker run": [ended("dshpc-version r-base-core 4.5\n")]}
    )
    with pytest.raises(DshpcError) as caught:
        debian.lock(machine, "base", "", SITE, Declaration((), ("nosuch",), ("myR",)))
    assert caught.value.details.splitlines() == [
        "nosuch: Debian trixie has no package of that name.",
        "myR: Debian has neither r-cran-myr nor r-bioc-myr.",
    ]
    assert "cannot be installed here yet" in caught.value.resolution[1]


def test_without_debian_packages_no_container_is_started() -> None:
    assert (
        debian.lock(FakeMachine(replies={}), "base", "", SITE, Declaration(DECLARED.python)) == ()
    )


# --- the build


def test_without_a_layer_the_dockerfile_knows_none() -> None:
    assert "org.dshpc.environment" not in dockerfile(buildkit=True)
    assert "AS environment" not in dockerfile(buildkit=False)


def test_the_layer_is_in_the_context(tmp_path: Path) -> None:
    archive = tmp_path / "0123.tar"
    archive.write_bytes(b"tar")
    one = layer.Layer(LOCK, archive)
    made = write_context(tmp_path / "build", buildkit=True, site=SITE, layer=one)
    text = (made.folder / "Dockerfile").read_text()
    assert f'org.dshpc.environment="{LOCK.digest}"' in text
    assert "ADD environment/packages.tar /run/dshpc-layer/" in text
    assert "COPY --from=environment /run/dshpc-layer/ /" in text
    assert text.count("type=secret,id=apt") == 2  # a mirror is asked for Debian's packages alone
    folder = made.folder / "environment"
    assert (folder / "debian").read_text() == "libgomp1=14.2.0-19\n"
    assert (folder / "requirements.txt").read_text() == HASHED
    assert (folder / "packages.tar").samefile(archive)
    bare = write_context(tmp_path / "bare", buildkit=True, site=SITE)
    assert bare.digest != made.digest
    # a dry run has no archive, and yet says the same image
    dry = write_context(tmp_path / "dry", buildkit=True, site=SITE, layer=layer.Layer(LOCK))
    assert dry.digest == made.digest


@pytest.mark.parametrize("part", ["sha256", "version"])
def test_another_wheel_is_another_image(tmp_path: Path, part: str) -> None:
    def digest(lock: Lock) -> str:
        one = layer.Layer(lock)
        return write_context(tmp_path / "build", buildkit=True, site=SITE, layer=one).digest

    (wheel,) = LOCK.wheels
    changed: dict[str, Any] = {part: "0"}
    assert digest(replace(LOCK, wheels=(replace(wheel, **changed),))) != digest(LOCK)


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
