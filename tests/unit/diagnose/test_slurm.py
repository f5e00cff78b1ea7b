"""The cluster's checks: where each fires and where not, which is the root, and what fixes it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import probes
from dshpc_setup.checkup import known_of
from dshpc_setup.container.drift import compare
from dshpc_setup.diagnose import CheckInput, Finding, diagnose, slurm
from dshpc_setup.diagnose.model import FAULTS, Check
from dshpc_setup.diagnose.slurm_known import nodes
from dshpc_setup.errors import Fix
from dshpc_setup.facts import Gpus
from dshpc_setup.machine.overlay import with_simulated_gpus
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed.cluster_status import ClusterStatus, Drift
from dshpc_setup.observed.drift import GpuDrift
from dshpc_setup.observed.model import Daemon, Inside, ProjectFile
from dshpc_setup.repair.node import taken_out
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.blocked_jobs import Stuck
from dshpc_setup.slurm.nodes import Node
from tests.unit.diagnose.known import FOLDER, findings, known

HOST = "workstation-rtx4090"
BY_ID = {check.id: check for check in slurm.CHECKS}

# Where it must fire (warn or error), and a near miss where it must not
FIRES: dict[str, tuple[str, str]] = {
    "DSH-SL-068": ("user-other", "healthy"),
    "DSH-SL-001": ("exited", "restarted-once"),
    "DSH-SL-002": ("drained-own", "slurmd-killed-lately"),
    "DSH-SL-004": ("killed-out-of-memory", "process-killed-out-of-memory"),
    "DSH-SL-005": ("restarting", "restarted-once"),
    "DSH-SL-006": ("start-failed", "starting"),
    "DSH-SL-007": ("starting", "start-failed"),
    "DSH-SL-008": ("controller-hangs", "slurmd-down"),
    "DSH-SL-009": ("controller-killed", "controller-hangs"),
    "DSH-SL-010": ("slurmd-down", "slurmd-killed-lately"),
    "DSH-SL-053": ("slurmrestd-down", "slurmd-down"),
    "DSH-SL-057": ("database-stopped", "accounting-up"),
    "DSH-SL-011": ("slurmd-killed-lately", "slurmd-killed-long-ago"),
    "DSH-SL-012": ("drained-mended", "down-after-reboot"),
    "DSH-SL-013": ("drained-fewer-gpus", "drained-mended"),
    "DSH-SL-014": ("drained-low-memory", "drained-low-memory-by-person"),
    "DSH-SL-015": ("drained-kill-task", "drained-kill-task-by-person"),
    "DSH-SL-016": ("drained-prolog", "drained-prolog-by-person"),
    "DSH-SL-017": ("drained-batch", "drained-unknown-reason"),
    "DSH-SL-018": ("down-not-responding", "drained-mended"),
    "DSH-SL-019": ("invalid-other", "drained-mended"),
    "DSH-SL-020": ("pending-no-gpu", "pending-too-much-memory"),
    "DSH-SL-021": ("image-without-gpu", "image-for-all"),
    "DSH-SL-022": ("gpu-not-in-container", "gpus-time-out"),
    "DSH-SL-023": ("pending-too-much-memory", "pending-no-gpu"),
    "DSH-SL-024": ("memory-above-limit", "memory-within-limit"),
    "DSH-SL-025": ("jobs-out-of-memory", "memory-above-limit"),
    "DSH-SL-026": ("key-readable", "key-read-only"),
    "DSH-SL-027": ("volume-full", "volume-large-disk"),
    "DSH-SL-028": ("clock-behind", "clock-near"),
    "DSH-SL-029": ("zombies", "zombies-few"),
    "DSH-SL-030": ("slurmd-newer", "other-dshpc"),
    "DSH-SL-031": ("other-dshpc", "dshpc-not-known"),
    "DSH-SL-032": ("host-name", "starting"),
    "DSH-SL-033": ("simulated", "healthy"),
    "DSH-SL-034": ("privileged", "published"),
    "DSH-SL-035": ("published", "published-here"),
    "DSH-SL-036": ("gpu-lost-since-start", "no-gpu-in-files"),
    "DSH-SL-037": ("process-killed-out-of-memory", "killed-out-of-memory"),
    "DSH-SL-038": ("gpu-lost-between-starts", "gpu-exchanged"),
    "DSH-SL-058": ("idle-gpus", "jobs-out-of-memory"),
    "DSH-SL-039": ("without-process", "jobs-out-of-memory"),
    "DSH-SL-046": ("processes-refused", "processes-limited"),
    "DSH-SL-047": ("gpu-shared", "healthy"),
    "DSH-SL-048": ("packages-old", "packages-of-late"),
    "DSH-SL-049": ("with-holes", "holes-mended"),
    "DSH-SL-050": ("programs-missing", "healthy"),
    "DSH-SL-052": ("task-prolog-failed", "healthy"),
    "DSH-SL-051": ("held-after-launch", "held-by-user"),
    "DSH-SL-060": ("nodes-silent", "nodes-well"),
    "DSH-SL-061": ("nodes-newer", "nodes-well"),
    "DSH-SL-062": ("nodes-other-key", "nodes-well"),
    "DSH-SL-063": ("nodes-clock", "nodes-clock-near"),
    "DSH-SL-064": ("nodes-name", "nodes-well"),
    "DSH-SL-065": ("nodes-work", "nodes-well"),
    "DSH-SL-066": ("nodes-slurmd-down", "nodes-well"),
    "DSH-SL-067": ("lent-gone", "lent-good"),
    "DSH-DK-045": ("small-shm", "healthy"),
}
NEVER_A_FAULT = {"DSH-SL-003"}  # what is in force, as a note
CASES = sorted(path.stem for path in (FOLDER / HOST / "observed").glob("slurm-*.json"))


def found(case: str, identity: str) -> Finding:
    """A finding of the workstation with such a cluster."""
    return findings(f"{HOST}/{_named(case)}")[identity]


def _named(case: str) -> str:
    return case if case == "healthy" or case.startswith("slurm-") else f"slurm-{case}"


def of(change: CheckInput, identity: str) -> Finding:
    return next(item for item in diagnose(change) if item.id == identity)


def healthy() -> CheckInput:
    return known(f"{HOST}/healthy")


def with_inside(**values: Any) -> CheckInput:
    observed = healthy().observed
    assert observed.inside is not None
    inside = replace(observed.inside, **values)
    return replace(healthy(), observed=replace(observed, inside=inside))


def with_cluster(**values: Any) -> CheckInput:
    observed = healthy().observed
    assert observed.cluster is not None
    cluster = replace(observed.cluster, **values)
    return replace(healthy(), observed=replace(observed, cluster=cluster))


def commands(finding: Finding) -> list[str]:
    return [fix.command for fix in finding.fix if fix.command]


# Each check


def test_every_check_is_tried() -> None:
    assert set(FIRES) == set(BY_ID) - NEVER_A_FAULT


@pytest.mark.parametrize("identity", sorted(FIRES))
def test_it_fires(identity: str) -> None:
    finding = found(FIRES[identity][0], identity)
    assert finding.state in FAULTS
    assert finding.cause.endswith(".")
    assert finding.fix
    assert finding.title != BY_ID[identity].title


@pytest.mark.parametrize("identity", sorted(FIRES))
def test_it_does_not_fire_at_a_near_miss(identity: str) -> None:
    finding = found(FIRES[identity][1], identity)
    assert finding.state in ("ok", "info", "skipped")
    if finding.state != "info":  # whose title says what was met
        assert finding.title == BY_ID[identity].title


@pytest.mark.parametrize("identity", sorted(BY_ID))
def test_a_healthy_cluster_passes(identity: str) -> None:
    finding = found("healthy", identity)
    assert finding.state == ("info" if identity in NEVER_A_FAULT else "ok")


@pytest.mark.parametrize("case", CASES)
def test_no_check_crashes_and_each_fault_says_why(case: str) -> None:
    for finding in findings(f"{HOST}/{case}").values():
        if finding.id not in BY_ID:
            continue
        assert finding.state != "crashed", finding
        if finding.state in FAULTS:
            assert re.search(r"[.!]$", finding.cause), finding
            assert finding.evidence, finding
            assert finding.fix, finding
            assert not re.search(r"\bNone\b", " ".join((finding.cause, *finding.evidence))), finding


MACHINES = sorted(path.parent.name for path in FOLDER.glob("*/machine.yaml"))


@pytest.mark.parametrize("name", MACHINES)
def test_without_a_cluster_nothing_is_wrong_with_it(name: str) -> None:
    wrong = [
        item.id
        for item in diagnose(known(name), slurm.CHECKS)
        if item.state not in ("ok", "info", "skipped")
    ]
    assert wrong == []


# Words that people search for


@pytest.mark.parametrize(
    ("case", "identity", "words"),
    [
        ("exited", "DSH-SL-001", "stopped; exit code was 137; SIGKILL"),
        ("created", "DSH-SL-001", "stopped; was created"),
        ("missing", "DSH-SL-001", "does not exist"),
        ("paused", "DSH-SL-001", "is paused; dshpc up"),
        ("restarting", "DSH-SL-005", "again and again; 7 times; exit code 2; not safe to use"),
        ("killed-out-of-memory", "DSH-SL-004", "ran out of memory; OOMKilled; 8192 MiB"),
        ("start-failed", "DSH-SL-006", "start failed; every user can read it; Remove it."),
        ("controller-killed", "DSH-SL-009", "slurmctld has stopped; s6-svc -u"),
        ("controller-killed", "DSH-SL-008", "slurmctld; does not answer; is DOWN"),
        ("slurmd-down", "DSH-SL-010", "slurmd has stopped; Somebody stopped"),
        ("slurmrestd-down", "DSH-SL-053", "slurmrestd has stopped; REST API"),
        ("database-stopped", "DSH-SL-057", "accounting does not answer; mariadb: down"),
        (
            "slurmdbd-older",
            "DSH-SL-057",
            "slurmdbd is older than slurmctld; 24.05.4; Rebuild the image",
        ),
        ("slurmd-ends-again", "DSH-SL-010", "slurmd has stopped; ends soon; /dev/nvidia0"),
        ("slurmd-killed-lately", "DSH-SL-011", "stopped by itself; slurmd: ended by itself once"),
        ("drained-own", "DSH-SL-012", "is drained; dshpc:reconfigure"),
        ("drained-by-person", "DSH-SL-012", "is drained; ada drained it; new fan on Friday"),
        ("drained-who-not-known", "DSH-SL-012", "is drained; new fan on Friday"),
        ("drained-former-run", "DSH-SL-012", "is drained; before it had ended the former run"),
        ("drained-former-run-by-person", "DSH-SL-012", "is drained; ada drained it; Duplicate"),
        ("drained-fewer-gpus", "DSH-SL-013", "fewer GPUs; count reported lower; sees no GPU"),
        ("drained-low-memory", "DSH-SL-014", "Low RealMemory; RealMemory=58983; 31000; slurmd -C"),
        ("drained-low-cpus", "DSH-SL-014", "Low CPUs; CPUs=16"),
        ("drained-kill-task", "DSH-SL-015", "drained; Kill task failed"),
        ("drained-prolog", "DSH-SL-016", "drained; Prolog error"),
        (
            "drained-prolog-held",
            "DSH-SL-016",
            "The Prolog /home/someone/prolog.sh ended with exit code 3",
        ),
        ("drained-prolog-held", "DSH-SL-016", "setting slurm_conf_extra; configure-environment"),
        (
            "drained-prolog-held",
            "DSH-SL-016",
            "State=RESUME; dshpc exec --root -- scontrol release 7",
        ),
        ("start-failed-prolog", "DSH-SL-016", "ended with exit code 3; dshpc restart"),
        (
            "task-prolog-failed",
            "DSH-SL-052",
            "TaskProlog /home/someone/task.sh; exit code 3; job 17",
        ),
        ("held-after-launch", "DSH-SL-051", "Prolog; dshpc exec --root -- scontrol release 7"),
        ("nodes-silent", "DSH-SL-060", "cluster-2; in time; dshpc logs --node cluster-2 --tail 50"),
        ("nodes-stopped", "DSH-SL-060", "cluster-2; stopped; dshpc node resume cluster-2"),
        (
            "nodes-newer",
            "DSH-SL-061",
            "slurmd on cluster-2; newer than slurmctld; 25.05.1; 24.11.5",
        ),
        ("nodes-other-dshpc", "DSH-SL-061", "cluster-2; 0.0.9; 0.1.0; configure-environment"),
        ("nodes-other-key", "DSH-SL-062", "cluster-2; j.1; k.1; dshpc key rotate"),
        ("nodes-clock", "DSH-SL-063", "cluster-2: 40.0 s ahead; 60 s; timedatectl"),
        ("nodes-name", "DSH-SL-064", "cluster-2; cannot register; dshpc restart"),
        ("nodes-work", "DSH-SL-065", "cluster-2; another folder; dshpc node resume cluster-2"),
        (
            "lent-gone",
            "DSH-SL-067",
            "no compiler any more; /data is not there; configure-environment",
        ),
        ("lent-replaced", "DSH-SL-067", "from before; /usr/local/cuda leads to another"),
        ("nodes-slurmd-down", "DSH-SL-066", "cluster-2; DSH-SL-010; dshpc explain DSH-SL-010"),
        ("drained-batch", "DSH-SL-017", "drained; batch job complete failure"),
        ("down-not-responding", "DSH-SL-018", "down; does not respond; Not responding"),
        ("down-after-reboot", "DSH-SL-018", "is down; Node unexpectedly rebooted"),
        ("invalid-other", "DSH-SL-019", "INVAL; INVALID_REG; CoreSpec differ"),
        ("pending-no-gpu", "DSH-SL-020", "invalid GRES specification; gpu:h100:2; scancel 7"),
        ("gres-refused", "DSH-SL-020", "Invalid generic resource (gres) specification; refused"),
        ("gres-files", "DSH-SL-020", "gres.conf; file-less GPU; config accept gres.conf"),
        ("image-without-gpu", "DSH-SL-021", "built without GPU support; GPU_TYPE=none"),
        ("image-for-amd", "DSH-SL-021", "for amd GPUs alone; nvidia"),
        ("gpu-not-in-container", "DSH-SL-022", "visible on the host but not in the container"),
        ("gpu-not-in-container", "DSH-SL-022", "no GPU part; configure-environment"),
        ("pending-too-much-memory", "DSH-SL-023", "can never run; 99999 MiB; scontrol show job 7"),
        ("jobs-out-of-memory", "DSH-SL-025", "out of memory; 17 (train); CUDA out of memory"),
        (
            "idle-gpus",
            "DSH-SL-058",
            "GPU 1, held by job 17 (ada, train; job show 17; scancel 17 18",
        ),
        ("key-readable", "DSH-SL-026", "0644; chmod 600; dshpc key rotate"),
        ("key-of-root", "DSH-SL-026", "belongs to root; chown slurm:slurm"),
        ("key-short", "DSH-SL-026", "only 9 bytes; rm /var/lib/dshpc/key/slurm.key"),
        ("key-damaged", "DSH-SL-026", "no key set; rm /var/lib/dshpc/key/slurm.key"),
        ("key-readable-as-told", "DSH-SL-026", "0644; chmod 600"),
        ("key-gone", "DSH-SL-026", "is gone; dshpc restart"),
        ("volume-full", "DSH-SL-027", "full; no room; 3 of 200000 MiB"),
        ("volume-no-inodes", "DSH-SL-027", "no room; 7 inodes"),
        ("clock-behind", "DSH-SL-028", "clock; 100.0 s behind"),
        ("clock-ahead", "DSH-SL-028", "clock; 9.0 s ahead"),
        ("zombies", "DSH-SL-029", "Zombie; 21 zombies"),
        ("slurmctld-replaced", "DSH-SL-030", "replaced; 24.11.6, running 24.11.5"),
        ("simulated", "DSH-SL-033", "simulated; made up; RTX 4090"),
        ("process-killed-out-of-memory", "DSH-SL-037", "ran out of memory; OOMKilled; 8192 MiB"),
        (
            "gpu-lost-between-starts",
            "DSH-SL-038",
            "lost; RTX 4090 (GPU-0c7f11d2-33aa-4b0e-9d5a-f1d9e0d0a001) "
            "is gone; wait until it is back; it asks for gpu:rtx_4090:2",
        ),
        ("published", "DSH-SL-035", "0.0.0.0:6817"),
        (
            "without-process",
            "DSH-SL-039",
            "without a process; slurmstepd: 17, 19; requeue 17,19; scancel 17 19; --ppid 1",
        ),
        ("step-without-process", "DSH-SL-039", "steps of srun 5_3.0, 8.1; scancel 5_3 8"),
        (
            "processes-refused",
            "DSH-SL-046",
            "Resource temporarily unavailable; 16384; pids_limit 32768",
        ),
        (
            "gpu-shared",
            "DSH-SL-047",
            "CUDA out of memory; other (/home/someone/other): GPU-; destroy --prefix other",
        ),
        ("small-shm", "DSH-DK-045", "/dev/shm; 64 MiB; bus error; shm_size"),
    ],
)
def test_it_is_told_in_words_to_search_for(case: str, identity: str, words: str) -> None:
    finding = found(case, identity)
    steps = (f"{fix.text}: {fix.command}" for fix in finding.fix)
    said = "\n".join((finding.title, finding.cause, *finding.evidence, *steps))
    for word in words.split("; "):
        assert word in said


def test_drained_and_stopped_are_two_findings() -> None:
    drained, stopped = BY_ID["DSH-SL-012"].fault_title, BY_ID["DSH-SL-010"].fault_title
    assert "drained" in drained
    assert "stopped" not in drained
    assert "stopped" in stopped
    assert "drained" not in stopped


# States


@pytest.mark.parametrize(
    ("case", "identity", "state"),
    [
        ("drained-by-person", "DSH-SL-012", "warn"),
        ("drained-by-person", "DSH-SL-002", "warn"),
        ("drained-own", "DSH-SL-002", "error"),
        ("drained-who-not-known", "DSH-SL-012", "error"),
        ("down-by-person", "DSH-SL-018", "warn"),
        ("maintenance", "DSH-SL-002", "warn"),
        ("starting", "DSH-SL-002", "warn"),
        ("starting", "DSH-SL-009", "skipped"),
        ("starting", "DSH-SL-026", "skipped"),
        ("process-killed-out-of-memory", "DSH-SL-037", "warn"),
        ("killed-out-of-memory", "DSH-SL-004", "error"),
        ("slurmd-killed-long-ago", "DSH-SL-011", "info"),
        ("volume-filling", "DSH-SL-027", "warn"),
        ("volume-small-share", "DSH-SL-027", "warn"),
        ("volume-full", "DSH-SL-027", "error"),
        ("clock-ahead", "DSH-SL-028", "warn"),
        ("clock-behind", "DSH-SL-028", "error"),
        ("slurmd-older", "DSH-SL-030", "warn"),
        ("slurmd-newer", "DSH-SL-030", "error"),
        ("key-denied", "DSH-SL-026", "skipped"),
        ("gres-files", "DSH-SL-020", "error"),
        ("gres-refused", "DSH-SL-020", "warn"),
        ("other-error", "DSH-SL-020", "ok"),
        ("daemons-not-told", "DSH-SL-009", "skipped"),
        ("gpus-time-out", "DSH-SL-013", "ok"),
        ("enforced", "DSH-SL-003", "ok"),
        ("own-isolation-unknown", "DSH-SL-003", "info"),
        ("no-gpu-in-files", "DSH-SL-003", "skipped"),
    ],
)
def test_how_grave_it_is(case: str, identity: str, state: str) -> None:
    assert found(case, identity).state == state


@pytest.mark.parametrize(
    ("gpus", "state"),
    [
        (GpuDrift("t4", 2, 1, ("NVIDIA H100 (GPU-a)",)), "warn"),
        (GpuDrift("t4", 2, 0, ("A; B (GPU-a)", "C (0000:01:00.0)")), "warn"),
        (GpuDrift("t4", 1, 1, ("NVIDIA T4 (GPU-a)",)), "info"),
        (GpuDrift("t4", 1, 2), "ok"),
        (None, "ok"),  # a report of an earlier version
    ],
)
def test_which_gpus_are_gone_since_the_last_start(gpus: GpuDrift | None, state: str) -> None:
    drift = (Drift("what", "was", "now", "", gpus), Drift("Memory", "9 MiB", "1 MiB", ""))
    finding = of(with_cluster(drift=drift), "DSH-SL-038")
    assert finding.state == state
    assert (" is gone: " in " ".join(finding.evidence)) == (state != "ok")


@given(st.text(), st.lists(st.text()))
def test_any_change_since_the_last_start_can_be_told(what: str, gone: list[str]) -> None:
    gpus = GpuDrift(what, 2, 1, tuple(gone))
    finding = of(with_cluster(drift=(Drift(what, what, what, "", gpus),)), "DSH-SL-038")
    assert finding.state in ("ok", "info", "warn")


def test_what_a_start_writes_of_a_gpu_that_is_gone_is_read() -> None:
    def seen(*uuids: str) -> dict[str, Any]:
        cards = [{"slurm_type": "h100", "uuid": uuid, "name": "NVIDIA H100"} for uuid in uuids]
        return {"gpus": {"devices": cards}}

    (change,) = compare(seen("GPU-a", "GPU-b"), seen("GPU-a"))
    finding = of(
        with_cluster(drift=(Drift(change.what, change.was, change.now, "", change.gpus),)),
        "DSH-SL-038",
    )
    assert finding.evidence == (
        "NVIDIA H100 (GPU-b) is gone: 2 of type h100 at the last start, 1 now",
    )


def test_fewer_gpus_in_the_container_than_on_the_host() -> None:
    plan = healthy().plan
    assert plan is not None
    two = replace(healthy(), plan=replace(plan, gres=(plan.gres[0], plan.gres[0])))
    assert of(two, "DSH-SL-022").state == "warn"
    assert "sees 1 GPU" in of(two, "DSH-SL-022").cause
    none = replace(healthy(), plan=replace(plan, gres=()))
    assert of(none, "DSH-SL-022").state == "skipped"


@pytest.mark.parametrize(
    ("kind", "word"),
    [("desktop", "Docker Desktop"), ("engine", "timedatectl"), ("wsl2", "hwclock")],
)
def test_a_clock_is_set_where_it_stands_wrong(kind: Any, word: str) -> None:
    change = with_inside(time=1793519900.0)
    facts = change.facts
    if kind == "wsl2":
        facts = replace(facts, platform=replace(facts.platform, kind="wsl2"))
    else:
        facts = replace(facts, engine=replace(facts.engine, kind=kind))
    fixes = of(replace(change, facts=facts), "DSH-SL-028").fix
    assert word in " ".join(f"{fix.text} {fix.command}" for fix in fixes)


def test_gpus_that_are_made_up_on_purpose_are_no_warning() -> None:
    change = with_cluster(simulated=True)
    change = replace(change, facts=replace(change.facts, gpus=Gpus("absent")))
    assert of(change, "DSH-SL-033").state == "info"


# Causes


@pytest.mark.parametrize(
    ("case", "root", "folded"),
    [
        ("controller-killed", "DSH-SL-009", {"DSH-SL-008", "DSH-SL-002"}),
        ("controller-hangs", "DSH-SL-008", {"DSH-SL-002"}),
        ("slurmd-down", "DSH-SL-010", {"DSH-SL-018", "DSH-SL-002", "DSH-SL-023"}),
        ("slurmd-ends-again", "DSH-SL-036", {"DSH-SL-010", "DSH-SL-018", "DSH-SL-002", "DSH-SL-020"}),
        ("start-failed", "DSH-SL-006", {"DSH-SL-002"}),
        ("start-failed-prolog", "DSH-SL-016", {"DSH-SL-006", "DSH-SL-002"}),
        ("drained-prolog-held", "DSH-SL-016", {"DSH-SL-012", "DSH-SL-002", "DSH-SL-051"}),
        ("starting", "DSH-SL-007", {"DSH-SL-002"}),
        ("restarting", "DSH-SL-005", {"DSH-SL-001"}),
        ("killed-out-of-memory", "DSH-SL-004", {"DSH-SL-001"}),
        ("drained-by-person", "DSH-SL-012", {"DSH-SL-002", "DSH-SL-023"}),
        ("drained-fewer-gpus", "DSH-SL-022", {"DSH-SL-013", "DSH-SL-012", "DSH-SL-019", "DSH-SL-023"}),
        ("fewer-gpus-not-seen-inside", "DSH-SL-013", {"DSH-SL-012", "DSH-SL-019", "DSH-SL-002"}),
        ("drained-low-memory", "DSH-SL-014", {"DSH-SL-012", "DSH-SL-019", "DSH-SL-024"}),
        ("drained-kill-task", "DSH-SL-015", {"DSH-SL-012", "DSH-SL-002"}),
        ("gpu-not-in-container", "DSH-SL-022", {"DSH-SL-020"}),
        ("memory-given-twice", "DSH-SL-024", {"DSH-SL-037", "DSH-SL-025"}),
        ("job-killed-out-of-memory", "DSH-SL-025", {"DSH-SL-037"}),
        ("gpu-lost-between-starts", "DSH-SL-038", {"DSH-SL-020"}),
    ],
)  # fmt: skip
def test_one_root_cause_stands_on_top(case: str, root: str, folded: set[str]) -> None:
    faults = {
        item.id: item
        for item in findings(f"{HOST}/slurm-{case}").values()
        if item.state in FAULTS and item.id in BY_ID
    }
    assert [item.id for item in faults.values() if item.caused_by is None] == [root]
    assert folded <= {item.id for item in faults.values() if item.caused_by == root}


@pytest.mark.parametrize("case", ["exited", "missing", "paused", "restarting"])
def test_of_a_container_that_does_not_run_nothing_else_is_well(case: str) -> None:
    apart = {
        "DSH-SL-001",
        "DSH-SL-004",
        "DSH-SL-005",
        "DSH-SL-034",
        "DSH-SL-035",
        "DSH-SL-067",
        "DSH-DK-045",
    }
    for identity in set(BY_ID) - apart:
        finding = found(case, identity)
        assert (finding.state, finding.blocked_by) == ("skipped", "DSH-SL-001"), finding


def test_behind_a_silent_controller_no_node_is_well() -> None:
    for identity in ("DSH-SL-012", "DSH-SL-013", "DSH-SL-018", "DSH-SL-003", "DSH-SL-023"):
        finding = found("controller-hangs", identity)
        assert (finding.state, finding.blocked_by) == ("skipped", "DSH-SL-008")


def test_what_could_not_be_asked_inside_is_not_well() -> None:
    for identity in ("DSH-SL-010", "DSH-SL-022", "DSH-SL-026", "DSH-SL-027", "DSH-SL-029"):
        finding = found("not-asked-inside", identity)
        assert finding.state == "skipped"
        assert finding.cause == "docker exec: timeout"
    assert found("not-asked-inside", "DSH-SL-002").state == "ok"


# How to fix it


@pytest.mark.parametrize(
    ("case", "automatic"),
    [
        ("drained-own", True),
        ("drained-mended", True),
        ("drained-former-run", True),
        ("drained-former-run-by-person", False),
        ("drained-by-person", False),
        ("drained-unknown-reason", False),
        ("drained-who-not-known", False),
        ("drained-kill-task", False),
        ("drained-kill-task-of-slurm", False),
        ("drained-fewer-gpus", False),
    ],
)
def test_only_our_own_drain_is_taken_back_by_itself(case: str, automatic: bool) -> None:
    fixes = [fix for fix in found(case, "DSH-SL-012").fix if "State=RESUME" in (fix.command or "")]
    assert fixes[0].command == "dshpc exec --root -- scontrol update NodeName=cluster State=RESUME"
    assert [fix.automatic for fix in fixes] == [automatic]


def test_jobs_that_wait_for_ever_are_told_before_one_that_was_refused() -> None:
    """The refused one is over; the others wait, and somebody has to give them up."""
    waiting = known("workstation-rtx4090/slurm-pending-no-gpu")
    refused = known("workstation-rtx4090/slurm-gres-refused").observed.inside
    assert refused is not None
    assert waiting.observed.inside is not None
    inside = replace(waiting.observed.inside, errors=refused.errors)
    both = replace(waiting, observed=replace(waiting.observed, inside=inside))
    told = [
        next(each.cause for each in diagnose(one) if each.id == "DSH-SL-020")
        for one in (waiting, both)
    ]
    assert (
        told[0] == told[1] != findings("workstation-rtx4090/slurm-gres-refused")["DSH-SL-020"].cause
    )


def test_a_refused_node_is_not_resumed_but_configured_anew() -> None:
    fixes = found("invalid-other", "DSH-SL-019").fix
    assert [(fix.command, fix.automatic) for fix in fixes] == [("dshpc reconfigure", True)]


@pytest.mark.parametrize(
    ("case", "identity", "command"),
    [
        ("exited", "DSH-SL-001", "dshpc up"),
        ("missing", "DSH-SL-001", "dshpc up"),
        ("slurmd-down", "DSH-SL-010", "dshpc exec --root -- s6-svc -u /run/dshpc/services/slurmd"),
        ("key-readable", "DSH-SL-026", "dshpc exec --root -- chmod 600 /var/lib/dshpc/key/slurm.key"),
        ("key-of-root", "DSH-SL-026",
         "dshpc exec --root -- chown slurm:slurm /var/lib/dshpc/key/slurm.key"),
        ("image-without-gpu", "DSH-SL-021", "configure-environment"),
    ],
)  # fmt: skip
def test_what_can_be_done_by_itself(case: str, identity: str, command: str) -> None:
    automatic = [fix.command for fix in found(case, identity).fix if fix.automatic]
    assert command in automatic


def test_a_device_that_the_machine_still_has_is_handed_in_anew() -> None:
    fixes = found("gpu-lost-since-start", "DSH-SL-036").fix
    assert [(fix.command, fix.automatic) for fix in fixes] == [
        ("dshpc restart", False),
        ("dshpc reconfigure", False),
    ]
    change = known(f"{HOST}/slurm-gpu-lost-since-start")
    gone = replace(change, facts=replace(change.facts, gpus=Gpus("absent")))
    fixes = of(gone, "DSH-SL-036").fix
    assert (fixes[0].command, fixes[0].automatic) == ("dshpc reconfigure", True)


def test_a_container_whose_image_is_gone_is_set_up_again() -> None:
    change = with_cluster(state="missing")
    seen = change.observed.container
    assert seen is not None
    gone = replace(change.observed, container=replace(seen, image_there=False), inside=None)
    assert commands(of(replace(change, observed=gone), "DSH-SL-001")) == ["configure-environment"]


def test_a_daemon_that_ends_by_itself_is_not_just_started() -> None:
    assert all(
        "s6-svc" not in command for command in commands(found("slurmd-ends-again", "DSH-SL-010"))
    )


@pytest.mark.parametrize(
    ("exits", "seconds", "state"),
    [(0, 5, "ok"), (1, 599, "warn"), (1, 600, "info"), (2, 9000, "info"), (3, 9000, "warn")],
)
def test_how_often_a_daemon_may_end(exits: int, seconds: int, state: str) -> None:
    daemon = Daemon("slurmd", up=True, pid=1, seconds=seconds, exits=exits)
    assert of(with_inside(daemons=(daemon,)), "DSH-SL-011").state == state


# Whatever is told


_TEXT = st.text(max_size=60)
_WORDS = st.sampled_from(
    [
        *("idle", "drained", "draining", "down*", "inval", "idle*", "", "+", "drained*", "maint"),
        *("unknown", "future", "power_down~", "mixed-"),
    ]
)


def _lone(name: str, word: str, reason: str | None) -> ClusterStatus:
    node = Node(name, word, reason, {"gpu:t4": 1}, {})
    return ClusterStatus("/p", "p; rm -rf /", "running", phase="ready", nodes=(node,))


@given(name=_TEXT, word=_WORDS, reason=st.none() | _TEXT, line=_TEXT)
def test_any_node_is_read(name: str, word: str, reason: str | None, line: str) -> None:
    inside = Inside(node_lines=(f"NodeName={name} State=IDLE+DRAIN Reason={reason} {line}", line))
    base = replace(healthy().observed, cluster=_lone(name, word, reason), inside=inside)
    change = replace(healthy(), observed=base)
    (node,) = nodes(change)
    assert node.name == name
    told = diagnose(change, slurm.CHECKS)
    assert not [item for item in told if item.state == "crashed"]
    for item in told:
        for fix in item.fix:
            _is_one_command(fix, name)


def _is_one_command(fix: Fix, name: str) -> None:
    """A node's name stays one word of the command, whatever it is."""
    if fix.command and "State=RESUME" in fix.command:
        words = shlex.split(fix.command)
        assert words[-2:] == [f"NodeName={name}", "State=RESUME"]
        assert words[:4] == ["dshpc", "exec", "--root", "--"]
        assert len(words) == 8


@given(job=st.text(min_size=1, max_size=20), why=_TEXT)
def test_any_stuck_job_is_told_once(job: str, why: str) -> None:
    change = with_cluster(pending=(Stuck(job, "ada", "x", why),))
    told = [of(change, identity).state for identity in ("DSH-SL-020", "DSH-SL-023")]
    assert sorted(told) == ["ok", "warn"]
    given_up = next(
        command
        for identity in ("DSH-SL-020", "DSH-SL-023")
        for command in commands(of(change, identity))
        if "scancel" in command
    )
    assert len(shlex.split(given_up)) == 3


def test_a_job_that_waits_for_a_drained_node_is_not_given_up() -> None:
    told = found("drained-by-person", "DSH-SL-023")
    assert "dshpc exec --root -- scontrol update NodeName=cluster State=RESUME" in commands(told)
    assert not any("scancel" in command for command in commands(told))
    assert "scancel 7" in " ".join(commands(found("pending-too-much-memory", "DSH-SL-023")))


def test_of_several_queued_jobs_only_those_that_never_run_are_given_up() -> None:
    waits = Stuck("7", "ada", "x", "the node is down", until="node")
    closed = Stuck("8", "ada", "x", "the partition is not up", until="partition")
    never = Stuck("9", "ada", "x", "it asks for 99 CPUs")
    told = commands(of(with_cluster(pending=(waits, closed, never)), "DSH-SL-023"))
    assert [each for each in told if "scancel" in each] == ["dshpc scancel 9"]
    told = commands(of(with_cluster(pending=(waits, closed)), "DSH-SL-023"))
    assert "dshpc sinfo -R" in told
    assert "dshpc sinfo -s" in told
    assert not any("scancel" in each or "RESUME" in each for each in told)


@pytest.mark.parametrize("case", ["held-after-launch", "held-by-user"])
def test_a_held_job_is_not_given_up(case: str) -> None:
    told = [finding for finding in findings(f"{HOST}/slurm-{case}").values() if finding.id in BY_ID]
    assert not any("scancel" in command for finding in told for command in commands(finding))
    assert found(case, "DSH-SL-023").state == "ok"
    assert "scontrol release" in " ".join(commands(found(case, "DSH-SL-051")))


def test_a_hold_of_the_users_own_is_only_noted() -> None:
    assert found("held-by-user", "DSH-SL-051").state == "info"


@pytest.mark.parametrize(
    ("owner", "has", "has_not"),
    [
        ("rendered", "configure-environment", "dshpc reconfigure"),
        ("custom", "dshpc reconfigure", "configure-environment"),
        ("edited", "dshpc reconfigure", "configure-environment"),
    ],
)
@pytest.mark.parametrize(
    ("case", "identity"),
    [
        ("programs-missing", "DSH-SL-050"),
        ("drained-prolog-held", "DSH-SL-016"),
        ("task-prolog-failed", "DSH-SL-052"),
    ],
)
def test_a_line_is_corrected_where_it_is_set(
    case: str, identity: str, owner: str, has: str, has_not: str
) -> None:
    observed = known(f"{HOST}/slurm-{case}").observed
    assert observed.cluster is not None
    assert observed.cluster.files is not None
    files = {**observed.cluster.files, "slurm.conf": owner}
    change = replace(observed, cluster=replace(observed.cluster, files=files))
    told = commands(of(replace(healthy(), observed=change), identity))
    assert has in told
    assert has_not not in told
    unset = "dshpc config unset slurm_conf_extra"
    assert (unset in told) == (owner == "rendered")


@given(published=st.text(max_size=30))
def test_any_address_is_read(published: str) -> None:
    seen = healthy().observed.container
    assert seen is not None
    base = replace(healthy().observed, container=replace(seen, published=(published,)))
    assert of(replace(healthy(), observed=base), "DSH-SL-035").state in ("ok", "warn")


@pytest.mark.parametrize(
    ("published", "state"),
    [
        ("127.0.0.1:6817", "ok"),
        ("127.8.0.1:1", "ok"),
        ("[::1]:6817", "ok"),
        ("localhost:80", "ok"),
        ("[::]:6817", "warn"),
        (":6817", "warn"),
        ("10.0.0.7:6818", "warn"),
    ],
)
def test_which_addresses_are_open_to_others(published: str, state: str) -> None:
    seen = healthy().observed.container
    assert seen is not None
    base = replace(healthy().observed, container=replace(seen, published=(published,)))
    assert of(replace(healthy(), observed=base), "DSH-SL-035").state == state


@given(
    free=st.integers(0, 10**7), size=st.integers(1, 10**7), inodes=st.none() | st.integers(0, 10**6)
)
def test_more_room_is_never_worse(free: int, size: int, inodes: int | None) -> None:
    inside = healthy().observed.inside
    assert inside is not None
    assert inside.state_volume is not None
    rank = {"ok": 0, "warn": 1, "error": 2}
    told = []
    for room in (free, free + 500):
        disk = replace(inside.state_volume, free_mib=room, size_mib=size, free_inodes=inodes)
        told.append(rank[_alone("DSH-SL-027", with_inside(state_volume=disk))])
    assert told[1] <= told[0]


def _alone(identity: str, change: CheckInput) -> str:
    check: Check = BY_ID[identity]
    return check.look(change).state


def with_compose_text(text: str) -> CheckInput:
    file = ProjectFile("docker-compose.yml", "edited", text=text)
    here = healthy()
    rest = tuple(item for item in here.observed.files if item.path != file.path)
    return replace(here, observed=replace(here.observed, files=(*rest, file)))


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("services:\n  slurm:\n    privileged: true\n", "warn"),
        ("services:\n  slurm:\n    privileged: false\n", "ok"),
        ("services:\n  slurm:\n    image: x  # not privileged: true\n", "ok"),
        ("privileged: true\n", "ok"),
        ("services: [privileged: true\n", "ok"),
    ],
)
def test_a_compose_file_that_asks_for_privileges(text: str, state: str) -> None:
    told = of(with_compose_text(text), "DSH-SL-034")
    assert told.state == state
    assert ("not in force yet" in told.cause) is (state == "warn")


def test_simulated_gpus_that_were_not_handed_over_are_missed() -> None:
    settings = Settings(simulate="h100:2")
    machine = with_simulated_gpus(RecordedMachine(FOLDER / HOST), "h100:2")
    seen = healthy().observed
    assert seen.inside is not None
    for gpus, state in (((), "error"), (("h100", "h100"), "ok")):
        assert seen.cluster is not None
        cluster = replace(seen.cluster, simulated=bool(gpus))
        observed = replace(seen, cluster=cluster, inside=replace(seen.inside, gpus=gpus))
        here = known_of(machine, probes.gather(machine, engine=True), settings, observed)
        assert of(here, "DSH-SL-022").state == state


def test_the_evidence_is_of_the_daemon_that_is_meant() -> None:
    noise = "slurmctld: error: Job accounting information gathered, but not stored"
    other = "slurmctld: error: the other one"
    own = "slurmd: error: CPU frequency setting not configured"
    here = known(f"{HOST}/slurm-slurmd-killed-lately").observed
    assert here.inside is not None
    lines = (noise, other, own, "error: of nobody")
    seen = replace(here, inside=replace(here.inside, errors=lines))
    told = of(replace(healthy(), observed=seen), "DSH-SL-011")
    assert told.evidence[1:] == (own, "error: of nobody")


def test_without_a_docker_command_the_cluster_is_not_said_to_be_stopped() -> None:
    seen = replace(healthy().observed, docker_command=False)
    every = {it.id: it for it in diagnose(replace(healthy(), observed=seen))}
    assert every["DSH-DK-086"].state == "error"
    assert every["DSH-DK-086"].fix[0].command
    assert every["DSH-SL-001"].blocked_by == "DSH-DK-086"
    assert every["DSH-DK-002"].blocked_by == "DSH-DK-086"


def test_a_node_with_the_former_key_joins_anew_and_is_not_resumed() -> None:
    drained = found("former-key", "DSH-SL-012")
    assert "joined again" in drained.cause
    assert "dshpc node add --again" in commands(drained)
    assert not any(fix.automatic for fix in drained.fix)
    observed = known(f"{HOST}/slurm-former-key").observed
    (node,) = taken_out(nodes(replace(healthy(), observed=observed)))
    assert not node.own
