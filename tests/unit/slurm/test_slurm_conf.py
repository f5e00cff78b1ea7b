"""Lines of slurm.conf and gres.conf as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.slurm import slurm_conf

TEXT = """# NodeName=no
ClusterName=lab # the lab
clustername = lab2
NodeName=DEFAULT RealMemory=100 CPUs=2
NodeName=lab,other CPUs=4 \\
   Gres=gpu:h100:2,shard:8 Comment="a b=c"
PartitionName=debug Nodes=ALL
"""


def test_a_node_has_what_its_line_and_the_defaults_above_say() -> None:
    found = slurm_conf.node(TEXT, "lab")
    assert found is not None
    assert found.number == 5
    assert found.values["cpus"] == "4"
    assert found.values["realmemory"] == "100"
    assert found.values["gres"] == "gpu:h100:2,shard:8"
    assert found.values["comment"] == "a b=c"
    assert slurm_conf.node(TEXT, "no") is None


def test_defaults_are_meant_in_any_case() -> None:
    text = "nodename=Default CPUs=2\nNodeName=lab RealMemory=1\n"
    found = slurm_conf.node(text, "lab")
    assert found is not None
    assert found.values["cpus"] == "2"
    near = slurm_conf.node(text.replace("Default", "Defaults"), "lab")
    assert near is not None
    assert "cpus" not in near.values


@pytest.mark.parametrize(
    ("line", "node", "meant"),
    [
        ("Name=gpu", "lab", True),
        ("NodeName=lab Name=gpu", "lab", True),
        ("NodeName=lab,lab2 Name=gpu", "lab", True),
        ('NodeName="lab2, lab" Name=gpu', "lab", True),
        ("NodeName=lab2 Name=gpu", "lab", False),
        ("NodeName=la Name=gpu", "lab", False),
        ("NodeName=lab[1,3] Name=gpu", "lab2", True),  # maybe
        ("NodeName=lab[1,3] Name=gpu", "lab", False),
        ("NodeName=gpu[1,3],lab Name=gpu", "lab", True),
        ("NodeName=gpu[1,3] Name=gpu", "lab", False),
    ],
)
def test_for_which_node_a_line_is(line: str, node: str, meant: bool) -> None:
    assert slurm_conf.applies(next(slurm_conf.entries(line)), node) is meant


@pytest.mark.parametrize(
    ("line", "cores"),
    [
        ("CPUs=8", 8),
        ("Procs=8", 8),
        ("CPUs=8 ThreadsPerCore=2", 4),
        ("CPUs=8 CoresPerSocket=4", 8),
        ("CPUs=8 CoresPerSocket=3", 3),
        ("CPUs=16 Boards=2 SocketsPerBoard=2 CoresPerSocket=2", 8),
        ("Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", 8),
        ("RealMemory=1", 1),
        ("CPUs=0 Sockets=x", 1),
    ],
)
def test_cores_as_slurm_counts_them(line: str, cores: int) -> None:
    assert slurm_conf.cores(next(slurm_conf.entries(line)).values) == cores


def test_the_last_value_counts() -> None:
    assert slurm_conf.last(TEXT, "ClusterName") == "lab2"
    assert slurm_conf.last(TEXT, "CPUs") is None


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("", {}),
        ("gpu:h100:2,gpu:t4:1", {"gpu:h100": 2, "gpu:t4": 1}),
        ("gpu:2", {"gpu": 2}),
        ("gpu", {"gpu": 1}),
        ("gpu:h100:2,gpu:h100:1", {"gpu:h100": 3}),
        ("gpu:1g.10gb:7(S:0)", {"gpu:1g.10gb": 7}),
        ("mem:4K", {"mem": 4096}),
        ("gpu:h100:x:y", None),
    ],
)
def test_counts_of_gres(text: str, counts: dict[str, int] | None) -> None:
    assert slurm_conf.gres_counts(text) == counts


def test_another_gres_changes_the_one_line_alone() -> None:
    text = "A=1\nNodeName=lab CPUs=4 Gres=gpu:h100:2 State=UNKNOWN\nB=2"
    new = "A=1\nNodeName=lab CPUs=4 Gres=gpu:a:1 State=UNKNOWN\nB=2"
    assert slurm_conf.with_gres(text, "lab", "gpu:a:1") == new
    none = "A=1\nNodeName=lab CPUs=4 State=UNKNOWN\nB=2"
    assert slurm_conf.with_gres(text, "lab", "") == none
    assert slurm_conf.with_gres(none, "lab", "gpu:h100:2") == text
    assert slurm_conf.with_gres(text, "other", "gpu:a:1") == text


def test_counts_of_shared_gres() -> None:
    gres = "Name=gpu File=/dev/a\nName=shard Count=8\nName=shard Count=4\nName=mps Count=x\n"
    assert slurm_conf.summed_counts(gres, ("shard", "mps")) == {"shard": 12}
    huge = f"{gres}Name=shard Count={'9' * 5000}\n"
    assert slurm_conf.summed_counts(huge, ("shard", "mps")) == {"shard": 12}


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    lines = text.split("\n")
    for entry in slurm_conf.entries(text):
        assert 1 <= entry.number <= len(lines)
        assert entry.values
    assert slurm_conf.node(text, "lab") is None or "lab" in text
    slurm_conf.gres_counts(text)
    assert slurm_conf.cores({"cpus": text, "sockets": text}) >= 1


@given(st.text(max_size=100), st.from_regex(r"gpu:[a-z\\]{1,5}:\d", fullmatch=True))
def test_a_gres_that_was_set_is_read_back(before: str, gres: str) -> None:
    text = slurm_conf.with_gres(f"{before}\nNodeName=lab CPUs=1", "lab", gres)
    found = slurm_conf.node(text, "lab")
    assert found is None or found.values["gres"] == gres
