"""Reports of the machines in tests/machines, made and read back without writing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from dshpc_setup import probes
from dshpc_setup.bundle import archive, contents, scrubbed
from dshpc_setup.bundle.replay import machine_of, stored_of
from dshpc_setup.bundle.sources import Sources
from dshpc_setup.checkup import known_of
from dshpc_setup.diagnose import CheckInput, Finding, diagnose
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.log import Log
from dshpc_setup.machine.overlay import with_simulated_gpus
from dshpc_setup.machine.recorded import RecordedMachine, Unrecorded
from dshpc_setup.observed import stored
from dshpc_setup.observed.model import SCHEMA, Observed
from dshpc_setup.record import recorder
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Silent

MACHINES = Path(__file__).parents[2] / "machines"


class Made(RecordedMachine):
    """A machine of which all is known: what its folder does not hold is not there."""

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> CommandResult:
        try:
            return super().run(argv, deadline_s=deadline_s, on_line=on_line)
        except Unrecorded:
            return CommandResult(tuple(argv), "absent", None, "", "not there", 1.0)

    def which(self, program: str) -> str | None:
        try:
            return super().which(program)
        except Unrecorded:
            return None


@cache
def captured(name: str) -> tuple[Made, Log]:
    """A machine of tests/machines with its recording."""
    machine = Made(MACHINES / name)
    return machine, recorder.capture_machine(machine, Silent())[1]


def known_on(machine: RecordedMachine, settings: Settings, observed: Observed) -> CheckInput:
    facts = probes.gather(with_simulated_gpus(machine, settings.simulate))
    return known_of(machine, facts, settings, observed)


def empty() -> Observed:
    return stored.from_json(f'{{"schema": "{SCHEMA}"}}', "none")


def report(machine: Made, log: Log, known: CheckInput, settings: Settings | None = None) -> Sources:
    """The sources of a report about what is known, without a project."""
    return Sources(known, diagnose(known), log, settings=settings)


def packed(machine: Made, sources: Sources) -> bytes:
    return archive.pack("dshpc-report", contents.listed(scrubbed.files(machine, sources)))


def replayed(path: Path) -> CheckInput:
    """As doctor has it of --machine FILE.tar.gz."""
    machine, told = machine_of(path), stored_of(path)
    known = known_on(machine, told.settings or Settings(), told.observed or empty())
    return told.with_proof(known)


Told = dict[str, tuple[str, str | None, str | None]]


def by_id(findings: tuple[Finding, ...]) -> Told:
    return {one.id: (one.state, one.blocked_by, one.caused_by) for one in findings}


def same(known: CheckInput, path: Path) -> tuple[Told, Told]:
    """The findings before and after, to be compared."""
    return by_id(diagnose(known)), by_id(diagnose(replayed(path)))
