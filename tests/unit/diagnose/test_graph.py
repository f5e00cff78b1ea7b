"""The whole catalogue: its ids, its graph of needs and causes, and a page for each check."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from dshpc_setup.diagnose import catalogue, diagnose, findings_pages
from dshpc_setup.diagnose.model import SECTIONS, Check, FindingState, Verdict
from tests.unit.diagnose.known import known

CHECKS = catalogue()
BY_ID = {check.id: check for check in CHECKS}
ID = re.compile(r"DSH-[A-Z]{2}-[0-9]{3}")


@pytest.mark.parametrize("path", ["docs/how-to/doctor.md", "CHANGELOG.md"])
def test_documents_say_how_many_checks_there_are(path: str) -> None:
    text = (Path(__file__).parents[3] / path).read_text()
    assert f"{len(CHECKS)} checks" in text, f"raise the number of checks in {path}"


def cycle(edges: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Ids that lead round to the first of them; [] where none do."""
    done: set[str] = set()

    def walk(at: str, path: list[str]) -> list[str]:
        if at in path:
            return path[path.index(at) :]
        if at in done:
            return []
        found = next(filter(None, (walk(to, [*path, at]) for to in edges.get(at, ()))), [])
        done.add(at)
        return found

    return next(filter(None, (walk(start, []) for start in edges)), [])


def test_what_finds_a_cycle() -> None:
    assert cycle({"a": ("b", "c"), "b": ("c",), "c": ()}) == []
    assert cycle({"a": ("b",), "b": ("c",), "c": ("b",)}) == ["b", "c"]
    assert cycle({"a": ("a",)}) == ["a"]


def test_there_are_at_least_seventy() -> None:
    assert len(CHECKS) >= 70


def test_ids_are_of_one_form_and_stand_once() -> None:
    ids = [check.id for check in CHECKS]
    assert not [identity for identity in ids if not ID.fullmatch(identity)]
    assert not [identity for identity in ids if ids.count(identity) > 1]


def test_each_section_has_checks_that_stand_together() -> None:
    sections = [check.section for check in CHECKS]
    assert sections == sorted(sections, key=SECTIONS.index)
    assert set(sections) == set(SECTIONS)


def test_what_it_needs_and_what_explains_it_is_there() -> None:
    for check in CHECKS:
        assert not {*check.needs, *check.because} - set(BY_ID), check.id
        assert len(set(check.needs)) == len(check.needs), check.id
        assert len(set(check.because)) == len(check.because), check.id


def test_needs_lead_round_to_nothing() -> None:
    assert cycle({check.id: check.needs for check in CHECKS}) == []


def test_causes_lead_round_to_nothing() -> None:
    assert cycle({check.id: check.because for check in CHECKS}) == []


def test_no_cause_waits_for_what_it_explains() -> None:
    assert cycle({check.id: (*check.needs, *check.because) for check in CHECKS}) == []


def test_its_titles_are_two() -> None:
    for check in CHECKS:
        assert check.title.strip(), check.id
        assert check.fault_title.strip(), check.id
        assert check.title != check.fault_title, check.id
        assert not check.title.endswith("."), check.id
        assert not check.fault_title.endswith("."), check.id


def test_no_two_faults_have_one_title() -> None:
    titles = [check.fault_title for check in CHECKS]
    assert not [title for title in titles if titles.count(title) > 1]


def test_it_has_a_page() -> None:
    for check in CHECKS:
        page = findings_pages.page(check.id)
        assert page.splitlines()[0] == f"# {check.id}: {check.fault_title}"
        for part in ("What it means", "How it is detected", "How to fix it", "Sources"):
            assert part in page, check.id


def test_each_page_has_a_check() -> None:
    pages = {path.stem for path in findings_pages.folder().glob("*.md")}
    assert pages - set(BY_ID) == set()


@pytest.mark.parametrize("state", ["info", "warn", "error"])
def test_the_title_of_what_was_met_is_not_that_of_what_is_well(state: FindingState) -> None:
    check = Check(
        "DSH-ZZ-001", "host", "It runs", "It does not run", lambda _: Verdict(state, "So.")
    )
    (finding,) = diagnose(known("vm-no-gpu"), [check])
    assert finding.title == "It does not run"
