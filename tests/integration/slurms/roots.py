"""Root file systems with Slurm, made of the packages of one Debian suite."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.engine.site import APT_FILE, SiteFiles
from dshpc_setup.image.base import BaseImage

# Debian's stable release, whose Slurm the image has, and the newest that there is
SUITES = ("trixie", "sid")

_PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client"),
    *("slurm-wlm-nvml-plugin", "slurm-wlm-rsmi-plugin"),
    *("slurmdbd", "mariadb-server-core"),
)
_OURS = Path(__file__).parents[3] / "container"
_MAKE_S = 600.0
_COPY_S = 400.0
_ASK_S = 90.0
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# All packages come from the one suite, so that it works as its users have it; its address is that of
# the base image. Snapshots are dated back: the date of the suite is not looked at. No daemon starts.
_SCRIPT = """
if [ -s "$1" ]; then export APT_CONFIG="$1"; fi
suite=$2; shift 2
uri=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources | head -n 1)
[ -n "$uri" ] || { echo "the base image names no package source" >&2; exit 1; }
rm -f /etc/apt/sources.list.d/*
printf 'Types: deb\\nURIs: %s\\nSuites: %s\\nComponents: main contrib\\nSigned-By: %s\\n' \
    "$uri" "$suite" @KEYRING@ > /etc/apt/sources.list.d/slurm.sources
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
printf 'path-exclude=/usr/share/%s/*\\n' doc man locale > /etc/dpkg/dpkg.cfg.d/small
apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Acquire::Check-Valid-Until=false -o Dpkg::Options::=--force-unsafe-io "$@"
}
apt update
apt install --yes --no-install-recommends tcc python3 "$@"
mkdir -p /usr/local/lib/dshpc
for source in /run/ours/task_*.c; do
    name=task-${source#/run/ours/task_}
    sh /run/ours/compile.sh "$source" "/usr/local/lib/dshpc/${name%.c}.so"
done
apt clean
rm -rf /var/lib/apt/lists/*
""".replace("@KEYRING@", _KEYRING)


@dataclass(frozen=True)
class SlurmRoot:
    """`owner`: uid and gid of SlurmUser in it."""

    folder: Path
    version: str  # "24.11.5"
    owner: tuple[int, int]

    @property
    def release(self) -> tuple[int, int]:
        """(24, 11): what Slurm's compatibility goes by."""
        year, month, *_ = self.version.split(".")
        return int(year), int(month)


@contextlib.contextmanager
def slurm_root(suite: str, base: BaseImage, site: SiteFiles, folder: Path) -> Iterator[SlurmRoot]:
    """The suite's Slurm on the base image's files, in a folder that is gone at the end."""
    name = f"dshpc-test-slurm-{suite}-{secrets.token_hex(4)}"
    settings, root = folder / f"{name}.site", folder / name
    settings.mkdir(parents=True)
    root.mkdir()
    (settings / "apt.conf").write_text(site.apt_conf)
    (settings / "ca.pem").write_text(site.ca_pem)
    environment = [item for key in site.proxy_env() for item in ("--env", key)]
    argv = [
        *("docker", "run", "--name", name, *environment),
        *("--network", "host" if site.uses_loopback() else "bridge"),
        *("--volume", f"{settings}:{Path(APT_FILE).parent}:ro"),
        *("--volume", f"{_OURS}:/run/ours:ro"),
        *(base.ref, "sh", "-euc", _SCRIPT, "sh", APT_FILE, suite, *_PACKAGES),
    ]
    try:
        _run(argv, _MAKE_S, {**os.environ, **site.proxy_env()})
        _export(name, root)
        yield SlurmRoot(root, _version(root), _slurm_user(root))
    finally:
        subprocess.run(
            ["docker", "rm", "--force", name], capture_output=True, timeout=180, check=False
        )
        gone = ["rm", "-rf", "--one-file-system", str(root), str(settings)]
        subprocess.run(gone, timeout=_COPY_S, check=True)


def _export(container: str, root: Path) -> None:
    with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export:
        subprocess.run(
            ["tar", "-x", "--numeric-owner", "-C", str(root)],
            stdin=export.stdout,
            timeout=_COPY_S,
            check=True,
        )
    assert export.returncode == 0


def _version(root: Path) -> str:
    """What both daemons say of themselves, which has to be one version."""
    said = {
        _run(["chroot", str(root), program, "-V"], _ASK_S).strip()
        for program in ("slurmctld", "slurmd")
    }
    assert len(said) == 1, said
    found = re.fullmatch(r"slurm(?:-wlm)? (\d+\.\d+\.\d+)\S*", said.pop())
    assert found, "no version"
    return found[1]


def _slurm_user(root: Path) -> tuple[int, int]:
    for line in (root / "etc/passwd").read_text().splitlines():
        name, _, uid, gid, *_ = line.split(":")
        if name == "slurm":
            return int(uid), int(gid)
    raise AssertionError("the packages made no user slurm")


def _run(argv: list[str], deadline_s: float, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=deadline_s, env=env, check=False
    )
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout}\n{done.stderr}"
    return done.stdout
