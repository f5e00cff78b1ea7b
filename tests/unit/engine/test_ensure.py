"""Engine and tools made sure of: gather, fix, gather again, and an exit code that can be trusted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dshpc_setup import probes
from dshpc_setup.engine import ensure, tools
from dshpc_setup.engine.install import EngineOutcome
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Compose, Engine, HostFacts
from tests.unit.engine.fake import FakeMachine, Listener, facts

GOOD = Engine("present", "26.1.5", compose=Compose("2.26.1", ("docker", "compose")))


def world(
    monkeypatch: pytest.MonkeyPatch, seen: list[Engine], changed: bool = True
) -> Iterator[HostFacts]:
    """Each look at the machine gives the next engine; installing always succeeds."""
    looks = iter([facts(engine) for engine in seen])

    def gather(*_: object) -> HostFacts:
        return next(looks)

    def ensure_engine(*_: object, interactive: bool) -> EngineOutcome:
        return EngineOutcome(started=changed)

    monkeypatch.setattr(probes, "gather_surely", gather)
    monkeypatch.setattr(tools, "ensure_engine", ensure_engine)
    return looks


def test_after_a_change_the_machine_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world(monkeypatch, [Engine("absent"), GOOD])
    assert tools.ready(FakeMachine(), FakeMachine(), Listener(), interactive=False).engine == GOOD


def test_without_a_change_once_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = world(monkeypatch, [GOOD, GOOD], changed=False)
    tools.ready(FakeMachine(), FakeMachine(), Listener(), interactive=False)
    assert len(list(looks)) == 1


@pytest.mark.parametrize("still", [Engine("absent"), Engine("timeout"), Engine("present")])
def test_what_still_does_not_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch, still: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    world(monkeypatch, [Engine("absent"), still])
    with pytest.raises(DshpcError, match=r"does not answer|neither way"):
        tools.ready(FakeMachine(), FakeMachine(), Listener(), interactive=False)
    world(monkeypatch, [Engine("absent"), still])
    assert ensure.main(["--yes"]) != 0
    assert re.search("does not answer|neither way", capsys.readouterr().err)


def test_an_engine_and_a_compose_end_with_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world(monkeypatch, [GOOD], changed=False)
    assert ensure.main([]) == 0
    assert "Docker 26.1.5, compose 2.26.1" in capsys.readouterr().out


def test_without_a_terminal_and_without_yes_the_answer_is_no(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ensure._Lines(yes=False, interactive=False).ask("Install it?") is False
    assert ensure._Lines(yes=True, interactive=False).ask("Install it?") is True
    assert "no terminal, no --yes" in capsys.readouterr().out
