"""`dshpc record`: the machine as a folder that can be sent to somebody, and replayed.

What the probes ask is written down as they ask it, so that the folder answers them as the machine
did; then all of it is scrubbed, and written in one step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dshpc_setup import gpu_vendors, probes
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Gpus, HostFacts
from dshpc_setup.machine import Machine
from dshpc_setup.machine.folder import REPLIES
from dshpc_setup.machine.log import Log
from dshpc_setup.machine.recorded import RecordedMachine, Unrecorded
from dshpc_setup.machine.recording import RecordingMachine
from dshpc_setup.machine.tree import Tree
from dshpc_setup.observed.model import KernelLog
from dshpc_setup.passthrough.driver_files import driver_files
from dshpc_setup.probes import readings
from dshpc_setup.record import capture, places, scrubbed, writing
from dshpc_setup.record.scrub import Scrubber
from dshpc_setup.terminal.reporter import Reporter

SCHEMA = "dshpc.record/1"
_READINGS_S = 10.0


@dataclass(frozen=True)
class Recorded:
    """What was written, and what was found on the way."""

    folder: str
    files: Mapping[str, int]  # name -> bytes
    captured: Mapping[str, int] = field(default_factory=dict)
    scrubbed: Mapping[str, int] = field(default_factory=dict)
    denied: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()  # what gave no answer before its deadline
    differs: tuple[str, ...] = ()  # parts of the facts that the replay tells otherwise

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.record/1` object."""
        return {
            "schema": SCHEMA,
            "exit_code": 0,
            "folder": self.folder,
            "bytes": sum(self.files.values()),
            "files": [{"name": name, "bytes": size} for name, size in self.files.items()],
            "captured": dict(self.captured),
            "scrubbed": dict(self.scrubbed),
            "denied": list(self.denied),
            "timeouts": list(self.silent),
            "differs": list(self.differs),
        }


def record(
    machine: Machine,
    folder: Path,
    reporter: Reporter,
    kernel_log: Callable[[HostFacts], KernelLog] | None = None,
) -> Recorded:
    """Record the machine into `folder`, which must be new or empty. Raises DshpcError.

    `kernel_log` reads what the kernel's log says of GPUs: the rest of it is nobody's business.
    """
    writing.need_room(folder)
    facts, log = capture_machine(machine, reporter)
    scrubber = scrubbed.scrubber_of(machine)
    said = kernel_log(facts) if kernel_log is not None else KernelLog()
    told = "".join(f"{line}\n" for line in said.lines)
    scrubber.learn(told)
    files = scrubbed.texts(machine, log, scrubber)
    if said.state == "present":
        files["kernel.log"] = scrubber.text(told, numbers=True)
    writing.write(folder, files)
    tree = log.tree()
    return Recorded(
        str(folder),
        {name: len(text.encode()) for name, text in files.items()},
        {
            "file": len(tree.texts),
            "link": len(tree.links),
            "device node": len(tree.devices),
            "command": len(log.commands),
            "library": len(log.replies),
        },
        scrubber.counts(),
        (
            *sorted(scrubber.text(path) for path in tree.denied),
            *(("dmesg",) if said.state == "denied" else ()),
        ),
        _silent(log, tree, scrubber),
        _differences(facts, folder, scrubber),
    )


def capture_machine(machine: Machine, reporter: Reporter) -> tuple[HostFacts, Log]:
    """Ask all that a recording holds; of files and answers only what may be kept."""
    recorder = RecordingMachine(machine)
    reporter.progress("asking this machine all that detect asks")
    facts = probes.gather(recorder)
    readings.gather(recorder, _that_answer(facts.gpus, recorder.log), _READINGS_S)
    reporter.progress("asking for what later versions may want to know")
    questions = {
        **capture.questions(recorder),
        # What the built-in engine binds, whichever engine there is: it is asked where none other works
        "driver files": lambda _: _look_for(recorder, facts),
    }
    recorder.apart(questions, deadline_s=capture.DEADLINE_S)
    log = recorder.log
    log.close()
    return facts, _kept(log)


def _look_for(machine: Machine, facts: HostFacts) -> None:
    driver_files(machine, facts)


def _that_answer(gpus: Gpus, log: Log) -> Gpus:
    """Those that can be asked what they measure: where NVML hung, it would hang again."""
    listed = log.replies.get("nvml")
    if listed is None or listed.state != "timeout":
        return gpus
    log.replies["nvml_readings"] = replace(listed, value=None)
    others = (item for item in gpus.devices if not gpu_vendors.has_cuda(item.vendor))
    return replace(gpus, devices=tuple(others))


def _kept(log: Log) -> Log:
    """Without the files, and the parts of files and answers, that are never recorded."""
    read = {}
    for path, found in log.read.items():
        text = None if found.text is None else places.kept(path, found.text)
        if found.text is None or text is not None:
            read[path] = replace(found, text=text)
    left_out = log.read.keys() - read.keys()
    begun = {asked: answer for asked, answer in log.begun.items() if asked[1] not in left_out}
    return replace(log, read=read, begun=begun)


def _silent(log: Log, tree: Tree, scrubber: Scrubber) -> tuple[str, ...]:
    found = [" ".join(result.argv) for result in log.commands.values() if result.state == "timeout"]
    found += [REPLIES[name][1] for name, reply in log.replies.items() if reply.state == "timeout"]
    return tuple(scrubber.text(item) for item in (*found, *sorted(tree.hangs)))


def _differences(facts: HostFacts, folder: Path, scrubber: Scrubber) -> tuple[str, ...]:
    """The parts of the facts that the folder does not replay as they were."""
    try:
        again = probes.gather(RecordedMachine(folder))
    except (DshpcError, Unrecorded) as error:
        return (f"it cannot be replayed: {getattr(error, 'details', '') or error}",)
    wanted, found = _comparable(facts, scrubber), _comparable(again, None)
    return tuple(key for key in wanted if wanted[key] != found.get(key))


def _comparable(facts: HostFacts, scrubber: Scrubber | None) -> dict[str, Any]:
    """The facts without their evidence, which names times; scrubbed where they are not yet."""
    if scrubber is not None and facts.engine.name:
        facts = replace(facts, engine=replace(facts.engine, name=scrubber.host(facts.engine.name)))
    value: dict[str, Any] = json.loads(json.dumps(facts.to_json()))
    del value["evidence"]
    told: dict[str, Any] = value if scrubber is None else scrubber.value(value)
    if told["docker"] is not None:
        # They are sorted by name, and pseudonyms come in another order.
        told["docker"]["cdi_devices"].sort()
    return told
