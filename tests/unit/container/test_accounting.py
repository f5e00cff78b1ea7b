"""What accounting writes, and how slurmctld and slurmdbd come to agree on the cluster's number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.container import accounting
from dshpc_setup.plan import plan_cluster
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.settings import Settings, load
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.paths import Paths
from tests.unit.machine.test_machines import look

RELEVANT = ("AccountingStorageType", "AccountingStorageHost", "AccountingStoragePort",
            "AccountingStorageTRES", "AccountingStorageEnforce")  # fmt: skip


def conf(**settings: object) -> str:
    chosen = Settings(**{"prefix": "lab", **settings})  # type: ignore[arg-type]
    return render_slurm(plan_cluster(look("a100x2-one-broken"), chosen))["slurm.conf"]


def test_slurm_conf_says_it_where_it_is_on_and_nowhere_else() -> None:
    values = [slurm_conf.last(conf(accounting="on"), key) for key in RELEVANT]
    assert values[:3] == ["accounting_storage/slurmdbd", "lab", "6819"]
    counted = str(values[3]).split(",")
    assert counted[0] == "gres/gpu"
    assert all(each.startswith("gres/gpu:") for each in counted[1:])
    assert len(counted) > 1
    assert values[4] == "limits,qos"
    assert not any(slurm_conf.last(conf(), key) for key in RELEVANT)


def test_a_line_of_the_users_own_replaces_ours() -> None:
    text = conf(accounting="on", slurm_conf_extra="AccountingStorageEnforce=safe")
    assert text.count("AccountingStorageEnforce=") == 1
    assert slurm_conf.last(text, "AccountingStorageEnforce") == "safe"


def test_its_port_is_the_third() -> None:
    text = conf(accounting="on", slurm_ports=(20001, 20002, 20003))
    assert slurm_conf.last(text, "AccountingStoragePort") == "20003"


def test_memory_is_kept_for_the_database_unless_somebody_says_how_much() -> None:
    def memory(**settings: object) -> int:
        entry = slurm_conf.node(conf(**settings), "lab")
        assert entry is not None
        return int(entry.values["realmemory"])

    assert memory() - memory(accounting="on") == 384
    assert memory(reserve_mib=100) == memory(reserve_mib=100, accounting="on")


def test_clients_of_the_rest_api_come_with_tokens_of_theirs() -> None:
    assert "jwt" not in accounting.daemon_conf("lab", 6819, "slurm")
    text = accounting.daemon_conf("lab", 6819, "slurm", by_rest=True)
    assert slurm_conf.last(text, "AuthAltParameters") == f"jwt_key={Paths().rest_key}"


def test_it_is_switched_while_jobs_run_without_another_container() -> None:
    off, on = Settings(), load(env={"DSHPC_ACCOUNTING": "on"})
    assert on.container_env() == off.container_env()
    assert on.live_env() != off.live_env()
    assert off.daemon_ports == on.daemon_ports


def test_no_password_and_no_port() -> None:
    both = accounting.server_conf(Paths()) + accounting.daemon_conf("lab", 6819, "slurm")
    assert "pass" not in both.lower()
    lines = both.splitlines()
    for line in ("skip-networking", "innodb_snapshot_isolation=off", "innodb_lock_wait_timeout=900",
                 "StorageHost=localhost", "Parameters=PreserveCaseUser"):  # fmt: skip
        assert line in lines


@pytest.mark.parametrize(
    ("own", "registered", "left"),
    [
        ("lab|77", None, "lab"),  # accounting is new here
        ("lab|77", "lab|77", "lab|77"),
        ("lab|77", "lab|12", "lab"),  # another state was restored
        ("lab", None, "lab"),  # a start that was killed meanwhile
        (None, None, None),
    ],
)
def test_the_number_is_slurmdbds(
    tmp_path: Path, own: str | None, registered: str | None, left: str | None
) -> None:
    paths = Paths(str(tmp_path))
    file = Path(paths.state) / "slurmctld/clustername"
    file.parent.mkdir(parents=True)
    if own is not None:
        file.write_text(own)
    accounting._agree_on_number(paths, registered)
    assert (file.read_text() if file.exists() else None) == left
    if left is not None:
        assert file.stat().st_uid == os.getuid()
