"""What is told to end as the container stops, and what is waited for."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import resources
from dshpc_setup.container import end_jobs
from dshpc_setup.container.end_jobs import Process, Reaction, Table, parse

TERM, CONT, STOP, KILL = signal.SIGTERM, signal.SIGCONT, signal.SIGSTOP, signal.SIGKILL

# The container: its first process, a session of `docker exec` with a step's srun, and jobs
OTHERS = (
    Process(1, "s6-svscan", "S", 0, 1),
    Process(9, "s6-supervise", "S", 1, 1),
    Process(12, "stop", "S", 1, 1),
    Process(30, "srun", "S", 0, 30),
    Process(31, "srun", "S", 30, 30),
)
BATCH = (
    Process(100, "slurmstepd", "S", 1, 99, title="slurmstepd: [7.batch]"),
    Process(101, "slurm_script", "S", 100, 99),
    Process(102, "python3", "S", 101, 99),
    Process(103, "pt_data_worker", "R", 102, 103),  # a session of its own
    Process(104, "nohup) Z 1 (", "S", 1, 99),  # its parent has ended
)
STEP = (
    Process(200, "slurmstepd", "S", 1, 199, title="slurmstepd: [8.0]"),
    Process(201, "python3", "T", 200, 199),
)
SCRIPT = (
    Process(300, "slurmstepd", "S", 1, 299, title="slurmstepd: [8.batch]"),
    Process(301, "slurm_script", "S", 300, 299),
    Process(302, "srun", "S", 301, 299),
)


def table(*processes: Process) -> Table:
    return {process.pid: process for process in processes}


def without(processes: Sequence[Process], *pids: int) -> tuple[Process, ...]:
    return tuple(process for process in processes if process.pid not in pids)


def react(found: Mapping[str, Reaction]) -> Callable[[int], Reaction]:
    """From {"p17": "catches"}."""
    return lambda pid: found.get(f"p{pid}", "default")


class Stopping:
    """What was sent, and after how many looks; a look takes no time, a wait 50 ms."""

    def __init__(self, *tables: Table) -> None:
        self.tables: Iterator[Table] = chain(tables, repeat(tables[-1]))
        self.looks = 0
        self.sent: list[tuple[int, int]] = []
        self.sent_before: list[tuple[int, int]] = []  # before the jobs' end begins
        self.now = 100.0

    def look(self) -> Table:
        self.looks += 1
        return next(self.tables)

    def kill(self, pid: int, number: int) -> None:
        self.sent.append((pid, number))

    def begin(self) -> None:
        self.sent_before = list(self.sent)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def told(self, number: int) -> list[int]:
        return sorted(pid for pid, sent in self.sent if sent == number)


def stop(monkeypatch: pytest.MonkeyPatch, *tables: Table, **reactions: Reaction) -> Stopping:
    found = Stopping(*tables)
    monkeypatch.setattr("time.monotonic", lambda: found.now)
    monkeypatch.setattr("time.sleep", found.sleep)
    end_jobs.end_jobs(found.look, react(reactions), found.kill, found.begin)
    return found


def test_where_no_job_runs_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = stop(monkeypatch, table(*OTHERS))
    assert (done.sent, done.now) == ([], 100.0)
    assert capsys.readouterr().out == ""


def test_all_of_a_job_is_told_once_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = table(*OTHERS, *BATCH, *STEP)
    done = stop(monkeypatch, runs, runs, runs, table(*OTHERS, BATCH[0], STEP[0]))
    assert done.told(TERM) == done.told(CONT) == [101, 102, 103, 104, 201]
    assert done.told(STOP) == [100], "what a task of srun prints goes through the other"
    assert done.sent_before == [(100, STOP)], "it writes down how its script ended"
    assert len(done.sent) == 11
    assert done.now < 100.2
    assert capsys.readouterr().out == "dshpc: Running jobs get SIGTERM and have 7 s to end.\n"


def test_one_that_does_not_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = stop(monkeypatch, table(*OTHERS, *BATCH))
    assert 107.0 <= done.now < 107.2
    assert done.told(TERM) == [101, 102, 103, 104]
    assert "4 processes of jobs did not end within 7 s." in capsys.readouterr().out


def test_what_a_job_starts_as_it_ends_is_waited_for_and_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = table(*BATCH)
    copies = table(*without(BATCH, 103, 104), Process(110, "cp", "D", 101, 99))
    orphan = table(BATCH[0], Process(110, "cp", "D", 1, 99))
    done = stop(monkeypatch, runs, runs, copies, copies, orphan, table(BATCH[0]))
    assert (done.looks, 110 in dict(done.sent)) == (6, False)


def test_one_that_has_ended_and_was_not_taken_off_the_list_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = table(*BATCH)
    zombies = table(BATCH[0], Process(101, "slurm_script", "Z", 100, 99))
    # its script has ended first: what it had started belongs to nobody, and still saves
    orphans = table(*zombies.values(), Process(103, "pt_data_worker", "R", 1, 103))
    done = stop(monkeypatch, runs, runs, orphans, orphans, zombies)
    assert done.looks == 5


def test_an_srun_is_ended_once_the_tasks_have_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = table(*OTHERS, *STEP, *SCRIPT)
    saved = table(*OTHERS, STEP[0], *SCRIPT)
    done = stop(monkeypatch, runs, runs, runs, saved, table(*OTHERS, STEP[0], SCRIPT[0]))
    assert done.told(TERM) == [201, 301], "no srun: it would end its tasks, or hang"
    assert done.told(KILL) == [302], "of the script alone, which waits for it"
    assert (done.told(STOP), done.looks) == ([300], 5)


@pytest.mark.parametrize(
    ("reactions", "stopped"),
    [
        ({}, []),
        ({"p403": "catches"}, [400]),  # `srun sh -c "python3 train.py; true"`
        ({"p401": "catches", "p403": "catches"}, []),  # the shell has a `trap`: it waits
        ({"p401": "ignores", "p403": "catches"}, []),
        ({"p401": "catches"}, []),
        ({"p503": "catches"}, []),  # of another step
    ],
)
def test_a_step_is_stopped_where_it_would_kill_somebody(
    monkeypatch: pytest.MonkeyPatch, reactions: dict[str, Reaction], stopped: list[int]
) -> None:
    def step(first: int) -> tuple[Process, ...]:
        return (
            Process(first, "slurmstepd", "S", 1, first, title=f"slurmstepd: [{first}.0]"),
            Process(first + 1, "sh", "S", first, first),
            Process(first + 2, "time", "S", first + 1, first),
            Process(first + 3, "python3", "S", first + 2, first),
        )

    direct = (*step(500)[:1], Process(503, "python3", "S", 500, 500))
    runs = table(*OTHERS, *step(400), *direct)
    ended = table(*OTHERS, step(400)[0], direct[0])
    done = stop(monkeypatch, runs, runs, ended, **reactions)
    assert done.told(STOP) == stopped
    assert done.told(TERM) == [401, 402, 403, 503]


def test_a_shell_that_waits_for_a_person_is_hung_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ignores SIGTERM; one runs something, one has no terminal, one does something upon it."""
    step = Process(600, "slurmstepd", "S", 1, 600, title="slurmstepd: [600.0]")
    shells = (
        Process(601, "bash", "S", 600, 601, has_terminal=True),
        Process(602, "bash", "S", 600, 602, has_terminal=True),
        Process(603, "python3", "S", 602, 602, has_terminal=True),
        Process(604, "bash", "S", 600, 604),
        Process(605, "zsh", "S", 600, 605, has_terminal=True),
    )
    runs = table(step, *shells)
    done = stop(
        monkeypatch, runs, runs, table(step),
        p601="ignores", p602="ignores", p604="ignores", p605="catches",
    )  # fmt: skip
    assert (done.told(signal.SIGHUP), done.told(TERM)) == ([601], [602, 603, 604, 605])


def test_an_srun_alone_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = table(*STEP, *SCRIPT)
    done = stop(monkeypatch, runs, runs, table(STEP[0], SCRIPT[0], SCRIPT[2]))
    assert done.looks == 3


def test_one_that_has_ended_meanwhile_or_may_not_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Stopping(table(*BATCH), table(*BATCH), table(BATCH[0]))

    def refuses(pid: int, number: int) -> None:
        found.kill(pid, number)
        raise ProcessLookupError if pid % 2 else PermissionError

    end_jobs.end_jobs(found.look, react({}), refuses, found.begin)
    assert found.told(TERM) == [101, 102, 103, 104]


def test_a_stop_fits_into_what_the_engine_gives() -> None:
    stop = (resources.container() / "rootfs/usr/local/lib/dshpc/stop").read_text()
    # The database ends beside the jobs, and may be killed: it is no part of either sum
    stop, both = re.sub(r"\{ s6-svc -d slurmdbd .*\} &\n", "", stop), stop
    assert sum(int(each) for each in re.findall(r"-t (\d+) (?:slurmdbd|mariadb);", both)) == 4000
    waits = [int(found) / 1000 for found in re.findall(r"s6-svwait .*-t (\d+)", stop)]
    assert len(waits) == 2
    # For slurmctld
    with_jobs, without = (int(found) / 1000 for found in re.findall(r"left_ms=(\d+)", stop))
    assert waits[0] + end_jobs.GRACE_S < 10, "docker stop, where slurmd alone does not end"
    assert sum(waits) + without < 10, "the same where slurmctld does not end, and no job runs"
    compose = (resources.share() / "docker-compose.yml.j2").read_text()
    ours = re.search(r"stop_grace_period: (\d+)s", compose)
    assert ours is not None
    assert sum(waits) + with_jobs + end_jobs.GRACE_S < int(ours[1])
    limit = re.search(r"timeout -s KILL (\d+) ", stop)
    assert limit is not None
    assert int(limit[1]) > end_jobs.GRACE_S


NAMES = st.text(max_size=15)


@given(
    st.integers(1, 2**22), NAMES, st.sampled_from("RSDZTtXI"), st.integers(0), st.integers(0),
    st.integers(),
)  # fmt: skip
def test_a_line_of_stat(
    pid: int, name: str, state: str, parent: int, session: int, terminal: int
) -> None:
    text = f"{pid} ({name}) {state} {parent} 5 {session} {terminal} -1 4194560 1163 0\n"
    assert parse(text) == Process(pid, name, state, parent, session, terminal != 0)


@given(st.text())
def test_no_line_of_stat_is_an_error(text: str) -> None:
    assert parse(text) is None or ")" in text


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ("Name:\tx: y\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000004000\n", "catches"),
        ("SigIgn:\t0000000000384004\nSigCgt:\t000000004b813efb\n", "ignores"),
        ("SigIgn:\t0000000000000000\nSigCgt:\t0000000180010002\n", "default"),
        ("", "default"),
    ],
)
def test_what_a_process_does_upon_term(
    monkeypatch: pytest.MonkeyPatch, status: str, found: Reaction
) -> None:
    monkeypatch.setattr(end_jobs, "_read", {"/proc/7/status": status}.__getitem__)
    assert end_jobs.reaction(7) == found


def test_what_is_no_line_of_stat() -> None:
    assert parse("") is None
    assert parse("1 (init) S 0") is None
    assert parse("x (init) S 0 1 1 0") is None


@given(st.dictionaries(st.integers(1, 9), st.tuples(st.integers(0, 9), st.integers(1, 9))))
def test_any_table_is_read_to_its_end(parents: dict[int, tuple[int, int]]) -> None:
    """It is not of one moment: parents may be missing, or go round in a circle."""
    found = {
        pid: Process(pid, "slurmstepd" if pid < 3 else "x", "S", parent, session)
        for pid, (parent, session) in parents.items()
    }
    assert end_jobs.would_kill(
        found, frozenset({1, 2}), react({"p3": "catches", "p5": "catches"})
    ) <= {1, 2}
    told = end_jobs.of_steps(found, frozenset({1, 2}))
    below = {
        pid
        for pid in found
        if pid > 2 and found[pid].parent in (1, 2) and found[pid].parent in found
    }
    assert below <= told <= {pid for pid in found if pid > 2}
