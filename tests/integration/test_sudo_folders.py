"""Root by sudo in folders of other users, while one of them swaps what lies there: all of it is real.

Only root can become those users; no cluster is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import as_root

ADA, EVE = 41001, 41002

# As EVE, until it is ended: the two names change places for ever
SWAPPER = """
import ctypes, os, sys
uid, one, other = int(sys.argv[1]), *map(os.fsencode, sys.argv[2:])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
swap = ctypes.CDLL(None, use_errno=True).renameat2
while True:
    swap(-100, one, -100, other, 2)
"""

# As root for ADA. For each round: what was refused, and whether anything secret lies in her folder
COPIER = """
import json, os, sys
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs.staging import Incoming
work, what, path, ada, rounds = *sys.argv[1:4], *map(int, sys.argv[4:])
leaked, refused, copied = 0, set(), 0
for _ in range(rounds):
    incoming = Incoming(work, (ada, ada))
    try:
        getattr(incoming, what)(path)
        copied += 1
    except DshpcError as error:
        refused.add(error.brief)
    for at, _, names in os.walk(work):
        for name in names:
            with open(os.path.join(at, name), encoding="utf-8") as file:
                leaked += "SECRET" in file.read()
    incoming.remove()
print(json.dumps({"leaked": leaked, "refused": sorted(refused), "copied": copied,
                  "euid": os.geteuid(), "groups": os.getgroups()}))
"""


# As root for ADA, in her project: all that a run of configure-environment does with files
WRITER = """
import json, os, sys
from pathlib import Path
from dshpc_setup.apply import apply
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import swap
from dshpc_setup.image import context
from dshpc_setup.project.folder import Project
folder, ada, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
done, refused = 0, set()
for number in range(rounds):
    project = Project(folder, (ada, ada))
    for step in (
        lambda: project.prepare(),
        lambda: project.write_json(".dshpc/note.json", {"number": number}),
        lambda: project.drop_json(".dshpc/note.json"),
        lambda: apply.replace_files(
            project, {"config/slurm.conf": apply.Wanted(str(number)), ".env": apply.Wanted("")}
        ),
        lambda: swap.write(folder / f"config/new-{number}", "new", None, owner=project.owner),
        lambda: context._write_site(None, folder / ".dshpc/build-secrets", context.SiteFiles()),
        lambda: project.give_to_owner(folder / ".dshpc/build"),
    ):
        try:
            step()
            done += 1
        except (DshpcError, OSError) as error:
            refused.add(getattr(error, "brief", str(error)))
print(json.dumps({"done": done, "refused": sorted(refused)}))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may enter, root's; what is in it is made by root, too."""
    folder = Path(tempfile.mkdtemp(prefix="dshpc-test-sudo-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        root("rm", "-rf", str(folder))


def root(*argv: str) -> str:
    done = subprocess.run(as_root(*argv), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lay(place: Path, *lines: str) -> None:
    root("sh", "-ec", 'umask 022; cd "$1"; ' + "\n".join(lines), "sh", str(place))


def copy(place: Path, what: str, path: str, rounds: int) -> dict[str, Any]:
    argv = (str(place / "work"), what, f"{place}/{path}", str(ADA), str(rounds))
    found: dict[str, Any] = json.loads(root(sys.executable, "-c", COPIER, *argv))
    assert found["euid"] == 0
    return found


@pytest.fixture
def swapped(place: Path) -> Iterator[Any]:
    """Starts what swaps two names; ended with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(uid: int, one: str, other: str) -> None:
        argv = [sys.executable, "-c", SWAPPER, str(uid), f"{place}/{one}", f"{place}/{other}"]
        running.append(subprocess.Popen(as_root(*argv)))

    yield start
    for each in running:
        assert each.poll() is None, "it swapped all the time"
        each.kill() if os.geteuid() == 0 else root("kill", "-9", str(each.pid))
        each.wait()


METHOD = (
    "mkdir work m m/lib; echo SECRET >secret; chmod 600 secret",
    "mkdir hidden; echo SECRET >hidden/part.py; chmod 755 hidden; chmod 600 hidden/part.py",
    "echo mine >m/run.py; echo mine >m/lib/part.py",
)


@pytest.mark.parametrize("link", ["{place}/secret", "../secret", "/etc/shadow"])
def test_a_link_in_another_users_method_gives_nobody_roots_files(place: Path, link: str) -> None:
    lay(place, *METHOD, f"ln -s {link.format(place=place)} m/x; chown -hR {EVE}:{EVE} m")
    found = copy(place, "take_method", "m", 1)
    assert (found["leaked"], found["copied"]) == (0, 0)
    assert "leads out of the method's folder" in found["refused"][0]


def test_another_name_of_roots_file_in_a_users_method(place: Path) -> None:
    """A hard link, which older kernels let everybody make; readable for all, so that only the owner tells."""
    lay(place, *METHOD, f"chown -R {EVE}:{EVE} m; ln secret m/x; chmod 644 secret")
    found = copy(place, "take_method", "m", 1)
    assert (found["leaked"], found["copied"]) == (0, 0)
    assert "several names" in found["refused"][0]


@pytest.mark.parametrize(
    ("file", "link", "to"), [("m/run.py", "link", "secret"), ("m/lib", "link", "hidden")]
)
def test_a_method_that_is_swapped_for_links_gives_nobody_roots_files(
    place: Path, swapped: Any, file: str, link: str, to: str
) -> None:
    lay(place, *METHOD, f"mkdir eve; ln -s {place}/{to} eve/{link}; chown -hR {EVE}:{EVE} m eve")
    swapped(EVE, file, f"eve/{link}")
    found = copy(place, "take_method", "m", 150)
    assert found["leaked"] == 0
    assert found["copied"] + len(found["refused"]) > 1, "both were met"


def test_an_input_that_is_swapped_for_a_link_gives_nobody_roots_files(
    place: Path, swapped: Any
) -> None:
    lay(
        place, *METHOD, "mkdir eve; echo mine >eve/in",
        f"ln -s {place}/secret eve/link; chown -hR {EVE}:{EVE} eve",
    )  # fmt: skip
    swapped(EVE, "eve/in", "eve/link")
    found = copy(place, "take", "eve/in", 300)
    assert found["leaked"] == 0
    assert found["copied"] > 0
    assert f"User {ADA} may not read {place}/secret." in found["refused"]


def test_what_the_user_of_sudo_may_read_is_copied(place: Path) -> None:
    lay(place, *METHOD, f"echo hers >in; chown {ADA}:{ADA} in; chmod 600 in")
    assert copy(place, "take", "in", 1)["copied"] == 1
    assert copy(place, "take_method", "m", 1)["copied"] == 1
    refused = copy(place, "take", "secret", 1)
    assert refused["refused"] == [f"User {ADA} may not read {place}/secret."]


@pytest.mark.parametrize("part", ["config", ".dshpc", ".dshpc/build", ".dshpc/build-secrets"])
def test_root_writes_and_gives_away_nothing_behind_a_link_in_a_users_project(
    place: Path, swapped: Any, part: str
) -> None:
    """The owner of the project swaps a folder of it for a link into one of root's, all the time."""
    lay(
        place, "mkdir -p p/config p/.dshpc/build/inner p/.dshpc/build-secrets links roots/build/inner",
        "mkdir roots/config roots/build-secrets; echo SECRET >roots/slurm.conf; chmod 600 roots/slurm.conf",
        "cp roots/slurm.conf roots/note.json; cp roots/slurm.conf roots/build/inner/file",
        f"touch p/.dshpc/build/inner/file; ln -s {place}/roots links/roots; chown -hR {ADA}:{ADA} p links",
    )  # fmt: skip
    look = 'cd "$1"; find roots -printf "%p %U %m %s %l\n" | sort'
    before = root("sh", "-c", look, "sh", str(place))
    swapped(ADA, f"p/{part}", "links/roots")
    told = json.loads(root(sys.executable, "-c", WRITER, f"{place}/p", str(ADA), "150"))
    assert root("sh", "-c", look, "sh", str(place)) == before
    assert told["done"] > 100
    assert any("root follows none" in each for each in told["refused"]), told
