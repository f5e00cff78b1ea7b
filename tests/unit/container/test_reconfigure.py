"""What a reconfiguration refuses, and which set is in force: without a Slurm program."""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.cluster import start
from dshpc_setup.container import reconfigure, status
from dshpc_setup.container.run import Run
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.settings import LIVE_FILE, Settings
from dshpc_setup.slurm.paths import ASK, Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    for folder in ("run/dshpc/conf.1", "etc", "run/slurm", "run/slurmctld"):
        (tmp_path / folder).mkdir(parents=True)
    return Paths(str(tmp_path))


def told(paths: Paths, **values: Any) -> None:
    found = {**status.Status(paths).values, **values}
    Path(paths.status).write_text(json.dumps(found))


def refused(paths: Paths) -> DshpcError:
    with pytest.raises(DshpcError) as caught:
        reconfigure.reconfigure(LocalMachine(paths.root), paths, {"DSHPC_PREFIX": "lab"})
    return caught.value


def test_before_the_start_and_during_it_there_is_nothing_to_reconfigure(paths: Paths) -> None:
    assert refused(paths).exit_code == Exit.INCOMPLETE
    told(paths, phase="starting: plan")
    error = refused(paths)
    assert (error.brief, error.exit_code) == ("The cluster is still starting.", Exit.INCOMPLETE)
    assert "starting: plan" in error.details


def test_after_a_failed_start_the_reason_is_said(paths: Paths) -> None:
    told(paths, phase="failed", failure={"brief": "No key.", "details": "", "resolution": []})
    error = refused(paths)
    assert error.exit_code == Exit.INCOMPLETE
    assert error.details == "No key."


@pytest.mark.parametrize("name", ["reconfigure.lock", "key.lock"])
def test_two_at_once_are_refused(paths: Paths, name: str) -> None:
    told(paths, phase="ready")
    with (Path(paths.run) / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        error = refused(paths)
    assert error.exit_code == Exit.INCOMPLETE
    assert "changed already" in error.brief


def test_one_that_is_killed_leaves_the_settings_for_not_read(paths: Paths) -> None:
    """And the rest of the status as it was, which people see meanwhile."""
    read = {"slurm.conf": "a", LIVE_FILE: "b"}
    told(paths, phase="ready", ready=True, config_sha256=read)
    before = json.loads(Path(paths.status).read_text())
    quiet = status.Status(paths, print, live=False)
    run = Run(LocalMachine(paths.root), paths, quiet, Settings(), (0, 0), restored=True)
    reconfigure._say_begun(run, before)
    now = json.loads(Path(paths.status).read_text())
    assert now == {**before, "config_sha256": {"slurm.conf": "a", LIVE_FILE: ""}}
    assert not start._has_read(now, Settings())
    assert start._has_read({"config_sha256": Settings().live_digests()}, Settings())


def in_force(paths: Paths) -> Path:
    """A set that both daemons were started with."""
    folder = Path(paths.run) / "conf.1"
    for name in ("slurm.conf", "gres.conf", "slurm.jwks", ASK):
        (folder / name).write_text(name)
    Path(paths.etc_slurm).symlink_to(folder)
    for name in ("slurmctld", "slurmd"):
        (Path(paths.run) / f"{name}.conf").write_text(f"{folder}\n")
    for name in ("slurmctld", "slurm"):
        (Path(paths.root) / f"run/{name}/sack.socket").touch()
    return folder


def test_the_texts_in_force_are_those_of_slurm_without_keys(paths: Paths) -> None:
    in_force(paths)
    found = reconfigure._texts_in_force(paths)
    assert found == {"slurm.conf": "slurm.conf", "gres.conf": "gres.conf"}


def test_what_is_in_force_is_what_both_daemons_were_started_with(paths: Paths) -> None:
    in_force(paths)
    assert reconfigure._took_over(paths)
    record = Path(paths.run) / "slurmd.conf"
    record.write_text("/run/dshpc/conf.2\n")
    assert not reconfigure._took_over(paths)
    record.unlink()
    assert not reconfigure._took_over(paths)


def test_a_daemon_that_no_client_reaches_is_not_taken_for_one_that_runs(paths: Paths) -> None:
    in_force(paths)
    (Path(paths.root) / "run/slurm/sack.socket").unlink()
    assert not reconfigure._took_over(paths)


@pytest.mark.parametrize("has_begun", [False, True])
def test_an_interruption_counts_until_the_change_has_begun(
    has_begun: bool,
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    done: list[str] = []

    def work(_run: Run, _before: object, begin: Callable[[], None]) -> None:
        if has_begun:
            begin()
        signal.raise_signal(signal.SIGTERM)
        done.append("all of it")

    told(paths, phase="ready")
    monkeypatch.setattr(reconfigure, "_reconfigure", work)
    monkeypatch.setattr(reconfigure, "slurm_user", lambda: (0, 0))
    with contextlib.suppress(KeyboardInterrupt):
        reconfigure.reconfigure(LocalMachine(paths.root), paths, {"DSHPC_PREFIX": "lab"})
    assert done == (["all of it"] if has_begun else [])
    assert ("SIGTERM came too late" in capsys.readouterr().out) is has_begun
