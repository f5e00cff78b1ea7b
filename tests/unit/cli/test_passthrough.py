"""`dshpc passthrough`: options, the matrix on the screen, one JSON object, exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.cli.passthrough import lines
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.facts import Gpus, HostFacts
from dshpc_setup.machine import local
from dshpc_setup.passthrough import Attempt, Cause, Passthrough, findings, testrun, without_test
from dshpc_setup.passthrough.candidates import candidates
from dshpc_setup.passthrough.handover import Handover
from tests.unit.passthrough.made import CUT, card, facts, on, planned

MACHINES = Path(__file__).parents[2] / "machines"
TWO = facts(card(0), card(1))
REQUEST = Handover("device-request")
FIX = (
    Fix(
        "Install the NVIDIA Container Toolkit",
        "sudo apt-get install -y " + "nvidia-container-toolkit " * 4,
    ),
    Fix(
        "Then look into this long and winding description of what else may be done, which has no command"
    ),
)


@pytest.fixture(autouse=True)
def _plain(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")


def run_of(found: Passthrough, facts: HostFacts = TWO, **more: Any) -> testrun.TestRun:
    found = replace(found, user=(1000, 993))
    return testrun.TestRun(found, facts, planned(facts), "base:1", **more)


def told(run: testrun.TestRun) -> str:
    return "\n".join(lines(run))


WORKS = Passthrough(
    REQUEST,
    "Proven by a test container: 2 GPUs by a device request (--gpus).",
    (
        Attempt("cdi", "impossible", "CDI is not switched on in this engine", findings.CDI_OFF),
        Attempt("device-request", "works", "all 2 GPUs were seen", handover=REQUEST, ms=931.0),
        Attempt("runtime", "untested", "it was not tested: a device request (--gpus) works"),
        Attempt("devices", "impossible", "NVIDIA's GPUs need files of the driver"),
    ),
)
FAILS = Passthrough(
    Handover("none"),
    "a device request (--gpus): the NVIDIA Container Toolkit is not installed.",
    (
        Attempt("cdi", "impossible", "CDI is not switched on in this engine", findings.CDI_OFF),
        Attempt("device-request", "fails", "the NVIDIA Container Toolkit is not installed",
                findings.NO_TOOLKIT, ("docker: could not select\n\nRun 'docker run --help'",), FIX, REQUEST),
    ),
)  # fmt: skip


def test_what_works_with_its_reasons() -> None:
    assert lines(run_of(WORKS)) == [
        "GPUs   2 x NVIDIA H100",
        "Image  base:1, as user 1000",
        "  -- CDI           not possible here",
        "      CDI is not switched on in this engine (DSH-DK-060)",
        "  ok --gpus        works, 0.9 s",
        "      all 2 GPUs were seen",
        "  .. --runtime     not tested",
        "      it was not tested: a device request (--gpus) works",
        "  -- device nodes  not possible here",
        "      NVIDIA's GPUs need files of the driver",
        "Proven by a test container: 2 GPUs by a device request (--gpus).",
    ]


def test_what_does_not_work_with_the_engines_words_and_what_to_do() -> None:
    text = told(run_of(FAILS))
    assert "  !! --gpus        does not work\n" in text
    assert "      | docker: could not select\nNo container" in text  # no advice that helps nobody
    assert "No container gets the GPUs. Start with a device request (--gpus): the" in text
    assert f"  - Install the NVIDIA Container Toolkit:\n      {FIX[0].command}" in text


def test_words_fit_80_columns_and_commands_are_not_broken() -> None:
    long = replace(FAILS.attempts[1], reason="why " * 60)
    said = lines(run_of(replace(FAILS, reason="because " * 40, attempts=(long,))))
    commands = {f"      {step.command}" for step in FIX}
    assert all(len(line) <= 80 for line in said if line not in commands)
    assert commands - {"      None"} <= set(said)


def test_a_long_report_of_a_known_failure_is_cut_and_an_unknown_one_is_whole() -> None:
    words = ("\n".join(f"line {number}" for number in range(30)),)
    known = Attempt("cdi", "fails", "why", findings.FEWER_GPUS, words)
    text = told(run_of(Passthrough(Handover("none"), "", (known,))))
    assert "| line 7" in text
    assert "line 8" not in text
    assert "and 22 lines more: --json" in text
    unknown = Attempt(
        "cdi", "fails", "the engine refused: " + " ".join(words[0].split()), None, words
    )
    text = told(run_of(Passthrough(Handover("none"), "", (unknown,))))
    assert "line 29" in " ".join(text.split())
    assert "|" not in text


def test_warnings_left_out_cards_and_parts() -> None:
    lame = facts(CUT, card(1, problems=("DSH-NV-020",)))
    text = told(run_of(replace(WORKS, warnings=(Cause("DSH-NV-027", "it lacks compute"),)), lame))
    assert "GPUs   1 x NVIDIA H100, as 2 parts" in text
    assert "Not used: GPU 1 (NVIDIA H100): it has fallen off the bus (DSH-NV-020)." in text
    assert "Warning: it lacks compute (DSH-NV-027)." in text


def test_two_instances_of_one_card_are_one_card() -> None:
    cut = facts(CUT)
    plan = planned(cut, devices="MIG-a,MIG-b")
    run = testrun.TestRun(WORKS, cut, plan)
    assert lines(run)[0] == "GPUs   1 x NVIDIA H100, as 2 parts"
    assert len(run.to_json()["gpus"]) == 1


def test_nothing_to_test() -> None:
    none = replace(TWO, gpus=Gpus("absent", detail="there is no GPU"))
    plan = planned(none)
    found = without_test(plan, ())
    assert found is not None
    assert lines(testrun.TestRun(found, none, plan)) == [
        "GPUs   none",
        "Nothing to test: there is no GPU",
    ]
    plan = replace(planned(TWO), simulated=True)
    found = without_test(plan, ())
    assert found is not None
    assert lines(testrun.TestRun(found, TWO, plan))[0] == "GPUs   SIMULATED 2 x NVIDIA H100"


def test_an_engine_elsewhere_says_where_to_go() -> None:
    far = on(TWO, kind="remote", host="ssh://far")
    rows = candidates(far, planned(far))
    found = Passthrough(Handover("none"), f"{rows[0].reason}.", rows)
    text = told(run_of(found, far))
    assert "No container gets the GPUs: the engine at ssh://far runs on another machine" in text
    assert "unset DOCKER_HOST" in text


# -- the command -------------------------------------------------------------------------------------


def command(
    monkeypatch: pytest.MonkeyPatch, outcome: testrun.TestRun | BaseException, *arguments: str
) -> tuple[int, list[testrun.RunOptions]]:
    wishes: list[testrun.RunOptions] = []

    def fake(_: object, wish: testrun.RunOptions, __: object) -> testrun.TestRun:
        wishes.append(wish)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(testrun, "test_run", fake)
    return cli.run(["passthrough", *arguments], "dshpc"), wishes


def test_the_options_reach_the_test_run(monkeypatch: pytest.MonkeyPatch) -> None:
    code, (wish,) = command(
        monkeypatch,
        run_of(WORKS),
        "--image",
        "x:1",
        "--devices",
        "0,1",
        "--deadline",
        "9",
        "--get-base",
    )
    assert code == 0
    assert (wish.image, wish.settings.devices, wish.deadline_s) == ("x:1", ("0", "1"), 9.0)
    assert (wish.get_base, wish.every, wish.replayed) == (True, True, False)
    _, (plain,) = command(monkeypatch, run_of(WORKS))
    assert (plain.image, plain.settings.devices, plain.get_base) == (None, (), False)


@pytest.mark.parametrize(("found", "code"), [(WORKS, 0), (FAILS, 2)])
def test_json_is_one_object_and_its_code_is_that_of_the_command(
    found: Passthrough,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended, _ = command(monkeypatch, run_of(found), "--json")
    value = json.loads(capsys.readouterr().out)
    assert (ended, value["exit_code"], value["schema"]) == (code, code, "dshpc.passthrough/1")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DshpcError("no engine", "why", ("do",), 3), 3),
        (KeyboardInterrupt(), 130),
        (RuntimeError("bug"), 2),
    ],
)
def test_json_is_one_object_for_errors_too(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended, _ = command(monkeypatch, error, "--json")
    value = json.loads(capsys.readouterr().out)
    assert (ended, value["exit_code"], value["schema"]) == (code, code, "dshpc.error/1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--deadline", "0"],
        ["--deadline", "nan"],
        ["--deadline", "-1"],
        ["--nonsense"],
        ["more"],
        ["--machine", "no-such-folder"],
        ["--image", "--privileged", "--machine", str(MACHINES / "h100x8")],
        ["--devices", "99", "--machine", str(MACHINES / "h100x8")],
    ],
)
def test_wrong_usage_is_64(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["passthrough", "--json", *arguments], "dshpc") == 64
    assert json.loads(capsys.readouterr().out)["exit_code"] == 64


@pytest.mark.parametrize(
    ("name", "code", "word"),
    [
        ("h100x8", 3, "8 x NVIDIA H100"),
        ("mi300x-cpx", 3, "AMD Instinct"),
        ("wsl2-rtx3080", 3, "DSH-DK-032"),
        ("rtx4090-toolkit-missing", 3, "not installed"),
        ("macos-arm", 1, "Nothing to test"),
        ("vm-no-gpu", 1, "Nothing to test"),
        ("h100x8-nvlink", 2, ""),  # it has no engine
    ],
)
def test_a_recorded_machine_starts_nothing(
    name: str,
    code: int,
    word: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a process was started on this machine")

    monkeypatch.setattr(local.LocalMachine, "run", never)
    assert cli.run(["passthrough", "--machine", str(MACHINES / name)], "dshpc") == code
    out = capsys.readouterr().out
    assert word in out
    assert all(len(line) <= 80 for line in out.splitlines())
