"""A container that is moved, shrunk, widened and told to reconfigure: Slurm is right, no job is lost.

The GPUs are made up: names of /dev/null, handed in as the compose file does it.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from dshpc_setup.checkup.limited import READ_REPORT
from dshpc_setup.container.end_jobs import GRACE_S
from tests.integration.conftest import docker
from tests.integration.saved import SAVED
from tests.integration.test_container import AS_USER, HEALTH, Node, fresh, image, own, until

__all__ = ["fresh", "image"]

pytestmark = pytest.mark.timeout(600)
STATE = "/var/lib/dshpc/state"
DAEMONS = ("slurmctld", "slurmd")


def move(node: Node, *options: str, devices: int, simulate: str) -> dict[str, object]:
    """The same volumes in a new container with other hardware."""
    docker("stop", "--time", "10", node.name)
    node.remove(volumes=False)
    node.run(*options, devices=devices, simulate=simulate)
    return node.ready()


def state(node: Node) -> str:
    """Once the job that ended last has given its place back."""
    until(lambda: node.exec("squeue", "-h", "-t", "COMPLETING") == "")
    (found,) = set(node.exec("sinfo", "-h", "-N", "-o", "%G %T").splitlines())
    gres, said = found.split()
    return f"{gres.partition('(S:')[0]} {said}"


def submit(node: Node, name: str, *options: str) -> None:
    """A job that leaves its name in the state volume when it has run."""
    script = f"echo {name} >>{STATE}/ran"
    node.exec("sbatch", "-J", name, *options, "-o", "/dev/null", "--wrap", script)


def ran(node: Node) -> set[str]:
    return set(node.try_exec("cat", f"{STATE}/ran").stdout.split())


def reconfigure(node: Node) -> tuple[int, str]:
    done = node.try_exec("dshpc-node", "reconfigure")
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


# Other hardware at the next start


def test_jobs_for_what_is_gone_wait_and_run_when_it_is_back(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    fresh.exec("sbatch", "-J", "fill", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600")
    until(lambda: fresh.jobs().get("fill") == "RUNNING")
    submit(fresh, "typed", "--gres=gpu:h100:2")
    submit(fresh, "total", "--gpus=h100:1")
    submit(fresh, "many", "--gres=gpu:2")
    submit(fresh, "any", "--gres=gpu:1")
    submit(fresh, "held", "--gres=gpu:h100:1", "--hold")
    submit(fresh, "cpu")
    status = move(fresh, devices=1, simulate="t4:1")
    drift = {item["what"]: item for item in status["drift"]}  # type: ignore[attr-defined]
    gone = drift["GPUs of type h100"]
    assert (gone["was"], gone["is"].split()[0]) == ("2", "0")
    assert gone["done"].startswith("Gres is gpu:t4:1 instead of gpu:h100:2")
    assert "Changed since the last start:" in fresh.log()
    fresh.exec("scancel", "-n", "fill")
    until(lambda: ran(fresh) == {"any", "cpu"})
    until(lambda: fresh.jobs() == dict.fromkeys(("typed", "total", "many", "held"), "PENDING"))
    assert state(fresh) == "gpu:t4:1 idle"
    move(fresh, devices=2, simulate="h100:2")
    until(lambda: ran(fresh) == {"any", "cpu", "typed", "total", "many"})
    until(lambda: fresh.jobs() == {"held": "PENDING"})  # by a person, and left so
    assert fresh.exec("squeue", "-h", "-n", "held", "-o", "%r") == "JobHeldUser"


def test_memory_and_gpus_follow_the_machine(fresh: Node) -> None:
    fresh.run(devices=4, simulate="h100:4")
    fresh.ready()
    for options, devices, gres in (
        (("--memory", "3g"), 2, "gpu:h100:2"),
        (("--memory", "2g"), 0, "(null)"),
        ((), 4, "gpu:h100:4"),
    ):
        simulate = f"h100:{devices}" if devices else ""
        status = move(fresh, *options, devices=devices, simulate=simulate)
        assert state(fresh) == f"{gres} idle", fresh.log()
        what = {item["what"] for item in status["drift"]}  # type: ignore[attr-defined]
        assert {"GPUs of type h100", "Memory"} <= what
        memory = int(fresh.exec("sinfo", "-h", "-o", "%m"))
        limit = int(options[1][0]) * 1024 if options else None
        assert memory > 4096 if limit is None else limit * 0.8 < memory < limit
        fresh.exec("srun", *(["--gres=gpu:1"] if devices else []), "true")


def test_the_comparison_stays_with_the_last_start_that_got_ready(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    own(fresh, "gres.conf", "/dev/nvidia1", "/dev/nvidia1")
    docker("stop", "--time", "10", fresh.name)
    fresh.remove(volumes=False)
    fresh.run(devices=1)
    failed = fresh.wait()
    assert failed["phase"] == "failed"
    assert failed["drift"], "what has changed is said of a failed start, too"
    (fresh.config / "gres.conf").unlink()
    status = fresh.restart()
    assert (status["ready"], status["gres"]) == (True, "gpu:h100:1"), fresh.log()
    assert [item["was"] for item in status["drift"]] == ["2"]


def test_jobs_that_ran_are_queued_again_and_run_at_once(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    fresh.exec("sbatch", "-J", "again", "--requeue", "-o", "/dev/null", "--wrap", "sleep 600")
    until(lambda: fresh.jobs().get("again") == "RUNNING")
    fresh.exec("sh", "-c", SAVED)
    for cut_off in (True, False):
        began = time.monotonic()
        docker("kill" if cut_off else "stop", fresh.name)
        docker("start", fresh.name)
        fresh.ready()
        until(lambda: fresh.jobs().get("again") == "RUNNING")
        print(f"it runs again after {time.monotonic() - began:.1f} s")  # Slurm alone: two minutes
        fresh.exec("sh", "-c", SAVED)


@pytest.mark.parametrize(("ran_s", "how"), [(0, "kill"), (21, "kill"), (0, "stop")])
def test_jobs_that_were_cut_off_begin_before_those_that_were_submitted_later(
    fresh: Node, ran_s: int, how: str
) -> None:
    """slurmctld itself queues those again that began 20 s ago, as soon as slurmd registers."""
    fresh.run(devices=1, simulate="h100:1")
    fresh.ready()
    fresh.exec("sbatch", "-J", "cut-off", "--gres=gpu:1", "--requeue", "-o", "/dev/null",
               "--wrap", "sleep 600")  # fmt: skip
    until(lambda: fresh.jobs().get("cut-off") == "RUNNING")
    for number in range(3):
        fresh.exec("sbatch", "-J", f"later{number}", "--gres=gpu:1", "-o", "/dev/null",
                   "--wrap", "sleep 600")  # fmt: skip
    time.sleep(ran_s)
    fresh.exec("sh", "-c", SAVED)
    docker(how, fresh.name)
    docker("start", fresh.name)
    fresh.ready()
    until(lambda: "RUNNING" in fresh.jobs().values())
    assert {name for name, state in fresh.jobs().items() if state == "RUNNING"} == {"cut-off"}
    assert "DRAIN" not in fresh.exec("scontrol", "show", "node")


# Saves a checkpoint upon TERM, for a second, and goes on from it
SAVES = """
at=/var/tmp/$1
[ ! -e $at.saved ] || { touch $at.goes-on; exec sleep 600; }
trap 'echo TERM >>$at.told; sleep 1; touch $at.saved; exit 3' TERM
touch $at.begun
while :; do sleep 0.1; done
"""
PROGRAM = "/var/tmp/saves"


def has(node: Node, *names: str) -> bool:
    return node.try_exec("ls", *(f"/var/tmp/{name}" for name in names)).returncode == 0


def test_a_stop_gives_running_jobs_time_to_save_and_no_more(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    fresh.exec("sh", "-c", 'printf %s "$1" >$2', "sh", SAVES, PROGRAM)
    batch = ("sbatch", "-n1", "-D", "/", "-o", "/dev/null")
    # a shell that knows no trap; a user's; a step of srun
    fresh.exec(AS_USER, "t", "4242", "4242", "ada", "--", *batch, f"--wrap=sh {PROGRAM} one; true")
    fresh.exec(*batch, f"--wrap=srun sh {PROGRAM} two; true")
    until(lambda: has(fresh, "one.begun", "two.begun"))
    fresh.exec("pkill", "-STOP", "-f", f"{PROGRAM} two")  # as a job that is suspended
    docker("stop", "--time", "60", fresh.name)
    assert "have 7 s" in fresh.log()
    assert "did not end" not in fresh.log(), "the container ends as soon as they have"
    assert docker("inspect", "--format", "{{.State.ExitCode}}", fresh.name).strip() == "0"
    docker("start", fresh.name)
    status = fresh.ready()
    assert "2 queued again, 0 ended" in str(status["notes"])
    until(lambda: has(fresh, "one.goes-on", "two.goes-on"))
    assert fresh.exec("cat", "/var/tmp/one.told", "/var/tmp/two.told") == "TERM\nTERM"
    fresh.exec("scancel", "--state=RUNNING")
    # one that does not end, and one that is being cancelled and does not end: slurmd waits for it
    for name in ("deaf", "cancelled"):
        script = f"trap '' TERM; touch /var/tmp/{name}; while :; do sleep 0.1; done"
        fresh.exec(*batch, "-J", name, "--wrap", script)
    until(lambda: has(fresh, "deaf", "cancelled"))
    fresh.exec("scancel", "-n", "cancelled")
    began = time.monotonic()
    docker("stop", "--time", "60", fresh.name)
    assert GRACE_S < time.monotonic() - began < GRACE_S + 20  # less than a job's KillWait of 30 s
    assert "of jobs did not end within 7 s" in fresh.log()
    docker("start", fresh.name)
    fresh.ready()
    until(lambda: set(fresh.jobs()) == {"deaf"})


def test_jobs_of_a_partition_that_is_taken_out_are_not_lost(fresh: Node) -> None:
    fresh.run("--env", "DSHPC_PARTITIONS=more,empty")
    fresh.ready()
    fresh.exec("sbatch", "-J", "fill", "-p", "more", "--exclusive", "--wrap", "sleep 600")
    until(lambda: fresh.jobs().get("fill") == "RUNNING")
    submit(fresh, "one", "-p", "more")
    submit(fresh, "either", "-p", "more,debug")
    submit(fresh, "held", "-p", "more", "--hold")
    status = move(fresh, devices=2, simulate="h100:2")
    assert "The partition more is not in the configuration any more" in str(status["notes"])
    assert partitions(fresh) == {"debug": "up", "more": "drain"}  # none of `empty` was in the queue
    assert set(fresh.jobs()) | ran(fresh) >= {"one", "either", "held", "fill"}
    refused = fresh.try_exec("sbatch", "-p", "more", "--wrap", "true")
    assert "partition not available" in refused.stderr
    fresh.exec("scancel", "-n", "fill")
    fresh.exec("scontrol", "release", "jobname=held")
    until(lambda: ran(fresh) == {"one", "either", "held"}, 60)
    until(lambda: not fresh.jobs())
    assert reconfigure(fresh)[0] == 0
    assert partitions(fresh) == {"debug": "up"}
    fresh.restart()
    assert partitions(fresh) == {"debug": "up"}
    assert "PartitionName=more" not in fresh.exec("cat", "/etc/slurm/slurm.conf")


def partitions(node: Node) -> dict[str, str]:
    return dict(line.split() for line in node.exec("sinfo", "-h", "-o", "%R %a").splitlines())


def test_a_proof_that_finds_no_place_leaves_no_job(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    fresh.exec("sbatch", "--exclusive", "-J", "fill", "-o", "/dev/null", "--wrap", "sleep 600")
    until(lambda: fresh.jobs().get("fill") == "RUNNING")
    text = fresh.exec("cat", "/etc/slurm/slurm.conf")
    (fresh.config / "slurm.conf").write_text(text.replace("InactiveLimit=120", "InactiveLimit=121"))
    code, said = reconfigure(fresh)
    assert code == 0, said
    assert "jobs from before hold the node" in said
    assert fresh.jobs() == {"fill": "RUNNING"}


# Files of the user that do not fit what is there


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("slurm.conf", "Gres=gpu:h100:2", "Gres=gpu:h100:3", "3 GPUs of type h100"),
        ("slurm.conf", "RealMemory=", "RealMemory=9", "MiB of memory, and there are"),
        ("slurm.conf", "CPUs=", "CPUs=9999 ThreadsPerCore=9999 Boards=", "CPUs, and this machine"),
    ],
)
def test_a_slurm_conf_of_the_user_that_asks_for_more_is_refused_before_the_daemons_start(
    fresh: Node, name: str, old: str, new: str, words: str
) -> None:
    fresh.run()
    fresh.ready()
    own(fresh, name, old, new)
    status = fresh.restart()
    assert status["phase"] == "failed"
    failure = status["failure"]
    assert failure["brief"].startswith(f"config/{name}, line ")
    assert words in failure["brief"]
    assert "Right for what is here: NodeName=node" in failure["details"]
    assert fresh.try_exec("pidof", "slurmctld", "slurmd").stdout == ""
    assert fresh.try_exec(HEALTH).returncode == 1
    assert docker("inspect", "--format", "{{.RestartCount}}", fresh.name).strip() == "0"


def test_our_slurm_conf_follows_the_gres_conf_of_the_user(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    text = "# USER_CUSTOMIZED=true\nName=gpu Type=big File=/dev/nvidia1 Flags=nvidia_gpu_env\n"
    (fresh.config / "gres.conf").write_text(text)
    status = fresh.restart()
    assert (status["ready"], status["gres"]) == (True, "gpu:big:1"), fresh.log()
    assert fresh.exec("srun", "--gres=gpu:big:1", "printenv", "CUDA_VISIBLE_DEVICES") == "1"


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00=1\n" * 100, b"A" * 100_000, b"\n" * 100_000]
)
def test_noise_keeps_the_last_good_configuration(fresh: Node, content: bytes) -> None:
    fresh.run()
    fresh.ready()
    (fresh.config / "slurm.conf").write_bytes(content)
    status = fresh.restart()
    assert status["ready"], fresh.log()
    assert status["kept_last_good"]["brief"]
    assert "Traceback" not in fresh.log()
    assert (fresh.config / "slurm.conf").read_bytes() == content


@pytest.mark.parametrize("line", ["SchedulerTipe=sched/backfill", "SchedulerType=sched/none"])
def test_a_line_of_the_settings_that_slurm_does_not_take(fresh: Node, line: str) -> None:
    extra = ("--env", f"DSHPC_SLURM_CONF_EXTRA={line}")
    fresh.run(*extra)
    status = fresh.wait()
    assert status["phase"] == "failed"
    said = json.dumps(status["failure"])
    assert line.partition("=")[0] in said
    assert "The line comes from the setting slurm_conf_extra" in said
    assert "Correct it there, or take all of its lines out" in said
    fresh.remove()
    fresh.run()
    fresh.ready()
    fresh.remove(volumes=False)
    fresh.run(*extra)  # with a last good one to go on with
    assert line in json.dumps(fresh.ready()["kept_last_good"])


# dshpc-node reconfigure


def test_jobs_of_every_kind_outlive_a_reconfiguration(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    assert reconfigure(fresh)[0] == 0
    assert fresh.wait()["reconfigured"] is None  # nothing had changed
    out = "/tmp/out"
    runs = f"until [ -e {out}.go ]; do sleep 0.2; done; echo fine"
    begun = (
        f"sbatch -J batch -n1 --mem=100 --gres=gpu:1 -o {out}.b --wrap '{runs}'; "
        f"(srun -J step -n1 --mem=100 --gres=gpu:1 sh -c '{runs}' >{out}.i 2>&1 &)"
    )
    later = (
        f"(salloc -J alloc -n1 --mem=100 sh -c 'srun echo fine' >{out}.s 2>&1 &); "
        f"(srun -J waits -n1 --mem=100 --gres=gpu:2 echo fine >{out}.w 2>&1 &)"
    )
    fresh.exec("sh", "-c", begun)
    until(lambda: fresh.jobs().get("step") == fresh.jobs().get("batch") == "RUNNING")
    fresh.exec("sh", "-c", later)
    until(lambda: fresh.jobs().get("waits") == "PENDING")
    until(lambda: fresh.try_exec("grep", "-qE", "Granted|queued", f"{out}.s").returncode == 0)
    before = [
        fresh.exec("s6-svstat", "-o", "pid", f"/run/dshpc/services/{name}") for name in DAEMONS
    ]
    own(
        fresh,
        "slurm.conf",
        "PartitionName=debug",
        "PartitionName=more Nodes=ALL\nPartitionName=debug",
    )
    code, said = reconfigure(fresh)
    assert code == 0, said
    assert "slurm.conf is yours" in said
    after = [
        fresh.exec("s6-svstat", "-o", "pid", f"/run/dshpc/services/{name}") for name in DAEMONS
    ]
    assert not set(before) & set(after)
    assert set(fresh.exec("sinfo", "-h", "-o", "%R").split()) == {"debug", "more"}
    assert fresh.wait()["reconfigured"]
    fresh.exec("touch", f"{out}.go")
    until(lambda: not fresh.jobs())
    for kind in "bisw":
        assert "fine" in fresh.exec("cat", f"{out}.{kind}").split(), kind
    assert state(fresh) == "gpu:h100:2 idle"


def test_a_refused_reconfiguration_leaves_what_is_in_force(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    text = fresh.exec("cat", "/etc/slurm/slurm.conf")
    for old, new, words in (
        ("ReturnToService", "ReturnToServise", "Did you mean ReturnToService?"),
        ("h100:2", "h100:3", "3 GPUs of type h100"),
    ):
        (fresh.config / "slurm.conf").write_text(text.replace(old, new))
        code, said = reconfigure(fresh)
        assert code == 2
        assert words in said
        assert "keeps the configuration that it had" in said
        status = fresh.ready()
        assert words in json.dumps(status["kept_last_good"])
        # No restart is needed; who types it in the container has other commands than the host
        assert "Then put it into effect: dshpc-node reconfigure" in said
        assert "in the project folder: dshpc reconfigure" in json.dumps(status["kept_last_good"])
        assert "dshpc restart" not in said + json.dumps(status["kept_last_good"])
        assert fresh.exec("cat", "/etc/slurm/slurm.conf") == text
        assert fresh.exec("srun", "--gres=gpu:1", "echo", "runs") == "runs"
    (fresh.config / "slurm.conf").unlink()
    assert reconfigure(fresh)[0] == 0
    assert fresh.ready()["kept_last_good"] is None


def test_gpus_that_come_and_go_while_it_runs(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    fresh.exec("sbatch", "-J", "holds", "--gres=gpu:1", "-o", "/dev/null", "--wrap", "sleep 600")
    until(lambda: fresh.jobs().get("holds") == "RUNNING")
    fresh.exec("mv", "/dev/nvidia1", "/dev/away")
    code, said = reconfigure(fresh)
    assert code == 2
    assert "jobs hold GPUs" in said
    assert fresh.jobs() == {"holds": "RUNNING"}
    # so that no other begins meanwhile: what the refusal says to do
    fresh.exec("scontrol", "update", "nodename=node", "state=drain", "reason=dshpc:reconfigure")
    fresh.exec("scancel", "-n", "holds")
    until(lambda: not fresh.jobs())
    code, said = reconfigure(fresh)
    assert code == 0, said
    assert "Gres is gpu:h100:1 instead of gpu:h100:2, node resumed" in said
    assert state(fresh) == "gpu:h100:1 idle"
    fresh.exec("mv", "/dev/away", "/dev/nvidia1")
    fresh.exec("scontrol", "update", "nodename=node", "state=drain", "reason=broken fan")
    code, said = reconfigure(fresh)
    assert code == 0, said
    assert "by a person (root)" in said
    assert state(fresh) == "gpu:h100:2 drained"


def test_one_reconfiguration_at_a_time_and_none_before_it_is_ready(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    locked = fresh.try_exec("flock", "/run/dshpc/reconfigure.lock", "dshpc-node", "reconfigure")
    assert locked.returncode == 3
    assert "already" in locked.stderr
    fresh.exec("sh", "-c", 'sed -i \'s/"ready",/"starting: plan",/\' /run/dshpc/status.json')
    code, said = reconfigure(fresh)
    assert code == 3
    assert "still starting" in said


def test_a_reconfiguration_that_is_killed_leaves_one_set_in_force(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    for number, delay_s in enumerate((0.3, 0.6, 0.8, 0.9, 1.0, 1.1, 1.3, 1.6)):
        name = f"p{number}"
        text = fresh.exec("cat", "/etc/slurm/slurm.conf")
        line = next(row for row in text.splitlines() if row.startswith("PartitionName="))
        new = f"PartitionName={name} {line.split(' ', 1)[1]}"
        (fresh.config / "slurm.conf").write_text(text.replace(line, new))
        fresh.try_exec("timeout", "-s", "KILL", str(delay_s), "dshpc-node", "reconfigure")
        until(lambda: fresh.try_exec("scontrol", "ping").returncode == 0)
        until(lambda: started_with(fresh) == {fresh.exec("readlink", "/etc/slurm")})
        code, said = reconfigure(fresh)
        assert code == 0, said
        assert fresh.exec("sinfo", "-h", "-o", "%R") == name
        assert state(fresh) == "gpu:h100:2 idle"
    assert fresh.restart()["ready"]


def started_with(node: Node) -> set[str]:
    return {node.exec("cat", f"/run/dshpc/{daemon}.conf") for daemon in DAEMONS}


def test_a_container_that_is_cut_off_while_it_is_changed_starts_right(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    submit(fresh, "held", "--hold")
    fresh.exec("sh", "-c", SAVED)
    text = fresh.exec("cat", "/etc/slurm/slurm.conf")
    for number, delay_s in enumerate((0.3, 0.7, 1.0, 1.3)):
        name = f"p{number}"
        new = f"PartitionName={name} Nodes=ALL\nPartitionName=debug"
        (fresh.config / "slurm.conf").write_text(text.replace("PartitionName=debug", new))
        what = "reconfigure" if number % 2 else "rotate-key"
        docker("exec", "--detach", fresh.name, "dshpc-node", what)
        time.sleep(delay_s)
        docker("kill", fresh.name)
        docker("start", fresh.name)
        fresh.ready()
        assert {"debug", name} <= set(partitions(fresh))
        assert fresh.exec("srun", "--gres=gpu:1", "echo", "runs") == "runs"
        assert fresh.jobs()["held"] == "PENDING"
        for again in ("rotate-key", "reconfigure"):
            done = fresh.try_exec("dshpc-node", again)
            assert done.returncode == 0, done.stdout + done.stderr


# The state volume


def test_the_volume_of_another_cluster_is_not_taken_over(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    submit(fresh, "later", "--begin=now+1hour")
    docker("stop", "--time", "10", fresh.name)
    fresh.remove(volumes=False)
    fresh.run("--hostname", "other", "--env", "DSHPC_PREFIX=other")
    status = fresh.wait()
    assert status["phase"] == "failed"
    brief = "The state volume belongs to the cluster node, and this one is called other."
    assert status["failure"]["brief"] == brief
    assert status["failure"]["resolution"][-1] == "Then start the cluster: dshpc restart"
    fresh.remove(volumes=False)
    fresh.run()
    fresh.ready()
    assert fresh.jobs() == {"later": "PENDING"}


def test_a_first_start_frightens_nobody(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    assert "state file" not in fresh.log()
    assert "Jobs may be lost" not in fresh.log()
    # what is lost later on is said, and not taken for an empty queue
    fresh.exec("sh", "-c", f"rm {STATE}/slurmctld/*_state*")
    pid = fresh.exec("s6-svstat", "-o", "pid", "/run/dshpc/services/slurmctld")
    fresh.exec("kill", "-9", pid)
    until(lambda: "Slurm's saved queue cannot be read" in fresh.log())


def test_a_killed_controller_gives_the_node_back_at_once(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    fresh.exec("sh", "-c", SAVED)
    pid = fresh.exec("s6-svstat", "-o", "pid", "/run/dshpc/services/slurmctld")
    slurmd = fresh.exec("s6-svstat", "-o", "pid", "/run/dshpc/services/slurmd")
    fresh.exec("kill", "-9", pid)
    fresh.exec("timeout", "5", "sh", "-c", "until sinfo -h -o %T | grep -qx idle; do :; done")
    # slurmd registered because it was told to
    until(lambda: "Triggering reconfigure" in fresh.log())
    assert fresh.exec("s6-svstat", "-o", "pid", "/run/dshpc/services/slurmd") == slurmd
    until(lambda: "<defunct>" not in fresh.exec("ps", "-ef"))


# Before the first process: the start that it begins is killed at a step, once
KILLED = r"""#!/bin/sh
cd /opt/dshpc/lib/dshpc_setup/container
at='if name == "STEP" and not os.path.exists("/killed")'
sed -i "s|^        yield\$|        $at: open('/killed', 'x').close(); os.kill(os.getpid(), 9)\n&|" status.py
rm -f __pycache__/status.*
exec /usr/local/lib/dshpc/init
"""


def test_a_start_that_was_killed_is_told_and_the_next_one_is_right(
    fresh: Node, tmp_path: Path
) -> None:
    init = tmp_path / "init"
    for step in ("detect", "render", "slurmctld", "slurmd", "first job"):
        init.write_text(KILLED.replace("STEP", step))
        init.chmod(0o755)
        fresh.run("--volume", f"{init}:/hook:ro", "--entrypoint", "/hook")
        until(lambda: "ended from outside" in fresh.try_exec(HEALTH).stdout)
        assert fresh.try_exec(HEALTH).returncode == 1
        assert fresh.exec("head", "-n1", "/run/dshpc/phase") == f"starting: {step}"
        status = fresh.restart()
        assert status["ready"], fresh.log()
        assert state(fresh) == "gpu:h100:2 idle"
        fresh.remove(volumes=False)


# The first process waits before its first step, until it is let go
HOLD = "touch /tmp/held; until [ -e /tmp/go ]; do sleep 0.1; done; rm /tmp/held /tmp/go"


def hold(node: Node) -> None:
    node.exec("sed", "-i", f"/^trap /a {HOLD}", "/usr/local/lib/dshpc/init")
    hold_again(node)


def hold_again(node: Node) -> None:
    docker("restart", node.name)
    until(lambda: node.try_exec("test", "-e", "/tmp/held").returncode == 0)


def test_what_an_earlier_start_left_is_not_believed_by_any_of_its_readers(fresh: Node) -> None:
    """It lies in the container until the first process removes it, which may be a while."""
    fresh.run()
    fresh.ready()
    hold(fresh)
    assert fresh.exec("head", "-n1", "/run/dshpc/phase") == "ready"  # the earlier start's
    as_root = (AS_USER, "token", "0", "0", "root", "--")
    argv = ["docker", "exec", fresh.name, "env", "DSHPC_WAIT_S=60", *as_root, "sinfo", "-h"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as asked:
        assert asked.stderr is not None
        assert b"still starting" in asked.stderr.readline()
        fresh.exec("touch", "/tmp/go")
        said = asked.communicate(timeout=90)[1]
    assert asked.returncode == 0, said
    hold_again(fresh)
    told = fresh.try_exec("dshpc-node", "wait", "--timeout", "0")
    assert (told.returncode, told.stdout) == (3, "")
    assert "not begun" in told.stderr
    as_doctor = fresh.try_exec("sh", "-c", READ_REPORT)
    assert (as_doctor.returncode != 0, as_doctor.stdout) == (True, "")
    fresh.exec("touch", "/tmp/go")
    assert fresh.ready()["steps"]
    told = json.loads(fresh.exec("dshpc-node", "status"))
    assert (told.pop("unclean_ends"), told.pop("idle_gpus")) == ([], [])  # looked up as asked for
    assert json.loads(fresh.exec("sh", "-c", READ_REPORT)) == told


# What a command typed in this moment does to it: a file comes while its folder is removed
RM = r"""#!/bin/sh
/bin/rm "$@"
for last; do :; done
case "$1 $last" in
"-rf "*dshpc*) mkdir -p "$last/exec" && : >"$last/exec/.token" && echo "rm: not empty" >&2 && exit 1 ;;
esac
"""


def test_a_command_typed_while_the_first_process_clears_up_does_not_end_the_container(
    fresh: Node, tmp_path: Path
) -> None:
    fresh.run()
    fresh.ready()
    (tmp_path / "rm").write_text(RM)
    (tmp_path / "rm").chmod(0o755)
    docker("cp", str(tmp_path / "rm"), f"{fresh.name}:/usr/local/bin/rm")
    assert fresh.restart()["ready"], fresh.log()
    assert "rm: not empty" in fresh.log()
    assert fresh.exec("ls", "/run/dshpc/exec") == ""  # nothing of the earlier start
    docker("exec", fresh.name, "/bin/rm", "/usr/local/bin/rm")
    assert fresh.restart()["ready"], fresh.log()
    assert fresh.exec("sh", "-c", "ls -d /run/.dshpc-old.* 2>/dev/null || true") == ""


def test_a_container_that_is_stopped_before_its_first_step_ends_at_once(fresh: Node) -> None:
    fresh.run()
    fresh.ready()
    hold(fresh)
    docker("stop", "--time", "20", fresh.name)
    code = docker("inspect", "--format", "{{.State.ExitCode}}", fresh.name).strip()
    assert code == "143", "it was killed when the time was up"
