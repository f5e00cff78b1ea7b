"""What is known of jobs, put together: slurmctld, its log, the workspace."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dshpc_setup.jobs import pending_reasons, queries, records, results, safe_open, table, view
from dshpc_setup.jobs.allocated_gpus import Gpu, Places, parse_table
from dshpc_setup.jobs.offer import OfferedGpu
from dshpc_setup.jobs.records import Record
from dshpc_setup.jobs.view import View
from dshpc_setup.jobs.workspace import Workspace
from dshpc_setup.slurm import blocked_jobs, completion_log, pending
from tests.unit.slurm.test_completion_log import line
from tests.unit.slurm.test_job_states import known, number

CARDS = tuple(
    OfferedGpu(index, f"GPU-{index}", kind, kind, f"NVIDIA {kind}", "nvidia", 1000 * index, None)
    for index, kind in enumerate(("h100", "t4", "h100"))
)
# slurmd lists the H100s together
TABLE = (
    "tier default", "nvidia-by number", "gpu 0 nvidia 0 GPU-0", "gpu 2 nvidia 1 GPU-1",
    "gpu 1 nvidia 2 GPU-2", "gpu - amd - -",
)  # fmt: skip
PLACES = Places(parse_table(TABLE), CARDS)


def place(folder: Path) -> Path:
    """Where a workspace of that name lies, in the work folder that is its parent."""
    return folder.parent / "jobs" / str(os.getuid()) / folder.name


def workspace(folder: Path, **files: Any) -> Record:
    own = place(folder) / ".job"
    own.mkdir(parents=True)
    for name, value in {"job": {"job_id": 17}, **files}.items():
        (own / f"{name.replace('_', '-')}.json").write_text(json.dumps(value))
    found = records.of_folder(str(folder.parent), str(place(folder)))
    assert found is not None
    return found


def test_gpus_by_their_index_and_not_by_slurms_place() -> None:
    held = PLACES.of_gres("gpu:h100:2(IDX:0-1)")
    assert [(gpu.index, gpu.uuid, gpu.memory_mib) for gpu in held] == [
        (0, "GPU-0", 0), (2, "GPU-2", 2000),
    ]  # fmt: skip
    assert [gpu.index for gpu in PLACES.of_gres("shard:3(0/4,3/4,0/4)")] == [2]
    assert [gpu.index for gpu in PLACES.of_gres("gpu:t4:1(IDX:2),mps:t4:5(5/9,0/9,0/9)")] == [0, 1]
    assert PLACES.of_gres("xshard:3(3/4),shard:0(0/4,0/4)") == ()
    assert PLACES.of_variables({"NVIDIA_VISIBLE_DEVICES": "GPU-1"})[0].index == 1
    assert PLACES.of_variables({"NVIDIA_VISIBLE_DEVICES": "void"}) == ()
    assert PLACES.of_variables({"SLURM_JOB_GPUS": "2"})[0].index == 1
    gone = PLACES.of_variables({"NVIDIA_VISIBLE_DEVICES": "GPU-gone"})[0]
    assert (gone.index, gone.text) == (None, "GPU-gone")


def test_cards_without_a_uuid_go_by_their_number() -> None:
    cards = tuple(
        OfferedGpu(index, None, "arc", "arc", "Arc", "intel", None, None) for index in (3, 4)
    )
    places = Places(parse_table(["gpu 0 intel 1 -", "gpu 1 intel 0 -"]), cards)
    assert [gpu.index for gpu in places.of_gres("gpu:arc:2(IDX:0-1)")] == [4, 3]
    # Without a table all are of one kind, in their order
    assert [gpu.index for gpu in Places({}, cards).of_gres("gpu:arc:1(IDX:1)")] == [4]


def test_a_running_job_holds_and_an_ended_one_held(tmp_path: Path) -> None:
    record = workspace(
        tmp_path / "w",
        result={"exit_code": 3, "max_rss_mib": 99, "gpus": {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}},
    )
    running = view.of_known(known(), record, PLACES)
    assert [gpu.index for gpu in running.gpus] == [0, 2]
    assert (running.exit_code, running.max_rss_mib) == (None, None)  # of an earlier run
    assert running.seconds(200.0) == 90.0
    over = view.of_known(known(job_state=["FAILED"], gres_detail=[]), record, PLACES)
    assert (over.exit_code, over.max_rss_mib, over.gpus[0].index) == (3, 99, 1)
    assert view.outcome(over) == "failed: exit code 3"
    assert view.exit_code(over) == 3


def test_the_same_from_the_log_of_ended_jobs_and_from_the_workspace_alone(tmp_path: Path) -> None:
    record = workspace(tmp_path / "w", result={"exit_code": 0, "started": 5, "ended": 7.5})
    past = completion_log.parse(line("train", number=17))
    assert past is not None
    assert view.of_ended(past, record, PLACES).state == "COMPLETED"
    alone = view.of_record(record, None, PLACES)
    assert (alone.id, alone.state, alone.seconds(99.0)) == ("17", "COMPLETED", 2.5)
    unknown = view.of_record(workspace(tmp_path / "x"), None, PLACES)
    assert (unknown.words, unknown.exit_code) == ("not known", None)
    stopped = {"exit_code": 0, "told_to_stop": "SIGTERM"}
    cut = view.of_record(workspace(tmp_path / "y", result=stopped), None, PLACES)
    assert (cut.words, cut.exit_code) == ("not known", 0)


def test_a_users_files_may_hold_anything(tmp_path: Path) -> None:
    odd = {"exit_code": "0", "max_rss_mib": [], "gpus": 7, "started": True, "out_of_memory": {}}
    record = workspace(tmp_path / "w", result=odd)
    assert view.of_record(record, None, PLACES).words == "not known"
    own = place(tmp_path / "w") / ".job"
    (own / "result.json").write_text("[" * 100_000)
    assert record.result(None) is None
    (own / "job.json").write_text('{"job_id": "17; x"}')
    again = records.of_folder(str(tmp_path), record.folder)
    assert again is not None
    assert again.number is None
    for none in (tmp_path, tmp_path / "w", own.parent.parent, own, own.parent / ".." / "w"):
        assert records.of_folder(str(tmp_path), str(none)) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
FIELDS = (
    "exit_code", "signal", "max_rss_mib", "started", "ended", "out_of_memory",
    "out_of_memory_line", "gpus", "told_to_stop",
)  # fmt: skip
GPUS = st.dictionaries(
    st.sampled_from(["NVIDIA_VISIBLE_DEVICES", "SLURM_JOB_GPUS"]),
    JSON | st.text().map("GPU-{}".format),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(result=st.dictionaries(st.sampled_from(FIELDS), JSON | GPUS))
def test_a_forged_result_is_shown_and_moves_no_cursor(
    tmp_path: Path, result: dict[str, Any]
) -> None:
    own = place(tmp_path / "w") / ".job"
    own.mkdir(parents=True, exist_ok=True)
    (own / "result.json").write_text(json.dumps(result))
    here = Workspace(str(tmp_path), os.getuid(), "w")
    one = view.of_record(Record(here, {"job_id": 17}), None, PLACES)
    made: dict[str, Any] = {"request": None, "sbatch": None}
    said = [*table.table(view.together([one]), 1e9).split("\n"), *queries.lines(one, made)]
    assert all(text.isprintable() for text in said)
    assert (view.outcome(one) + "".join(gpu.text for gpu in one.gpus)).isprintable()
    json.dumps(one.to_json(1e9), allow_nan=False)


@pytest.mark.parametrize("wrong", [-math.inf, math.inf, math.nan, 1e30, -1, 0, True, "5", None])
def test_times_are_of_a_calendar(wrong: object) -> None:
    assert results.checked({"started": wrong, "ended": 5}) == {"ended": 5.0}


def test_what_a_result_may_say() -> None:
    good = {
        "exit_code": 137, "signal": "SIGKILL", "max_rss_mib": 7, "started": 5.0, "ended": 6.5,
        "out_of_memory": "gpu", "out_of_memory_line": "x",
        "gpus": {"NVIDIA_VISIBLE_DEVICES": "GPU-1a,MIG-2.b_c", "SLURM_JOB_GPUS": "0,2-3"},
        "told_to_stop": "SIGTERM",
    }  # fmt: skip
    assert results.checked(good) == good
    assert results.checked({"signal": "signal 40"}) == {"signal": "signal 40"}
    bad = {
        "exit_code": 256, "signal": "SIGKILL\x1b[2J", "max_rss_mib": -1, "out_of_memory": "disk",
        "gpus": {"NVIDIA_VISIBLE_DEVICES": "GPU-\x1b", "SLURM_JOB_GPUS": "0-99999"},
        "told_to_stop": "no",
    }  # fmt: skip
    assert results.checked(bad) == {}
    mixed = {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-\x1b[2J,GPU-2"}
    assert results.checked({"gpus": mixed}) == {"gpus": {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}}


def test_only_the_callers_own_workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = place(workspace_folder := tmp_path / "mine").parent
    workspace(workspace_folder)
    uid = os.getuid()
    (mine / "link").symlink_to(mine / "mine")
    (mine.parent / str(uid + 2)).symlink_to(mine)
    for who, count in ((uid, 1), (0, 1), (uid + 1, 0), (uid + 2, 0)):
        monkeypatch.setattr("os.getuid", lambda who=who: who)
        monkeypatch.setattr(safe_open, "given_owner", lambda _, who=who: who)
        assert len(list(records.newest_first(str(tmp_path)))) == count
        assert (records.find(str(tmp_path), 17) is not None) == bool(count)


def test_a_workspace_in_anothers_folder_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies in the folder of a user and is not that user's, was put there by somebody else."""
    workspace(tmp_path / "w")
    uid = os.getuid()
    forged = tmp_path / "jobs" / str(uid + 1)
    place(tmp_path / "w").parent.rename(forged)
    found = str(forged / "w")
    assert records.of_folder(str(tmp_path), found) is None
    # A file system that gives all files to one user: whose they are, it does not say
    monkeypatch.setattr("os.getuid", lambda: uid + 1)
    assert records.of_folder(str(tmp_path), found) is not None
    assert len(list(records.newest_first(str(tmp_path)))) == 1


def of_state(state: str, record: Record, code: int | None = 1) -> View:
    told = {"return_code": number(code), "signal": {"id": number(None)}}
    job = known(job_state=[state], exit_code=told, gres_detail=[])
    return view.of_known(job, record, PLACES)


def test_out_of_memory_stands_beside_what_slurm_says(tmp_path: Path) -> None:
    killed = {"exit_code": 137, "signal": "SIGKILL", "out_of_memory": "host"}
    record = workspace(tmp_path / "w", result={"exit_code": 1, "out_of_memory": "gpu"})
    failed = of_state("FAILED", record)
    assert view.outcome(failed) == "failed: out of GPU memory, exit code 1"
    assert "out of GPU memory" in table.table([failed], 0.0)
    for state, words in (("CANCELLED", "cancelled"), ("TIMEOUT", "over its time limit")):
        one = of_state(state, record)
        assert (view.outcome(one), one.out_of_memory) == (words, None)
        assert "memory" not in table.table([one], 0.0)
    assert of_state("OUT_OF_MEMORY", record).out_of_memory == "gpu"
    by_kernel = workspace(tmp_path / "x", result=killed)
    assert view.outcome(of_state("FAILED", by_kernel)) == (
        "failed: out of memory, ended by SIGKILL"
    )


def test_a_workspace_that_was_removed_while_the_job_was_queued(tmp_path: Path) -> None:
    told = {"return_code": number(0), "signal": {"id": number(53)}}
    job = known(job_state=["FAILED"], exit_code=told, gres_detail=[])
    one = view.of_known(job, None, PLACES)
    assert view.outcome(one) == (
        "failed: Slurm could not open its log: is the workspace still there?"
    )
    assert (one.exit_code, one.signal, view.exit_code(one)) == (None, None, 1)
    # A program that ran and ended by that signal
    record = workspace(tmp_path / "w", result={"exit_code": 181, "signal": "signal 53"})
    ran = view.of_known(job, record, PLACES)
    assert view.outcome(ran) == "failed: ended by signal 53"


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("COMPLETED", 0, 0),
        ("FAILED", 3, 3),
        ("CANCELLED", None, 1),
        ("CANCELLED", 0, 1),
        ("CANCELLED", 143, 143),
        ("TIMEOUT", None, 1),
        ("NODE_FAIL", None, 1),
        ("UNKNOWN", None, 1),
    ],
)
def test_the_exit_code_of_who_waited(state: str, code: int | None, expected: int) -> None:
    assert view.exit_code(View("1", 1, None, "x", None, state, exit_code=code)) == expected


def test_a_signal_is_128_and_more() -> None:
    killed = {"return_code": number(None), "signal": {"id": number(9)}}
    one = view.of_known(known(job_state=["FAILED"], exit_code=killed), None, PLACES)
    assert (one.exit_code, one.signal, view.outcome(one)) == (
        137,
        "SIGKILL",
        "failed: ended by SIGKILL",
    )


def test_slurms_own_out_of_memory() -> None:
    one = View("1", 1, None, "x", None, "OUT_OF_MEMORY")
    assert view.outcome(one) == "out of memory"


@pytest.mark.parametrize(
    ("result", "words", "code", "waited"),
    [
        ({"exit_code": 137, "signal": "SIGKILL"}, "out of memory: ended by SIGKILL", 137, 137),
        ({"exit_code": 3, "signal": None}, "out of memory: exit code 3", 3, 3),
        (
            {"exit_code": 0},
            "out of memory: the kernel ended some of its processes; its program ended with 0",
            0,
            1,
        ),
        # The launcher itself was ended
        (None, "out of memory: ended by SIGKILL", 137, 137),
    ],
)
def test_the_signal_that_slurm_makes_up_is_not_shown(
    result: dict[str, Any] | None, words: str, code: int, waited: int, tmp_path: Path
) -> None:
    told = {"return_code": number(0), "signal": {"id": number(125)}}
    job = known(job_state=["OUT_OF_MEMORY"], exit_code=told, gres_detail=[])
    record = workspace(tmp_path / "w", **({"result": result} if result else {}))
    one = view.of_known(job, record, PLACES)
    assert (view.outcome(one), one.exit_code, view.exit_code(one)) == (words, code, waited)
    assert "125" not in str(one.to_json(0.0)["signal"])
    # A program's own signal of that number
    failed = known(job_state=["FAILED"], exit_code=told, gres_detail=[])
    assert view.of_known(failed, None, PLACES).signal == "signal 125"


def test_the_table() -> None:
    gpus = (Gpu(0, None, None, None), Gpu(1, None, None, None), Gpu(3, None, None, None))
    jobs = [
        View("7", 7, None, "a\x1b[2Jb", "me", "RUNNING", gpus=gpus, started=10.0),
        View("8", 8, None, "c", "you", "PENDING", reason="other jobs are before it"),
    ]
    head, first, second = table.table(jobs, 3700.0).split("\n")
    assert head.split() == ["JOB", "NAME", "USER", "STATE", "GPU", "TIME", "EXIT", "MEMORY"]
    assert first.split() == ["7", "a?[2Jb", "me", "running", "0-1,3", "1:01:30"]
    assert second.endswith("other jobs are before it")
    assert "USER" not in table.table(jobs[:1], 0.0)


def test_an_ended_job_of_which_slurm_keeps_no_gpus_shows_what_it_asked_for() -> None:
    asked_for = "gres/gpu:h100:2"
    over = View("7", 7, None, "a", "me", "COMPLETED", asked_gres=asked_for, started=1.0, ended=2.0)
    jobs = [over, replace(over, id="8", started=None), replace(over, id="9", state="RUNNING")]
    _, first, cancelled, runs = table.table(jobs, 3.0).split("\n")
    assert first.split()[3] == "gpu:h100:2"
    assert "gpu" not in cancelled + runs
    kept = replace(over, gpus=(Gpu(1, None, None, None),))
    assert table.table([kept], 3.0).split("\n")[1].split()[3] == "1"


def test_wide_letters_are_two_columns() -> None:
    jobs = [View("7", 7, None, name, "me", "COMPLETED") for name in ("日本", "größe", "u\u0308")]
    head, wide, plain, marked = table.table(jobs, 3.0).split("\n")
    assert wide.index("done") == head.index("STATE") - 2
    assert plain.index("done") == head.index("STATE")
    assert marked.index("done") == head.index("STATE") + 1


def test_tasks_that_ended_alike_are_one_line() -> None:
    tasks = [View(f"9_{n}", 9, n, "x", None, "COMPLETED", exit_code=0) for n in (0, 1, 3)]
    failed = View("9_2", 9, 2, "x", None, "FAILED", exit_code=1)
    running = View("9_4", 9, 4, "x", None, "RUNNING")
    said = view.together([*tasks, failed, running])
    assert [one.id for one in said] == ["9_[0-1,3]", "9_2", "9_4"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00"), (61, "1:01"), (3600, "1:00:00"), (90061, "1-01:01:01")],
)
def test_durations(seconds: float, text: str) -> None:
    assert view.duration(seconds) == text


@pytest.mark.parametrize(
    ("reason", "changes", "said"),
    [
        ("None", {}, "Slurm has not looked at it yet"),
        ("Priority", {}, "other jobs are before it"),
        ("Resources", {}, "gpu:h100:2 is not free: other jobs hold GPUs, CPUs or memory"),
        ("Resources", {"tres_per_node": ""}, "what it asks for is held by other jobs"),
        (
            "Dependency",
            {"dependency": "afterok:5(unfulfilled)"},
            "it waits for other jobs: afterok:5",
        ),
        ("ReqNodeNotAvail, UnavailableNodes:x", {}, "the node that it asks for is not available"),
        (
            "AssocGrpGRES",
            {},
            "a limit of accounting holds it (AssocGrpGRES): dshpc sacctmgr show assoc",
        ),
        (
            "QOSMaxGRESPerUser",
            {},
            "a limit of accounting holds it (QOSMaxGRESPerUser): dshpc sacctmgr show qos",
        ),
        ("Odd\x1bOne", {}, "Slurm's reason is Odd?One"),
    ],
)
def test_why_a_job_waits(reason: str, changes: dict[str, Any], said: str) -> None:
    job = known(job_state=["PENDING"], state_reason=reason, gres_detail=[], **changes)
    assert pending_reasons.why(job, {}) == said
    assert pending_reasons.why(job, {"17": "it is held"}) == "it is held"


def test_what_cannot_run_is_found_by_its_number() -> None:
    held = pending.Queue((pending.Request("17_[0-3]", "me", "x", ("debug",), "JobHeldUser"),))
    (found,) = blocked_jobs.judge(held)
    job = known(
        job_state=["PENDING"], array_job_id=number(17), array_task_string="0-3", gres_detail=[]
    )
    assert pending_reasons.why(job, {pending_reasons._plain(found.job): found.why}).startswith(
        "it is held"
    )
