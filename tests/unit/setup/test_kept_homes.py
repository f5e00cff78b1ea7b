"""What is said of homes that are copied into users' own."""

from __future__ import annotations

import json

from dshpc_setup.setup import kept_homes
from dshpc_setup.terminal.reporter import Silent
from tests.unit.engine.fake import Answer, FakeMachine

KEPT = {
    "uid": 4711,
    "name": "ada",
    "folder": "/var/lib/dshpc/home/ada",
    "files": 2,
    "bytes": 5_000_000,
}


class Said(Silent):
    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def machine(kept: Answer, jobs: str = "") -> FakeMachine:
    copied = json.dumps({"kept": KEPT, "to": "/home/ada/dshpc-home", "why": ""})
    return FakeMachine(
        commands={
            "docker exec c dshpc-node homes kept": kept,
            "docker exec c dshpc-node homes copy 4711=/home/ada": Answer(copied),
            "docker exec c squeue": Answer(jobs),
            "getent passwd 4711": Answer("ada:x:4711:4711::/home/ada:/bin/sh\n"),
        }
    )


def test_what_is_copied_is_listed() -> None:
    said = Said()
    (told,) = kept_homes.copied(machine(Answer(json.dumps(KEPT))), "c", said)
    assert said.notes == ["Kept of ada: 2 files (5.0 MB) in /var/lib/dshpc/home/ada"]
    assert "Of ada, 2 files (5.0 MB) are copied" in told
    assert told.endswith("the volume keeps them, too.")


def test_a_job_that_began_before_is_named() -> None:
    rows = ("17", "ada", "0:03", "1", "1", "train"), ("18", "bob", "0:03", "1", "1", "train")
    jobs = "".join("".join(f"{word}\x1f" for word in row) + "\n" for row in rows)
    (told,) = kept_homes.copied(machine(Answer(json.dumps(KEPT)), jobs), "c", Said())
    assert "What job 17, started before, leaves in $HOME stays in the volume" in told
    assert "18" not in told


def test_a_cluster_that_gives_no_answer_is_not_one_that_keeps_nothing() -> None:
    (told,) = kept_homes.copied(machine(Answer(state="timeout")), "c", Said())
    assert "It is not known" in told
    assert kept_homes.copied(machine(Answer("")), "c", Said()) == []
