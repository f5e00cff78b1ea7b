"""What accounting writes, and how slurmctld and slurmdbd come to agree on the cluster's number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.container import accounting, network
from dshpc_setup.container.run import Run
from dshpc_setup.container.status import Status
from dshpc_setup.errors import DshpcError
from dshpc_setup.plan import plan_cluster
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.settings import Settings, load
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, FakeMachine
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


def test_a_node_without_the_database_has_all_its_memory() -> None:
    """So that it has not to register anew, which its jobs would not outlive."""

    def memory(accounting: str) -> int:
        settings = Settings(prefix="lab", nodes=2, accounting=accounting).of_worker(2)
        return plan_cluster(look("a100x2-one-broken"), settings).real_memory_mib

    assert memory("on") == memory("off")


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


def run_of(paths: Paths, machine: FakeMachine, **settings: str) -> Run:
    chosen = Settings(prefix="lab", **{"accounting": "on", **settings})  # type: ignore[arg-type]
    return Run(machine, paths, Status(paths, print, live=False), chosen, (0, 0))


@pytest.mark.parametrize(
    ("setting", "told", "runs", "wanted"),
    [
        ("off", None, False, True),
        ("on", {"port": 6819}, True, True),
        ("on", None, False, False),
        ("off", {"port": 6819}, True, False),
        ("off", None, True, False),  # switched on, and killed
        ("on", {"port": 6819}, False, False),  # switched off, and killed
    ],
)
def test_a_switch_that_was_killed_is_told_by_what_runs(
    tmp_path: Path, setting: str, told: object, runs: bool, wanted: bool
) -> None:
    paths = Paths(str(tmp_path))
    os.makedirs(f"{paths.run}/database")
    if runs:
        Path(paths.database_conf).touch()
    run = run_of(paths, FakeMachine(), accounting=setting)
    assert accounting.is_as_wanted(run, told) is wanted


def test_what_could_not_come_up_is_refused_before_anything_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(str(tmp_path))
    os.makedirs(paths.state)
    down = FakeMachine(commands={"s6-svstat -o up": Answer(stdout="false\n")})
    up = FakeMachine(commands={"s6-svstat -o up": Answer(stdout="true\n")})
    taken = {6819}
    monkeypatch.setattr(network, "listens", lambda port: port in taken)
    on = conf(accounting="on")
    with pytest.raises(DshpcError, match="port 6819 already"):
        accounting.refuse_hopeless(run_of(paths, down), on)
    accounting.refuse_hopeless(run_of(paths, up), on)
    accounting.refuse_hopeless(run_of(paths, down, accounting="off"), conf())
    taken.clear()
    accounting.refuse_hopeless(run_of(paths, down), on)
    monkeypatch.setattr(accounting, "_NEW_BYTES", 1 << 60)
    with pytest.raises(DshpcError, match="no room for an accounting database"):
        accounting.refuse_hopeless(run_of(paths, down), on)
    os.makedirs(f"{paths.database}/mariadb")
    accounting.refuse_hopeless(run_of(paths, down), on)


def test_it_ends_in_its_order_and_nothing_of_it_is_told_any_more(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    machine = FakeMachine(commands={"s6-svc": Answer(), "s6-svwait": Answer()})
    run = run_of(paths, machine)
    accounting.end(run)
    assert machine.ran == [], "it was not up"
    os.makedirs(f"{paths.run}/database")
    Path(paths.database_conf).write_text("")
    run.status.values["accounting"] = {"port": 6819}
    accounting.end(run)
    ended = [argv[-1].rpartition("/")[2] for argv in machine.ran if argv[0] == "s6-svc"]
    assert ended == ["associations", "slurmdbd", "mariadb"]
    assert not os.path.exists(paths.database_conf)
    assert run.status.values["accounting"] is None
