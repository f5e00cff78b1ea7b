"""A short run of tests/fuzz, always the same; and what becomes of garbage."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from dshpc_setup import probes
from dshpc_setup.facts import Evidence
from dshpc_setup.machine import CommandResult, Reply
from dshpc_setup.machine.recorded import RecordedMachine
from tests.fuzz.readers import READERS, Reader
from tests.fuzz.rounds import machine, reader
from tests.fuzz.samples import MACHINES

SEED, ROUNDS, MOST_S = 3, 150, 2.5


def test_a_short_run(full: bool) -> None:
    started = time.monotonic()
    for number in range(10_000 if full else ROUNDS):
        machine(SEED, number)
        if not full and time.monotonic() - started > MOST_S:
            break


def test_a_short_run_of_the_readers(full: bool) -> None:
    started = time.monotonic()
    for number in range(100_000 if full else ROUNDS):
        reader(SEED, number)
        if not full and time.monotonic() - started > MOST_S:
            break


@pytest.mark.parametrize("each", READERS, ids=[each.name for each in READERS])
@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "- " * 3000, "{a: " * 3000, "", "\0"]
)
def test_what_is_too_deep_or_nothing_is_refused_by_each(each: Reader, text: str) -> None:
    with contextlib.suppress(*each.refuses):
        each.read(text)


GARBAGE = "segmentation fault\x00 at 0xdeadbeef <gpu> {{{ ][ \ufffd"


class Garbled(RecordedMachine):
    """A machine on which one tool prints garbage, and ends well."""

    tool = ""

    def run(self, argv, **_):  # type: ignore[no-untyped-def]
        if argv[0].rsplit("/", 1)[-1] == self.tool:
            return CommandResult(tuple(argv), "present", 0, GARBAGE, "", 1.0)
        return super().run(argv, deadline_s=1)


def errors(machine: RecordedMachine, probe: str) -> list[Evidence]:
    facts = probes.gather(machine)
    return [item for item in facts.evidence if item.probe == probe and item.state == "error"]


@pytest.mark.parametrize(
    ("tool", "name"), [("nvidia-smi", "t4-nvidia-smi-only"), ("rocm-smi", "rocm-smi-only-rocm6")]
)
def test_garbage_of_a_tool_is_an_error_with_the_text_kept(tool: str, name: str) -> None:
    machine = Garbled(MACHINES / name)
    machine.tool = tool
    found = errors(machine, tool)
    assert found
    assert "segmentation fault" in (found[0].detail or "")
    assert probes.gather(machine).gpus.state == "error"


def test_garbage_of_the_engine_is_an_error(tmp_path: Path) -> None:
    class NoEngine(RecordedMachine):
        def docker(self, deadline_s: float) -> Reply:
            return Reply("present", {"version": GARBAGE, "info": [GARBAGE]}, "unix:///d.sock")

    facts = probes.gather(NoEngine(MACHINES / "h100x8"))
    assert facts.engine.state == "error"
    assert facts.engine.detail
