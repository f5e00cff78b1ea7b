"""What a machine that joins is told of the cluster, and what its controller's container is asked for."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from dshpc_setup import __version__, codec
from dshpc_setup.cluster.targets import Target
from dshpc_setup.container import far
from dshpc_setup.container.joining import ABOUT_SCHEMA, About
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers
from dshpc_setup.environment.model import FOLDER
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.join import firewall
from dshpc_setup.join.messages import ENVIRONMENT_FILES, Facts, Probe
from dshpc_setup.machine import Machine
from dshpc_setup.settings import Settings

ASK_S = 30.0
# What all nodes have alike, and what the image is made from; of the rest each machine decides
SHARED = (
    "prefix", "partition", "partitions", "workspace_access", "unhealthy_gpus", "gpu_sharing", "gres_type",
    "isolation", "slurm_conf_extra", "array_limit", "job_limit", "longest_wait", "base_image", "cuda_runtime",
)  # fmt: skip
_PROBES = ".dshpc-join-"


def refuse_deaf(settings: Settings) -> None:
    """Raises DshpcError where Slurm listens for no other machine."""
    if settings.place.is_joined:
        raise DshpcError(
            "This machine is a node of a cluster whose controller is elsewhere.",
            f"The controller is at {settings.place.controller}.",
            ("Run this on the controller's machine.",),
        )
    if not settings.listens:
        raise DshpcError(
            "Other machines cannot join: Slurm listens for this machine alone.",
            "The setting listen is off.",
            (
                Fix("See the addresses of this machine", "ip -4 -brief address", step="look"),
                Fix(
                    "Name the one that the others reach, or its interface",
                    "configure-environment --listen ADDRESS",
                ),
            ),
        )


def about(machine: Machine, container: str) -> About:
    """Raises DshpcError where it does not run or does not say."""
    done = containers.exec_in(machine, container, ["dshpc-node", "join-about"], deadline_s=ASK_S)
    try:
        return codec.from_json(About, foreign.value(done.stdout or "null"), ABOUT_SCHEMA)
    except ValueError:
        raise DshpcError(
            f"The container {container} does not say which Slurm it has.",
            done.text,
            (Fix("Look at its log", "dshpc logs", step="look"),),
        ) from None


def gather(machine: Machine, cluster: Target, settings: Settings, most_gpus: int) -> Facts:
    """All but the probe; raises DshpcError."""
    told = about(machine, cluster.container)
    shared = {name: settings.texts[name] for name in SHARED if name in settings.texts}
    shared["prefix"] = cluster.prefix
    return Facts(
        prefix=cluster.prefix,
        address=far.own_address(settings),
        slurm_ports=(settings.slurm_ports[0], settings.slurm_ports[1]),
        srun_ports=settings.srun_ports,
        settings=shared,
        environment=_environment(cluster.project.folder),
        most_gpus=most_gpus,
        work=cluster.work,
        slurm=told.slurm,
        slurm_uid=told.slurm_uid,
        version=__version__,
        firewall=firewall.kind(machine),
        clock=0.0,
    )


def _environment(folder: Path) -> Mapping[str, str]:
    found = {}
    for name in ENVIRONMENT_FILES:
        try:
            found[name] = (folder / FOLDER / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
    return found


def leave_probe(work: str) -> Probe | None:
    """A file by which another machine sees whether its folder is the same; None where none can be made."""
    name, text = f"{_PROBES}{secrets.token_hex(8)}", secrets.token_hex(16)
    path = os.path.join(work, name)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            os.write(handle, text.encode())
            found = os.fstat(handle)
        finally:
            os.close(handle)
    except OSError:
        return None
    return Probe(name, text, found.st_uid, found.st_gid)


def take_probe(work: str, probe: Probe) -> None:
    """The file is gone afterwards, where it can be."""
    try:
        os.unlink(os.path.join(work, probe.name))
    except OSError:
        return
