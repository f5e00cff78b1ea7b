"""Settings that a file of the user's own keeps from being in force: found by what is rendered with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dshpc_setup.cluster import own_files
from dshpc_setup.cluster.own_files import OwnFile, overruled
from dshpc_setup.plan import plan_cluster
from dshpc_setup.render.configuration import CONFIG_FILES, render_slurm
from dshpc_setup.settings import DECLARATIONS, Settings, load
from tests.unit.cluster.conftest import configured, project
from tests.unit.plan.made import facts, gpu

__all__ = ["project"]

# A value of each setting that is not its default
OTHERS = {
    "prefix": "lab", "gpu": "none", "devices": "0", "unhealthy_gpus": "use", "simulate": "h100:2",
    "engine": "builtin", "nodes": "2", "home": "host", "mounts": "/data,/scratch:ro",
    "slurm_ports": "20000,20001", "listen": "192.0.2.7", "srun_ports": "50000-50200",
    "work": "data", "workspace_access": "group", "partition": "long", "partitions": "short=1:00:00,week",
    "gpu_sharing": "shard:4", "gres_type": "index", "isolation": "enforced",
    "containers": "on",
    "slurm_conf_extra": 'KillWait=60\nSchedulerParameters="defer"\nPartitionName=p2 Nodes=ALL MaxTime=5',
    "reserve_mib": "2000", "shm_size": "2g", "pids_limit": "4000", "log_size": "10m",
    "array_limit": "500", "job_limit": "600", "longest_wait": "2h", "clean_after": "1d",
    "base_image": "debian:sid",
    "idle_gpu": "5m", "release_idle": "2h", "metrics": "127.0.0.1:9410", "dashboard": "127.0.0.1:8410",
    "apt_mirror": "http://m.example/debian", "cuda_runtime": "yes", "amd_profiling": "yes",
    "accounting": "on", "toolkit": "host", "cuda_paths": "/opt/cuda",
    "rest": "127.0.0.1:6820",
}  # fmt: skip
# A file that contradicts them is refused at the start, or docker-compose.yml hands over other devices
NOT_SILENT = {"prefix", "gpu", "devices"}
MACHINE = facts(gpu(0), gpu(1))


def rendered(settings: Settings) -> dict[str, str]:
    return render_slurm(plan_cluster(MACHINE, settings))


def memory(settings: Settings) -> int:
    return plan_cluster(MACHINE, settings).real_memory_mib


def own(texts: dict[str, str], *names: str) -> list[OwnFile]:
    return [OwnFile(name, texts[name], "custom") for name in names or CONFIG_FILES]


def written(name: str) -> set[str]:
    """The files that this setting changes."""
    before, now = rendered(Settings()), rendered(load(env={f"DSHPC_{name.upper()}": OTHERS[name]}))
    return {file for file in before if before[file] != now[file]}


def test_each_setting_that_goes_into_these_files_is_looked_for() -> None:
    assert OTHERS.keys() == {item.name for item in DECLARATIONS}, (
        "give each setting a value in OTHERS"
    )
    asked = {name for name in OTHERS if written(name) & set(CONFIG_FILES)}
    found = set()
    for name in asked:
        chosen = load(env={f"DSHPC_{name.upper()}": OTHERS[name]})
        kept_out = overruled(chosen, own(rendered(Settings())), memory(chosen))
        if kept_out:
            assert {each.setting for each in kept_out} == {name}
            assert {each.file for each in kept_out} <= written(name)
            found.add(name)
        assert not overruled(chosen, own(rendered(chosen)), memory(chosen)), name
    assert found == asked - NOT_SILENT, "_wanted of cluster/own_files.py says what each one writes"


def test_those_of_slurm_conf_alone() -> None:
    alone = {name for name in OTHERS if written(name) == {"slurm.conf"}}
    # docker-compose.yml has the port of the former, and the container starts the daemons of both
    alone -= {"rest", "accounting"}
    assert alone == own_files.ONLY_IN_SLURM_CONF, (
        "it belongs into ONLY_IN_SLURM_CONF of cluster/own_files.py"
    )


def test_together_they_are_all_found_where_they_are_written() -> None:
    every = {
        f"DSHPC_{name.upper()}": text for name, text in OTHERS.items() if name not in NOT_SILENT
    }
    del every["DSHPC_NODES"]  # several here, and listening for others, exclude each other
    chosen = load(env=every)
    assert not overruled(chosen, own(rendered(chosen)), memory(chosen))
    kept_out = overruled(chosen, own(rendered(Settings())), memory(chosen))
    assert len({each.setting for each in kept_out}) >= 9


@pytest.mark.parametrize(
    ("extra", "text", "missing"),
    [
        ("KillWait=60", "", ("KillWait=60",)),
        ("KillWait=60", "killwait = 60 # mine\n", ()),
        ("KillWait=60", "KillWait=60\nKillWait=30\n", ("KillWait=60",)),  # the last one counts
        ("KillWait=60", "#KillWait=60\n", ("KillWait=60",)),
        ("SchedulerParameters=defer", "SchedulerParameters=bf_continue,defer\n", ()),
        ('MailProg="/bin/mail"', "MailProg=/bin/mail\n", ()),
        ("KillWait=60\nWaitTime=5", "WaitTime=5\n", ("KillWait=60",)),
        ("PartitionName=a Nodes=ALL", "PartitionName=a Default=NO Nodes=ALL\n", ()),
        (
            "PartitionName=a Nodes=ALL",
            "PartitionName=b Nodes=ALL\n",
            ("PartitionName=a Nodes=ALL",),
        ),
    ],
)
def test_lines_of_slurm_conf_extra(extra: str, text: str, missing: tuple[str, ...]) -> None:
    found = overruled(
        load(flags={"slurm_conf_extra": extra}), own({"slurm.conf": text}, "slurm.conf"), None
    )
    assert tuple(line for each in found for line in each.missing) == missing


def test_what_was_not_chosen_and_what_is_rendered_is_no_matter() -> None:
    assert not overruled(Settings(), own(dict.fromkeys(CONFIG_FILES, "")), None)
    assert not overruled(load(flags={"partition": "long"}), (), None)


def test_without_a_gpu_there_is_nothing_to_share() -> None:
    chosen = load(flags={"gpu_sharing": "shard:4"})
    texts = render_slurm(plan_cluster(facts(), Settings()))
    assert not overruled(chosen, own(texts), None)


def test_a_share_of_another_size_is_another() -> None:
    texts = rendered(load(flags={"gpu_sharing": "shard:2"}))
    (found,) = overruled(load(flags={"gpu_sharing": "shard:4"}), own(texts), None)
    assert (found.setting, found.file) == ("gpu_sharing", "slurm.conf")


def test_the_files_as_they_lie_there(project: Any) -> None:
    chosen = load(yaml_text="slurm_conf_extra: KillWait=60\n")
    assert own_files.of_project(project, chosen) == (), "ours is rendered again"
    path = project.folder / "config/slurm.conf"
    path.write_text("ClusterName=p\n# by hand\n")
    (found,) = own_files.of_project(project, chosen)
    assert found.why == (
        "slurm_conf_extra (dshpc.yaml:1:1) is not in force: config/slurm.conf is your own file (edited "
        "by hand) and does not have: KillWait=60."
    )
    assert found.sentence.endswith(
        "mv config/slurm.conf config/slurm.conf.old && configure-environment"
    )
    (project.folder / "config/slurm.conf.dshpc-new").write_text("ClusterName=p\nKillWait=60\n")
    (found,) = own_files.of_project(project, chosen)
    assert found.sentence.endswith(
        "Or take the rendered slurm.conf: dshpc config accept slurm.conf"
    )
    path.write_text("ClusterName=p\n# USER_CUSTOMIZED=true\n")
    assert own_files.of_project(project, chosen)[0].owner == "custom"
    path.write_text("KillWait=60\n# USER_CUSTOMIZED=true\n")
    assert own_files.of_project(project, chosen) == ()
    configured(project)
    (project.folder / "config/manifest.json").write_text("{")
    assert own_files.of_project(project, chosen) == (), "told by its own check"


def test_replaced_limits_are_those_of_the_lines() -> None:
    chosen = load(flags={"array_limit": "500", "slurm_conf_extra": "MaxArraySize=70"})
    assert not overruled(chosen, own(rendered(chosen)), None)
    assert not overruled(replace(chosen, slurm_conf_extra="ClusterName=x"), (), None), (
        "told elsewhere"
    )
