"""Messages of public threads against their labelled causes: every set keeps what was reached.

The second half never made a rule: tests/messages/README.md.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.diagnose import catalogue, findings_pages
from dshpc_setup.pasted import told

FOLDER = Path(__file__).parents[2] / "messages"
HALVES = ("first", "second")
SETS = (*HALVES, "later")
# Right first; 93.2, 92.4 and 89.1 % when the rules were made
REACHED = {"first": 0.92, "second": 0.91, "later": 0.87}
_MOST = 200_000  # bytes of a file


def read(name: str) -> list[dict[str, Any]]:
    text = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def related(name: str) -> list[dict[str, Any]]:
    return [each for each in read(name) if each["told"] != "unrelated"]


UNRELATED = [each for half in HALVES for each in read(half) if each["told"] == "unrelated"]


@pytest.mark.parametrize("name", SETS)
def test_the_likeliest_cause_comes_first(name: str) -> None:
    messages = related(name)
    found = [told(each["text"]) for each in messages]
    causes = [None if one is None else one.finding for one in found]
    wrong = [
        f"{each['link']}: {cause} for {each['cause']}"
        for each, cause in zip(messages, causes, strict=True)
        if cause != each["cause"]
    ]
    assert len(wrong) <= (1 - REACHED[name]) * len(messages), "\n".join(wrong)


@pytest.mark.parametrize("name", SETS)
def test_the_cause_is_among_the_first_three(name: str) -> None:
    found = [(each["cause"], told(each["text"])) for each in related(name) if each["cause"]]
    near = [one is not None and cause in (one.finding, *one.besides[:2]) for cause, one in found]
    assert sum(near) >= 0.93 * len(near)


def test_an_unrelated_message_gets_no_single_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings_pages, "page", cache(findings_pages.page))
    for message in UNRELATED:
        cli.run(["explain", "--json", "--", message["text"]], "dshpc")
        assert "id" not in json.loads(capsys.readouterr().out), message["link"]


# The data themselves


def test_there_are_as_many_as_were_asked_for() -> None:
    assert sum(len(related(half)) for half in HALVES) >= 200
    assert len(UNRELATED) >= 50


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_whole(name: str) -> None:
    ids = {check.id for check in catalogue()}
    for each in read(name):
        assert set(each) == {"link", "cause", "told", "text"}
        assert each["told"] in ("thread", "text", "unrelated")
        assert each["cause"] is None or each["cause"] in ids
        assert each["cause"] is None or each["told"] != "unrelated"
        assert each["text"].strip()
    assert (FOLDER / f"{name}.jsonl").stat().st_size < _MOST


def test_a_thread_is_in_one_set_and_once() -> None:
    links = [each["link"] for name in SETS for each in read(name)]
    assert len(set(links)) == len(links)


@pytest.mark.parametrize("half", HALVES)
def test_a_half_is_what_its_links_say(half: str) -> None:
    for each in read(half):
        even = int(hashlib.sha256(each["link"].encode()).hexdigest(), 16) % 2 == 0
        assert even == (half == "first")
