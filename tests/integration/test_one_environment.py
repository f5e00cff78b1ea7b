"""Several users start one checkout: whose Python environment each of them takes.

The launchers are the real ones; the environment is made up, and only says that it was taken. What
would make another one is made up, too, and says where that would be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.test_launchers import Outcome, make_checkout

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
ADA, BOB, CAROL = 42_530, 42_531, 42_532

_PYTHON = """#!/bin/sh
[ "$2" = -c ] && { echo 3.12 good; exit 0; }
shift 6  # -I environment.py --root ROOT --inputs INPUTS
echo "makes $*" >&2
exit 3
"""


@dataclass(frozen=True)
class Shared:
    """ADA's checkout with a finished environment, where others can enter."""

    folder: Path

    @property
    def checkout(self) -> Path:
        return self.folder / "the lab" / "dshpc"

    @property
    def venv(self) -> Path:
        return self.checkout / ".venv"

    def own_place(self, uid: int) -> str:
        return f"{self.folder}/home-{uid}/.local/share/dshpc/environments{self.checkout}"

    def start(self, uid: int, **environ: str) -> Outcome:
        home = self.folder / f"home-{uid}"
        home.mkdir(exist_ok=True)
        os.chown(home, uid, uid)
        path = f"{self.folder / 'programs'}:/usr/bin:/bin"
        done = subprocess.run(
            [self.checkout / "dshpc", "asked"],
            cwd="/",
            env={"HOME": str(home), "PATH": path, **environ},
            user=uid,
            group=uid,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def shared() -> Iterator[Shared]:
    folder = Path(tempfile.mkdtemp(prefix="dshpc-test-shared-"))  # tests' own are for root alone
    made = Shared(folder)
    make_checkout(made.checkout)
    (folder / "programs").mkdir()
    (folder / "programs" / "python3").write_text(_PYTHON)
    for name in ("bin", "lib", ".dshpc"):
        (made.venv / name).mkdir(parents=True)
    (made.venv / "pyvenv.cfg").write_text("")
    (made.venv / "bin" / "python").write_text("#!/bin/sh\necho taken\n")
    inputs = [made.checkout / name for name in ("requirements.lock", "pyproject.toml")]
    stamp = subprocess.run(["cksum", *inputs], capture_output=True, timeout=60, check=True).stdout
    (made.venv / ".dshpc" / "stamp").write_bytes(stamp)
    for program in (folder / "programs" / "python3", made.venv / "bin" / "python"):
        program.chmod(0o755)
    folder.chmod(0o755)
    for at, folders, files in os.walk(made.checkout):
        for name in ("", *folders, *files):
            path = os.path.join(at, name)
            os.chmod(path, os.stat(path).st_mode & ~0o022)
            os.chown(path, ADA, ADA)
    yield made
    shutil.rmtree(folder)


def test_others_take_the_owners_environment(shared: Shared) -> None:
    for uid in (ADA, BOB):
        assert shared.start(uid) == Outcome(0, "taken\n", "")
    assert not (shared.folder / f"home-{BOB}" / ".local").exists()


@pytest.mark.parametrize(
    ("part", "mode", "owner", "why"),
    [
        (".venv", 0o777, ADA, "can be written by others (mode drwxrwxrwx)"),
        (".venv", 0o775, ADA, "can be written by others (mode drwxrwxr-x)"),
        (".venv", 0o1777, ADA, "can be written by others (mode drwxrwxrwt)"),
        (".venv/lib", 0o777, ADA, "can be written by others (mode drwxrwxrwx)"),
        (".venv/pyvenv.cfg", 0o666, ADA, "can be written by others (mode -rw-rw-rw-)"),
        (".venv", 0o755, CAROL, f"belongs to user {CAROL}"),
        ("", 0o777, ADA, "can be written by others (mode drwxrwxrwx)"),
        ("..", 0o757, 0, "can be written by others (mode drwxr-xrwx)"),
        ("..", 0o755, CAROL, f"belongs to user {CAROL}"),
    ],
)
def test_one_that_others_can_write_is_not_taken(
    shared: Shared, part: str, mode: int, owner: int, why: str
) -> None:
    path = (shared.checkout / part).resolve()
    path.chmod(mode)
    os.chown(path, owner, owner)
    outcome = shared.start(BOB)
    assert outcome.code == 3, outcome
    assert f"the environment of this checkout is not used: {path} {why}." in outcome.stderr
    assert f"makes --place {shared.own_place(BOB)}\n" in outcome.stderr  # nowhere else
    if owner != CAROL:
        assert f"Its owner can change that: chmod -R go-w '{path}'" in outcome.stderr


def test_a_sticky_folder_above_is_fine(shared: Shared) -> None:
    (shared.checkout / "..").chmod(0o1777)
    assert shared.start(BOB).stdout == "taken\n"


def test_one_that_cannot_be_read_is_told_with_what_opens_it(shared: Shared) -> None:
    shared.venv.chmod(0o700)
    outcome = shared.start(BOB)
    assert f"{shared.venv} is not readable for you." in outcome.stderr
    assert f"Its owner can change that: chmod -R go+rX '{shared.venv}'" in outcome.stderr
    assert f"makes --place {shared.own_place(BOB)}\n" in outcome.stderr


def test_one_of_a_python_in_a_home_is_told(shared: Shared) -> None:
    home = shared.folder / "ada"
    home.mkdir(mode=0o700)
    (shared.venv / "bin" / "python").rename(home / "python")
    (shared.venv / "bin" / "python").symlink_to(home / "python")
    outcome = shared.start(BOB)
    assert "the Python that it was made with cannot be run by you" in outcome.stderr
    assert f"makes --place {shared.own_place(BOB)}\n" in outcome.stderr


def test_root_is_warned_and_leaves_nothing_in_a_users_checkout(shared: Shared) -> None:
    outcome = shared.start(0)
    assert (outcome.code, outcome.stdout) == (0, "taken\n")
    assert f"{shared.checkout} belongs to user {ADA}, who can change" in outcome.stderr
    (shared.venv / ".dshpc" / "stamp").write_text("of an older checkout\n")
    assert f"makes --place {shared.own_place(0)}\n" in shared.start(0).stderr


def test_sudo_of_the_owner_is_the_owner(shared: Shared) -> None:
    assert shared.start(0, SUDO_UID=str(ADA)) == Outcome(0, "taken\n", "")
    (shared.venv / ".dshpc" / "stamp").write_text("of an older checkout\n")
    made = shared.start(0, SUDO_UID=str(ADA)).stderr
    assert made == f"makes --place {shared.venv} --place {shared.own_place(0)}\n"


def test_ones_own_place_that_others_can_write_is_refused(shared: Shared) -> None:
    named = shared.folder / "named"
    shutil.copytree(shared.venv, named)
    os.chown(named, CAROL, CAROL)
    outcome = shared.start(BOB, DSHPC_VENV=str(named))
    assert outcome.code == 2
    assert f"{named} belongs to user {CAROL}" in outcome.stderr
    assert "DSHPC_VENV=DIR" in outcome.stderr
