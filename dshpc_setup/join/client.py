"""`configure-environment --join TOKEN`: proofs before anything is written, then what the run is given."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from threading import Thread
from typing import Any

from dshpc_setup import __version__
from dshpc_setup.engine import containers
from dshpc_setup.environment.model import FOLDER
from dshpc_setup.errors import DshpcError, Exit, Fix, usage_error
from dshpc_setup.files.atomic import make_folder, write_atomic
from dshpc_setup.join import cluster_facts, firewall, same_users, share, token
from dshpc_setup.join.answering import accept_for
from dshpc_setup.join.asking import Asking
from dshpc_setup.join.messages import Done, Facts, Given, Reach, Reached, Take
from dshpc_setup.machine import Machine, addresses
from dshpc_setup.machine.listeners import listen
from dshpc_setup.project.folder import JOINED, LIVE, Project
from dshpc_setup.settings import BY_NAME, texts
from dshpc_setup.terminal.sanitize import listed

CLOCK_S = 5.0
OWN_WORK = "work"  # in the folder that it joins from
_REACH_S = 5.0
_LISTEN_S = 20.0
_TAKE_S = 60.0
_PLAIN = (
    "Traffic between the machines is not encrypted: Debian's Slurm has no TLS. Whoever can listen on the "
    "network between them can read scripts, output and environments of jobs. What to do: docs/security.md."
)
_ENFORCED = (
    "The cluster has the tier enforced: its container here gets SYS_ADMIN, so whoever is root on the "
    "controller's machine is as good as root on this one: docs/security.md."
)


@dataclass(frozen=True)
class Wanted:
    """What was asked for; `listen` and `node` are "" where this machine is to find them itself."""

    token: str
    node: str = ""
    listen: str = ""
    work: str = ""


@dataclass
class Join:
    """A setup.joining.Joining. Made by `begin`, when all proofs have passed."""

    project: Project
    asking: Asking
    facts: Facts
    listen: str
    work: str
    said: tuple[str, ...] = ()
    own_work: bool = False  # the work folder is not the controller's
    carried_work: str = ""  # where the controller's workspaces are carried to then
    owner: int | None = None  # whose jobs alone the node takes
    given: str = field(default="", repr=False)  # with the key, by `connect`

    @property
    def flags(self) -> Mapping[str, str | None]:
        facts = self.facts
        return {
            # Mounts, folders and users of this machine are not the controller's to set
            **{
                name: facts.settings[name]
                for name in cluster_facts.SHARED
                if name in facts.settings
            },
            "prefix": facts.prefix,
            "slurm_ports": ",".join(map(str, facts.slurm_ports)),
            "srun_ports": "-".join(map(str, facts.srun_ports)),
            "listen": self.listen,
            **({"work": self.work} if self.work else {}),
        }

    @property
    def one_user(self) -> bool:
        return self.facts.slurm_uid == 0

    def without_share(self) -> bool:
        had, self.own_work = not self.own_work, True
        if had and self.work == self.facts.work:
            self.work = OWN_WORK
        return had

    def keep_to(self, owner: int) -> None:
        self.owner = owner

    @property
    def note(self) -> Mapping[str, Any]:
        own: dict[str, Any] = {"own_work": True} if self.own_work else {}
        if self.carried_work:
            own["carried_work"] = self.carried_work
        if self.owner is not None:
            own["owner"] = self.owner
        return {"node": self.asking.node, "controller": self.facts.address, **own}

    def prepare(self) -> None:
        folder = self.project.folder / FOLDER
        if not self.facts.environment or folder.exists():
            return
        make_folder(folder, self.project.owner)
        for name, text in self.facts.environment.items():
            write_atomic(folder / name, text, owner=self.project.owner)

    def connect(self, machine: Machine, container: str) -> None:
        about = cluster_facts.about(machine, container)
        taken = self.asking.asked(Given, "take", asdict(Take(about.slurm, about.slurm_uid)))
        done = containers.exec_in(
            machine,
            container,
            ["env", f"DSHPC_CONTROLLER={self.facts.address}", "dshpc-node", "take-key"],
            deadline_s=_TAKE_S,
            stdin=taken.given,
        )
        if not done.ok:
            raise DshpcError(
                "The container did not take the key.",
                done.text,
                (Fix("Look at its log", "dshpc logs", step="look"),),
            )
        self.given = taken.given
        # Of an earlier join the daemons run with another key, and could not be given this one as they run
        if done.stdout.strip() != "changed":
            return
        # Its start looks for the controller where that is now; the other files come later
        live = {**self.project.read_note(LIVE), "DSHPC_CONTROLLER": self.facts.address}
        self.project.write_json(LIVE, live)
        containers.restart(machine, container)

    def conclude(self, machine: Machine) -> tuple[str, ...]:
        with contextlib.suppress(DshpcError):  # the controller looks every 15 s by itself, too
            self.asking.ask("done", asdict(Done(same_users.of_this_machine(machine))))
        return same_users.words(machine, self.given, self.asking.node)


def refuse_settings(flags: Mapping[str, str | None]) -> None:
    """Raises DshpcError (usage) for settings that the cluster decides."""
    decided = (*cluster_facts.SHARED, "slurm_ports", "srun_ports", "nodes", "rest")
    named = tuple(BY_NAME[name].flag for name in decided if flags.get(name) is not None)
    if named:
        raise usage_error(
            f"{listed(named)}: the cluster that this machine joins decides that.",
            "",
            "Leave it out, or change it on the controller's machine.",
        )


def begin(machine: Machine, project: Project, wanted: Wanted) -> Join:
    """All proofs; raises DshpcError, and nothing has been written then."""
    found = token.read(wanted.token)
    host = machine.read("/proc/sys/kernel/hostname").text or ""
    node = wanted.node or str(project.read_note(JOINED).get("node") or node_name(host))
    _refuse_name(node, "")
    asking = Asking(found, node)
    sent = time.time()
    facts = asking.asked(Facts, "facts")
    apart = facts.clock - (sent + time.time()) / 2
    _refuse_cluster(project, facts.prefix)
    _refuse_name(node, facts.prefix)
    _refuse_version(facts)
    _refuse_clock(apart)
    before = project.read_note(JOINED).get("carried_work")
    shared = share.look(wanted.work or facts.work, facts.probe, facts.work, before)
    if shared.refused is not None:
        raise shared.refused
    address = _address(wanted.listen, facts)
    with _listening(address, facts, has_joined=bool(project.read_note(JOINED))) as reach:
        reached = asking.asked(Reached, "reach", asdict(reach))
        _refuse_blocked(machine, facts, reach, reached)
    said = (
        f"The cluster {facts.prefix} at {facts.address} answers: Slurm {facts.slurm}, the clocks are "
        f"{abs(apart):.1f} s apart, and the machines reach each other's ports.",
        *shared.words(facts.address, address),
        *((_ENFORCED,) if facts.settings.get("isolation") == "enforced" else ()),
        _PLAIN,
    )
    carried = shared.carried_to
    work = wanted.work or (facts.work if shared.is_same else carried)
    listens = wanted.listen or address
    return Join(project, asking, facts, listens, work, said, not shared.is_same, carried)


def node_name(host: str) -> str:
    """As Slurm wants a node's name: the host's, without its domain."""
    name = re.sub(r"[^a-z0-9-]+", "-", host.strip().partition(".")[0].lower()).strip("-")
    return name if name[:1].isalpha() else f"node-{name}".rstrip("-")


def _refuse_name(node: str, prefix: str) -> None:
    """`prefix`: of the cluster; "" where it is not known yet."""
    try:
        texts.prefix(node)
        if re.fullmatch(rf"{re.escape(prefix)}-\d+", node):
            raise ValueError("is what a node on the controller's own machine would be called")
        if node == prefix:
            raise ValueError("is the controller's node")
    except ValueError as error:
        raise usage_error(
            f"This machine cannot be the node {node}: its name {error}.",
            "",
            Fix("Give it another", "configure-environment --join TOKEN --node-name NAME"),
        ) from None


def _refuse_cluster(project: Project, prefix: str) -> None:
    runtime, note = project.runtime(), project.read_note(JOINED)
    if not runtime or (note and runtime.get("prefix") == prefix):
        return
    whose = "belongs to another cluster" if note else "holds a cluster of its own"
    raise DshpcError(
        f"The folder {project.folder} {whose}, {runtime.get('prefix')}.",
        "A machine joins from a folder that holds no cluster.",
        (
            Fix("Take another one", "configure-environment --join TOKEN --dir DIR"),
            Fix("Or remove that cluster first", "dshpc destroy", step="alternative"),
        ),
    )


def _refuse_version(facts: Facts) -> None:
    if facts.version != __version__:
        raise DshpcError(
            f"The controller's machine has dsHPC setup {facts.version}, and this one {__version__}.",
            "",
            ("Take the same version on both, then run this again.",),
        )


def _refuse_clock(apart: float) -> None:
    if abs(apart) <= CLOCK_S:
        return
    how = "behind" if apart > 0 else "ahead of"
    raise DshpcError(
        f"This machine's clock is {abs(apart):.0f} s {how} the controller's.",
        f"{CLOCK_S:.0f} s at most: what Slurm's programs sign is worth nothing a minute later, by the "
        "receiver's clock.",
        (
            Fix("Have both clocks kept right", "sudo timedatectl set-ntp true"),
            Fix("See whether they are", "timedatectl", step="look"),
        ),
    )


def _address(listen_at: str, facts: Facts) -> str:
    """Of this machine, as the controller is to call it."""
    try:
        found = addresses.towards(facts.address)
    except OSError as error:
        raise DshpcError(
            f"This machine cannot reach {facts.address}.", error.strerror or str(error)
        ) from None
    if not listen_at:
        return found
    named = listen_at if re.fullmatch(r"[0-9.]+", listen_at) else addresses.of_interface(listen_at)
    if named is None or not addresses.is_here(named):
        raise usage_error(
            f"--listen {listen_at}: this machine has no such address or interface.",
            f"This machine reaches the controller from {found}.",
            Fix("See which there are", "ip -4 -brief address", step="look"),
        )
    if named != found:
        raise usage_error(
            f"--listen {listen_at}: this machine speaks to the controller from {found}, not from {named}.",
            "Slurm calls a node back at the address that it sees.",
            "Leave --listen out, or name that one.",
        )
    return named


@contextlib.contextmanager
def _listening(address: str, facts: Facts, *, has_joined: bool) -> Iterator[Reach]:
    """Somebody answers here at slurmd's port, and at one of srun's, as long as the block runs."""
    slurmd = facts.slurm_ports[1]
    with contextlib.ExitStack() as open_:
        srun = 0
        for port in (slurmd, *range(facts.srun_ports[1], facts.srun_ports[0] - 1, -1)):
            try:
                there = open_.enter_context(listen(address, port))
            except OSError as error:
                if port != slurmd:
                    continue
                if has_joined and error.errno == errno.EADDRINUSE:
                    continue  # slurmd of the join before answers there
                raise _port_taken(address, port, error) from None
            Thread(target=accept_for, args=(there, _LISTEN_S), daemon=True).start()
            open_.callback(_end_listening, there)
            if port != slurmd:
                srun = port
                break
        yield Reach(address, slurmd, srun)


def _end_listening(there: socket.socket) -> None:
    """Closed alone, it listens on as long as a thread waits at it, and slurmd cannot have the port."""
    with contextlib.suppress(OSError):
        there.shutdown(socket.SHUT_RDWR)


def _port_taken(address: str, port: int, error: OSError) -> DshpcError:
    return DshpcError(
        f"slurmd cannot listen at {address}:{port}.",
        f"{error.strerror}. All nodes of a cluster have the same ports.",
        (
            Fix("See who listens there", f"ss -ltnp 'sport = :{port}'", step="look"),
            Fix(
                "End that program, or give the cluster other ports, on the controller's machine",
                "configure-environment --slurm-ports N,N",
            ),
        ),
    )


def _refuse_blocked(machine: Machine, facts: Facts, reach: Reach, reached: Reached) -> None:
    """Raises DshpcError that names each way that is closed, and where to open it."""
    words: list[str] = []
    steps: list[Fix] = []
    closed = [
        (reach.slurmd_port, reached.slurmd, "slurmd's port"),
        (reach.srun_port, reached.srun, "a port of srun's"),
    ]
    for port, number, what in closed:
        if number is not None:
            words.append(
                f"From {facts.address} to this machine, {what} {reach.address}:{port}: {os.strerror(number)}."
            )
    if reached.slurmd is not None or reached.srun is not None:
        own = firewall.kind(machine)
        if reached.slurmd is not None:
            steps += firewall.let_in(
                own, facts.address, reach.slurmd_port, reach.slurmd_port, "on this machine"
            )
        if reached.srun is not None:
            steps += firewall.let_in(own, facts.address, *facts.srun_ports, "on this machine")
    theirs = firewall.known(facts.firewall)
    where = "on the controller's machine"
    ctld = addresses.why_not_reached(facts.address, facts.slurm_ports[0], _REACH_S)
    if ctld is not None:
        port = facts.slurm_ports[0]
        words.append(
            f"From this machine to slurmctld, {facts.address}:{port}: {os.strerror(ctld)}."
        )
        steps += firewall.let_in(theirs, reach.address, port, port, where)
    back = reached.listens and addresses.why_not_reached(facts.address, reached.listens, _REACH_S)
    if back:
        words.append(
            f"From this machine to a port of srun's, {facts.address}:{reached.listens}: {os.strerror(back)}."
        )
        steps += firewall.let_in(theirs, reach.address, *facts.srun_ports, where)
    if words:
        raise DshpcError(
            "The machines do not reach each other. Nothing was changed.",
            "\n".join(words),
            (*dict.fromkeys(steps), "Then run this again: the token is still good."),
            Exit.INCOMPLETE,
        )
