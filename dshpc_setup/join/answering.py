"""A question of a machine that joins, answered: who has no token that lives is told nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

from dshpc_setup import slurm_releases
from dshpc_setup.cluster.targets import Target
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError
from dshpc_setup.join import cluster_facts, messages, tokens
from dshpc_setup.join.messages import (
    Answer,
    Code,
    Done,
    Facts,
    Given,
    Probe,
    Question,
    Reach,
    Reached,
    Take,
)
from dshpc_setup.machine import Machine, addresses
from dshpc_setup.machine.listeners import listen
from dshpc_setup.slurm.client import Slurm

_REACH_S = 4.0
_LISTEN_S = 20.0
_WRONG_AT_MOST, _WRONG_WITHIN_S = 10, 60.0
_MOST_PROBES = 64
_SEEN_S = 20.0  # for so long a file waits to be seen


@dataclass
class Desk:
    """One cluster's; questions come from several threads. `say` writes a line of the log."""

    machine: Machine
    cluster: Target
    facts: Facts
    say: Callable[[str], None]
    now: Callable[[], float] = time.time
    _wrong: list[tuple[str, float]] = field(default_factory=list)  # from where, and when
    _probes: dict[str, tuple[Probe, float]] = field(default_factory=dict)  # by node; since when
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, line: bytes, seen: str) -> bytes:
        """`seen`: the address that the line came from."""
        try:
            question = messages.from_line(Question, line, messages.QUESTION)
        except ValueError as error:
            return _line(_refuse("malformed", str(error)))
        try:
            return _line(self._answer(question, seen))
        except DshpcError as error:
            return _line(_refuse("cluster", f"{error.brief} {error.details}".strip()))
        except ValueError as error:
            return _line(_refuse("malformed", str(error)))

    def _answer(self, question: Question, seen: str) -> Answer:
        if question.protocol != messages.PROTOCOL:
            return _refuse("protocol", self.facts.version)
        if (refused := self._refusal(question, seen)) is not None:
            self.say(f"refused {refused}: {question.node or '?'} from {seen}")
            return _refuse(refused)
        if question.ask == "facts":
            return Answer(asdict(self._told(question.node)))
        if question.ask == "reach":
            return self._reach(question, messages.of_mapping(Reach, question.value), seen)
        if question.ask == "take":
            return self._take(question, messages.of_mapping(Take, question.value), seen)
        return self._done(question, messages.of_mapping(Done, question.value), seen)

    def _refusal(self, question: Question, seen: str) -> Code | None:
        project, now = self.cluster.project, self.now()
        with self._lock:
            self._wrong = [each for each in self._wrong if now - each[1] < _WRONG_WITHIN_S]
            # One machine that guesses keeps no other from joining
            if [at for at, _ in self._wrong].count(seen) >= _WRONG_AT_MOST:
                return "busy"
        token = tokens.known(project, question.id, question.secret)
        if token is None:
            with self._lock:
                self._wrong.append((seen, now))
            return "unknown"
        return token.refusal(now, _user(question, seen))

    def _told(self, node: str) -> Facts:
        self._take_probe(node)
        probe = (
            cluster_facts.leave_probe(self.cluster.work)
            if len(self._probes) < _MOST_PROBES
            else None
        )
        if probe is not None:
            with self._lock:
                self._probes[node] = probe, self.now()
        return replace(self.facts, probe=probe, clock=self.now())

    def _take_probe(self, node: str) -> None:
        with self._lock:
            probe, _ = self._probes.pop(node, (None, 0.0))
        if probe is not None:
            cluster_facts.take_probe(self.cluster.work, probe)

    def tidy(self) -> None:
        """Files of those who went no further."""
        old = self.now() - _SEEN_S
        for node in [node for node, (_, since) in tuple(self._probes.items()) if since < old]:
            self._take_probe(node)

    def close(self) -> None:
        """Nothing of it stays in the work folder."""
        for node in tuple(self._probes):
            self._take_probe(node)

    def _reach(self, question: Question, asked: Reach, seen: str) -> Answer:
        self._take_probe(question.node)
        if seen != asked.address:
            return _refuse("nat", seen)
        if (taken := self._taken(question.node, asked.address)) is not None:
            return _refuse("name", taken)
        return Answer(
            asdict(
                Reached(
                    addresses.why_not_reached(asked.address, asked.slurmd_port, _REACH_S),
                    addresses.why_not_reached(asked.address, asked.srun_port, _REACH_S),
                    seen,
                    self._listen(),
                )
            )
        )

    def _taken(self, node: str, address: str) -> str | None:
        """Who has the name already; None where nobody has, or the machine that asks had it before."""
        if node == self.cluster.prefix:
            return self.facts.address
        slurm = Slurm(self.machine, self.cluster.container, checked=True)
        known = slurm.node(node, deadline_s=cluster_facts.ASK_S)
        if known is None or known.address == address or known.down or not known.registered:
            return None
        return known.address

    def _listen(self) -> int:
        """A port of srun's range, at which somebody answers for some seconds."""
        for port in range(self.facts.srun_ports[1], self.facts.srun_ports[0] - 1, -1):
            try:
                there = listen(self.facts.address, port)
            except OSError:
                continue
            threading.Thread(target=accept_for, args=(there, _LISTEN_S), daemon=True).start()
            return port
        return 0

    def _take(self, question: Question, asked: Take, seen: str) -> Answer:
        ours, theirs = self.facts.slurm, asked.slurm
        if (unfit := slurm_releases.unfit(ours, theirs)) is not None:
            code: Code = "slurm" if unfit == "newer" else "slurm-old"
            self.say(f"refused {code} {theirs}: {question.node} from {seen}")
            return _refuse(code, f"controller {ours}, this machine's image {theirs}")
        if asked.slurm_uid != self.facts.slurm_uid:
            return _refuse("slurm-user", str(self.facts.slurm_uid))
        given = containers.exec_in(
            self.machine,
            self.cluster.container,
            ["dshpc-node", "give-key"],
            deadline_s=cluster_facts.ASK_S,
        )
        if not given.ok:
            return _refuse("cluster", given.stderr.strip())
        refused = tokens.use(self.cluster.project, question.id, _user(question, seen), self.now())
        if refused is not None:
            return _refuse(refused)
        self.say(f"given the key: {question.node} from {seen}, token {question.id}")
        return Answer(asdict(Given(given.stdout)))

    def _done(self, question: Question, told: Done, seen: str) -> Answer:
        token = tokens.known(self.cluster.project, question.id, question.secret)
        if token is None or _user(question, seen) not in token.used_by:
            return _refuse("malformed", "this machine has not been given the key for this token")
        containers.exec_in(
            self.machine,
            self.cluster.container,
            ["dshpc-node", "collect-offers"],
            deadline_s=cluster_facts.ASK_S,
        )
        containers.exec_in(
            self.machine,
            self.cluster.container,
            ["dshpc-node", "keep-users", question.node],
            deadline_s=cluster_facts.ASK_S,
            stdin=told.users,
        )
        self.say(f"joined: {question.node} from {seen}, token {question.id}")
        return Answer({})


def _user(question: Question, seen: str) -> str:
    """Who uses a token: a name alone is what anybody may give."""
    return f"{question.node} at {seen}"


def accept_for(there: socket.socket, seconds: float) -> None:
    """Connections are taken and ended for so long."""
    until = time.monotonic() + seconds
    with there:
        while (rest := until - time.monotonic()) > 0:
            there.settimeout(rest)
            try:
                there.accept()[0].close()
            except OSError:
                return


def _refuse(code: Code, details: str = "") -> Answer:
    return Answer(refused=messages.Refused(code, details))


def _line(answer: Answer) -> bytes:
    return messages.to_line(answer, messages.ANSWER)
