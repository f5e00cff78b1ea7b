"""One round of the fuzz target: a machine or a reader of foreign texts, damage to it, and the check."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random

from dshpc_setup import probes
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine.recorded import RecordedMachine, Unrecorded
from tests.fuzz import mutate, readers
from tests.fuzz.machine import Damaged, check
from tests.fuzz.samples import TOOLS, machines

_MACHINES = machines()
_OF_READERS = 0.9  # of the rounds: a machine takes ten times as long


def one(seed: int, number: int) -> str:
    """The round of this number, which is the same whenever it is run: what was tried.

    Raises whatever is found, with the machine and the round in its notes.
    """
    if Random(f"{seed} {number} kind").random() < _OF_READERS:
        return reader(seed, number)
    return machine(seed, number)


def machine(seed: int, number: int) -> str:
    """A round of a machine."""
    random = Random(f"{seed} {number}")
    folder = random.choice(_MACHINES)
    try:
        if random.random() < 0.1:
            _damaged_folder(random, folder)
            return f"the files of {folder.name}"
        check(Damaged(folder, random, random.choice((0.03, 0.2, 0.9)), TOOLS))
    except BaseException as error:
        again = f"python -m tests.fuzz --only machines --seed {seed} --first {number} --rounds 1"
        where = f"{folder.name}: {again}"
        raise AssertionError(f"{where}\n{error}") from error
    return folder.name


def reader(seed: int, number: int) -> str:
    """A round of a reader."""
    try:
        return readers.check(Random(f"{seed} {number}"))
    except BaseException as error:
        where = f"python -m tests.fuzz --only readers --seed {seed} --first {number} --rounds 1"
        raise AssertionError(f"{where}\n{type(error).__name__}: {error}") from error


def _damaged_folder(random: Random, source: Path) -> None:
    """A damaged folder is refused with a sentence, or is another machine; nothing else."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "machine"
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("expected"))
        files = sorted(
            path for path in folder.iterdir() if path.is_file() and path.name != "conclusion.yaml"
        )
        victim = random.choice(files)
        text = mutate.text(random, victim.read_text(errors="replace"), TOOLS)
        victim.write_text(text, errors="replace")
        try:
            facts = probes.gather(RecordedMachine(folder))
        except DshpcError as refused:
            assert victim.name in f"{refused.brief} {refused.details}", refused
        except Unrecorded as missing:
            missing.told()
        else:
            facts.to_json(explain=True)
