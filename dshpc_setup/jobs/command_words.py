"""The words behind `dshpc-node job VERB`, and what the verbs have in common."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup.errors import usage_error
from dshpc_setup.jobs.reader import JobReader
from dshpc_setup.slurm import job_states


@dataclass(frozen=True)
class Words:
    """The words behind a verb, taken apart."""

    ids: tuple[str, ...] = ()
    work: str = ""
    json: bool = False
    all: bool = False
    follow: bool = False
    task: str | None = None


def parsed(rest: Sequence[str]) -> Words:
    """Raises DshpcError (usage) for an option that there is not."""
    ids: list[str] = []
    given: dict[str, Any] = {}
    words = iter(rest)
    for word in words:
        if word in ("--json", "--all"):
            given[word[2:]] = True
        elif word in ("-f", "--follow"):
            given["follow"] = True
        elif word in ("--work", "--task"):
            given[word[2:]] = next(words, "")
        elif word.startswith("-"):
            raise usage_error(f"{job_states.shown(word)!r} was not expected here.")
        else:
            ids.append(word)
    return Words(tuple(ids), **given)


def look_at(words: Words) -> JobReader:
    from dshpc_setup.machine.local import LocalMachine

    return JobReader(LocalMachine(), words.work)


def put(block: bytes) -> None:
    """All of it, on stdout."""
    while block:
        block = block[os.write(1, block) :]
