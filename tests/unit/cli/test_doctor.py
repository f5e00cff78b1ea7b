"""`dshpc doctor`: the screen, JSON, JUnit's XML, which checks, exit codes."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import checkup, cli
from dshpc_setup.cli import check_selection, checking, junit
from dshpc_setup.cli.checking import DoctorOptions
from dshpc_setup.cli.doctor import lines
from dshpc_setup.cli.terminal import Ink
from dshpc_setup.diagnose import Finding, catalogue
from dshpc_setup.diagnose.model import SECTIONS, Check, CheckInput, Verdict, fault, fine
from dshpc_setup.diagnose.report import Report
from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.facts import Unanswered
from tests.unit.diagnose.known import known as known_of

MACHINES = Path(__file__).parents[2] / "machines"
HEALTHY = str(MACHINES / "workstation-rtx4090")
DENIED = str(MACHINES / "vm-docker-denied")
OLD_DRIVER = str(MACHINES / "t4-driver-460-too-old")


@pytest.fixture(autouse=True)
def _plain(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")


LATE = Unanswered("nvml", "timeout", "late")
WELL = Finding("DSH-HO-001", "host", "ok", "It runs", ("linux",))
NOTED = Finding("DSH-HO-002", "host", "info", "Worth knowing", ("read",), "So it is.")
ABSENT = Finding("DSH-AM-001", "driver", "skipped", "AMD's driver", cause="There is no AMD GPU.")
ROOT = Finding(
    "DSH-NV-001", "driver", "error", "The driver was updated", ("kernel 570", "library 575"),
    "Two versions.", (Fix("Restart the machine", "sudo reboot"), Fix("Or wait")),
)  # fmt: skip
FOLDED = Finding("DSH-GP-001", "gpu", "error", "No GPU is seen", ("nvml: mismatch",), "No answer.",
                 caused_by=ROOT.id)  # fmt: skip
BLOCKED = Finding("DSH-PT-001", "passthrough", "skipped", "GPUs in containers", cause="Two versions.",
                  blocked_by=ROOT.id)  # fmt: skip
WARNED = Finding("DSH-SL-009", "slurm", "warn", "The disk fills", ("91 %",), "It will be full.")
CRASHED = Finding("DSH-FI-001", "files", "crashed", "Files are whole", ("KeyError: 'x'",))
ILL = (WELL, NOTED, FOLDED, ROOT, ABSENT, BLOCKED, WARNED)


def told(findings: Sequence[Finding], *, verbose: bool = False, **more: Any) -> list[str]:
    report = Report(tuple(findings), more.pop("every", tuple(findings)), **more)
    return lines(report, Ink(), verbose=verbose)


def finding_of(check: str, title: str = "t", state: Any = "error", **more: Any) -> Finding:
    return Finding(check, "gpu", state, title, **more)


# The screen


def test_the_root_cause_first_and_what_it_explains_below() -> None:
    assert told(ILL) == [
        "!! The driver was updated (DSH-NV-001)",
        "   Two versions.",
        "     kernel 570",
        "     library 575",
        "   -> Restart the machine:",
        "        sudo reboot",
        "   -> Or wait",
        "   explains: No GPU is seen (DSH-GP-001)",
        "   1 check could not be made because of it",
        "",
        "!  The disk fills (DSH-SL-009)",
        "   It will be full.",
        "     91 %",
        "",
        "host         1 ok, 1 noted",
        "gpu          1 problem",
        "driver       1 problem, 1 skipped",
        "passthrough  1 blocked",
        "slurm        1 warning",
        "",
        "2 problems, 1 warning, from 2 causes. Details: dshpc explain DSH-NV-001",
    ]


def test_settings_that_cannot_be_used_come_first_of_the_problems() -> None:
    said = told((*ILL, finding_of("DSH-FI-011", "dshpc.yaml is wrong")))
    assert said[0] == "!! dshpc.yaml is wrong (DSH-FI-011)"


def test_evidence_names_our_commands_as_they_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSHPC_COMMAND", "/p/dshpc")
    monkeypatch.setenv("DSHPC_HERE", "/p")
    held = replace(ROOT, evidence=("7 (ada, x): it is held: dshpc scontrol release 7",))
    assert "     7 (ada, x): it is held: ./dshpc scontrol release 7" in told((held,))


def test_all_is_well() -> None:
    assert told((WELL, ABSENT)) == [
        "host         1 ok",
        "driver       1 skipped",
        "",
        "No problem found.",
    ]


def test_no_problem_is_said_of_what_was_looked_at_alone() -> None:
    assert told((WELL,), every=ILL)[-1] == "No problem found by 1 check."
    late = told((WELL,), unanswered=(Unanswered("nvml", "timeout", "no answer\x1b[2J within 9 s"),))
    assert late[-1] == "No problem found, but not everything could be asked."
    assert "  - nvml: no answer?[2J within 9 s" in late


def test_what_a_root_cause_says_is_not_said_again() -> None:
    late = (
        Unanswered("docker", "denied", "Two versions.", section=True),
        Unanswered("nvml", "timeout", "no answer"),
    )
    text = told((ROOT,), unanswered=late)
    assert "  - nvml: no answer" in text
    assert "docker: denied" not in "\n".join(text)
    assert "Not everything could be asked:" not in told((ROOT,), unanswered=late[:1])
    assert "  - docker: denied, Two versions." in told((WARNED,), unanswered=late)


def test_with_verbose_each_finding_with_its_evidence() -> None:
    text = "\n".join(told(ILL, verbose=True))
    assert "  ok It runs (DSH-HO-001)\n         linux\n" in text
    assert "  -- Worth knowing (DSH-HO-002)\n       So it is.\n         read\n" in text
    assert "  !! The driver was updated (DSH-NV-001)\n       see above\n" in text
    assert (
        "  !! No GPU is seen (DSH-GP-001)\n       No answer.\n         nvml: mismatch\n"
        "       because of DSH-NV-001\n" in text
    )
    assert "       not looked at because of DSH-NV-001: Two versions.\n" in text
    assert "Worth knowing" not in "\n".join(told(ILL))


def test_what_is_worth_knowing_stands_at_the_end_of_its_section() -> None:
    text = told((NOTED, WELL), verbose=True)
    assert text.index("  ok It runs (DSH-HO-001)") < text.index("  -- Worth knowing (DSH-HO-002)")


def test_errors_before_warnings_and_those_first_that_explain_most() -> None:
    findings = (
        finding_of("A", state="warn"),
        finding_of("B"),
        finding_of("C"),
        finding_of("D", caused_by="C"),
        finding_of("E", state="warn", caused_by="B"),
        finding_of("F", caused_by="C"),
        finding_of("G", state="warn"),
        finding_of("H", caused_by="G"),  # a warning that explains a problem
    )
    roots = [line.split("(")[1][0] for line in told(findings) if line.startswith("!")]
    assert roots == ["C", "B", "G", "A"]


def test_a_cause_that_was_left_out_is_named() -> None:
    text = told((FOLDED,), every=ILL)
    assert text[0] == "!! No GPU is seen (DSH-GP-001)"
    assert "   because of: The driver was updated (DSH-NV-001)" in text
    assert text[-1] == "1 problem. Details: dshpc explain DSH-GP-001"


def test_a_check_that_crashed() -> None:
    text = "\n".join(told((WELL, CRASHED)))
    assert "?? Files are whole (DSH-FI-001)\n   This check itself failed" in text
    assert "KeyError: 'x'" in text
    assert "report it" in text
    assert text.endswith("\n1 check crashed.")


def test_long_evidence_is_cut_and_shown_whole_with_verbose() -> None:
    long = replace(ROOT, evidence=("\n".join(f"line {number}" for number in range(20)),))
    short = told((long,))
    assert "     line 7" in short
    assert "     line 8" not in short
    assert "     ... and 12 lines more: -v" in short
    assert "     line 19" in told((long,), verbose=True)


def test_what_is_strict_says_so() -> None:
    assert "--strict" in told((WARNED,), strict=True)[-1]
    assert "--strict" not in told((ROOT,), strict=True)[-1]
    assert "--strict" not in told((WARNED,))[-1]


def test_colour_changes_no_word() -> None:
    report = Report(ILL, ILL)
    plain, coloured = lines(report, Ink()), lines(report, Ink(on=True))
    assert plain != coloured
    for code in ("\033[1;31m", "\033[33m", "\033[32m", "\033[1m", "\033[0m"):
        coloured = [line.replace(code, "") for line in coloured]
    assert plain == coloured


def test_our_commands_as_they_can_be_called(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DSHPC_COMMAND", str(tmp_path / "dshpc"))
    text = told((replace(ROOT, fix=(Fix("Start it", "dshpc up"),)),))
    assert "        ./dshpc up" in text
    assert text[-1].endswith("./dshpc explain DSH-NV-001")


STATES = st.sampled_from(["ok", "info", "warn", "error", "skipped", "crashed"])
IDS = st.sampled_from([f"DSH-NV-{number:03}" for number in range(12)])
FIXES = st.builds(Fix, st.text(), st.none() | st.text())
FINDINGS = st.lists(
    st.builds(
        Finding, IDS, st.sampled_from(SECTIONS), STATES, st.text(),
        st.lists(st.text(), max_size=3).map(tuple), st.text(),
        st.lists(FIXES, max_size=2).map(tuple), st.none() | IDS, st.none() | IDS,
    ),
    unique_by=lambda finding: finding.id,
    max_size=12,
)  # fmt: skip


@given(FINDINGS, st.booleans())
def test_nothing_commands_the_terminal(findings: list[Finding], verbose: bool) -> None:
    assert all(line.isprintable() for line in told(findings, verbose=verbose))


@given(FINDINGS)
def test_each_fault_is_told_once(findings: list[Finding]) -> None:
    named = [replace(finding, title=f"T{finding.id}", cause="", evidence=(), fix=(), section="gpu")
             for finding in findings]  # fmt: skip
    text = told(named)
    for finding in named:
        where = [line for line in text if f" T{finding.id} " in line and "because of" not in line]
        wrong = finding.state in ("warn", "error", "crashed")
        assert len(where) == wrong


# JSON and exit codes


@pytest.mark.parametrize(
    ("findings", "more", "code"),
    [
        ((WELL, NOTED, ABSENT), {}, Exit.OK),
        ((WELL, WARNED), {}, Exit.WARNING),
        ((WELL, WARNED), {"strict": True}, Exit.ERROR),
        ((WELL, NOTED), {"strict": True}, Exit.OK),
        (ILL, {}, Exit.ERROR),
        ((WELL, CRASHED), {}, Exit.INCOMPLETE),
        ((WELL, CRASHED, WARNED), {}, Exit.INCOMPLETE),
        ((WELL,), {"unanswered": (LATE,)}, Exit.INCOMPLETE),
        ((WARNED,), {"unanswered": (LATE,)}, Exit.INCOMPLETE),
        ((ROOT,), {"unanswered": (LATE,)}, Exit.ERROR),
    ],
)
def test_exit_codes(findings: tuple[Finding, ...], more: dict[str, Any], code: Exit) -> None:
    report = Report(findings, findings, **more)
    assert report.exit_code == code
    assert report.to_json()["exit_code"] == code


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["doctor", *arguments], "dshpc")
    return (code, *capsys.readouterr())


def test_one_object_with_all_keys_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--json", "--machine", DENIED)
    value = json.loads(out)
    assert (value["schema"], value["exit_code"], code) == ("dshpc.doctor/1", 2, 2)
    assert set(value["summary"]) == {"ok", "info", "warn", "error", "skipped", "crashed"}
    assert sum(value["summary"].values()) == len(value["findings"]) == len(catalogue())
    keys = "id section state title evidence cause fix blocked_by caused_by".split()
    for finding in value["findings"]:
        assert set(keys) <= set(finding)
        assert all({"text", "command", "automatic", "step"} == set(fix) for fix in finding["fix"])
    assert any("docker: denied" in text for text in value["unanswered"])


def test_a_healthy_machine_is_told_in_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--machine", HEALTHY)
    assert (code, err) == (0, "")
    assert out.endswith("No problem found.\n")
    assert len(out.splitlines()) <= 12
    assert "\033" not in out


def test_a_machine_that_does_not_answer_is_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    machine = str(MACHINES / "h100x4-nvml-hangs-halfway")
    code, out, _ = run(capsys, "--machine", machine, "--only", "DSH-HO-001", "--json")
    value = json.loads(out)
    assert code == value["exit_code"] == 3
    assert any("nvml" in text for text in value["unanswered"])


def test_what_was_not_asked_for_leaves_nothing_incomplete(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, "--machine", DENIED, "--only", "DSH-HO-001")
    assert code == 0
    assert "Not everything" not in out


def test_warnings_and_strict(capsys: pytest.CaptureFixture[str]) -> None:
    machine = ("--machine", OLD_DRIVER, "--only", "DSH-NV-049")
    assert run(capsys, *machine)[0] == 1
    code, out, _ = run(capsys, *machine, "--strict", "--json")
    assert code == 2
    value = json.loads(out)
    assert (value["exit_code"], value["strict"]) == (2, True)
    assert value["summary"]["warn"] == 1


class Terminal(io.StringIO):
    """A stdout that is one."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_on_a_terminal_alone(
    env: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    assert cli.run(["doctor", "--machine", DENIED], "dshpc") == 2
    assert ("\033[1;31m" in screen.getvalue()) == coloured


# Which checks


def well(known: CheckInput) -> Verdict:
    return fine()


def ill(known: CheckInput) -> Verdict:
    return fault("Two versions.")


def check(identity: str, section: Any, **more: Any) -> Check:
    return Check(identity, section, "t", "f", more.pop("look", well), **more)


CHECKS = (check("DSH-GP-001", "gpu"), check("DSH-NV-001", "driver"), check("DSH-NV-013", "driver"),
          check("DSH-AM-001", "driver"))  # fmt: skip


@pytest.mark.parametrize(
    ("only", "skip", "left"),
    [
        ((), (), "GP-001 NV-001 NV-013 AM-001"),
        (("driver",), (), "NV-001 NV-013 AM-001"),
        (("Driver",), ("DSH-NV-*",), "AM-001"),
        (("gpu,DSH-NV-013",), (), "GP-001 NV-013"),
        (("DSH-NV-013", "gpu"), (), "GP-001 NV-013"),
        (("nv-13, dsh-am-001",), (), "NV-013 AM-001"),
        (("*-00?",), (), "GP-001 NV-001 AM-001"),
        ((), ("dri*",), "GP-001"),
        ((), ("gpu", "AM-001"), "NV-001 NV-013"),
    ],
)
def test_which_are_chosen(only: tuple[str, ...], skip: tuple[str, ...], left: str) -> None:
    ids = [it.id.removeprefix("DSH-") for it in check_selection.chosen(CHECKS, only, skip)]
    assert ids == left.split()


@pytest.mark.parametrize(
    ("only", "skip", "words"),
    [
        (("drivers",), (), "Did you mean driver?"),
        (("DSH-NV-014",), (), "Did you mean DSH-NV-013?"),
        (("DSH-NV-999",), (), "Did you mean DSH-NV-013?"),
        (("dsh-nv-0",), (), "Did you mean DSH-NV-001 or DSH-NV-013?"),
        ((), ("DSH-XX-*,gpu",), "'DSH-XX-*'"),
        (("zzz",), (), "The sections are: host, gpu"),
        (("",), (), "empty"),
        (("gpu,",), (), "empty"),
        (("gpu",), ("gpu",), "all that --only names"),
        ((), ("*",), "all there are"),
    ],
)
def test_what_cannot_be_chosen(only: tuple[str, ...], skip: tuple[str, ...], words: str) -> None:
    with pytest.raises(DshpcError) as raised:
        check_selection.chosen(CHECKS, only, skip)
    assert raised.value.exit_code == Exit.USAGE
    assert words in f"{raised.value.brief} {raised.value.details}"


@given(st.text())
def test_any_word_names_checks_or_is_refused(word: str) -> None:
    try:
        found = check_selection.chosen(CHECKS, (word,), ())
    except DshpcError as error:
        assert error.exit_code == Exit.USAGE
    else:
        assert found
        assert set(found) <= set(CHECKS)


@pytest.mark.parametrize("option", ["--only", "--skip"])
def test_an_unknown_word_is_refused_before_anything_is_asked(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the machine was asked")

    monkeypatch.setattr(checkup, "examine", never)
    code, out, err = run(capsys, option, "enginee", "--json")
    assert code == 64
    assert json.loads(out)["schema"] == "dshpc.error/1"
    assert "Did you mean engine?" in err


def test_checks_that_are_left_out_still_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = check("DSH-NV-001", "driver", look=ill)
    symptom = check("DSH-GP-001", "gpu", look=ill, because=("DSH-NV-001",))
    waiting = check("DSH-PT-001", "passthrough", needs=("DSH-NV-001",))
    monkeypatch.setattr("dshpc_setup.diagnose.catalogue", lambda: (symptom, broken, waiting))
    known: CheckInput = known_of("workstation-rtx4090")
    report = checking.report_of(DoctorOptions(), known, (symptom, waiting))
    assert [(it.id, it.caused_by, it.blocked_by) for it in report.findings] == [
        ("DSH-GP-001", "DSH-NV-001", None),
        ("DSH-PT-001", None, "DSH-NV-001"),
    ]
    assert lines(report, Ink())[-3] == "passthrough  1 blocked"


def test_the_list_of_checks_needs_no_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(checkup, "examine")
    code, out, _ = run(capsys, "--list-checks")
    assert code == 0
    assert len(out.splitlines()) == len(catalogue())
    assert "DSH-DK-001  engine       The Docker engine answers\n" in out
    value = json.loads(run(capsys, "--list-checks", "--json", "--only", "DSH-DK-001")[1])
    assert value["schema"] == "dshpc.checks/1"
    assert value["checks"] == [
        {"id": "DSH-DK-001", "section": "engine", "title": "The Docker engine answers"}
    ]


# JUnit


def suites(text: str) -> dict[str, ElementTree.Element]:
    return {suite.attrib["name"]: suite for suite in ElementTree.fromstring(text)}


def test_junit_has_a_case_for_each_check() -> None:
    found = suites(junit.document((*ILL, CRASHED)))
    assert list(found) == ["host", "gpu", "driver", "passthrough", "slurm", "files"]
    driver = found["driver"]
    assert {key: driver.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "2", "failures": "1", "errors": "0", "skipped": "1",
    }  # fmt: skip
    root, absent = driver
    assert (root.get("classname"), root.get("name")) == ("driver", "DSH-NV-001")
    failure = root.find("failure")
    assert failure is not None
    assert failure.get("message") == "The driver was updated"
    assert failure.text == "Two versions.\n-> Restart the machine: sudo reboot\n-> Or wait"
    assert root.findtext("system-out", "").endswith("kernel 570\nlibrary 575")
    skipped = absent.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "There is no AMD GPU."
    blocked = found["passthrough"].find("testcase/skipped")
    assert blocked is not None
    assert blocked.get("message") == "blocked by DSH-NV-001: Two versions."
    assert found["files"].find("testcase/error") is not None
    assert "because of DSH-NV-001" in (found["gpu"].findtext("testcase/failure") or "")
    (ok, _) = found["host"]
    assert [part.tag for part in ok] == ["system-out"]


def test_in_junit_a_warning_fails_with_strict_alone() -> None:
    assert suites(junit.document((WARNED,)))["slurm"].find("testcase/failure") is None
    assert "It will be full." in (
        suites(junit.document((WARNED,)))["slurm"].findtext("testcase/system-out") or ""
    )
    strict = suites(junit.document((WARNED,), strict=True))["slurm"]
    assert strict.find("testcase/failure") is not None
    assert strict.get("failures") == "1"


@given(FINDINGS, st.booleans())
def test_junit_always_parses(findings: list[Finding], strict: bool) -> None:
    text = junit.document(findings, strict=strict)
    found = ElementTree.fromstring(text.encode("utf-8"))
    assert sum(1 for _ in found.iter("testcase")) == len(findings)
    assert not any(sign < " " and sign not in "\t\r\n" for sign in text)


def test_junit_keeps_what_xml_can_write() -> None:
    text = "a\x1b[31m<b>&\"'\ud800\x00]]> ü 🎉\tc\nd"
    out = suites(junit.document((replace(WELL, evidence=(text,)),)))["host"]
    assert out.findtext("testcase/system-out") == "ok: It runs\na[31m<b>&\"']]> ü 🎉\tc\nd"


def test_junit_is_written_beside_the_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out.xml").write_text("old")
    code, out, _ = run(capsys, "--machine", DENIED, "--json", "--junit", "out.xml")
    assert code == 2
    value = json.loads(out)
    cases = ElementTree.fromstring((tmp_path / "out.xml").read_text()).findall(".//testcase")
    assert [case.get("name") for case in cases] == [it["id"] for it in value["findings"]]
    assert sum(case.find("failure") is not None for case in cases) == value["summary"]["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["out.xml"]


def test_junit_needs_a_name_and_a_folder_that_may_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "--machine", HEALTHY, "--junit", "")
    assert (code, "--junit names no file" in err) == (64, True)
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)
    code, out, err = run(capsys, "--machine", HEALTHY, "--junit", str(tmp_path / "out.xml"))
    assert (code, out) == (64, "")
    assert f"You may not write into {tmp_path}" in err


def test_a_machine_needs_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--machine", "")
    assert (code, "--machine names nothing" in err) == (64, True)


def test_a_recorded_machine_is_not_seen_with_the_settings_of_this_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dshpc.yaml").write_text("simulate: h100:2\n")
    machine = str(MACHINES / "workstation-rtx4090-nouveau")
    code, out, _ = run(capsys, "--machine", machine)
    assert code == 2
    assert "nouveau" in out
    assert "SIMULATED" not in out
    assert "Only a machine was recorded" in out


def test_a_left_out_cause_is_named_and_is_no_success() -> None:
    report = Report((WELL, BLOCKED), ILL)
    assert [it.id for it in report.left_out] == [ROOT.id]
    assert report.exit_code == Exit.INCOMPLETE
    assert report.to_json()["left_out"] == [{"id": ROOT.id, "title": ROOT.title}]
    text = told((WELL, BLOCKED), every=ILL)
    assert text[0] == "!! The driver was updated (DSH-NV-001, left out by --only or --skip)"
    assert text[-1] == "No problem found by 1 check; 1 could not be made."
    assert Report((WELL, ABSENT), ILL).exit_code == Exit.OK
    assert told((WELL, ABSENT), every=ILL)[-1] == "No problem found by 1 check."
    assert Report(ILL, ILL).left_out == ()


def test_what_stands_beside_the_findings() -> None:
    here = known_of("workstation-rtx4090")
    gpu_alone = tuple(it for it in catalogue() if it.section == "gpu")
    seen = replace(here, observed=replace(here.observed, version="0.1.0"))
    placed = replace(here, observed=replace(seen.observed, project="/home/someone/cluster"))
    none = ("No cluster is set up in this folder or above it.",)
    assert checking.report_of(DoctorOptions(), seen, None).notes == none
    assert checking.report_of(DoctorOptions(), seen, gpu_alone).notes == ()
    (where,) = checking.report_of(DoctorOptions(), placed, None).notes
    assert where == "No cluster is set up in /home/someone/cluster."
    (alone,) = checking.report_of(DoctorOptions(), here, None, recorded=True).notes
    assert alone.startswith("Only a machine was recorded")
    simulated = known_of("workstation-rtx4090/slurm-simulated")
    (made_up,) = checking.report_of(DoctorOptions(), simulated, gpu_alone).notes
    assert "SIMULATED" in made_up
    assert told((WELL,), notes=(made_up,))[-2:] == [made_up, "No problem found."]
    assert (
        checking.report_of(DoctorOptions(), known_of("workstation-rtx4090/healthy"), None).notes
        == ()
    )


def test_a_container_that_runs_and_does_not_say_how_it_is_was_not_found_well() -> None:
    """On a busy machine half of the checks were skipped, and no problem found."""
    here = known_of("workstation-rtx4090/healthy")
    silent = replace(
        here.observed, inside=None, inside_problem="It did not answer within 7 seconds."
    )
    report = checking.report_of(DoctorOptions(), replace(here, observed=silent), None)
    assert report.exit_code == Exit.INCOMPLETE
    text = "\n".join(lines(report, Ink()))
    assert "container: It did not answer within 7 seconds." in text
    assert "Ask the container again: dshpc doctor" in text
    assert "not everything could be asked" in text
    gone = replace(silent, container=replace(silent.container, status="exited"))  # type: ignore[type-var]
    assert not checking.report_of(DoctorOptions(), replace(here, observed=gone), None).unanswered
    alone = tuple(it for it in catalogue() if it.section == "host")
    assert not checking.report_of(DoctorOptions(), replace(here, observed=silent), alone).unanswered


@pytest.mark.parametrize("target", ["there/is/none.xml", "/"])
def test_junit_that_cannot_be_written(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--machine", HEALTHY, "--junit", target)
    assert (code, out) == (64, "")
    assert f"--junit {target} cannot be written" in err


def test_a_machine_without_gpus_is_told_so_though_nothing_is_wrong() -> None:
    none = Finding(
        "DSH-GP-001", "gpu", "info", "No GPU detected for jobs", ("pci: absent",), "There is none.",
        (Fix("To try it", "configure-environment --simulate h100:2"),),
    )  # fmt: skip
    text = told((WELL, NOTED, none))
    assert text[:5] == [
        "-- No GPU detected for jobs (DSH-GP-001)",
        "   There is none.",
        "   -> To try it:",
        "        configure-environment --simulate h100:2",
        "",
    ]
    assert text[-1] == "No problem found."
    assert "Worth knowing" not in "\n".join(text)


def test_what_a_folded_fault_says_is_not_said_again() -> None:
    late = (
        Unanswered("gpus", "error", "no answer.", section=True),
        Unanswered("rocm-smi", "timeout", "no answer in time"),
    )
    text = "\n".join(told((ROOT, FOLDED), unanswered=late))
    assert "gpus: error" not in text
    assert "  - rocm-smi: no answer in time" in text
    said = Finding(
        "DSH-GP-001", "gpu", "error", "No GPU is seen", cause="Rocm-smi: no answer in time."
    )
    assert "Not everything" not in "\n".join(told((said,), unanswered=late[1:]))
