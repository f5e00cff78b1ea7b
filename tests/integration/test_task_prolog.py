"""The task prolog in each shell of the machine: which lines it gives Slurm for which task."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.cluster import ROOT

PROLOG = ROOT / "container/rootfs/usr/local/lib/dshpc/task-prolog"
SHELLS = [name for name in ("sh", "dash", "bash", "busybox") if shutil.which(name)]

NVIDIA = "CUDA_VISIBLE_DEVICES - NVIDIA_VISIBLE_DEVICES void CUDA_DEVICE_ORDER=PCI_BUS_ID -"
# h100, t4, h100 and two AMD cards; slurmd lists the H100s together
MIXED = f"""tier default
vendor amd number ROCR_VISIBLE_DEVICES - - - - HIP_VISIBLE_DEVICES,?GPU_DEVICE_ORDINAL
gpu 3 amd 0 GPU-00000000000000a0
gpu 4 amd 1 GPU-00000000000000a1
vendor nvidia number {NVIDIA}
gpu 0 nvidia 0 GPU-0
gpu 2 nvidia 1 GPU-1
gpu 1 nvidia 2 GPU-2
"""
ENFORCED = MIXED.replace("default", "enforced")
CUT = f"""tier default
vendor nvidia uuid {NVIDIA}
gpu 0 nvidia 0 GPU-0
gpu 1 nvidia - MIG-1
"""
INTEL = f"""tier default
vendor intel number ZE_AFFINITY_MASK 65535 - - - -
gpu 1 intel 0 -
vendor nvidia number {NVIDIA}
gpu 0 nvidia 0 GPU-0
"""
# Of a vendor whose variable Slurm does not know, as `tests/unit/vendors` has it made
UNKNOWN = (ROOT / "tests/vendors/gpu-places").read_text()


def told(folder: Path, table: str | None, env: dict[str, str], shell: str = "sh") -> dict[str, str]:
    """What the prolog makes of these variables; it must end well and say nothing else."""
    file = folder / "gpu-places"
    file.unlink(missing_ok=True)
    if table is not None:
        file.write_text(table)
    argv = [shell, *(["sh"] if shell == "busybox" else []), str(PROLOG), str(file)]
    done = subprocess.run(
        argv,
        env={"HOME": "/home/x", "PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = {}
    for line in done.stdout.splitlines():
        if line == "unset NVIDIA_VISIBLE_DEVICES":
            found["unset"] = line.partition(" ")[2]
            continue
        assert line.startswith("export ")
        name, _, value = line.removeprefix("export ").partition("=")
        found[name] = value
    return found


def task(places: str, on_node: int | None = None, **more: str) -> dict[str, str]:
    """As Slurm sets it for a node of two vendors."""
    count = str(on_node or places.count(",") + 1)
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    return {**dict.fromkeys(names, places), "SLURM_GPUS_ON_NODE": count, **more}


def nvidia(numbers: str) -> dict[str, str]:
    """Of MIXED: card 0 is GPU-0, and so on."""
    uuids = ",".join(f"GPU-{number}" for number in numbers.split(",")) if numbers else "void"
    return {"CUDA_VISIBLE_DEVICES": numbers, "NVIDIA_VISIBLE_DEVICES": uuids}


def pci(**values: str) -> dict[str, str]:
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **values}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("places", "cuda", "rocr", "hip"),
    [  # NVIDIA_VISIBLE_DEVICES has the UUIDs of the same cards
        ("2", "1", "", None),
        ("0,1", "0,2", "", None),
        ("0,2", "0,1", "", None),
        ("3", "", "0", "0"),
        ("3,4", "", "0,1", "0,1"),
        ("4", "", "1", "0"),
        ("1,4", "2", "1", "0"),
    ],
)
def test_places_become_numbers(
    tmp_path: Path, shell: str, places: str, cuda: str, rocr: str, hip: str | None
) -> None:
    expected = pci(**nvidia(cuda), ROCR_VISIBLE_DEVICES=rocr)
    if hip is not None:
        expected["HIP_VISIBLE_DEVICES"] = hip
    assert told(tmp_path, MIXED, task(places), shell) == expected


def test_a_task_without_a_gpu_sees_none(tmp_path: Path) -> None:
    expected = {**nvidia(""), "ROCR_VISIBLE_DEVICES": ""}
    assert told(tmp_path, MIXED, {}) == expected
    # a step with --gres=none, in a batch job with GPUs
    assert told(tmp_path, MIXED, {"SLURM_JOB_GPUS": "0,2"}) == expected


def test_what_another_step_left_does_not_count(tmp_path: Path) -> None:
    found = told(tmp_path, MIXED, task("2", SLURM_STEP_GPUS="0", SLURM_JOB_GPUS="2"))
    assert found["CUDA_VISIBLE_DEVICES"] == "1"


def test_an_order_of_the_users_gets_uuids(tmp_path: Path) -> None:
    found = told(tmp_path, MIXED, task("2", CUDA_DEVICE_ORDER="FASTEST_FIRST"))
    expected = {**nvidia("1"), "ROCR_VISIBLE_DEVICES": ""}
    assert found == {**expected, "CUDA_VISIBLE_DEVICES": "GPU-1"}
    found = told(tmp_path, MIXED, task("2", CUDA_DEVICE_ORDER="PCI_BUS_ID"))
    assert found == expected


@pytest.mark.parametrize(
    ("given", "cuda"), [("1", "MIG-1"), ("MIG-1", "MIG-1"), ("0,MIG-1", "GPU-0,MIG-1")]
)
def test_instances_go_by_uuid(tmp_path: Path, given: str, cuda: str) -> None:
    env = {
        "CUDA_VISIBLE_DEVICES": given,
        "SLURM_GPUS_ON_NODE": str(given.count(",") + 1),
    }
    expected = pci(CUDA_VISIBLE_DEVICES=cuda, NVIDIA_VISIBLE_DEVICES=cuda)
    assert told(tmp_path, CUT, env) == expected


@pytest.mark.parametrize(
    ("held", "cuda", "rocr"), [("2", "0", ""), ("1,2", "0,1", ""), ("1,4", "0", "0")]
)
def test_enforced_counts_among_the_tasks_own(
    tmp_path: Path, held: str, cuda: str, rocr: str
) -> None:
    count = held.count(",") + 1
    local = ",".join(map(str, range(count)))
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        found = told(tmp_path, ENFORCED, task(local, count, **{name: held}))
        assert (found["CUDA_VISIBLE_DEVICES"], found["ROCR_VISIBLE_DEVICES"]) == (cuda, rocr)
    # a step of one GPU in a batch job of two
    found = told(tmp_path, ENFORCED, task("0", 1, SLURM_STEP_GPUS="2", SLURM_JOB_GPUS="0,2"))
    assert found["CUDA_VISIBLE_DEVICES"] == "0"
    # CUDA counts from 0 what the task may open; what NVIDIA's tools are told is the card itself
    assert found["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


def test_a_card_without_a_uuid_is_told_by_its_number(tmp_path: Path) -> None:
    nameless = ENFORCED.replace("GPU-1", "-")
    found = told(tmp_path, nameless, task("0", 1, SLURM_STEP_GPUS="2"))
    assert (found["CUDA_VISIBLE_DEVICES"], found["NVIDIA_VISIBLE_DEVICES"]) == ("0", "1")


def test_enforced_and_bound_to_some_of_the_steps_is_left_to_slurm(tmp_path: Path) -> None:
    """Seen with 24.11: such a task may open its own alone, and is told no places."""
    assert told(tmp_path, ENFORCED, task("0", 2, SLURM_STEP_GPUS="0")) == pci()
    # The container's own "all" would not be true for it
    found = told(
        tmp_path, ENFORCED, task("0", 2, SLURM_STEP_GPUS="0", NVIDIA_VISIBLE_DEVICES="all")
    )
    assert found == pci(unset="NVIDIA_VISIBLE_DEVICES")


def test_level_zero_is_hidden_by_a_number_that_it_has_not(tmp_path: Path) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "0", "ZE_AFFINITY_MASK": "0", "SLURM_GPUS_ON_NODE": "1"}
    assert told(tmp_path, INTEL, env) == pci(**nvidia("0"), ZE_AFFINITY_MASK="65535")
    env = {"CUDA_VISIBLE_DEVICES": "1", "ZE_AFFINITY_MASK": "1", "SLURM_GPUS_ON_NODE": "1"}
    assert told(tmp_path, INTEL, env) == pci(**nvidia(""), ZE_AFFINITY_MASK="0")


def test_opencl_counts_what_rocr_leaves(tmp_path: Path) -> None:
    found = told(tmp_path, MIXED, task("4", GPU_DEVICE_ORDINAL="4"))
    assert (found["ROCR_VISIBLE_DEVICES"], found["GPU_DEVICE_ORDINAL"]) == ("1", "0")


@pytest.mark.parametrize(
    ("table", "env"),
    [
        (None, task("2")),
        (MIXED, task("7")),  # a place that the table has not
        (MIXED, task("2,7")),
        (MIXED, task("NoDevFiles")),
        (MIXED.replace("gpu 2 nvidia", "gpu 2 other"), task("2")),
        ("", task("2")),
        ("nonsense\n\0\n", task("2")),
    ],
)
def test_what_is_not_known_is_not_changed(
    tmp_path: Path, table: str | None, env: dict[str, str]
) -> None:
    assert told(tmp_path, table, env) == pci()


def test_where_gres_conf_wants_no_variables_none_are_made(tmp_path: Path) -> None:
    assert told(tmp_path, MIXED, {"SLURM_GPUS_ON_NODE": "1", "SLURM_STEP_GPUS": "2"}) == {}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_vendor_that_slurm_does_not_know(tmp_path: Path, shell: str) -> None:
    held = {"SLURM_GPUS_ON_NODE": "1", "SLURM_JOB_GPUS": "0"}
    mine = {"ACME_VISIBLE": "1", "ACME_UUIDS": "A1"}
    assert told(tmp_path, UNKNOWN, held, shell) == mine
    assert told(tmp_path, UNKNOWN.replace("default", "enforced"), held, shell)["ACME_UUIDS"] == "A1"
    # A step of its own, and one without a GPU in a job with one
    assert told(tmp_path, UNKNOWN, {**held, "SLURM_STEP_GPUS": "1"})["ACME_VISIBLE"] == "0"
    none = {"ACME_VISIBLE": "none", "ACME_UUIDS": ""}
    assert told(tmp_path, UNKNOWN, {"SLURM_JOB_GPUS": "0"}, shell) == none


def test_no_name_in_the_table_is_a_command(tmp_path: Path) -> None:
    odd = UNKNOWN.replace("- - -\n", "- x}$(touch${IFS}oops)=1 ?y}$(touch${IFS}oops)\n")
    told(tmp_path, odd, {"SLURM_GPUS_ON_NODE": "1", "SLURM_JOB_GPUS": "0"})
    assert not (tmp_path / "oops").exists()
    assert not Path("oops").exists()


def test_nothing_is_said_where_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert told(tmp_path, None, {}) == {}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_job_without_the_submitters_variables(tmp_path: Path, shell: str) -> None:
    env = {"HOME": "", "SLURM_JOB_USER": "root", "PATH": "/usr/bin:/bin"}
    assert told(tmp_path, None, env, shell) == {
        "HOME": str(Path("~root").expanduser()),
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": "/bin/bash",
        "PATH": "/usr/bin:/bin",
    }
    odd = told(tmp_path, None, {**env, "SLURM_JOB_USER": "x;touch /oops"}, shell)
    assert odd == {"PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_job_from_before_its_user_had_his_own_home(tmp_path: Path, shell: str) -> None:
    """Queued while the cluster kept homes: it would write where nobody looks any more."""
    kept = {"HOME": "/var/lib/dshpc/home/ada", "SLURM_JOB_USER": "root"}
    own = {"HOME": str(Path("~root").expanduser())}
    assert told(tmp_path, None, kept, shell) == own
    # Not a folder of the job's own choice, nor a step of a job, nor of one whom nobody knows
    for other in (
        {**kept, "HOME": "/var/lib/dshpc/home/ada/sub"},
        {**kept, "HOME": own["HOME"]},
        {**kept, "SLURM_STEP_ID": "0"},
        {**kept, "SLURM_JOB_USER": "nobody-of-this-name"},
        {**kept, "SLURM_JOB_USER": ""},
    ):
        assert told(tmp_path, None, other, shell) == {}


VALUE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(table=st.text(st.characters(exclude_characters="\0"), max_size=80), value=VALUE, held=VALUE)
def test_nothing_makes_a_task_fail(tmp_path: Path, table: str, value: str, held: str) -> None:
    for tier in ("default", "enforced"):
        text = f"tier {tier}\n{table}\n{MIXED.partition(chr(10))[2]}"
        text.encode("utf-8", "ignore")
        told(
            tmp_path,
            text.encode("utf-8", "ignore").decode(),
            task(value, 1, SLURM_STEP_GPUS=held),
        )
