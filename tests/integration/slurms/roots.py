"""Root file systems with Slurm, made of the packages of one Debian suite."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.image.base import BaseImage
from tests.integration.base_root import base_root, run

# Debian's stable release, whose Slurm the image has, and the newest that there is
SUITES = ("trixie", "sid")

_PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client"),
    *("slurm-wlm-nvml-plugin", "slurm-wlm-rsmi-plugin"),
    *("slurmdbd", "mariadb-server-core"),
)
_OURS = Path(__file__).parents[3] / "container"
_ASK_S = 90.0

# All packages come from the one suite, so that it works as its users have it
_SCRIPT = """
name_suite main contrib >/etc/apt/new
rm -f /etc/apt/sources.list.d/*
mv /etc/apt/new /etc/apt/sources.list.d/slurm.sources
printf 'path-exclude=/usr/share/%s/*\\n' doc man locale > /etc/dpkg/dpkg.cfg.d/small
apt update
apt install --yes --no-install-recommends tcc python3 "$@"
mkdir -p /usr/local/lib/dshpc
for source in /run/ours/task_*.c; do
    name=task-${source#/run/ours/task_}
    sh /run/ours/compile.sh "$source" "/usr/local/lib/dshpc/${name%.c}.so"
done
apt clean
rm -rf /var/lib/apt/lists/*
"""


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
    with base_root(
        f"slurm-{suite}", _SCRIPT, (suite, *_PACKAGES), base, site, folder,
        volumes={str(_OURS): "/run/ours"},
    ) as root:  # fmt: skip
        yield SlurmRoot(root, _version(root), _slurm_user(root))


def _version(root: Path) -> str:
    """What both daemons say of themselves, which has to be one version."""
    said = {
        run(["chroot", str(root), program, "-V"], _ASK_S).strip()
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
