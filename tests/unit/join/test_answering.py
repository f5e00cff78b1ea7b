"""The desk of the join service: who has no token that lives is told nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.cluster.targets import Target
from dshpc_setup.join import messages, tokens
from dshpc_setup.join.answering import Desk
from dshpc_setup.join.messages import Answer, Facts, Question
from dshpc_setup.machine import CommandResult
from dshpc_setup.project.folder import Project

NOW = 1_700_000_000.0
FACTS = Facts(
    "lab", "10.0.0.1", (6817, 6818), (61001, 61999), {"prefix": "lab"}, {}, 0, "/work", "24.11.5", 64030,
    "0.1.0", "nftables", 0.0,
)  # fmt: skip


@dataclass
class Machine:
    """Its container answers with these, by the last words of the command."""

    answers: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def run(self, argv: Any, **_: Any) -> CommandResult:
        line = " ".join(argv)
        self.asked.append(line)
        for words, text in self.answers.items():
            if words in line:
                return CommandResult(tuple(argv), "present", 0, text, "", 1.0)
        return CommandResult(tuple(argv), "present", 1, "", "Node lab9 not found", 1.0)


@dataclass
class Office:
    desk: Desk
    machine: Machine
    log: list[str]
    project: Project
    number: str
    secret: str

    def ask(self, ask: Any, seen: str = "10.0.0.2", node: str = "lab2", **more: Any) -> Answer:
        question = Question(1, ask, self.number, self.secret, node, more.pop("value", {}))
        return self.said(messages.to_line(replace(question, **more), messages.QUESTION), seen)

    def said(self, line: bytes, seen: str = "10.0.0.2") -> Answer:
        return messages.from_line(Answer, self.desk.answer(line, seen), messages.ANSWER)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    (tmp_path / ".dshpc").mkdir()
    (tmp_path / "work").mkdir()
    project, log = Project(tmp_path), list[str]()
    machine: Any = Machine({"give-key": '{"key": "AAAA"}'})
    given, secret = tokens.made(project, NOW, 60.0, once=True)
    cluster = Target(project, "lab-slurm", "lab", str(tmp_path / "work"))
    desk = Desk(machine, cluster, FACTS, log.append, now=lambda: NOW)
    return Office(desk, machine, log, project, given.id, secret)


def test_facts_are_for_who_has_the_token(office: Office) -> None:
    found = office.ask("facts").value
    assert found is not None
    assert (found["prefix"], found["clock"]) == ("lab", NOW)
    assert (office.project.folder / "work" / found["probe"]["name"]).read_text() == found["probe"][
        "text"
    ]
    office.desk.close()
    assert list((office.project.folder / "work").iterdir()) == []


@pytest.mark.parametrize("ask", ["facts", "reach", "take", "done"])
def test_without_it_nothing_is_told_or_done(office: Office, ask: str) -> None:
    answer = office.ask(ask, secret="0" * 32, value={"slurm": "24.11.5", "slurm_uid": 64030})
    assert answer == Answer(refused=messages.Refused("unknown"))
    assert office.machine.asked == []
    assert "lab" not in json.dumps(answer.refused and answer.refused.details)


def test_who_guesses_is_answered_no_more_for_a_while(office: Office) -> None:
    for _ in range(10):
        office.ask("facts", secret="0" * 32)
    refused = office.ask("facts").refused
    assert refused is not None
    assert refused.code == "busy"
    assert office.ask("facts", seen="10.0.0.3").refused is None


def test_the_key_is_given_to_one_machine(office: Office) -> None:
    value = {"slurm": "24.11.5", "slurm_uid": 64030}
    taken = office.ask("take", value=value)
    assert taken.value == {"given": '{"key": "AAAA"}'}
    again = office.ask("take", node="other", value=value)
    assert again.refused == messages.Refused("used")
    under_its_name = office.ask("take", seen="10.0.0.3", value=value)
    assert under_its_name.refused == messages.Refused("used")
    assert office.ask("take", value=value).value == taken.value
    assert [line.split(":")[0] for line in office.log] == [
        "given the key", "refused used", "refused used", "given the key",
    ]  # fmt: skip
    assert all(office.secret not in line and "AAAA" not in line for line in office.log)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"slurm": "25.05.1", "slurm_uid": 64030}, "slurm"),
        ({"slurm": "22.05.8", "slurm_uid": 64030}, "slurm-old"),
        ({"slurm": "24.11.9", "slurm_uid": 0}, "slurm-user"),
        ({"slurm": "24.11.9"}, "malformed"),
    ],
)
def test_another_slurm_gets_no_key_and_the_token_lives(
    office: Office, value: Any, code: str
) -> None:
    refused = office.ask("take", value=value).refused
    assert refused is not None
    assert refused.code == code
    assert office.machine.asked == []
    assert tokens.read(office.project)[0].used_by == ()


def test_an_address_that_is_translated_is_found(office: Office) -> None:
    reach = {"address": "192.168.1.5", "slurmd_port": 6818, "srun_port": 61999}
    assert office.ask("reach", value=reach).refused == messages.Refused("nat", "10.0.0.2")


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("NodeName=lab2 NodeAddr=10.0.0.9 State=IDLE", True),
        ("NodeName=lab2 NodeAddr=10.0.0.2 State=IDLE", False),
        ("NodeName=lab2 NodeAddr=10.0.0.9 State=DOWN*", False),
    ],
)
def test_a_name_is_one_machines(office: Office, line: str, taken: bool) -> None:
    office.machine.answers["show node lab2"] = line
    assert office.desk._taken("lab2", "10.0.0.2") == ("10.0.0.9" if taken else None)
    assert office.desk._taken("lab", "10.0.0.2") == "10.0.0.1"


@pytest.mark.parametrize(
    "line", [b"", b"GET / HTTP/1.1\n", b"{}\n", b"[1]\n", b'{"schema": 1}\n', b"\xff\n"]
)
def test_what_is_no_question_is_refused(office: Office, line: bytes) -> None:
    refused = office.said(line).refused
    assert refused is not None
    assert refused.code == "malformed"


def test_users_are_told_by_who_has_the_key_for_the_token_and_by_no_other(office: Office) -> None:
    told = {"users": "eve:x:4711\n"}
    assert office.ask("done", value=told).refused is not None
    assert office.machine.asked == []
    office.ask("take", value={"slurm": "24.11.5", "slurm_uid": 64030})
    assert office.ask("done", value=told).refused is None
    assert any("keep-users lab2" in line for line in office.machine.asked)
    asked = len(office.machine.asked)
    for seen, node in (("10.0.0.2", "lab3"), ("10.0.0.9", "lab2")):
        assert office.ask("done", seen=seen, node=node, value=told).refused is not None
    assert len(office.machine.asked) == asked
