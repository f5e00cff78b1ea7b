"""All probes together: none stops another, none outlasts the deadline."""

from __future__ import annotations

from typing import Any

import pytest

from dshpc_setup import probes
from dshpc_setup.facts import Evidence, Gpus, Section
from dshpc_setup.machine import Machine
from dshpc_setup.probes.trace import Found
from tests.unit.machine.in_place import EMPTY


def replaced(name: str, probe: Any) -> tuple[tuple[str, Any, Section], ...]:
    return tuple(
        (key, probe if key == name else old, section) for key, old, section in probes.every_probe()
    )


def test_a_probe_that_raises_is_an_error_and_the_others_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(machine: Machine, left_s: float) -> Any:
        raise ValueError("a register was odd")

    instead = replaced("amd", broken)
    monkeypatch.setattr(probes, "every_probe", lambda: instead)
    facts = probes.gather(EMPTY, engine=False)
    assert facts.gpus.state == "error"
    assert "a register was odd" in (facts.gpus.detail or "")
    assert facts.platform.kernel == (EMPTY.system[1] or None)


def test_ctrl_c_in_a_probe_is_nobodys_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(machine: Machine, left_s: float) -> Any:
        raise KeyboardInterrupt

    instead = replaced("intel", interrupted)
    monkeypatch.setattr(probes, "every_probe", lambda: instead)
    with pytest.raises(KeyboardInterrupt):
        probes.gather(EMPTY, engine=False)


def test_an_empty_tree_is_said_to_be_one() -> None:
    facts = probes.gather(EMPTY, engine=False)
    states = {item.probe: item.state for item in facts.evidence}
    assert (states["cpu"], states["memory"]) == ("absent", "absent")
    assert facts.gpus.state == "absent"
    assert facts.engine.state == "unsupported"


def test_gpus_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(machine: Machine, left_s: float) -> Any:
        return Found(Gpus("denied", detail="no"), (Evidence("nvml", "denied", "lib", 1.0),))

    instead = replaced("nvidia", found)
    monkeypatch.setattr(probes, "every_probe", lambda: instead)
    facts = probes.gather(EMPTY, engine=False)
    assert (facts.gpus.state, facts.gpus.detail) == ("denied", "no")
    assert facts.to_json()["gpus"]["vendor"] == "none"
