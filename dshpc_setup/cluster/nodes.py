"""`dshpc node`: each node of the cluster, as its controller, its container and its last start tell it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from dshpc_setup.cluster import stopping, targets, workers
from dshpc_setup.container import far
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers, start_report
from dshpc_setup.engine.containers import Container
from dshpc_setup.errors import DshpcError, Exit, Fix, usage_error
from dshpc_setup.jobs import clock, offer
from dshpc_setup.machine import Machine, Say
from dshpc_setup.project.folder import Project
from dshpc_setup.slurm import nodes as slurm_nodes
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import plain

SCHEMA = "dshpc.nodes/1"
_ASK_S = 20.0
_DEADLINE_S = 10.0  # of all nodes together


@dataclass(frozen=True)
class NodeNow:
    """`state` as Slurm has it, "down" of a node whose container does not run; `last_seen` (RFC 3339) is
    when it answered, None where nobody knows; `drift` what its last start found changed."""

    name: str
    host: str
    role: Literal["controller", "worker"]
    state: str
    gres: str
    address: str | None
    last_seen: str | None
    drift: tuple[Mapping[str, str], ...] = ()
    container: str = ""
    reason: str | None = None
    notes: tuple[str, ...] = ()
    work: tuple[str, ...] = ()  # of one on another machine: its own work folder, and its owner

    def to_json(self) -> dict[str, Any]:
        keys = ("name", "host", "role", "state", "gres", "address", "last_seen")
        own = {key: value for key, value in asdict(self).items() if key in keys}
        return {**own, "drift": [dict(each) for each in self.drift]}


@dataclass(frozen=True)
class NodesNow:
    nodes: tuple[NodeNow, ...]
    silent: str | None = None  # why the controller says nothing

    @property
    def exit_code(self) -> int:
        return int(Exit.OK if self.silent is None else Exit.INCOMPLETE)

    def named(self, name: str) -> NodeNow:
        """Raises DshpcError (usage) where there is none of that name."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise targets.no_node(name, tuple(node.name for node in self.nodes), self.silent)

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "nodes": [node.to_json() for node in self.nodes]}


def look(machine: Machine, project: Project) -> NodesNow:
    """All nodes, asked beside each other: one that does not answer holds up no other.

    Raises DshpcError where there is no cluster, or the engine does not answer.
    """
    cluster = targets.target(project)
    there = _containers(machine, cluster)
    running = {node: each for node, each in there.items() if each.status == "running"}
    questions: dict[str, Callable[[Say], None]] = {
        node: _report(machine, each.name) for node, each in running.items()
    }
    questions["controller"] = _lines(machine, cluster.container)
    ended = machine.apart(questions, deadline_s=_DEADLINE_S)
    told = next((item for item in ended["controller"].items if isinstance(item, str)), None)
    lines = _by_name(told or "")
    silent = None if lines else "Slurm's controller does not answer" if there else targets.DOWN
    host = (machine.read("/proc/sys/kernel/hostname").text or "").strip() or "localhost"
    names = [cluster.prefix, *(it for it in there if it != cluster.prefix)]
    if cluster.prefix not in lines and len(lines) == 1:  # a slurm.conf of the user's names it
        lines = {cluster.prefix: next(iter(lines.values()))}
    names += [it for it in lines if it not in names]
    found = []
    for name in names:
        role: Literal["controller", "worker"] = "controller" if name == cluster.prefix else "worker"
        reports = ended[name].items if name in ended else ()
        report = next((item for item in reports if isinstance(item, dict)), {})
        found.append(_node(name, host, role, there.get(name), lines.get(name), report))
    return NodesNow(tuple(found), silent)


def _containers(machine: Machine, cluster: targets.Target) -> dict[str, Container]:
    own = targets.ours(machine, cluster)
    others = workers.of_project(machine, cluster.project, cluster.container)
    return {**({cluster.prefix: own} if own is not None else {}), **others}


def _report(machine: Machine, container: str) -> Callable[[Say], None]:
    return lambda say: say(start_report.ask(machine, container))


def _lines(machine: Machine, container: str) -> Callable[[Say], None]:
    slurm = Slurm(machine, container)
    return lambda say: say(
        slurm.run("scontrol", "-o", "show", "node", deadline_s=_DEADLINE_S - 1).stdout
    )


def _by_name(text: str) -> dict[str, str]:
    found = ((re.match(r"NodeName=(\S+)", line), line) for line in text.splitlines())
    return {match[1]: line for match, line in found if match is not None}


def _node(
    name: str,
    host: str,
    role: Literal["controller", "worker"],
    container: Container | None,
    line: str | None,
    report: Mapping[str, Any],
) -> NodeNow:
    slurm = slurm_nodes.parse_line(line or "")
    address = re.search(r"\sNodeAddr=(\S+)", line or "")
    runs = container is not None and container.status == "running"
    state = "unknown" if slurm is None else slurm.plain_state.replace("+dynamic_norm", "")
    is_far = container is None and role == "worker"  # on another machine: Slurm alone knows of it
    answers = (runs or is_far) and slurm is not None and slurm.registered and not slurm.down
    drift = report.get("drift")
    notes = report.get("notes")
    return NodeNow(
        name,
        address[1] if is_far and address else host,
        role,
        state if runs or container is None else "down",
        slurm.gres if slurm is not None else "",
        address[1] if address else None,
        _now() if answers else _since(line or ""),
        tuple(
            {key: str(each.get(key) or "") for key in ("what", "was", "is", "done")}
            for each in (drift if isinstance(drift, list) else ())
            if isinstance(each, dict)
        ),
        container.name if container is not None else "",
        slurm.reason if slurm is not None else None,
        tuple(map(str, notes)) if isinstance(notes, list) else (),
        _told_of_far(line or "") if is_far else (),
    )


def _told_of_far(line: str) -> tuple[str, ...]:
    """By what it has told the controller of itself."""
    with contextlib.suppress(ValueError):
        told = offer.from_json(foreign.value((far.unpacked(line) or "null").partition("\n")[0]))
        return (
            *([offer.owners_alone(told.node, told.owner)] if told.owner is not None else []),
            *([offer.other_work(told.node, carries=told.carries)] if told.own_work else []),
        )
    return ()


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _since(line: str) -> str | None:
    """When Slurm set the node down, as far as its line says: "Reason=... [slurm@2026-11-26T10:39:00]"."""
    found = re.search(r"\[[^\]@]*@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]", line)
    return f"{found[1]}Z" if found else None


def drain(machine: Machine, project: Project, name: str, reason: str) -> None:
    """No new job begins there, what runs goes on; raises DshpcError where Slurm refuses it."""
    if not reason.strip() or any(not char.isprintable() for char in reason):
        raise usage_error("--reason must say in one line why.", "", 'Such as: --reason "new disk"')
    if reason.startswith("dshpc:"):
        raise usage_error(
            "A reason must not begin with dshpc:, as those of dshpc itself do.",
            "A start takes back what those took out.",
            "Choose other words.",
        )
    look(machine, project).named(name)
    slurm = Slurm(machine, targets.target(project).container, checked=True)
    if not (done := slurm.drain(name, reason, deadline_s=_ASK_S)).ok:
        raise _refused(name, "drained", done.text)


def resume(machine: Machine, project: Project, name: str, reporter: Reporter) -> None:
    """It takes jobs again; the container of a worker is started where it does not run.

    Of a node on another machine Slurm alone is asked.
    """
    cluster = targets.target(project)
    node = look(machine, project).named(name)
    own = containers.inspect(machine, node.container) if node.container else None
    is_far = not node.container and node.role == "worker"
    if not is_far and (own is None or (not own.running and node.role == "controller")):
        raise DshpcError(
            f"Node {name} has no container that runs.", "", ("Start all that is down: dshpc up",)
        )
    if own is not None and not own.running:
        reporter.progress(f"starting {own.name}")
        containers.restart(machine, own.name)
        workers.wait_ready(machine, {name: own.name}, reporter)
        return
    slurm = Slurm(machine, cluster.container, checked=True)
    known = slurm.node(name, deadline_s=_ASK_S)
    if known is not None and known.usable:
        return
    if not (done := slurm.resume(name, deadline_s=_ASK_S)).ok:
        raise _refused(name, "resumed", done.text)


def _refused(name: str, what: str, said: str) -> DshpcError:
    return DshpcError(
        f"Node {name} was not {what}.",
        said,
        (Fix("See how it is", f"dshpc node show {name}", step="look"),),
    )


def lines(now: NodesNow) -> list[str]:
    """A table."""
    rows = [("NODE", "ROLE", "STATE", "GPUS", "ADDRESS", "LAST SEEN")]
    rows += [
        (
            it.name,
            it.role,
            it.state,
            it.gres or "none",
            it.address or "-",
            clock.of_text(it.last_seen or "-"),
        )
        for it in now.nodes
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    told = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    told += [f"{it.name}: {_why(it.reason)}" for it in now.nodes if it.reason]
    told += [text for it in now.nodes for text in it.work]
    silent = now.silent or ""
    return told + ([f"{silent[:1].upper()}{silent[1:]}: see dshpc status"] if silent else [])


def _why(reason: str) -> str:
    """The reason, in words where it is one of ours that somebody has to do something about."""
    if not reason.startswith(slurm_nodes.FORMER_KEY):
        return reason
    return (
        "it has the key of before the last key rotate, and must join again: dshpc node add --again, or "
        "dshpc node token"
    )


def shown(machine: Machine, project: Project, node: NodeNow) -> list[str]:
    """All that is known of one."""
    cluster = targets.target(project)
    jobs = stopping.running_jobs(machine, cluster.container, frozenset((node.name,)))
    running = ["not known"] if jobs is None else [each.brief for each in jobs] or ["none"]
    told = [
        ("Node", f"{node.name}, {node.role}, on {node.host}"),
        ("Container", node.container or "none"),
        ("State", node.state + (f" ({_why(node.reason)})" if node.reason else "")),
        ("GPUs", node.gres or "none"),
        ("Address", node.address or "not known"),
        ("Last seen", node.last_seen or "not known"),
        *(("Changed", f"{it['what']}: {it['was']} before, {it['is']} now") for it in node.drift),
        *(("Note", text) for text in (*node.notes, *node.work)),
        *(("Jobs", text) for text in running),
    ]
    return [f"{key:<10} {plain(text)}" for key, text in told]
