"""Files of the user's own against the hardware that is there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import hardware_fit
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.look import Seen
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
from dshpc_setup.plan import ClusterPlan

PLAN = ClusterPlan("lab", "lab", "debug", 8, 14374, 1796)
FACTS = HostFacts(
    Platform("linux", tmp_disk_mib=2048),
    Cpu(8, usable=4),
    Memory(16000, 16000),
    Gpus("absent"),
    Engine("absent"),
)
SEEN = Seen(FACTS, PLAN, "image", ())
SLURM = "ClusterName=lab\nGresTypes=gpu\nNodeName=lab CPUs=8 RealMemory=14374 Gres=gpu:h100:2 State=UNKNOWN\n"
GRES = "AutoDetect=off\nName=gpu Type=h100 File=/dev/nvidia[0-1]\n"


def candidate(slurm: str = SLURM, gres: str = GRES, *own: str) -> Candidate:
    texts = {"slurm.conf": slurm, "gres.conf": gres, "cgroup.conf": ""}
    ours = {"slurm.conf": SLURM, "gres.conf": GRES, "cgroup.conf": ""}
    return Candidate(texts, dict.fromkeys(own or ("slurm.conf",), "custom"), {}, ours)


def misfit(found: Candidate) -> DshpcError | None:
    return hardware_fit.own_misfit(
        found, SEEN, "lab", {"/dev/nvidia0", "/dev/nvidia1"}.__contains__
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("CPUs=8", "CPUs=9", "9 CPUs, and this machine has 8"),
        ("CPUs=8", "Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", "16 CPUs"),
        ("RealMemory=14374", "RealMemory=16001", "16001 MiB of memory, and there are 16000"),
        ("State", "TmpDisk=2049 State", "2049 MiB of disk for temporary files"),
        ("State=UNKNOWN", "TmpDisk=2049\nTmpFS=/tmp/", "2049 MiB of disk for temporary files"),
        ("h100:2", "h100:3", "3 GPUs of type h100, and"),
        ("gpu:h100:2", "gpu:a100:1", "1 GPUs of type a100"),
        ("gpu:h100:2", "gpu:3", "3 GPUs, and"),
    ],
)
def test_more_than_there_is_is_said_with_line_and_what_would_be_right(
    old: str, new: str, words: str
) -> None:
    error = misfit(candidate(SLURM.replace(old, new)))
    assert error is not None
    assert error.brief.startswith("config/slurm.conf, line 3: the node would have ")
    assert words in error.brief
    assert f"Right for what is here: {SLURM.splitlines()[2]}" in error.details
    assert any("Correct config/slurm.conf" in step for step in error.resolution)


def test_what_would_be_right_has_the_gpus_of_the_users_own_gres_conf() -> None:
    gres = "Name=gpu Type=mine File=/dev/nvidia0\n"
    error = misfit(candidate(SLURM.replace("h100:2", "mine:2"), gres, "slurm.conf", "gres.conf"))
    assert error is not None
    assert (
        f"Right for what is here: {SLURM.splitlines()[2]}".replace("h100:2", "mine:1")
        in error.details
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("CPUs=8", "CPUs=8"),
        ("CPUs=8", "CPUs=2"),
        ("CPUs=8", "CPUs=64 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2"),  # Slurm resets CPUs
        ("RealMemory=14374", "RealMemory=16000"),
        ("State", "TmpDisk=2048 State"),
        ("gpu:h100:2", "gpu:h100:1"),
        ("gpu:h100:2", "gpu:2"),
        ("CPUs=8", "CPUs=eight"),  # Slurm has words of its own for that
        ("GresTypes=gpu", "SlurmdParameters=config_overrides\nGresTypes=gpu"),
        ("GresTypes=gpu\nNodeName=lab", "TmpFS=/scratch\nNodeName=lab TmpDisk=2049"),
    ],
)
def test_what_fits_is_left_to_slurm(old: str, new: str) -> None:
    assert misfit(candidate(SLURM.replace(old, new))) is None


def test_config_overrides_makes_slurm_believe_the_line_but_not_the_gpus() -> None:
    more = (
        SLURM.replace("CPUs=8", "CPUs=99 ThreadsPerCore=2") + "SlurmdParameters=config_overrides\n"
    )
    assert misfit(candidate(more)) is None
    assert misfit(candidate(more.replace("h100:2", "h100:3"))) is not None


def test_a_rendered_file_is_not_the_users_fault() -> None:
    rendered = replace(candidate(SLURM.replace("CPUs=8", "CPUs=99")), customized={})
    assert misfit(rendered) is None


def test_a_device_that_is_missing_is_said_with_those_that_are_there() -> None:
    error = misfit(candidate(SLURM, GRES.replace("[0-1]", "[0-2]"), "gres.conf"))
    assert error is not None
    assert error.brief == "config/gres.conf, line 2: /dev/nvidia2 is no device of this container."
    assert "Name=gpu Type=h100 File=/dev/nvidia[0-1]" in error.details


def test_gpus_that_slurm_is_to_find_are_not_counted() -> None:
    found = candidate(SLURM.replace("h100:2", "h100:9"), "AutoDetect=nvml\n")
    assert misfit(found) is None


def test_our_slurm_conf_follows_the_users_gres_conf() -> None:
    own = "Name=gpu Type=mine File=/dev/nvidia0\nName=shard Count=4\n"
    text = hardware_fit.following(candidate(SLURM, own, "gres.conf"), "lab").texts["slurm.conf"]
    assert "Gres=gpu:mine:1,shard:4 State=UNKNOWN" in text
    assert "GresTypes=gpu,shard\n" in text
    none = hardware_fit.following(candidate(SLURM, "", "gres.conf"), "lab").texts["slurm.conf"]
    assert "Gres=" not in none


@pytest.mark.parametrize(
    "found",
    [
        candidate(SLURM, "", "gres.conf", "slurm.conf"),
        candidate(SLURM, "AutoDetect=nvml\n", "gres.conf"),
        candidate(SLURM, "", "cgroup.conf"),
    ],
)
def test_what_is_not_ours_or_not_known_is_not_followed(found: Candidate) -> None:
    assert hardware_fit.following(found, "lab") == found


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("Name=gpu File=/dev/a\nName=gpu Type=x File=/dev/b,/dev/c", {"": 1, "x": 2}),
        ("Name=gpu Type=1g MultipleFiles=/dev/a,/dev/b", {"1g": 1}),
        ("NodeName=lab Name=gpu File=/dev/a\nNodeName=no Name=gpu File=/dev/b", {"": 1}),
        ("NodeName=lab2 Name=gpu File=/dev/a\nNodeName=la Name=gpu File=/dev/b", {}),
        ("NodeName=x,lab Name=gpu File=/dev/a\nNodeName=la[a-b] Name=gpu File=/dev/b", {"": 2}),
        ("NodeName=no AutoDetect=nvml\nName=gpu File=/dev/a", {"": 1}),
        ("Name=gpu File=/dev/a[0-4000]\nName=gpu File=/dev/b[0-4000]", None),
        ("Name=mps Count=100", {}),
        ("AutoDetect=nvidia", None),
    ],
)
def test_gpus_of_a_gres_conf(gres: str, gpus: dict[str, int] | None) -> None:
    assert hardware_fit.gpus_of(gres, "lab") == gpus


@pytest.mark.parametrize(
    ("name", "refused"),
    [("other", True), ("lab2,la", True), ("lab,lab2", False), ("lab", False), ("l[a-b]", False)],
)
def test_a_gres_conf_for_other_nodes(name: str, refused: bool) -> None:
    own = GRES.replace("Name=gpu", f"NodeName={name} Name=gpu")
    error = misfit(candidate(SLURM, own, "gres.conf"))
    assert (error is not None) is refused
    if error is not None:
        assert f"line 2: NodeName={name} is not this node, lab." in error.brief


def test_devices_of_another_nodes_line_need_not_be_here() -> None:
    more = f"{GRES}NodeName=lab2 Name=gpu File=/dev/nvidia7\n"
    assert misfit(candidate(SLURM, more, "gres.conf")) is None
    assert misfit(candidate(SLURM, more.replace("lab2", "lab2,lab"), "gres.conf")) is not None


def test_a_type_with_a_backslash_is_taken_as_it_is() -> None:
    own = "Name=gpu Type=a\\d File=/dev/nvidia0\n"
    text = hardware_fit.following(candidate(SLURM, own, "gres.conf"), "lab").texts["slurm.conf"]
    assert "Gres=gpu:a\\d:1 State=UNKNOWN" in text


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_files_are_judged(slurm: str, gres: str) -> None:
    found = misfit(candidate(slurm, gres, "slurm.conf", "gres.conf"))
    assert found is None or found.resolution
    followed = hardware_fit.following(candidate(SLURM, gres, "gres.conf"), "lab")
    assert followed.texts["slurm.conf"].count("\n") == SLURM.count("\n")
