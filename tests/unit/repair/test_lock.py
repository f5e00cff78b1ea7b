"""Two runs of `--fix` at once: one of them is refused, with a project or without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.repair import RepairOptions, lock, repair_findings
from dshpc_setup.repair.lock import only_run, state_folder
from tests.unit.diagnose.known import findings, known
from tests.unit.engine.fake import Answer, FakeMachine, Listener

real_state_folder = state_folder  # before conftest.py puts another in its place
NAME = "rtx4090-runtime-not-registered"


def user(home: str, **env: str) -> FakeMachine:
    entry = f"ada:x:1000:1000:Ada:{home}:/bin/sh\n"
    return FakeMachine(env={"HOME": home, **env}, commands={"getent passwd": Answer(entry)})


def test_a_second_run_is_told_who_holds_it(state: Path) -> None:
    machine = user("/home/ada")
    with only_run(machine):
        assert (state / "fix.lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(DshpcError) as refused, only_run(machine):
            pass
    assert refused.value.brief == (
        f"Another run (process {os.getpid()}) is at work repairing this machine."
    )
    with only_run(machine):  # it was let go
        pass


def test_without_a_project_too_nothing_is_begun_by_the_second(state: Path) -> None:
    machine, listener = user("/home/ada"), Listener()
    told = tuple(findings(NAME).values())
    how = RepairOptions(listener, lambda: told, yes=True, interactive=True)
    with only_run(machine), pytest.raises(DshpcError, match="Another run"):
        repair_findings(machine, None, known(NAME), told, how)
    assert not any("nvidia-ctk" in line for line in machine.lines())
    assert listener.questions == []


def test_a_dry_run_waits_for_nobody() -> None:
    machine = user("/home/ada")
    told = tuple(findings(NAME).values())
    with only_run(machine):
        done = repair_findings(
            machine, None, known(NAME), told, RepairOptions(Listener(), lambda: told, dry_run=True)
        )
    assert {item.state for item in done.done} == {"planned"}


def test_a_link_in_its_place_is_not_followed(state: Path, tmp_path: Path) -> None:
    state.mkdir(parents=True)
    other = tmp_path / "other"
    other.write_text("kept")
    (state / "fix.lock").symlink_to(other)
    with pytest.raises(DshpcError), only_run(user("/home/ada")):
        pass
    assert other.read_text() == "kept"


@pytest.mark.parametrize(
    ("machine", "folder"),
    [
        (user("/home/ada"), "/home/ada/.local/state/dshpc"),
        (user("/home/ada", XDG_STATE_HOME="/data/state"), "/data/state/dshpc"),
        (user("/home/ada", XDG_STATE_HOME="state"), "/home/ada/.local/state/dshpc"),
        (
            user("/home/ada", SUDO_UID="1000", SUDO_GID="1000", XDG_STATE_HOME="/root/s"),
            "/home/ada/.local/state/dshpc",
        ),
        (user("/"), None),
    ],
)
def test_whose_it_is(machine: FakeMachine, folder: str | None) -> None:
    assert real_state_folder(machine) == (None if folder is None else Path(folder))


def test_a_user_without_a_home_is_not_kept_from_fixing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "state_folder", real_state_folder)
    with only_run(user("/")), only_run(user("/")):
        pass
