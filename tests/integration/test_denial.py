"""What one user's single submission, or one user's files, cannot do to the others: on a real cluster."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshpc_setup.jobs import limits
from dshpc_setup.terminal.sanitize import harmless
from tests.integration.cluster import Cluster, Outcome, as_user, made, run, wait_until
from tests.integration.engines import Engine

pytestmark = [
    pytest.mark.engines("docker", why="control groups limit what users take"),
    pytest.mark.timeout(600),
]
EVE, BOB = 42_610, 42_611
SIGNS = "\x1b[2J", "\u009b31m", "\u202e", "\x07"


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    with made("denial", engine=engine) as found:
        found.configure("--simulate", "h100:2").good()
        for uid in (EVE, BOB):
            own = found.work / str(uid)
            own.mkdir()
            os.chown(own, uid, uid)
        yield found


def user(cluster: Cluster, uid: int, *arguments: str) -> Outcome:
    return as_user(uid, "dshpc", *arguments, cwd=cluster.work / str(uid))


def _file(cluster: Cluster, name: str, text: str) -> str:
    path = cluster.work / str(EVE) / name
    path.write_text(text)
    os.chown(path, EVE, EVE)
    return str(path)


def _runs_at_once(cluster: Cluster) -> None:
    """A job of somebody else begins and ends, and nothing is in the way of the next one."""
    done = user(cluster, BOB, "srun", "-Q", "--immediate=20", "--mem=10", "-t", "1", "echo", "mine")
    assert done.good().stdout == "mine\n"


HET = "#!/bin/sh\n#SBATCH --mem=10\n#SBATCH hetjob\n#SBATCH --mem=10\nhostname\n"


def test_a_heterogeneous_job_does_not_stop_the_queue(cluster: Cluster) -> None:
    """Of three lines: it waited for ever, and every other job behind it."""
    for argv in (
        ("sbatch", _file(cluster, "het.sh", HET)),
        ("srun", "--mem=10", "true", ":", "--mem=10", "true"),
        ("salloc", "--mem=10", ":", "--mem=10", "true"),
    ):
        refused = user(cluster, EVE, *argv)
        assert refused.code != 0
        assert "each of its parts needs a node of its own" in refused.stderr
        assert "srun --exact -n1 A & srun --exact -n1 B & wait" in refused.stderr
    assert cluster.said("squeue", "-h") == ""
    _runs_at_once(cluster)


def test_what_it_says_to_do_instead_runs(cluster: Cluster) -> None:
    script = "srun -Q --exact -n1 --mem=10 echo A & srun -Q --exact -n1 --mem=10 echo B & wait"
    argv = ("sbatch", "--wait", "-n2", "--mem=20", "-o", "parts", "--wrap", script)
    user(cluster, EVE, *argv).good()
    assert sorted((cluster.work / str(EVE) / "parts").read_text().split()) == ["A", "B"]


NEVER = {
    "a dependency that never comes": ["--dependency=afterok:999999"],
    "a date far away": ["--begin=2035-01-01"],
    "held": ["--hold"],
    "a node that there is not": ["-w", "nosuch"],
    "no node left": ["-x", "NODE"],
    "a feature that there is not": ["-C", "nosuch"],
    "more GPUs than there are": ["--gres=gpu:3"],
    "more memory": ["--mem=100T"],
    "more CPUs": ["-n", "4096"],
    "more nodes": ["-N", "2"],
    "a name of 100,000 letters": ["-J", "x" * 100_000],
    "an array of millions": ["--array=0-4000000"],
    "a deadline far away": ["--deadline=2035-01-01", "--begin=2034-12-31"],
    "8,000 dependencies": [
        "--dependency=" + ",".join(f"afterany:{i}" for i in range(90000, 98000))
    ],
    "a reservation that there is not": ["--reservation=x"],
    "the first place": ["--priority=4294967294"],
    "all of the node, later": ["--exclusive", "--begin=2035-01-01"],
}


@pytest.mark.parametrize("attack", NEVER)
def test_no_single_submission_stops_the_others(cluster: Cluster, attack: str) -> None:
    node = cluster.said("cat", "/run/dshpc/node")
    words = [node if word == "NODE" else word for word in NEVER[attack]]
    user(cluster, EVE, "sbatch", "-o", "/dev/null", *words, "--wrap", "true")  # taken or refused
    try:
        _runs_at_once(cluster)
    finally:
        cluster.said("scancel", "-u", str(EVE))


def test_what_slurm_shows_of_a_job_commands_no_terminal(cluster: Cluster) -> None:
    for sign in SIGNS:
        argv = (
            "sbatch",
            "--parsable",
            "-H",
            "-J",
            f"a{sign}",
            "--comment",
            f"b{sign}",
            "--wrap",
            "true",
        )
        job = user(cluster, EVE, *argv).good().stdout.strip()
        change = ("scontrol", "update", f"jobid={job}", f"name=c{sign}", f"comment=d{sign}")
        user(cluster, EVE, *change)
        for show in (("scontrol", "show", "job", job), ("squeue", "-o", "%all"), ("squeue", "-l")):
            text = cluster.dshpc(*show).good().stdout
            assert text == harmless(text), (sign, show)
        cluster.said("scancel", job)
        for words in (
            ("-o", f"/tmp/x{sign}"), ("-e", f"/tmp/x{sign}"), ("-i", f"/tmp/x{sign}"),
            ("--wckey", f"x{sign}"), ("--mail-user", f"x{sign}"), ("--export=A=1", "-A", f"x{sign}"),
        ):  # fmt: skip
            refused = user(cluster, EVE, "sbatch", "-H", *words, "--wrap", "true")
            assert refused.code != 0, (sign, words)
            assert "control character" in refused.stderr, (sign, words, refused.stderr)
        # Steps of a job have names of their own, which the controller takes as they come
        hers = cluster.work / str(EVE)
        (hers / f"p{sign}").write_text("#!/bin/sh\nexec squeue -h -s -o %j\n")
        (hers / f"p{sign}").chmod(0o755)
        script = "".join(f"srun -Q {words}\n" for words in (
            f"-J 's{sign}' squeue -h -s -o %j", f"'./p{sign}'", f"-J named './p{sign}'",
        ))  # fmt: skip
        (hers / "steps.sh").write_text(f"#!/bin/sh\n{script}")
        user(cluster, EVE, "sbatch", "--wait", "--mem=10", "-o", "steps", "steps.sh").good()
        text = (hers / "steps").read_text()
        (hers / "steps").unlink()
        lines = [line for line in text.splitlines() if line != "batch"]
        assert [line[:2] for line in lines] == ["s?", "sr", "sr", "na"], (sign, text)
        assert "control character" in lines[1]
        assert text == harmless(text), (sign, text)
    assert cluster.said("squeue", "-h") == ""


def test_forged_files_do_not_hold_up_roots_list(cluster: Cluster) -> None:
    """Twelve arrays of 4,000,001 tasks, and files as large as a disk lets them be."""
    jobs = cluster.work / "jobs" / str(EVE)
    before = cluster.dshpc("job", "list", "--all", "--json").good().report["jobs"]
    assert isinstance(before, list)
    script = (
        "import json, os\n"
        f"for number in range(500000, 500012):\n"
        f"    own = f'{jobs}/x-{{number}}/.job'\n"
        "    os.makedirs(own)\n"
        f"    job = {{'job_id': number, 'tasks': {limits.MOST_TASKS}}}\n"
        "    json.dump(job, open(f'{own}/job.json', 'w'))\n"
        f"own = '{jobs}/y/.job'\n"
        "os.makedirs(own)\n"
        "with open(f'{own}/job.json', 'wb') as file:\n"
        "    file.truncate(1 << 40)\n"
        f"own = '{jobs}/z/.job'\n"
        "os.makedirs(own)\n"
        "open(f'{own}/job.json', 'w').write('{\"a\":' * 100000)\n"
    )
    ground = ("dshpc-node", "add-ground", str(cluster.work), str(EVE), str(EVE))
    run(["docker", "exec", cluster.container, *ground]).good()
    run(["docker", "exec", "-u", f"{EVE}:{EVE}", cluster.container, "python3", "-c", script]).good()
    began = time.monotonic()
    listed = cluster.dshpc("job", "list", "--all").good()
    took = time.monotonic() - began
    assert took < limits.MOST_S + 3, took
    assert "Not read: a file larger than 1 MiB" in listed.stderr
    assert listed.stdout == harmless(listed.stdout)
    told = json.loads(cluster.dshpc("job", "list", "--all", "--json").good().stdout)
    assert any("larger than 1 MiB" in note for note in told["notes"])


STEPS = ("probe", "base", "passthrough", "plan", "render", "build")


def test_an_edit_at_any_step_of_a_run_stays(engine: Engine, start_configure: object) -> None:
    """It was compared at "render", and written minutes later."""
    with made("edited", engine=engine) as found:
        plain = ("--no-build", "--no-start")
        found.configure("--simulate", "h100:2", *plain).good()
        for number, step in enumerate(STEPS):
            path = found.folder / "config/slurm.conf"
            begun = start_configure(found, "--simulate", f"h100:{number + 3}", *plain)  # type: ignore[operator]
            begun.wait_line(step)
            path.write_text(f"# mine, at {step}\n")
            report = begun.end().good()
            assert path.read_text() == f"# mine, at {step}\n", step
            assert report.actions["config/slurm.conf"] == "kept-edited", step
            new = Path(f"{path}.dshpc-new")
            assert f"gpu:h100:{number + 3}" in new.read_text(), step
            new.replace(path)  # taken, as `dshpc config accept` does
            found.configure("--simulate", f"h100:{number + 3}", *plain).good()
            assert found.leftovers() == []


def test_edits_while_files_are_written_again_and_again(
    engine: Engine, start_configure: object
) -> None:
    """An editor that saves all the time: the newest text that it saved is there at the end."""
    with made("saved", engine=engine) as found:
        plain = ("--no-build", "--no-start")
        found.configure("--simulate", "h100:2", *plain).good()
        path = found.folder / "config/gres.conf"
        begun = start_configure(found, "--simulate", "h100:4", *plain)  # type: ignore[operator]
        saved = 0
        while begun.child.poll() is None:
            saved += 1
            beside = path.with_name("editor~")
            beside.write_text(f"# mine {saved}\n")
            beside.replace(path)
        begun.end().good()
        assert saved > 1
        wait_until(lambda: path.read_text() == f"# mine {saved}\n", "the newest is there", 1)


FLOW = "jobs:\n  one:\n    command: 'true'\n"


def test_a_queue_of_14_000_jobs_of_one_user_hides_no_job_of_another(cluster: Cluster) -> None:
    """Slurm's whole answer would have 107 MB: all lists ended with "printed more than 64 MiB"."""
    own = cluster.work / str(BOB)
    (own / "flow.yaml").write_text(FLOW)
    waits = f"until [ -e {own}/go ]; do sleep 0.1; done; echo mine"
    job = user(cluster, BOB, "run", "--json", "--", "sh", "-c", waits).good().report["job_id"]
    arrays = []
    try:
        for _ in range(2):
            held = ("sbatch", "--parsable", "--hold", "--mem=10", "-a", "0-7000", "--wrap=true")
            arrays.append(array := user(cluster, EVE, *held).good().stdout.strip())
            # Each of these tasks becomes a job of its own. For many at once Slurm says "Unexpected message"
            # now and then, and does it: they are counted
            for first in range(0, 7000, 1000):
                tasks = f"jobid={array}_[{first}-{first + 999}]"
                user(cluster, EVE, "scontrol", "update", tasks, "nice=3")
        assert len(cluster.said("squeue", "-h", "-o", "%i").split()) > 14_000
        for uid in (BOB, EVE):
            listed = user(cluster, uid, "job", "list", "--json").good().report
            assert str(job) in [each["id"] for each in listed["jobs"]]
            (count,) = listed["left_out"].values()
            assert count > 12_000
            assert any("Not listed, as the queue is long" in note for note in listed["notes"])
        status = cluster.dshpc("status", "--json").good().report
        assert status["ready"]
        assert status["pending"]["count"] > 14_000
        user(cluster, BOB, "workflow", "run", "flow.yaml").good()
        flow = user(cluster, BOB, "workflow", "status", "flow", "--json")
        assert [each["name"] for each in flow.good().report["jobs"]] == ["one"]
        (own / "go").touch()
        assert "mine" in user(cluster, BOB, "job", "logs", "-f", str(job)).good().stdout
        user(cluster, BOB, "job", "clean", "--dry-run").good()
    finally:
        user(cluster, EVE, "scancel", *arrays)
