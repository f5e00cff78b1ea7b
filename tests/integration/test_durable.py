"""What slurmctld has answered outlives each kill: no job lost, none run twice, no number given twice.

The GPUs are made up, as in test_container. A sample of the kills; with --full 100 of them, the engine among
what is killed, and 1,000 jobs. `DSHPC_KILLS_SEED`, `DSHPC_KILLS` and `DSHPC_KILLS_JOBS` repeat one run.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import docker
from tests.integration.second_engine import SecondEngine
from tests.integration.soak.kills import ENGINE, UID, WHAT, Kills, counted
from tests.integration.test_container import Node, image, until

__all__ = ["image"]

pytestmark = pytest.mark.timeout(3600)
STATE = "/var/lib/dshpc/state"
SAMPLE, WHOLE, WHOLE_JOBS = 20, 100, 1_000
HELD = ("sbatch", "--parsable", "--hold", "--mem=16", "-o", "/dev/null")


def shared_folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir(mode=0o777)
    work.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o011)  # the job's user goes through
    return work


@pytest.fixture
def fresh(image: str, tmp_path: Path) -> Iterator[Node]:
    work = shared_folder(tmp_path)
    node = Node(image, tmp_path / "config")
    node.run("--volume", f"{work}:{work}")
    assert node.wait()["ready"], node.log()
    yield node
    node.remove()


def seed_of(full: bool) -> int:
    found = os.environ.get(
        "DSHPC_KILLS_SEED", random.SystemRandom().randrange(10**6) if full else 7
    )
    print(f"DSHPC_KILLS_SEED={found}")
    return int(found)


def kill(node: Node, *services: str) -> None:
    for service in services:
        if service == "slurmstepd":
            node.try_exec("pkill", "-9", "-f", "^slurmstepd: ")  # or it has ended
            continue
        pid = node.exec("s6-svstat", "-o", "pid", f"/run/dshpc/services/{service}")
        node.exec("kill", "-9", pid)


def back(node: Node) -> None:
    until(lambda: node.try_exec("scontrol", "ping").returncode == 0)


def kill_container(node: Node) -> dict[str, Any]:
    docker("kill", node.name)
    docker("start", node.name)
    status = node.wait()
    assert status["ready"], node.log()
    return status


def queued(node: Node) -> dict[str, str]:
    lines = node.exec(
        "squeue", "-h", "-r", "-a", "-t", "PENDING,RUNNING", "-o", "%i %T"
    ).splitlines()
    return dict(line.split() for line in lines)


def show(node: Node, job: str) -> str:
    return node.exec("scontrol", "show", "job", "-o", job)


# A killed slurmctld


def test_all_that_was_answered_is_known_after_a_kill(fresh: Node) -> None:
    """Plain, arrays, with dependencies, cancelled: as it was told."""
    order = "; ".join(
        [*[f"{' '.join(HELD)} --wrap=true"] * 20, f"{' '.join(HELD)} --wrap=true -a 0-4%1"]
    )
    jobs = fresh.exec("sh", "-euc", order).split()
    after = fresh.exec(*HELD, f"--dependency=afterok:{jobs[0]}", "--wrap=true")
    fresh.exec("scancel", jobs[1])
    kill(fresh, "slurmctld")
    back(fresh)
    *plain, array = jobs
    expected = {*plain, after, *(f"{array}_{n}" for n in range(5))}
    assert set(queued(fresh)) == expected - {jobs[1]}
    assert f"Dependency=afterok:{jobs[0]}" in show(fresh, after)
    assert int(fresh.exec(*HELD, "--wrap=true")) > max(map(int, [*jobs, after]))


def test_what_was_answered_around_a_reconfigure_is_known_after_it(fresh: Node) -> None:
    """slurmctld goes on answering while the thread that writes its state has ended already."""
    submit = f"until [ -e /tmp/over ]; do {' '.join(HELD)} --wrap=true || exit; done"
    argv = ["docker", "exec", fresh.name, "sh", "-c", submit]
    clients = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for _ in range(4):
        began = time.monotonic()
        fresh.exec("scontrol", "reconfigure")
        back(fresh)
        assert time.monotonic() - began < 12  # an answer waits 15 s for a write that never comes
        time.sleep(0.5)
    fresh.exec("touch", "/tmp/over")
    said = [client.communicate(timeout=90)[0].split() for client in clients]
    assert all(said)
    known = set(queued(fresh))
    assert [number for each in said for number in each if number not in known] == []
    assert "state was not written" not in fresh.log()


def test_a_half_finished_array_goes_on_where_it_was(fresh: Node, tmp_path: Path) -> None:
    ran = tmp_path / "work" / "ran"
    let_go = f"[ -e {ran}.go ] || [ $SLURM_ARRAY_TASK_ID = 0 ]"
    script = f"echo $SLURM_ARRAY_TASK_ID >>{ran}; until {let_go}; do sleep 0.1; done"
    array = fresh.exec(
        *(word for word in HELD if word != "--hold"), "-a", "0-3%1", "--wrap", script
    )
    until(lambda: ran.exists() and ran.read_text() == "0\n1\n")
    kill(fresh, "slurmctld")
    back(fresh)
    assert set(queued(fresh)) == {f"{array}_{n}" for n in (1, 2, 3)}
    Path(f"{ran}.go").touch()
    until(lambda: not queued(fresh))
    assert ran.read_text() == "0\n1\n2\n3\n"


JOB_S = 1
AROUND = (-1.0, -0.4, -0.1, 0.0, 0.1, 0.4)  # seconds from a job's end
LATER = (1.0, 2.0, 3.0, 4.0, 5.0)


@pytest.mark.parametrize(
    "daemons", [("slurmctld",), ("slurmd",), ("slurmctld", "slurmd"), ("slurmstepd",)]
)
def test_no_job_is_left_without_a_process_by_a_kill_around_its_end(
    fresh: Node, tmp_path: Path, daemons: tuple[str, ...], full: bool
) -> None:
    """Each begins once and ends once, and gives back its GPUs, which are all that there are.

    Where slurmstepd itself is killed Slurm never hears of the end: doctor names such a job
    (test_doctor), its script ends by itself, and to cancel it gives back what it has.
    """
    later = LATER if full else sorted(random.Random(seed_of(full)).sample(LATER, 2))
    for place, moment_s in enumerate((*AROUND, *later)):
        ran = tmp_path / "work" / f"ran{place}"
        script = f"echo begin >>{ran}; sleep {JOB_S}; echo end >>{ran}"
        job = fresh.exec(
            *("sbatch", "--parsable", "--mem=16", "--gres=gpu:2", "-o", "/dev/null"),
            *("--wrap", script),
        )
        until(ran.exists)
        time.sleep(JOB_S + moment_s)  # the moment is what is tried
        kill(fresh, *daemons)
        back(fresh)
        if "slurmstepd" in daemons:
            until(lambda: ran.read_text() == "begin\nend\n")  # noqa: B023
            fresh.try_exec("scancel", job)
        until(lambda: queued(fresh) == {}, 60)
        assert ran.read_text() == "begin\nend\n"


def test_a_state_that_cannot_be_written_holds_no_answer_up(fresh: Node) -> None:
    new = f"{STATE}/slurmctld/job_state.new"
    fresh.exec("sh", "-euc", f"until mkdir {new} 2>/dev/null; do sleep 0.01; done")
    began = time.monotonic()
    fresh.exec(*HELD, "--wrap=true")
    assert time.monotonic() - began < 12  # it waits 15 s for a write that does not end
    until(lambda: "slurmctld's state was not written" in fresh.log())
    fresh.exec("rmdir", new)
    job = fresh.exec(*HELD, "--wrap=true")
    kill(fresh, "slurmctld")
    back(fresh)
    assert job in queued(fresh)


# A killed container


def stop_slurmctld(node: Node) -> None:
    """It hears of nothing any more: the longest that the moment of a job's end can be."""
    pid = node.exec("s6-svstat", "-o", "pid", "/run/dshpc/services/slurmctld")
    node.exec("kill", "-STOP", pid)


def wait_ended(node: Node, *numbers: str) -> None:
    known = "cat $1/ended/*/*[0-9] 2>/dev/null | cut -d' ' -f1"
    until(lambda: set(numbers) <= set(node.exec("sh", "-c", known, "sh", STATE).split()))


def test_a_script_that_has_ended_is_not_run_again(fresh: Node, tmp_path: Path) -> None:
    work = tmp_path / "work"
    kills = Kills(fresh.name, work, random.Random(1))
    for name, code in (("j1", 3), ("j2", 0)):
        kills.launch(
            name,
            f"echo ran >>{work}/{name}; until [ -e {work}/go ]; do sleep 0.1; done; exit {code}",
        )
    first, second = (kills.acknowledged[name] for name in ("j1", "j2"))
    until(lambda: len(list(work.glob("j?"))) == 2)
    stop_slurmctld(fresh)
    (work / "go").touch()
    wait_ended(fresh, first, second)
    status = kill_container(fresh)
    until(lambda: queued(fresh) == {})
    assert [(work / f"j{n}").read_text() for n in (1, 2)] == ["ran\n"] * 2
    assert f"do not run again: {first}, {second}." in str(status["notes"])
    assert status["unclean_ends"][-1]["jobs"]["concluded"] == [first, second]
    assert "ExitCode=3:0" in show(fresh, first)
    assert "JobState=COMPLETED" in show(fresh, second)


def test_a_plain_script_ends_as_it_has_ended(fresh: Node, tmp_path: Path) -> None:
    """Also where no exit code is known, which is no success."""
    work = tmp_path / "work"
    ends = {"5": "exit 5", "75": "kill -9 $$"}  # two, as the smallest machine has two CPUs
    jobs: dict[str, str] = {}
    for code, end in ends.items():
        script = f"echo ran >>{work}/{code}; until [ -e {work}/go ]; do sleep 0.1; done; {end}"
        asked = ("--parsable", "--mem=16", "-o", f"{work}/log.{code}", "--wrap", script)
        jobs[code] = fresh.exec("sbatch", *asked)
    until(lambda: all((work / code).exists() for code in ends))
    stop_slurmctld(fresh)
    (work / "go").touch()
    wait_ended(fresh, *jobs.values())
    kill_container(fresh)
    until(lambda: queued(fresh) == {})
    for code, job in jobs.items():
        assert (work / code).read_text() == "ran\n"
        assert f"ExitCode={code}:0" in show(fresh, job)
        said = (work / f"log.{code}").read_text()
        assert "does not run again" in said
        assert ("how it ended is not known" in said) == (code == "75")


def test_a_script_that_ends_by_itself_as_the_container_stops_is_not_run_again(
    fresh: Node, tmp_path: Path
) -> None:
    """slurmctld is not there any more to hear of it, and the jobs have not been told to end yet."""
    work = tmp_path / "work"
    waits = "until [ -d /run/dshpc/stopping ]; do sleep 0.1; done"
    kills = Kills(fresh.name, work, random.Random(1))
    kills.launch("j1", f"echo ran >>{work}/j1; {waits}; exit 3")
    plain = ("sbatch", "--parsable", "--mem=16", "-o", "/dev/null", "--wrap")
    jobs = [kills.acknowledged["j1"], fresh.exec(*plain, f"echo ran >>{work}/j2; {waits}; exit 3")]
    until(lambda: len(list(work.glob("j?"))) == 2)
    stop_slurmctld(fresh)  # so that the stop waits for it, before it tells the jobs
    docker("stop", "--time", "60", fresh.name)
    docker("start", fresh.name)
    status = fresh.wait()
    until(lambda: queued(fresh) == {})
    assert [(work / f"j{n}").read_text() for n in (1, 2)] == ["ran\n"] * 2
    assert f"do not run again: {', '.join(jobs)}." in str(status["notes"])
    assert ["ExitCode=3:0" in show(fresh, job) for job in jobs] == [True, True]


# The saved queue


def test_a_damaged_queue_stops_the_start_and_is_repaired_as_was_chosen(fresh: Node) -> None:
    jobs = [fresh.exec(*HELD, "--wrap=true") for _ in range(3)]
    saved = f"{STATE}/slurmctld"
    fresh.exec("cp", "-p", f"{saved}/job_state", f"{saved}/job_state.kept")  # as a minute later
    damage = "s6-svc -d /run/dshpc/services/slurmctld; s6-svwait -d /run/dshpc/services/slurmctld; "
    fresh.exec("sh", "-c", f"{damage} cd {saved}; echo >job_state; : >job_state.old")
    docker("kill", fresh.name)
    docker("start", fresh.name)
    status = fresh.wait()
    assert not status["ready"]
    assert "saved-state restore" in str(status["failure"])
    assert jobs[2] in status["failure"]["details"]
    assert fresh.exec("dshpc-node", "saved-state", "restore")
    assert fresh.restart()["ready"], fresh.log()
    assert set(queued(fresh)) == set(jobs)
    assert int(fresh.exec(*HELD, "--wrap=true")) > int(jobs[2])
    fresh.exec("sh", "-c", f"{damage} cd {saved}; rm job_state*")
    docker("kill", fresh.name)
    docker("start", fresh.name)
    assert not fresh.wait()["ready"]
    fresh.exec("dshpc-node", "saved-state", "give-up")
    assert fresh.restart()["ready"], fresh.log()
    assert queued(fresh) == {}
    assert int(fresh.exec(*HELD, "--wrap=true")) > int(jobs[2]) + 1
    assert f"job.{jobs[0]}" in fresh.exec("find", f"{STATE}/damaged")


STOPPED = (
    "s6-svc -d /run/dshpc/services/slurmctld; s6-svwait -d /run/dshpc/services/slurmctld; "
    f"cd {STATE}/slurmctld; "
)


def start_again(node: Node) -> dict[str, Any]:
    docker("kill", node.name)
    docker("start", node.name)
    return node.wait()


def test_a_queue_that_was_cut_off_is_told_and_repaired(fresh: Node) -> None:
    """With a good beginning, as a power cut leaves it; so is the newer of the copies."""
    jobs = [fresh.exec(*HELD, "--wrap=true") for _ in range(3)]
    cut = 'cut() { truncate -s $(($(stat -c %s "$1") * 2 / 3)) "$1"; }; '
    copies = "cp -p job_state job_state.kept.old; sleep 1.1; cp -p job_state job_state.kept; "
    fresh.exec("sh", "-euc", f"{cut}{STOPPED}{copies} cut job_state; cut job_state.kept")
    status = start_again(fresh)
    assert not status["ready"]
    assert "saved queue cannot be read" in str(status["failure"])
    assert "saved-state restore" in str(status["failure"])
    assert jobs[2] in status["failure"]["details"]
    said = fresh.try_exec("dshpc-node", "saved-state", "check")
    assert said.returncode != 0
    assert "Incomplete job state" in fresh.log()
    assert "Done." in fresh.exec("dshpc-node", "saved-state", "restore")
    assert fresh.restart()["ready"], fresh.log()
    assert set(queued(fresh)) == set(jobs)
    assert int(fresh.exec(*HELD, "--wrap=true")) > int(jobs[2])
    # Asked of a queue that is whole, it changes nothing, while slurmctld runs too
    fresh.exec("dshpc-node", "saved-state", "check")
    refused = fresh.try_exec("dshpc-node", "saved-state", "give-up")
    assert "nothing is to be repaired" in refused.stdout + refused.stderr
    assert set(queued(fresh)) > set(jobs)


def test_after_a_copy_was_taken_nothing_runs_twice_and_later_scripts_are_kept(
    fresh: Node, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    free = [word for word in HELD if word != "--hold"]

    def submit(name: str, *options: str, code: int = 0) -> str:
        script = f"echo ${{SLURM_ARRAY_TASK_ID:-0}} >>{work}/{name}; exit {code}"
        return fresh.exec(*free, *options, "--wrap", script)

    first, failed = submit("first", "--hold"), submit("failed", "--hold", code=3)
    taken_back = submit("back", "--hold")
    array = submit("array", "--hold", "-a", "0-1")
    after = submit("after", f"--dependency=afterok:{first}", "--hold")
    waits = submit("waits", "--hold")
    saved = f"{STATE}/slurmctld"
    fresh.exec("cp", "-p", f"{saved}/job_state", f"{saved}/job_state.kept")
    time.sleep(1.1)
    fresh.exec("scancel", taken_back)
    fresh.exec(
        "scontrol", "update", f"jobid={array}_1", "starttime=now+1day"
    )  # the copy has it held
    fresh.exec("scontrol", "release", first, failed, array)
    later = submit("later", "--hold")
    ran = ("first", "failed", "array")
    until(lambda: all((work / name).exists() for name in ran))
    until(lambda: "RUNNING" not in queued(fresh).values())
    fresh.exec(
        "sh", "-euc", f"{STOPPED} echo >job_state; : >job_state.old; rm -f job_state.kept.old"
    )
    assert not start_again(fresh)["ready"]
    said = fresh.exec("dshpc-node", "saved-state", "restore")
    assert f"not in the queue any more: {later}." in said
    line = next(line for line in said.splitlines() if "| dshpc sbatch" in line)
    script = line.split(" cat ")[1].split()[0]
    assert f"{work}/later" in fresh.exec("cat", script)
    status = fresh.restart()
    assert status["ready"], fresh.log()
    assert "do not run again" in str(status["notes"])
    fresh.exec("scontrol", "release", first, failed, array, after)
    until((work / "after").exists, 90)
    until(lambda: set(queued(fresh)) == {waits}, 90)
    assert {name: (work / name).read_text().count("\n") for name in (*ran, "after")} == {
        "first": 1, "failed": 1, "array": 2, "after": 1,
    }  # fmt: skip
    assert not (work / "back").exists()
    assert not (work / "later").exists()
    assert "ExitCode=3:0" in show(fresh, failed)
    assert "JobState=COMPLETED" in show(fresh, first)
    assert sorted((work / "array").read_text().split()) == ["0", "1"]


def test_an_end_that_nobody_ordered_is_told(fresh: Node) -> None:
    assert fresh.wait()["unclean_ends"] == []
    fresh.restart()
    assert fresh.wait()["unclean_ends"] == []
    kill(fresh, "slurmctld")
    back(fresh)
    assert len(fresh.wait()["unclean_ends"]) == 1
    assert len(kill_container(fresh)["unclean_ends"]) == 2
    # One that gives up, such as of a line that it cannot read, was not killed
    finish = "/usr/local/lib/dshpc/services/slurmctld/finish"
    mark = f"{STATE}/slurmctld.runs"
    for code, stays in (("1", False), ("0", False), ("256", True)):
        fresh.exec("sh", "-c", f": >{mark}; {finish} {code} 9 || true")
        assert (fresh.exec("sh", "-c", f"test ! -e {mark} || echo there") != "") is stays
    # The mark is there: as after a kill, and then nothing is left to tell after an end in order
    assert len(fresh.wait()["unclean_ends"]) == 2
    fresh.restart()
    assert fresh.wait()["unclean_ends"] == []


def test_the_jobs_that_an_unclean_end_met_are_named(fresh: Node) -> None:
    """Also those that slurmctld itself queues again or ends, as they began 20 s before."""
    sbatch = ("sbatch", "--parsable", "--mem=16", "-o", "/dev/null")
    array = fresh.exec(*sbatch, "-a", "3,5%1", "--wrap", "sleep 300")
    once = fresh.exec(*sbatch, "--no-requeue", "--wrap", "sleep 300")
    until(lambda: fresh.exec("squeue", "-h", "-t", "R", "-o", "%i").count("\n") == 1)
    began = time.monotonic()
    kill(fresh, "slurmctld")
    until(lambda: [end["jobs"] for end in fresh.wait()["unclean_ends"]] not in ([], [None]))
    (first,) = fresh.wait()["unclean_ends"]
    assert sorted(first["jobs"].pop("continued")) == sorted([f"{array}_3", once])
    assert first["jobs"] == {}
    time.sleep(max(0.0, began + 21 - time.monotonic()))
    status = kill_container(fresh)
    jobs = {"requeued": [f"{array}_3"], "concluded": [], "ended": [once]}
    assert status["interrupted"] == jobs
    assert [end["jobs"] for end in status["unclean_ends"]][1:] == [jobs]
    assert "1 queued again, 1 ended" in str(status["notes"])


# Everything at once


def test_no_job_is_lost_and_none_runs_twice_through_kills(fresh: Node, tmp_path: Path) -> None:
    kills = Kills(fresh.name, tmp_path / "work", random.Random(seed_of(full=False)))
    through(kills, WHAT, of_environment("DSHPC_KILLS", SAMPLE), 0, longest_s=2.0)


def test_nor_through_kills_of_the_engine(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """With --full it is one among all: 100 kills and 1,000 jobs, or more where the one takes longer."""
    with SecondEngine(image) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.host)
        work = shared_folder(tmp_path)
        node = Node(image, tmp_path / "config")
        node.run("--restart", "unless-stopped", "--volume", f"{work}:{work}")
        assert node.wait()["ready"], node.log()
        kills = Kills(node.name, work, random.Random(seed_of(full)), engine=engine)
        if full:
            most = of_environment("DSHPC_KILLS", WHOLE)
            least = of_environment("DSHPC_KILLS_JOBS", WHOLE_JOBS)
            through(kills, (*WHAT, ENGINE), most, least, longest_s=4.0)
        else:
            through(kills, (ENGINE,), 2, 8, longest_s=4.0)
        node.remove()


def of_environment(name: str, else_: int) -> int:
    found = int(os.environ.get(name, else_))
    print(f"{name}={found}")
    return found


def through(
    kills: Kills, what: tuple[str, ...], most: int, least: int, *, longest_s: float
) -> None:
    """So many kills, one of `what` each, while jobs are submitted, of which so many are acknowledged."""
    kills.run("dshpc-node", "add-user", str(UID), str(UID), "soak")
    choose = random.Random(kills.choose.getrandbits(32))  # the other one is the submitter's
    done: list[str] = []
    with kills.submitting():
        while len(done) < most or len(kills.acknowledged) < least:
            time.sleep(choose.uniform(0.2, longest_s))
            if len(done) < most:
                done.append(choose.choice(what))
                kills.kill(done[-1])
    kills.wait_empty(time.monotonic, 1200)
    found = kills.judge()
    print(f"killed: {counted(done)}; {found}")
    if not found.is_kept:
        print("\n".join(kills.events))
        subprocess.run(["docker", "logs", "--tail", "300", kills.name], check=False)
    assert found.is_kept, found
    assert len(done) == most
    assert found.acknowledged >= max(least, most)
