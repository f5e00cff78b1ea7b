"""The state of a workflow's last run, on disk."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import safe_open
from dshpc_setup.workflows import state
from dshpc_setup.workflows.model import Need
from dshpc_setup.workflows.state import Ran, State

_RAN = st.builds(
    Ran,
    job_id=st.none() | st.integers(1, 10**9).map(str),
    workspace=st.none() | st.text(max_size=5),
    fingerprint=st.none() | st.text(max_size=5),
    needs=st.lists(
        st.builds(Need, st.text(max_size=3), st.sampled_from(["COMPLETED", "FAILED"]))
    ).map(tuple),
    reused=st.booleans(),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=st.dictionaries(st.text(max_size=3), _RAN, max_size=3))
def test_what_is_written_is_read(tmp_path: Path, jobs: dict[str, Ran]) -> None:
    work = str(tmp_path)
    given_state = State("pipe", "/w/pipe.yaml", 1.5, jobs)
    with state.lock(work, "pipe"):
        state.write(work, given_state)
    assert state.read(work, "pipe") == given_state
    assert state.names(work) == ["pipe"]


@pytest.mark.parametrize(
    "part",
    [
        {"job_id": "1; rm"}, {"job_id": 7}, {"workspace": []}, {"needs": [{"job": "x"}]},
        {"needs": [{"job": "x", "ending": "NO"}]}, {"needs": 1},
    ],
)  # fmt: skip
def test_what_is_not_ours_is_not_read(part: dict[str, object], tmp_path: Path) -> None:
    work = str(tmp_path)
    with state.lock(work, "pipe"):
        state.write(work, State("pipe", "f", 0.0, {"a": Ran("1", "/w", "f", (Need("x"),))}))
    path = Path(state.path(work, "pipe"))
    value = json.loads(path.read_text())
    assert state.read(work, "pipe") is not None
    value["jobs"]["a"] |= part
    path.write_text(json.dumps(value))
    assert state.read(work, "pipe") is None


def test_there_is_none_at_first(tmp_path: Path) -> None:
    assert state.read(str(tmp_path), "pipe") is None
    assert state.names(str(tmp_path)) == []


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with state.lock(str(tmp_path), "pipe"):
        with pytest.raises(DshpcError, match="being submitted at this moment"):
            state.lock(str(tmp_path), "pipe").__enter__()
        with state.lock(str(tmp_path), "other"):
            pass
    with state.lock(str(tmp_path), "pipe"):
        pass


def test_each_user_has_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, uid = str(tmp_path), os.getuid()
    with state.lock(work, "pipe"):
        state.write(work, State("pipe", "f", 0.0))
        monkeypatch.setattr("os.getuid", lambda: uid + 1)  # a file system of one user's
        assert (state.read(work, "pipe"), state.names(work)) == (None, [])
        assert not state.is_begun(work, "pipe")
        with state.lock(work, "pipe"):  # at the same time
            pass
    assert Path(state.folder(work)).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_another_user_has_put_there_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, uid = str(tmp_path), os.getuid()
    with state.lock(work, "pipe"):
        state.write(work, State("pipe", "forged", 0.0))
    (tmp_path / "jobs" / str(uid)).rename(tmp_path / "jobs" / str(uid + 1))
    monkeypatch.setattr("os.getuid", lambda: uid + 1)
    monkeypatch.setattr(safe_open, "given_owner", lambda _: uid + 1)
    assert (state.read(work, "pipe"), state.names(work)) == (None, [])
    assert not state.is_begun(work, "pipe")
    with pytest.raises(DshpcError, match="is not a folder of this user's"):
        state.lock(work, "pipe").__enter__()
    with pytest.raises(DshpcError, match="Cannot write"):
        state.write(work, State("pipe", "f", 0.0))


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    work = str(tmp_path)
    with state.lock(work, "pipe"):
        state.write(work, State("pipe", "forged", 0.0))
    mine = Path(state.folder(work))
    mine.rename(tmp_path / "elsewhere")
    mine.symlink_to(tmp_path / "elsewhere")
    assert (state.read(work, "pipe"), state.names(work)) == (None, [])
    with pytest.raises(DshpcError, match="Cannot write"):
        state.lock(work, "pipe").__enter__()


def test_who_may_not_make_a_folder_there_is_told_whose_rights_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = str(tmp_path)
    (tmp_path / "jobs").mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    with pytest.raises(DshpcError) as caught, state.lock(work, "pipe"):
        pass
    assert "4321/.workflows cannot be made: Permission denied" in caught.value.brief
    assert f"mkdir -p {work}/jobs; chmod 1777 {work}/jobs" in caught.value.resolution[0]
