"""A recorded machine whose answers are damaged, and what must be true of its facts all the same."""

from __future__ import annotations

import json
import re
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from dshpc_setup import probes
from dshpc_setup.cli.facts import lines
from dshpc_setup.facts import HostFacts, explain
from dshpc_setup.machine import CommandResult, Ended, Read, Reply, Say
from dshpc_setup.machine.recorded import RecordedMachine, Unrecorded
from tests.fuzz import mutate

MOST_S = 2.0
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_TYPE = re.compile(r"[a-z0-9][a-z0-9_.-]*")


class Damaged(RecordedMachine):
    """The folder's machine; about `rate` of what it answers is damaged, the same at each asking."""

    def __init__(self, folder: Path, random: Random, rate: float, samples: tuple[str, ...]) -> None:
        super().__init__(folder)
        self._random, self._rate, self._samples = random, rate, samples
        self._given: dict[Any, Any] = {}
        self.raised: list[str] = []

    def _damaged(self, key: Any, source: Any, how: Callable[[], Any]) -> Any:
        if key not in self._given:
            self._given[key] = how() if self._random.random() < self._rate else source
        return self._given[key]

    def read(self, path: str) -> Read:
        found = super().read(path)
        source = found.text
        if source is None:
            return found
        text = self._damaged(path, source, lambda: mutate.text(self._random, source, self._samples))
        return replace(found, text=text)

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
            found = super().run(argv, deadline_s=deadline_s)
        except Unrecorded:  # damage elsewhere makes the product ask for more
            found = CommandResult(tuple(argv), "present", 1, "", "no such option", 1.0)

        def damage() -> CommandResult:
            source = found.stdout or self._random.choice(self._samples)
            code = self._random.choice((0, 0, 0, 1, 255))
            stdout = mutate.text(self._random, source, self._samples)
            return replace(found, state="present", code=code, stdout=stdout)

        result: CommandResult = self._damaged(tuple(argv), found, damage)
        return result

    def which(self, program: str) -> str | None:
        try:
            return super().which(program)
        except Unrecorded:
            return None

    def nvml(self, deadline_s: float) -> Reply:
        return self._reply("nvml", super().nvml(deadline_s))

    def amdsmi(self, deadline_s: float) -> Reply:
        return self._reply("amdsmi", super().amdsmi(deadline_s))

    def docker(self, deadline_s: float) -> Reply:
        return self._reply("docker", super().docker(deadline_s))

    def _reply(self, key: str, found: Reply) -> Reply:
        reply: Reply = self._damaged(
            key, found, lambda: replace(found, value=mutate.value(self._random, found.value))
        )
        return reply

    def apart(
        self,
        questions: Mapping[str, Callable[[Say], None]],
        *,
        deadline_s: float,
        meanwhile: Callable[[], object] | None = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        """A probe's exception, which others would read as an `error` fact, is kept."""

        def watched(question: Callable[[Say], None]) -> Callable[[Say], None]:
            def ask(say: Say) -> None:
                try:
                    question(say)
                except Exception:
                    self.raised.append(traceback.format_exc())
                    raise

            return ask

        watching = {name: watched(question) for name, question in questions.items()}
        return super().apart(watching, deadline_s=deadline_s, meanwhile=meanwhile)


def check(machine: Damaged) -> HostFacts | None:
    """Look at the machine; AssertionError says what is wrong with the facts or with the probes.

    None where damage led to a file whose text the folder does not hold.
    """
    started = time.process_time()  # a busy machine is no fault of what reads
    try:
        facts = probes.gather(machine)
    except Unrecorded:
        return None
    finally:
        took = time.process_time() - started
    assert not machine.raised, machine.raised[0]
    assert took < MOST_S, f"it took {took:.1f} s of the processor"
    found = facts.to_json(explain=True)
    json.dumps(found, allow_nan=False)
    for line in (*explain.lines(facts), *lines(facts)):
        assert line.isprintable(), line
    _check_gpus(facts)
    _check_numbers(facts)
    for item in facts.evidence:
        if item.state == "error":
            assert item.detail, f"an error without a reason: {item}"
    return facts


def _check_gpus(facts: HostFacts) -> None:
    gpus = facts.gpus
    assert (gpus.state == "present") == bool(gpus.devices), gpus
    assert gpus.state == "present" or gpus.detail, gpus
    assert len({device.index for device in gpus.devices}) == len(gpus.devices), gpus
    for device in gpus.devices:
        assert device.memory_mib is None or device.memory_mib > 0, device
        assert device.pci_bus_id is None or _ADDRESS.fullmatch(device.pci_bus_id), device
        assert _TYPE.fullmatch(device.slurm_type), device
        for text in (device.name, device.uuid, device.driver_version, device.compute):
            assert text is None or text.strip(), device


def _check_numbers(facts: HostFacts) -> None:
    cpu, memory = facts.cpu, facts.memory
    for number in (cpu.logical, cpu.usable, cpu.sockets, memory.total_mib, memory.limit_mib):
        assert number is None or number > 0, facts
    if cpu.logical is not None and cpu.usable is not None:
        assert cpu.usable <= cpu.logical, cpu
    if memory.total_mib is not None and memory.limit_mib is not None:
        assert memory.limit_mib <= memory.total_mib, memory
