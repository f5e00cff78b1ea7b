"""What jobs have used: notes of the plugin, the ledger and its sums, what is said of it."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.probes.readings import PartReading, Reading
from dshpc_setup.usage import ledger, live, records, runs, sums, words
from dshpc_setup.usage.live import Gauge, Kept, LiveJob
from dshpc_setup.usage.lookup import Uses
from dshpc_setup.usage.records import GpuUse, HeldGpu, JobUse
from dshpc_setup.usage.runs import Run

DAY = 86400.0
NOW = 1_795_000_000.0  # in November 2026
HOSTILE = 'a"\\\n\x1b[31m\x00\u202e{}=,|é'


def job(
    own: int, ended: float = NOW, *, count: int = 1, hours: float = 1, **more: object
) -> JobUse:
    held = tuple(HeldGpu(each, f"GPU-{each}", "h100", "node") for each in range(count))
    made = JobUse(str(own), own, 0, "ada", os.geteuid(), "train", "COMPLETED", ended,
                  ended - 3600 * hours, gpus=held)  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", Run(7, 0)),
        ("start 4294967291 100 1000 0,2 GPU-a,GPU-c /dev/null\n",
         Run(7, 0, 1000, 100, 100, (0, 2), ("GPU-a", "GPU-c"), is_batch=True)),
        # of two steps the largest process, and the time of both; of one step what it had in the end
        ("start 0 100 5 0 GPU-a /l\nend 0 101 0 2048 10\nend 0 102 0 4096 30\nend 1 104 9 512 70\n",
         Run(7, 0, 5, 100, 104, (0,), ("GPU-a",), peak_kib=4096, cpu_s=0.1)),
        # one whose UUID is not known; a step without a GPU
        ("start 0 100 5 0 GPU-a /l\nstart 1 101 5 1 - /l\nstart 2 102 5 - - -\n",
         Run(7, 0, 5, 100, 102, (0, 1))),
        # half a line, and none
        ("start x y z\nend\nother\nstart 0 100 5 0 GPU-a /l", Run(7, 0)),
    ],
)  # fmt: skip
def test_notes_of_a_run(text: str, wanted: Run) -> None:
    assert runs.parse(7, 0, text) == wanted


def test_an_allocation_is_noted_as_the_plugin_does(tmp_path: Path) -> None:
    ledger.make_folders(str(tmp_path))
    noted = Run(7, 2, 5, 100, 100, (0, 1), ("GPU-a", "GPU-b"))
    runs.note_allocation(noted, str(tmp_path))
    assert runs.names(str(tmp_path)) == {(7, 2)}
    assert runs.read(7, 2, str(tmp_path)) == noted
    runs.forget(7, 2, str(tmp_path))
    assert runs.read(7, 2, str(tmp_path)) is None


def test_a_line_is_read_back_whatever_a_job_is_called() -> None:
    use = GpuUse(60.0, 12.5, 100, 900, 1000, 3000.0, NOW)
    one = job(7, name=HOSTILE, user=HOSTILE, method=HOSTILE, log="/lab/a\nb",
              gpus=(HeldGpu(0, "GPU-0", "h100", "n", use), HeldGpu()))  # fmt: skip
    line = records.to_line(one)
    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert records.of_line(line) == one
    assert records.of_line(line[:40]) is None
    assert records.of_line("[]") is None


def test_who_reads_sees_his_own(tmp_path: Path) -> None:
    folder = str(tmp_path)
    ledger.make_folders(folder)
    ledger.add([job(1), job(2, uid=4321, user="bob")], folder)
    assert [each.own for each in ledger.newest_first(None, folder)] == [2, 1]
    assert [each.own for each in ledger.newest_first(os.geteuid(), folder)] == [1]
    modes = {
        name: oct(os.stat(f"{folder}/{name}").st_mode & 0o777)
        for name in (".", "ledger", "run", "of", f"of/{os.geteuid()}.jsonl")
    }
    assert modes == {
        ".": "0o711", "ledger": "0o700", "run": "0o700", "of": "0o711",
        f"of/{os.geteuid()}.jsonl": "0o400",
    }  # fmt: skip


def test_a_killed_writer_leaves_no_line_that_is_none(tmp_path: Path) -> None:
    folder = str(tmp_path)
    ledger.make_folders(folder)
    ledger.add([job(1)], folder)
    (month,) = ledger.months(folder)
    with open(month, "a", encoding="utf-8") as file:
        file.write(records.to_line(job(2))[:30])
    ledger.add([job(3), job(3)], folder)  # and one that was written twice counts once
    assert [each.own for each in ledger.newest_first(None, folder)] == [3, 3, 1]
    assert [(each.jobs, each.held_s) for each in ledger.all_sums(None, folder)] == [(2, 7200.0)]


def test_old_months_and_too_much_become_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path)
    ledger.make_folders(folder)
    use = GpuUse(3600.0, 50.0, 90, energy_j=7.0)
    held = (HeldGpu(0, "GPU-0", "h100", "n", use),)
    for month in range(6):
        ledger.add([job(each + 10 * month, NOW - month * 31 * DAY, gpus=held) for each in range(4)],
                   folder)  # fmt: skip
    before = sorted(ledger.all_sums(None, folder), key=lambda each: each.key)
    ledger.fold(NOW, folder)
    assert len(list(ledger.newest_first(None, folder))) == 12
    assert sorted(ledger.all_sums(None, folder), key=lambda each: each.key) == before
    monkeypatch.setattr(ledger, "MOST_BYTES", 700)
    ledger.fold(NOW, folder)
    ledger.fold(NOW, folder)
    assert 0 < len(list(ledger.newest_first(None, folder))) < 12
    assert sorted(ledger.all_sums(None, folder), key=lambda each: each.key) == before
    ledger.add([job(99)], folder)
    assert sum(each.jobs for each in ledger.all_sums(None, folder)) == 25


def test_hours_by_each_of_the_four() -> None:
    half = GpuUse(1800.0, 50.0, 90)
    mixed = job(1, method="train", gpus=(HeldGpu(0, "a", "h100", "n", half), HeldGpu(1, "b", "t4")))
    found = list(
        itertools.chain.from_iterable(map(sums.of_job, (mixed, job(2, user="bob", count=2))))
    )
    by = {
        way: [(getattr(each, way.replace("-", "_")), each.jobs, each.held_s, each.used_s)
              for each in sums.grouped(found, way)]
        for way in sums.BY
    }  # fmt: skip
    assert by["user"] == [("ada", 1, 7200.0, 900.0), ("bob", 1, 7200.0, 0.0)]
    assert by["method"] == [("", 1, 7200.0, 0.0), ("train", 1, 7200.0, 900.0)]
    # a job of two types counts with the first
    assert by["gpu-type"] == [("h100", 2, 10800.0, 900.0), ("t4", 0, 3600.0, 0.0)]
    assert by["week"] == [(sums.week(NOW), 2, 14400.0, 900.0)]
    assert sums.of_job(job(3, count=0)) == []
    unknown = sums.grouped(sums.of_job(job(4)), "user")[0].to_json("user")
    assert (unknown["gpu_seconds_used"], unknown["energy_j"]) == (None, None)


def test_a_gauge_is_weighted_by_time() -> None:
    gauge = Gauge()
    for percent, step, at in ((100, 15.0, 15.0), (0, 45.0, 60.0)):
        gauge = gauge.with_reading(Reading(1000, 80000, percent, 40, 200.0), step, at)
    assert gauge.use() == GpuUse(60.0, 25.0, 100, 1000, 1000, 12000.0, 15.0)
    part = Gauge().with_reading(PartReading("MIG-1", 300, 9000), 15.0, 15.0)
    assert part.use() == GpuUse(15.0, None, None, 300, 300, None, None)
    assert Gauge().use() == GpuUse()


def test_idle_is_the_time_since_the_last_use() -> None:
    gpus = (HeldGpu(0, "a"), HeldGpu(1, "b"))
    used, never = Gauge(100.0, 1.0, 100, last_used=5000.0), Gauge(0.0, 9000.0, 0)
    one = LiveJob(7, 0, 5, 1000.0, gpus, {"a": used, "b": never})
    assert [one.idle_s(gpu, 10_000.0) for gpu in gpus] == [5000.0, 9000.0]
    assert one.all_idle_s(10_000.0) == 5000.0
    assert [gpu.uuid for _, gpu, _ in Kept((one,), 10_000.0, 6000.0).idle()] == ["b"]
    assert Kept((one,), 10_000.0, 0.0).idle() == []  # switched off
    # What no driver tells is not idle
    unknown = replace(one, gauges={"a": never})
    assert (unknown.idle_s(gpus[1], 10_000.0), unknown.all_idle_s(10_000.0)) == (None, None)
    assert replace(one, gpus=()).all_idle_s(10_000.0) is None


def test_those_that_run_outlive_who_watches(tmp_path: Path) -> None:
    folder = str(tmp_path)
    ledger.make_folders(folder)
    one = LiveJob(
        7, 0, os.geteuid(), 1000.0, (HeldGpu(0, "a"),), {"a": Gauge(1.0, 2.0, 3)}, name=HOSTILE
    )
    live.save([one], 2000.0, 60.0, folder)
    assert live.load(folder) == (one,)
    assert live.read(os.geteuid(), folder).jobs == (one,)
    live.save([], 2000.0, 60.0, folder)
    assert not (tmp_path / "of" / f"{os.geteuid()}.live.json").exists()
    (tmp_path / "live.json").write_text("{")
    assert live.load(folder) == ()
    assert live.load_place(folder) == (0, b"", [])
    live.save_place(folder, 7, b"\xff\n", ["a line"])
    assert live.load_place(folder) == (7, b"\xff\n", ["a line"])


def test_a_job_is_found_by_its_number_and_its_end(tmp_path: Path) -> None:
    folder = str(tmp_path)
    ledger.make_folders(folder)
    again = job(1, NOW - DAY, state="REQUEUED")
    ledger.add([job(1, NOW - 9 * DAY), *(job(each, NOW - 100 + each) for each in range(2, 9)), again,
                job(1, NOW)], folder)  # fmt: skip
    uses = Uses(folder)
    found = [uses.find(own, at) for own, at in ((1, NOW + 1), (5, None), (1, NOW - 9 * DAY))]
    assert [each and each.ended for each in found] == [NOW, NOW - 95, NOW - 9 * DAY]
    assert uses.find(1, NOW - DAY) is None
    assert Uses(folder).find(8, NOW - 92) is not None
    assert uses.find(77, NOW) is None


def test_what_was_had_and_not_used() -> None:
    busy, idle = GpuUse(60.0, 80.0, 100, 40960, 61440, 3.6e6), GpuUse(60.0, 0.0, 0, 0, 0)
    one = job(7, gpus=(HeldGpu(0, "a", use=busy), HeldGpu(1, "b", use=idle)),
              cpus=4, cpu_s=7200.0, memory_mib=65536, peak_memory_mib=3072)  # fmt: skip
    assert words.rows(one.use_json(), [0, 1]) == [
        ("GPU 0 use", "80 % mean, 100 % peak; memory 40.0 GiB mean, 60.0 GiB peak"),
        ("GPU 1 use", "0 % mean, 0 % peak; memory 0 MiB mean, 0 MiB peak"),
        ("Not used", "2 GPUs, of which one was idle all the time"),
        ("Energy", "1 kWh"),
        ("CPUs", "2 of 4 used, mean"),
        ("Memory", "3.0 GiB at most, of 64.0 GiB"),
        ("Not used", "it had 64.0 GiB of memory, used 3.0 GiB"),
    ]
    said = [words.idle([{"peak_percent": each} for each in peaks])
            for peaks in ((0,), (0, 0), (0, 0, 5), (None,), (3,), ())]  # fmt: skip
    assert said == [
        ["1 GPU, which was idle all the time"],
        ["2 GPUs, all of which were idle all the time"],
        ["3 GPUs, of which 2 were idle all the time"],
        [], [], [],
    ]  # fmt: skip
    assert json.loads(json.dumps(one.use_json()))["gpu_seconds"] == 7200.0
