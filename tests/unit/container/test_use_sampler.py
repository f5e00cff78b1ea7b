"""Which GPUs a job of another machine is written down with."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dshpc_setup.container.use_sampler import Sampler
from dshpc_setup.facts import Gpus
from dshpc_setup.jobs.allocated_gpus import PLACES_FILE, Places
from dshpc_setup.jobs.offer import Offer, OfferedGpu
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.settings import Place, Settings
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.usage import ledger, live, runs
from dshpc_setup.usage.records import HeldGpu
from dshpc_setup.usage.runs import Run

BEGAN = 1_795_000_000
TOLD = "JobId={}\n   JOB_GRES=gpu:t4:1\n"
LINE = (
    "JobId={own} UserId=root(0) GroupId=root(0) Name=x JobState=COMPLETED Partition=main "
    "TimeLimit=UNLIMITED StartTime={at} EndTime={at} NodeList={nodes} NodeCnt={count} ProcCnt=1 "
    "WorkDir=/ ReservationName= Tres=cpu=1,mem=1M,node={count},billing=1 Account= QOS= WcKey= "
    "Cluster=x SubmitTime={at} EligibleTime={at} DerivedExitCode=0:0 ExitCode=0:0\n"
)


class Lab:
    """A controller `one` with an H100, and the machine `two` with a T4; Slurm as it is told to answer."""

    def __init__(self, folder: Path) -> None:
        self.log, self.offers = folder / "jobs.log", folder / "nodes"
        self.log.touch()
        self.running: dict[int, tuple[tuple[str, str], ...]] = {}  # job -> (node, GRES) of each
        self.silent: set[int] = set()
        self.asked: list[int] = []
        own = OfferedGpu(0, "GPU-own", "h100", "h100", "H100", "nvidia", 1000, None)
        self.sampler = Sampler(
            LocalMachine(), Settings(listen="10.0.0.1"), "one", Gpus("absent", simulated=True),
            Places({}, (own,), "one", str(self.offers)), str(folder / "use"), str(self.log),
        )  # fmt: skip
        self.sampler.begin()

    def run(self, *argv: str, **__: object) -> CommandResult:
        if argv[0] == "scontrol":
            self.asked.append(int(argv[-1]))
            if self.asked[-1] in self.silent:
                return said(argv, "slurm_load_jobs error: Unable to contact slurm controller", 1)
            return said(argv, TOLD.format(argv[-1]))
        if "--json" not in argv:
            rows = [
                (own, own, own, "N/A", 0, 0, "root", 1, ",".join(dict(held)), "/x", "/", "x", "\n")
                for own, held in self.running.items()
            ]
            return said(argv, "".join("\x1f".join(map(str, row)) for row in rows))
        jobs = [
            {
                "job_id": own,
                "job_state": ["RUNNING"],
                "user_id": 0,
                "gres_detail": [gres for _, gres in held],
                "job_resources": {"nodes": {"allocation": [{"name": node} for node, _ in held]}},
            }
            for own, held in self.running.items()
        ]
        return said(argv, json.dumps({"jobs": jobs}))

    def offer(self) -> None:
        (self.offers / "two").mkdir(parents=True)
        gpu = OfferedGpu(0, "GPU-two", "t4", "t4", "T4", "nvidia", 1000, None)
        text = json.dumps(Offer("two", 4, 4096, (gpu,)).to_json())
        (self.offers / "two" / "offer.json").write_text(text)
        (self.offers / "two" / PLACES_FILE).write_text("")

    def ends(self, own: int, nodes: str = "two", count: int = 1) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(BEGAN))
        with self.log.open("a") as file:
            file.write(LINE.format(own=own, nodes=nodes, count=count, at=at))

    def after(self, seconds: float) -> None:
        self.sampler.pass_once(seconds, BEGAN + seconds)

    def written(self) -> dict[int, list[tuple[int | None, str | None, str | None]]]:
        lines = ledger.newest_first(None, self.sampler.folder)
        return {job.own: [known(gpu) for gpu in job.gpus] for job in lines}


def known(gpu: HeldGpu) -> tuple[int | None, str | None, str | None]:
    return gpu.index, gpu.type, gpu.node


def said(argv: Sequence[str], text: str, code: int = 0) -> CommandResult:
    out, err = ("", text) if code else (text, "")
    return CommandResult(tuple(argv), "present", code, out, err, 1.0)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab(tmp_path)
    monkeypatch.setattr(Slurm, "run", made.run)
    return made


def test_a_gpu_of_which_the_offer_comes_later_is_named_then(lab: Lab) -> None:
    lab.running[7] = (("two", "gpu:t4:1(IDX:0)"),)
    lab.after(15)
    (job,) = live.load(lab.sampler.folder)
    assert [known(gpu) for gpu in job.gpus] == [(None, "t4", "two")]
    lab.offer()
    lab.after(30)
    (job,) = live.load(lab.sampler.folder)
    assert [known(gpu) for gpu in job.gpus] == [(0, "t4", "two")]
    notes = (Path(lab.sampler.folder) / "run" / "7.0").read_text()
    assert notes.count("start") == 1
    lab.running.clear()
    lab.ends(7)
    lab.after(45)
    assert (lab.written(), lab.asked) == ({7: [(0, "t4", "two")]}, [])


def test_those_that_cannot_be_named_hold_up_no_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dshpc_setup.container.use_sampler.MOST_IDS", 1)
    lab.running[7] = (("two", "gpu:t4:1(IDX:0)"),)
    lab.after(15)
    lab.running[8] = (("one", ""), ("two", "gpu:t4:1(IDX:0)"))
    asked: list[str] = []
    before = lab.run

    def run(*argv: str, **more: object) -> CommandResult:
        asked.extend(argv[-1:] if "-j" in argv else ())
        return before(*argv, **more)

    monkeypatch.setattr(Slurm, "run", run)
    lab.after(30)
    assert asked == ["8"]


def test_a_job_whose_first_node_has_no_gpu_has_those_of_the_second(lab: Lab) -> None:
    lab.offer()
    lab.running[7] = (("one", ""), ("two", "gpu:t4:1(IDX:0)"))
    lab.after(15)
    (job,) = live.load(lab.sampler.folder)
    assert [known(gpu) for gpu in job.gpus] == [(0, "t4", "two")]


def test_one_that_slurm_is_silent_on_holds_up_no_other(lab: Lab) -> None:
    lab.silent = {8}
    for own in (7, 8, 9):
        lab.ends(own)
    lab.after(6)
    assert (lab.written(), lab.asked) == ({7: [(None, "t4", "two")]}, [7, 8])
    # Who is killed and begins again has not forgotten it
    lab.sampler.__post_init__()
    lab.silent = {9}
    lab.after(12)
    assert lab.written() == {own: [(None, "t4", "two")] for own in (7, 8)}
    lab.silent = set()
    lab.after(18)
    assert lab.written() == {own: [(None, "t4", "two")] for own in (7, 8, 9)}
    lab.after(24)
    assert lab.asked == [7, 8, 8, 9, 9]


def test_one_that_slurm_never_says_is_written_down_without(lab: Lab) -> None:
    lab.silent = {7}
    lab.ends(7)
    lab.after(290)
    assert lab.written() == {}
    lab.after(310)
    assert lab.written() == {7: []}


def test_of_nodes_on_one_machine_a_short_job_on_several_counts_all_its_gpus(lab: Lab) -> None:
    """Its step's note has the places of one of them; a sample may have seen that, and Slurm no more."""
    lab.sampler.settings = Settings(nodes=2, place=Place("controller"))
    notes = Path(lab.sampler.folder) / "run"
    for own in (7, 8):
        (notes / f"{own}.0").write_text(f"start 0 {BEGAN} 0 0 GPU-own /dev/null\n")
        if own == 7:
            lab.after(15)
        lab.ends(own, "one,two", 2)
        lab.after(own * 10)
    assert lab.written() == {own: [(None, "t4", None)] for own in (7, 8)}
    assert lab.asked == [7, 8]


@pytest.mark.parametrize(("nodes", "count"), [("two", 1), ("one,two", 2)])
def test_a_run_that_a_step_here_has_noted_without_a_gpu(lab: Lab, nodes: str, count: int) -> None:
    notes = Path(lab.sampler.folder) / "run" / "7.0"
    notes.write_text(f"start 0 {BEGAN} 0 - - /dev/null\n")
    lab.ends(7, nodes, count)
    lab.after(6)
    node = "two" if count == 1 else None
    assert lab.written() == {7: [(None, "t4", node)]}


def test_a_run_on_another_node_has_no_gpu_of_this_one_before_slurm_says_where_it_is(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of one machine write down their runs in one folder."""
    lab.offer()
    (lab.offers / "one").mkdir()
    for own in (7, 8):
        runs.note_allocation(Run(own, 0, 0, BEGAN, BEGAN, (0,)), lab.sampler.folder)
    monkeypatch.setattr(Slurm, "run", lambda *argv, **_: said(argv[1:], "no answer", 1))
    lab.after(15)
    assert [job.gpus for job in live.load(lab.sampler.folder)] == [(), ()]
    monkeypatch.setattr(Slurm, "run", lab.run)
    lab.running = {7: (("two", "gpu:t4:1(IDX:0)"),), 8: (("one", "gpu:h100:1(IDX:0)"),)}
    lab.after(30)
    told = {job.own: [known(gpu) for gpu in job.gpus] for job in live.load(lab.sampler.folder)}
    assert told == {7: [(0, "t4", "two")], 8: [(0, "h100", "one")]}


def test_a_full_disk_costs_no_job_its_gpus(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's plugin leaves an empty note, or none; nothing can be written, and one of the jobs ends then."""
    notes = Path(lab.sampler.folder) / "run"

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as while_full:
        for place in ("ledger.add", "live.save", "runs.note_allocation"):
            while_full.setattr(f"dshpc_setup.usage.{place}", full)
        (notes / "7.0").touch()
        for own in (7, 8):
            lab.running[own] = (("one", "gpu:h100:1(IDX:0)"),)
        for at in (15, 30):
            with pytest.raises(OSError, match="No space left"):
                lab.after(at)
        del lab.running[7]
        lab.ends(7, "one")
        (notes / "9.0").touch()  # shorter than a sample: Slurm tells what it had, for a while
        lab.ends(9, "one")
        for at in (40, 400):
            with pytest.raises(OSError, match="No space left"):
                lab.after(at)
    lab.after(406)
    del lab.running[8]
    lab.ends(8, "one")
    lab.after(412)
    assert lab.written() == {
        **{own: [(0, "h100", "one")] for own in (7, 8)},
        9: [(None, "t4", "one")],
    }
    assert lab.asked == [9]
    assert (list(notes.iterdir()), lab.sampler.jobs) == ([], {})
