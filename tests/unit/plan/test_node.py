"""CPUs, memory and disk of the node, and what a job gets that does not say what it wants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Cpu, Engine, Memory, Platform
from dshpc_setup.plan import node, plan_cluster
from dshpc_setup.settings import load
from tests.unit.plan.made import facts, gpu


def test_the_whole_machine() -> None:
    plan = plan_cluster(facts(), load())
    assert (plan.cpus, plan.real_memory_mib, plan.def_mem_per_cpu_mib) == (8, 14400, 1800)
    assert (plan.sockets, plan.cores_per_socket, plan.threads_per_core) == (1, 4, 2)
    assert plan.oversubscribe == 1


def test_limits_hide_the_shape_of_the_machine() -> None:
    plan = plan_cluster(facts(cpu=Cpu(8, 1, 4, 2, usable=2, limited_by="cpuset")), load())
    assert (plan.cpus, plan.sockets) == (2, None)


def test_the_engines_own_machine_may_be_smaller() -> None:
    plan = plan_cluster(facts(engine=Engine("present", cpus=4, memory_mib=8000)), load())
    assert (plan.cpus, plan.real_memory_mib, plan.sockets) == (4, 7200, None)


def test_the_reserve_is_a_setting() -> None:
    assert plan_cluster(facts(), load(flags={"reserve_mib": "1000"})).real_memory_mib == 15000
    assert plan_cluster(facts(), load(flags={"reserve_mib": "0"})).real_memory_mib == 16000


@pytest.mark.parametrize("engine_mib", [None, 8000])
def test_a_reserve_that_leaves_nothing_is_refused(engine_mib: int | None) -> None:
    """A node of 1 MiB would look well, and refuse every job that names its memory."""
    limit = engine_mib or 16000
    here = facts(engine=Engine("present", memory_mib=engine_mib))
    for kept in (limit, 99999):
        with pytest.raises(DshpcError) as caught:
            plan_cluster(here, load(flags={"reserve_mib": str(kept)}))
        error = caught.value
        assert error.exit_code == Exit.USAGE
        assert f"reserve_mib = {kept}" in error.brief
        assert f"{limit} MiB" in error.brief
        assert f"--reserve-mib {limit // 10}" in error.resolution[0]
    plan = plan_cluster(here, load(flags={"reserve_mib": str(limit - 1)}))
    assert plan.real_memory_mib == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpu": Cpu(state="denied")}, "how many CPUs"),
        ({"memory": Memory(state="denied")}, "how much memory"),
    ],
)
def test_what_is_not_known_is_no_number(changes: dict[str, object], words: str) -> None:
    with pytest.raises(DshpcError) as caught:
        plan_cluster(facts(**changes), load())
    assert words in caught.value.brief
    assert "denied" in caught.value.details


def test_more_gpus_than_cpus_can_all_be_used_and_one_job_beside_them() -> None:
    gpus = [gpu(index) for index in range(8)]
    plan = plan_cluster(facts(*gpus, cpu=Cpu(2, 1, 2, 1, 2)), load())
    assert plan.oversubscribe == 5  # 2 cores for 9 jobs
    assert (plan.gpu_cpu_default, plan.gpu_memory_default) == (None, 1575)
    assert plan.def_mem_per_cpu_mib == 1800  # what is left of 14400: 8 x 1575 are taken
    threads = plan_cluster(facts(*gpus, cpu=Cpu(2, 1, 1, 2, 2)), load())
    assert threads.oversubscribe == 9
    assert threads.def_mem_per_cpu_mib == 900  # a job on one core has both of its CPUs
    assert plan_cluster(facts(*gpus[:2], cpu=Cpu(2, 1, 2, 1, 2)), load()).oversubscribe == 1


def test_a_gpus_share_is_of_whole_cores() -> None:
    four = [gpu(index) for index in range(4)]
    plan = plan_cluster(facts(*four, cpu=Cpu(64, 1, 32, 2, 64)), load())
    assert (plan.gpu_cpu_default, plan.gpu_memory_default) == (14, 3150)
    plan = plan_cluster(facts(*four, cpu=Cpu(60, 1, 30, 2, 60)), load())
    assert plan.gpu_cpu_default == 12
    assert plan_cluster(facts(*four, cpu=Cpu(4, 1, 2, 2, 4)), load()).gpu_cpu_default is None


@given(st.integers(1, 512), st.integers(1, 32), st.sampled_from([1, 2, 4]))
def test_all_gpus_at_once_never_get_more_than_the_node_has(
    cores: int, gpus: int, threads: int
) -> None:
    cpus, memory = cores * threads, 16000
    share = node.share_of_a_gpu(cpus, gpus, threads)
    if share is None:
        assert cores < gpus
    else:
        assert share % threads == 0
        assert threads <= share
        assert share * gpus <= cpus
    mib = node.share_of_a_gpu(memory, gpus)
    assert mib is not None
    per_cpu = node.memory_per_cpu(memory, cpus, gpus, threads)
    assert per_cpu >= 1
    assert per_cpu * cpus <= memory, "a job of all CPUs"
    assert mib * gpus + per_cpu * threads <= memory, "a job on a core beside jobs on all GPUs"


@given(st.integers(1, 64), st.integers(0, 64))
def test_each_gpu_can_have_a_job(units: int, gpus: int) -> None:
    times = node.oversubscribe(gpus, units, None)
    assert units * times >= gpus
    assert times == 1 or units * times > gpus
    assert (times > 1) == (gpus > units)


@pytest.mark.parametrize(
    ("engine", "platform", "expected"),
    [
        (Engine("unsupported"), Platform("linux", True, tmp_disk_mib=3663452), 3662848),
        (Engine("unsupported"), Platform("linux", True, tmp_disk_mib=1023), None),
        (Engine("unsupported"), Platform("linux", True), None),
        # on the host its own /tmp says nothing of the container's
        (Engine("present", disk_mib=10300), Platform("linux", tmp_disk_mib=99999), 10240),
        (Engine("present"), Platform("linux", tmp_disk_mib=99999), None),
    ],
)
def test_tmp_disk(engine: Engine, platform: Platform, expected: int | None) -> None:
    assert node.tmp_disk(facts(engine=engine, platform=platform)) == expected


@given(st.integers(0, 1 << 40))
def test_tmp_disk_never_exceeds_what_is_there(size: int) -> None:
    here = replace(
        facts(), engine=Engine("unsupported"), platform=Platform("linux", tmp_disk_mib=size)
    )
    told = node.tmp_disk(here)
    assert told is None or 0 < told <= size
