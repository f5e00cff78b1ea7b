"""A base system with Slurm's client, made from this machine's mirror without Docker: by root, by a user with
a range of ids, and by one without; and whatever moment it is killed in, nothing stays."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.debian import versions
from dshpc_setup.image.mirror import Mirror, of_host
from dshpc_setup.machine.local import LocalMachine
from tests.integration.cluster import ROOT
from tests.integration.test_builtin import own_user, within

WAYS = ("root", "mapped", "single")
USER = "dshpc-test-base"
DEBIAN = Mirror("http://deb.debian.org/debian", security="http://deb.debian.org/debian-security")


@dataclass(frozen=True)
class Maker:
    """One user's place."""

    way: str
    home: Path
    uid: int
    gid: int

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        script = str(self.home.parent / "own_base.py")
        argv = [os.path.realpath(sys.executable), script, *arguments]
        names = ("http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        who: dict[str, Any] = {"user": self.uid, "group": self.gid, "extra_groups": []}
        return subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**env, **kept},
            cwd="/",
            **(who if self.uid else {}),
        )

    def do(self, action: str, *arguments: str) -> Any:
        """What it answers; it has to succeed."""
        run = self.begin(action, str(self.home / "out"), *arguments)
        out, err = run.communicate(timeout=550)
        assert run.returncode == 0, f"{action}: {out.decode()}\n{err.decode()}"
        return json.loads(out)


@pytest.fixture(scope="module")
def mirror() -> Mirror:
    release = Path("/etc/os-release").read_text()
    return (of_host(LocalMachine(), "debian") if "\nID=debian" in release else None) or DEBIAN


@pytest.fixture(scope="module")
def top() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dshpc-test-base-") as made:
        place = Path(made)
        place.chmod(0o755)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "dshpc_setup", place / "dshpc_setup", ignore=ignored)
        shutil.copy(ROOT / "tests" / "integration" / "own_base.py", place)
        for path in (place / "dshpc_setup").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield place


@pytest.fixture(scope="module", params=WAYS)
def maker(request: pytest.FixtureRequest, top: Path) -> Iterator[Maker]:
    way: str = request.param
    with own_user(way, USER) as (uid, gid):
        home = top / way
        home.mkdir(mode=0o700)
        os.chown(home, uid, gid)
        made = Maker(way, home, uid, gid)
        try:
            yield made
        finally:
            made.do("remove")


def test_whatever_moment_it_is_killed_in_nothing_stays(maker: Maker, mirror: Mirror) -> None:
    moments = random.Random(7)
    mark = os.fsencode(str(maker.home / "out"))
    for longest in (2.0, 9.0):
        run = maker.begin("make", str(maker.home / "out"), mirror.main, "")
        time.sleep(moments.uniform(0.3, longest))
        os.kill(run.pid, signal.SIGKILL)
        run.communicate(timeout=60)
        assert within(lambda: not _running(mark)), _running(mark)
        assert not (maker.home / "out/base").exists()


def test_a_base_with_slurm_s_client_is_whole(
    maker: Maker, mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where runs were killed that have left theirs."""
    way, seconds, packages, cached = maker.do(
        "make", mirror.main, mirror.security or "", "slurm-client"
    )
    with capsys.disabled():
        print(f"\n{way}: {len(packages)} packages: fetched, unpacked, set up in {seconds} s")
    assert way == maker.way
    assert cached == ["", ".InRelease", ".deb", ".xz"], "and the lock; packages write nothing there"
    assert sorted(path.name for path in (maker.home / "out").iterdir()) == [".base.lock", "base"]
    assert {"apt", "dpkg", "ca-certificates", "slurm-client"} <= packages.keys()
    conf = "printf 'ClusterName=x\\nSlurmctldHost=x\\n' >/tmp/c; SLURM_CONF=/tmp/c srun --version"
    audit, verify, apt, check, srun, owner, others = maker.do(
        "enter",
        "dpkg --audit",
        "dpkg --verify",
        "apt-get --version",
        "apt-get check -q",
        conf,
        "stat -c '%U:%G %a' /usr/bin/chage",
        "find / -xdev '(' -nouser -o -nogroup ')' -print -quit; ls -A /root;"
        "ls /usr/sbin/policy-rc.d; ls -d /.dshpc*; stat -c %s /etc/machine-id",
    )
    assert audit == [0, "", ""]
    assert verify == [0, "", ""]
    assert apt[1].startswith("apt ")
    assert check[0] == 0, check
    assert srun[1].startswith("slurm-wlm "), srun
    if maker.way != "single":
        assert owner[1] == "root:shadow 2755\n"
    assert "/usr" not in others[1], others


def test_what_is_there_is_not_made_again(maker: Maker, mirror: Mirror) -> None:
    run = maker.begin("make", str(maker.home / "out"), mirror.main, "")
    _, said = run.communicate(timeout=60)
    assert run.returncode != 0
    assert b"is there already" in said


def _running(mark: bytes) -> list[bytes]:
    """Processes that know the place by their arguments or by their mounts."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/cmdline").read_bytes()
            lines += Path(f"/proc/{pid}/mountinfo").read_bytes()
            if mark in lines and int(pid) != os.getpid():
                found.append(lines[:200])
    return found


def test_versions_are_compared_as_dpkg_does() -> None:
    """Of versions that Debian has had, and of such as are hard to compare."""
    listed = Path("/var/lib/dpkg/status").read_text()
    real = [line[9:] for line in listed.splitlines() if line.startswith("Version: ")]
    choice = random.Random(11)
    for _ in range(200):
        parts = choice.choices(["0", "1", "10", "a", "Z", "~", "+", ".", "-", "00"], k=6)
        real.append(f"{choice.choice(['', '0:', '2:'])}1{''.join(parts)}0")
    for _ in range(400):
        one, other = choice.choice(real), choice.choice(real)
        argv = ["dpkg", "--compare-versions", one, "lt", other]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode in (0, 1), done.stderr
        assert versions.holds(one, "<<", other) == (done.returncode == 0), (one, other)
