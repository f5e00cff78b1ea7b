"""`dshpc node token`: a token made, and the service that answers to it started; all of them taken back."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dshpc_setup.cluster import own_process, targets
from dshpc_setup.container import far
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.join import cluster_facts, service, tokens
from dshpc_setup.join.token import Token
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings, texts

_LONGEST_S = 30 * 86400.0


@dataclass(frozen=True)
class Made:
    """`ttl` as it was asked for."""

    token: Token
    ttl: str
    once: bool


def give(machine: Machine, project: Project, ttl: str, *, once: bool) -> Made:
    """Raises DshpcError where Slurm listens for no other machine, or the cluster does not run."""
    seconds = _seconds(ttl)
    project.need_own()
    own_process.need_lasting(
        "A process that machines join by is kept running from there.", "dshpc node token"
    )
    cluster, settings = targets.target(project), project.settings(machine.env)
    cluster_facts.refuse_deaf(settings)
    container = targets.ours(machine, cluster)
    if container is None or not container.running:
        raise DshpcError(
            "The cluster is not running, so no machine can join it.", "", ("Start it: dshpc up",)
        )
    address = far.own_address(settings)
    given, secret = tokens.made(project, time.time(), seconds, once=once)
    running = service.ensure(machine, cluster, address, settings.srun_ports)
    token = Token(address, running.port, running.pin, given.id, secret)
    return Made(token, ttl, once)


def _seconds(ttl: str) -> float:
    try:
        seconds = texts.age_s(texts.age(ttl))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise usage_error(
            f"--ttl {ttl}: that is no time that a token can be good for.",
            "It is a number followed by m, h or d: 30 days at most.",
            "Such as: --ttl 24h",
        )
    return seconds


def revoke(project: Project) -> tuple[str, ...]:
    """The ids of those that lived; the service ends. Nodes that have joined stay."""
    project.need_own()
    gone = tokens.revoke(project, time.time())
    service.stop(targets.target(project))
    return gone


def take_back(project: Project, number: str) -> None:
    """One token is worth nothing any more; the service ends by itself where no other one lives."""
    tokens.revoke(project, time.time(), number)


def was_used(project: Project, number: str) -> bool:
    """Whether somebody has got the key for it."""
    return any(each.used_by for each in tokens.read(project) if each.id == number)


def end(project: Project) -> None:
    """The cluster is gone: so are its tokens, and who answers to them."""
    if (project.folder / tokens.FILE).exists():
        revoke(project)


def serve(machine: Machine, project: Project, port: int) -> None:
    """What the service's own process does."""
    project.need_own()
    settings: Settings = project.settings(machine.env)
    service.serve(machine, targets.target(project), settings, port)


def line(made: Made) -> str:
    """What is typed on the machine that is to join."""
    return f"./configure-environment --yes --join {made.token.text()}"


def lines(made: Made) -> list[str]:
    """What is printed."""
    many = "one machine" if made.once else "any number of machines"
    return [
        line(made),
        "",
        f"Type that line on the machine that is to join, in a checkout of this version. It is good for "
        f"{made.ttl}, for {many}.",
        "Whoever has it can become a node and act as any user there: keep it as a password.",
        "To revoke it: dshpc node token --revoke",
    ]
