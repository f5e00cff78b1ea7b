"""The caller's time zone. Imports are counted here: see benchmarks/srun.py."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing would cost as much as all of the rest
if TYPE_CHECKING:
    from collections.abc import Mapping

LOCALTIME = "/etc/localtime"  # a link into the time zone database, on Linux and on macOS
_DATABASE = "/zoneinfo/"


def variables(environ: Mapping[str, str]) -> list[str]:
    """`TZ=Europe/Berlin` where it is known by name: Slurm's commands tell times, and take them
    (`sbatch --begin=16:00`), by the clock of whoever runs them, and the container's is UTC.

    By name, since some libraries refuse TZ in the form of POSIX; the image has the database.
    """
    name = environ.get("TZ")
    if name is None:
        name = LOCALTIME
    name = name.removeprefix(":")
    if name.startswith("/"):
        name = os.path.realpath(name).rpartition(_DATABASE)[2].removeprefix("posix/")
    known = name and not name.startswith("/") and not name.endswith("UTC")
    return [f"TZ={name}"] if known and name.isascii() and name.isprintable() else []
