"""A worker: a node that registers itself with a slurmctld elsewhere (`slurmd -Z`).

It has files of its own, rendered from what it sees. slurmd ends on a NodeName line for a node that
registers itself ("Duplicated NodeName", 24.11): in the slurm.conf that it reads that line is a comment.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import replace

from dshpc_setup.container import check, daemons, jobs
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.run import Run
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.storage import cannot_write, replace_text
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import nodes as slurm_nodes
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.paths import ACCOUNTS, Paths

_MARK = "#registered: "
_ASK_S = 20.0
_POLL_S = 0.2
_CONNECT_S = 2.0
_GONE_S = 20.0
CHANGED = "dshpc:changed"
"""The reason of a node that is taken down to register anew, as its hardware is another one."""


def as_written(texts: Mapping[str, str]) -> dict[str, str]:
    """As slurmd wants them."""
    lines = re.sub(r"(?im)^(?=\s*NodeName\s*=)", _MARK, texts["slurm.conf"])
    return {**texts, "slurm.conf": lines}


def as_read(text: str) -> str:
    """As everybody else wants a slurm.conf of `as_written`."""
    return re.sub(rf"(?m)^{re.escape(_MARK)}", "", text)


def registration(text: str, node: str) -> str:
    """What the node says of itself as it registers: its NodeName line without name and state."""
    entry = slurm_conf.node(text, node)
    words = entry.line.split() if entry else []
    return " ".join(it for it in words if not re.match(r"(?i)(?:nodename|state)=", it))


def fitted(candidate: Candidate) -> Candidate:
    """The user's files as far as they are for any node: who has a node, and its GPUs, is rendered."""
    if not candidate.customized:
        return candidate
    texts = {**candidate.texts, "gres.conf": candidate.rendered["gres.conf"]}
    if "slurm.conf" in candidate.customized:
        own = re.sub(r"(?im)^(?=\s*NodeName\s*=)", "#", candidate.texts["slurm.conf"])
        (ours,) = re.findall(r"(?m)^NodeName=.*$", candidate.rendered["slurm.conf"])
        texts["slurm.conf"] = f"{own.rstrip()}\n{ours}\n"
    kept = {name: how for name, how in candidate.customized.items() if name != "gres.conf"}
    return replace(candidate, texts=texts, customized=kept)


def await_cluster(run: Run) -> None:
    """Until the controller has made the key and serves: one that comes up first waits, however long."""
    _await(run, *(run.paths.at(f"{ACCOUNTS}/{it}") for it in ("passwd", "group")))
    link_accounts(run.paths)


def await_key(run: Run) -> None:
    """The same on another machine, which is given the key as it joins: see container/joining.py."""
    _await(run)


def _await(run: Run, *files: str) -> None:
    with run.status.step("controller"):
        wanted = (run.paths.key, *files)
        said = False
        while not (all(map(os.path.exists, wanted)) and _serves(run)):
            if not said:
                run.status.say(f"Waiting for the controller, {run.settings.prefix}.")
                said = True
            time.sleep(_POLL_S)


def _serves(run: Run) -> bool:
    try:
        socket.create_connection(
            (run.settings.prefix, run.settings.slurm_ports[0]), timeout=_CONNECT_S
        ).close()
    except OSError:
        return False
    return True


def link_accounts(paths: Paths) -> None:
    """Users and groups are those of the controller, at every moment."""
    for name in ("passwd", "group"):
        path, target = paths.at(f"/etc/{name}"), f"{ACCOUNTS}/{name}"
        if os.path.islink(path) and os.readlink(path) == target:
            continue
        try:
            if os.path.lexists(f"{path}.dshpc-new"):
                os.unlink(f"{path}.dshpc-new")
            os.symlink(target, f"{path}.dshpc-new")
            os.replace(f"{path}.dshpc-new", path)
        except OSError as error:
            raise cannot_write(path, error) from None


def say_what_it_has(run: Run, text: str, node: str) -> None:
    """For services/slurmd/run. slurmctld takes a node's port for its own SlurmdPort unless it is told."""
    said = f"{registration(text, node)} Port={run.settings.slurm_ports[1]}"
    replace_text(f"{run.paths.run}/registration", f"{said}\n", sync=False)


def register(run: Run, candidate: Candidate, node: str, *, fresh: bool) -> None:
    """Where slurmctld knows the node with other hardware or another port than it has, it registers anew.

    slurmctld keeps what a node has registered with first, and takes one out that has less now. Raises
    DshpcError where jobs run here that would end by it (`fresh`: none can be left of before).
    """
    machine = run.machine
    entry = slurm_conf.node(candidate.texts["slurm.conf"], node)
    known = _known(machine, node)
    if entry is None or known is None:
        return
    wanted = {**entry.values, "port": str(run.settings.slurm_ports[1])}
    if is_same(known, wanted):
        return
    what = "another port" if is_same(known, entry.values) else "other hardware"
    there = tuple(
        job.id
        for job in Slurm(machine)
        .rows("JobID NodeList", "RUNNING,SUSPENDED,STOPPED", deadline_s=_ASK_S)
        .value
        or ()
        if node in job.nodes
    )
    if there and not fresh:
        raise DshpcError(
            f"Node {node} has {what} now, and jobs run there: {', '.join(there)}.",
            "It must register again, which would end them.",
            (Fix("Wait until they have ended, then run this again", "dshpc squeue"),),
        )
    run.status.say(f"Node {node} has {what} than before: it registers again.")
    if there:
        jobs.tidy_queue(machine, node, fresh=True)
    slurm = Slurm(machine)
    slurm.take_down(node, CHANGED, deadline_s=_ASK_S)
    until = time.monotonic() + _GONE_S
    while not (done := slurm.delete_node(node, deadline_s=_ASK_S)).ok:
        if time.monotonic() >= until:
            raise DshpcError(
                f"Node {node} has {what} than before and cannot register again.",
                done.text,
                (Fix("See what runs there", f"dshpc squeue -w {node}", step="look"),),
            )
        time.sleep(_POLL_S)
    run.up_since = time.time()
    port = check.port(candidate.texts, *check.PORTS["slurmd"])
    daemons.restart(machine, run.paths, "slurmd", port)


def _known(machine: Machine, node: str) -> str | None:
    """The line of `scontrol -o show node`; None of one that slurmctld does not know.

    Of all nodes: a question that fails, as slurmd has just begun, would look as if there were none. Raises
    DshpcError where slurmctld does not answer.
    """
    until = time.monotonic() + _GONE_S
    while not (asked := Slurm(machine).run("scontrol", "-o", "show", "node", deadline_s=_ASK_S)).ok:
        if time.monotonic() >= until:
            raise DshpcError(
                "The controller does not say which nodes it knows.",
                asked.text,
                (Fix("See what slurmd says", "dshpc logs", step="look"),),
            )
        time.sleep(_POLL_S)
    lines = asked.stdout.splitlines()
    return next((line for line in lines if line.startswith(f"NodeName={node} ")), None)


def is_same(line: str, wanted: Mapping[str, str]) -> bool:
    """Whether slurmctld's line of a node says what its NodeName line does. One whose port is that of all says
    none."""
    told = dict(re.findall(r"(\w+)=(\S*)", line))
    features = {it for it in told.get("AvailableFeatures", "").split(",") if it != "(null)"}
    return (
        # Of one that has registered with less, slurmctld tells what it has now, and has refused it
        "INVALID_REG" not in told.get("State", "")
        and told.get("Port", wanted.get("port")) == wanted.get("port", told.get("Port"))
        and told.get("CPUTot") == wanted.get("cpus")
        and told.get("RealMemory") == wanted.get("realmemory")
        and slurm_nodes.same_gres(
            told.get("Gres", "").replace("(null)", ""), wanted.get("gres", "")
        )
        and features - {""} == set(filter(None, wanted.get("feature", "").split(",")))
    )
