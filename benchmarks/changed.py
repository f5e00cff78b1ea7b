"""Clusters of one image that differ in one thing each, to see what that costs."""

from __future__ import annotations

import re
from pathlib import Path

from start import docker, options, seconds_to

PARTS = {
    "epilog": "Epilog|PrEpPlugins",
    "skipped-epilog": "PrEpPlugins",  # it is run then
    "task-prolog": "PlugStackConfig",
    "lua": "JobSubmitPlugins|CliFilterPlugins",
    "accounting": "JobAcctGatherType",
    "job-log": "JobCompType|JobCompLoc",
}
"""What dsHPC adds to slurm.conf, and by which lines."""

OWN = "# USER_CUSTOMIZED=true\n"


def started(name: str, image: str, *more: str) -> str:
    """A cluster as the image is shipped, ready; its slurm.conf."""
    seconds_to("Ready after", [*options(name), *more, image])
    return docker("exec", name, "cat", "/etc/slurm/slurm.conf")


def started_with(name: str, image: str, slurm_conf: str, folder: Path, *more: str) -> None:
    """One with this slurm.conf of a user's own, ready; nothing else of it differs."""
    config = folder / f"{name}-config"
    config.mkdir()
    (config / "slurm.conf").write_text(OWN + slurm_conf)
    in_force = started(name, image, "--volume", f"{config}:/config:ro", *more)
    if in_force.strip() != (OWN + slurm_conf).strip():
        raise SystemExit(f"{name}: the changed slurm.conf is not in force:\n{in_force}")


def without(slurm_conf: str, part: str) -> str:
    """Less the lines of one of PARTS, all of which must be there."""
    keys = PARTS[part]
    left, lines = re.subn(rf"(?m)^(?:{keys})=.*\n", "", slurm_conf)
    if lines != keys.count("|") + 1:
        raise SystemExit(f"slurm.conf has not each line of {keys}:\n{slurm_conf}")
    return left
