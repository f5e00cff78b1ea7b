"""A worker: the text that its slurmd reads, what it registers with, and whether that is what Slurm knows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.container import nodes, users, worker
from dshpc_setup.container.config import Candidate
from dshpc_setup.jobs.offer import Offer, OfferedGpu
from dshpc_setup.plan import ClusterPlan, GresLine
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.paths import ACCOUNTS, Paths

GPUS = tuple(GresLine("h100", "nvidia", (f"/dev/nvidia{at}",), at) for at in (0, 1))
PLAN = ClusterPlan(
    "lab", "lab-2", "debug", 8, 14374, 1796, 1, 4, 2, gres=GPUS, features=("nvidia", "h100"),
    role="worker", controller="lab",
)  # fmt: skip
TEXTS = render_slurm(PLAN)
SHOWN = (
    "NodeName=lab-2 Arch=x86_64 CoresPerSocket=4 CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=2.77 "
    "AvailableFeatures=nvidia,h100 ActiveFeatures=nvidia,h100 Gres=gpu:h100:2(S:0) NodeAddr=172.19.0.3 "
    "RealMemory=14374 AllocMem=0 State=IDLE+DYNAMIC_NORM ThreadsPerCore=2 TmpDisk=0"
)


def test_slurmd_reads_no_line_for_the_node_that_registers_itself() -> None:
    written = worker.as_written(TEXTS)
    assert slurm_conf.node(written["slurm.conf"], "lab-2") is None
    assert {**written, "slurm.conf": worker.as_read(written["slurm.conf"])} == TEXTS
    assert {name: text for name, text in written.items() if name != "slurm.conf"} == {
        name: text for name, text in TEXTS.items() if name != "slurm.conf"
    }


def test_it_registers_with_its_line() -> None:
    assert worker.registration(TEXTS["slurm.conf"], "lab-2") == (
        "CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=14374 Feature=nvidia,h100 "
        "Gres=gpu:h100:2"
    )


def test_its_controller_is_another_node() -> None:
    assert slurm_conf.last(TEXTS["slurm.conf"], "SlurmctldHost") == "lab"
    assert "a heterogeneous job can never run here" not in TEXTS["job_submit.lua"]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("h100:2(S:0)", "h100:1(S:0)"),
        ("CPUTot=8", "CPUTot=4"),
        ("RealMemory=14374", "RealMemory=9000"),
        ("AvailableFeatures=nvidia,h100", "AvailableFeatures=nvidia"),
        ("Gres=gpu:h100:2(S:0)", "Gres=(null)"),
    ],
)
def test_what_slurm_knows_of_it_is_compared(was: str, now: str) -> None:
    entry = slurm_conf.node(TEXTS["slurm.conf"], "lab-2")
    assert entry is not None
    assert worker.is_same(SHOWN, entry.values)
    assert not worker.is_same(SHOWN.replace(was, now), entry.values)


def test_its_port_is_compared_where_slurm_tells_one() -> None:
    entry = slurm_conf.node(TEXTS["slurm.conf"], "lab-2")
    assert entry is not None
    wanted = {**entry.values, "port": "28047"}
    assert worker.is_same(SHOWN, wanted)
    assert worker.is_same(f"{SHOWN} Port=28047 ", wanted)
    assert not worker.is_same(f"{SHOWN} Port=28049 ", wanted)


def test_a_node_without_gpus_is_the_same() -> None:
    line = "NodeName=lab-3 CPUTot=8 AvailableFeatures=(null) Gres=(null) RealMemory=14374"
    assert worker.is_same(line, {"cpus": "8", "realmemory": "14374"})


def test_of_the_users_own_files_its_own_hardware_is_none() -> None:
    own = "ClusterName=lab\nNodeName=lab CPUs=64 Gres=gpu:t4:4\nPartitionName=x Nodes=ALL\n"
    mine = Candidate(
        {**TEXTS, "slurm.conf": own, "gres.conf": "Name=gpu File=/dev/nvidia7\n"},
        {"slurm.conf": "custom", "gres.conf": "edited"},
        {},
        TEXTS,
    )
    found = worker.fitted(mine)
    assert dict(found.customized) == {"slurm.conf": "custom"}
    assert found.texts["gres.conf"] == TEXTS["gres.conf"]
    assert slurm_conf.node(found.texts["slurm.conf"], "lab") is None
    entry = slurm_conf.node(found.texts["slurm.conf"], "lab-2")
    assert entry is not None
    assert entry.values["gres"] == "gpu:h100:2"
    assert "PartitionName=x" in found.texts["slurm.conf"]


def test_users_and_groups_are_the_controllers(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    for folder in ("etc", ACCOUNTS.lstrip("/")):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (tmp_path / "etc/group").write_text("root:x:0:\n")
    users._share(paths)
    shared = tmp_path / ACCOUNTS.lstrip("/") / "passwd"
    assert shared.read_text() == (tmp_path / "etc/passwd").read_text()
    worker.link_accounts(paths)
    worker.link_accounts(paths)
    assert os.readlink(tmp_path / "etc/passwd") == f"{ACCOUNTS}/passwd"


def _offer(node: str, *types: str, **names: tuple[str, ...]) -> Offer:
    gpus = tuple(
        OfferedGpu(at, None, kind, kind, kind, "nvidia", 1024, None)
        for at, kind in enumerate(types)
    )
    return Offer(node, 8, 1024, gpus, names)


def test_of_each_type_there_are_as_many_as_one_node_has(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    nodes.write(paths, _offer("lab", "h100", "h100", nvidia=("h100",)))
    nodes.write(paths, _offer("lab-2", "h100", "t4", nvidia=("t4", "h100"), tesla_t4=("t4",)))
    table = (tmp_path / "var/lib/dshpc/state/nodes/gpus.lua").read_text()
    assert table == (
        "return { names = {\n"
        '   ["nvidia"] = { "h100", "t4" },\n'
        '   ["tesla_t4"] = { "t4" },\n'
        "}, types = {\n"
        '   { "h100", 2 },\n'
        '   { "t4", 1 },\n'
        "}, other_work = {\n"
        "}, owned = {\n"
        '}, work = ""\n'
        "}\n"
    )
    nodes.forget(paths, "lab-2")
    assert [each.node for each in nodes.offers(paths)] == ["lab"]
    assert "t4" not in (tmp_path / "var/lib/dshpc/state/nodes/gpus.lua").read_text()


def test_nodes_with_another_work_folder_are_told_to_slurms_lua() -> None:
    far = replace(_offer("lab9", "a100"), own_work=True)
    assert nodes.table((_offer("lab"), far)).endswith(
        '}, other_work = {\n   { "lab9", { ["a100"] = 1 } },\n}, owned = {\n}, work = ""\n}\n'
    )
    assert 'work = "\\047\\034\\195\\164"' in nodes.table((replace(far, carried_work='/"ä'),))


def test_nodes_of_one_user_are_told_to_slurms_lua(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = replace(_offer("lab9", "a100"), owner=4711)
    assert '\n}, owned = {\n   ["lab9"] = { 4711, "ada" },\n}' in nodes.table(
        (far,), {4711: "ada"}.__getitem__
    )
    assert (far.takes(4711), far.takes(0), _offer("lab").takes(0)) == (True, False, True)
    paths = Paths(str(tmp_path))
    assert nodes.owned(paths) == {}
    number = 4_000_000_000
    nodes.write(paths, replace(far, owner=number))
    assert nodes.owned(paths) == {"lab9": number}
    lua = tmp_path / "var/lib/dshpc/state/nodes/gpus.lua"
    assert f'["lab9"] = {{ {number}, "user number {number}" }}' in lua.read_text()
    # He becomes known
    monkeypatch.setattr("dshpc_setup.jobs.offer.login_of", {number: "ada"}.get)
    nodes.name_owner(paths, number - 1)
    assert '"ada"' not in lua.read_text()
    nodes.name_owner(paths, number)
    assert f'["lab9"] = {{ {number}, "ada" }}' in lua.read_text()


def test_a_name_that_would_command_lua_is_none() -> None:
    assert '"x"' not in nodes.table((_offer("lab", 'a"]=os.exit()--'),))
    assert "os.exit()" not in nodes.table((_offer("lab", 'a"]=os.exit()--'),))


def test_one_that_was_refused_is_another_though_slurmctld_tells_what_it_has() -> None:
    wanted = {"cpus": "2", "realmemory": "100", "gres": "gpu:t4:1"}
    line = "NodeName=lab2 CPUTot=2 RealMemory=100 Gres=gpu:t4:1 AvailableFeatures=(null) State={}"
    assert worker.is_same(line.format("IDLE+DYNAMIC_NORM"), wanted)
    assert not worker.is_same(line.format("IDLE+DRAIN+DYNAMIC_NORM+INVALID_REG"), wanted)
