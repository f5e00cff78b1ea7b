"""Which GPUs are used, and how each is named in gres.conf."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Gpus, MigInstance
from dshpc_setup.plan import DeviceLink, Sharing, devices, plan_cluster
from dshpc_setup.problems import BROKEN, LOST
from dshpc_setup.settings import load
from tests.unit.plan.made import facts, gpu

PART = MigInstance("1g.10gb", "MIG-a", 9728, ("/dev/nvidia1", "/dev/c1", "/dev/c2"))
CUT = replace(
    gpu(1),
    mig_mode="enabled",
    mig=(PART, MigInstance("1g.10gb", "MIG-b", 9728, ("/dev/nvidia1", "/dev/c3", "/dev/c4"))),
)


def test_a_node_without_a_gpu() -> None:
    plan = plan_cluster(facts(), load())
    assert (plan.gres_text, plan.gpu_type, plan.left_out) == ("", "none", ("No GPU was found.",))
    assert (plan.gpu_memory_default, plan.sharing, plan.gres_types) == (None, None, "gpu")


def test_gpus_become_lines_in_order() -> None:
    plan = plan_cluster(facts(gpu(1), gpu(0)), load())
    assert plan.gres_text == "gpu:h100:2"
    assert [line.files for line in plan.gres] == [("/dev/nvidia0",), ("/dev/nvidia1",)]


def test_a_denied_driver_is_no_gpu_but_says_so() -> None:
    plan = plan_cluster(facts(gpus=Gpus("denied", detail="NVML: no permission.")), load())
    assert (plan.gres, plan.left_out) == ((), ("NVML: no permission.",))


def test_mig_instances_beside_a_whole_card() -> None:
    plan = plan_cluster(facts(gpu(0), CUT), load())
    assert plan.gres_text == "gpu:h100:1,gpu:1g.10gb:2"
    chosen = plan_cluster(facts(gpu(0), CUT), load(flags={"devices": "MIG-b"}))
    assert [line.uuid for line in chosen.gres] == ["MIG-b"]


def test_devices_are_not_named_in_vain() -> None:
    for state in ("absent", "denied", "timeout", "error"):
        gpus = Gpus(state, detail="NVML: why.")
        with pytest.raises(DshpcError) as caught:
            plan_cluster(facts(gpus=gpus), load(flags={"devices": "0"}))
        assert caught.value.exit_code == Exit.USAGE
        assert state in caught.value.brief
        assert caught.value.details == "NVML: why."
        without = load(flags={"devices": "0", "gpu": "none"})
        assert plan_cluster(facts(gpus=gpus), without).gres == ()


@pytest.mark.parametrize(("setting", "gres"), [("exclude", "gpu:h100:1"), ("use", "gpu:h100:2")])
def test_a_gpu_that_its_firmware_calls_broken(setting: str, gres: str) -> None:
    ill = replace(gpu(1), problems=(BROKEN,))
    seen = facts(gpu(0), ill)
    plan = plan_cluster(seen, load(flags={"unhealthy_gpus": setting}))
    assert plan.gres_text == gres
    (told,) = devices.unhealthy_told(plan, seen.gpus)
    assert ("Jobs do not get it" in told) == (setting == "exclude")
    assert set(plan.left_out) == (
        set() if setting == "use" else devices.unhealthy_reasons(seen.gpus)
    )
    assert "unhealthy_gpus: use" in "".join(plan.left_out) or setting == "use"


def test_the_setting_brings_no_gpu_back_that_does_not_compute() -> None:
    both = replace(gpu(1), problems=(BROKEN, LOST))
    plan = plan_cluster(facts(gpu(0), both), load(flags={"unhealthy_gpus": "use"}))
    assert plan.gres_text == "gpu:h100:1"
    excluded = plan_cluster(facts(gpu(0), both), load())
    assert "unhealthy_gpus: use" not in "".join(excluded.left_out)


def test_a_mig_card_without_instances_and_a_broken_card_are_left_out_with_words() -> None:
    empty = replace(gpu(0), mig_mode="enabled")
    broken = replace(gpu(1), problems=("DSH-NV-020",))
    plan = plan_cluster(facts(empty, broken, gpu(2)), load())
    assert plan.gres_text == "gpu:h100:1"
    assert "no instances" in plan.left_out[0]
    assert "DSH-NV-020" in plan.left_out[1]


def test_devices_are_chosen_by_index_or_uuid() -> None:
    plan = plan_cluster(facts(gpu(0), gpu(1), gpu(2)), load(flags={"devices": "GPU-2,0"}))
    assert [line.index for line in plan.gres] == [0, 2]
    with pytest.raises(DshpcError) as caught:
        plan_cluster(facts(gpu(0)), load(flags={"devices": "7"}))
    assert caught.value.exit_code == Exit.USAGE
    assert "0 (NVIDIA H100 80GB HBM3)" in caught.value.details


def test_gpu_none_and_another_vendor() -> None:
    assert plan_cluster(facts(gpu(0)), load(flags={"gpu": "none"})).gres == ()
    plan = plan_cluster(facts(gpu(0)), load(flags={"gpu": "amd"}))
    assert plan.gres == ()
    assert "gpu = amd" in plan.left_out[0]


def test_gpus_behind_one_device_get_a_name_each() -> None:
    shared = [replace(gpu(index), device_files=("/dev/dxg",)) for index in (0, 1)]
    plan = plan_cluster(facts(*shared, gpu(2)), load())
    assert plan.device_links == (
        DeviceLink("/run/dshpc/gpus/dxg0", "/dev/dxg"),
        DeviceLink("/run/dshpc/gpus/dxg1", "/dev/dxg"),
    )
    assert [line.files for line in plan.gres] == [
        ("/run/dshpc/gpus/dxg0",),
        ("/run/dshpc/gpus/dxg1",),
        ("/dev/nvidia2",),
    ]
    alone = plan_cluster(facts(shared[0], gpu(2)), load())
    assert (alone.device_links, alone.gres[0].files) == ((), ("/dev/dxg",))


def test_shards_and_mps_are_counted_over_all_gpus() -> None:
    here = facts(gpu(0), gpu(1))
    plan = plan_cluster(here, load(flags={"gpu_sharing": "shard:4"}))
    assert plan.sharing == Sharing("shard", 8)
    assert (plan.gres_text, plan.gres_types) == ("gpu:h100:2,shard:8", "gpu,shard")
    assert plan_cluster(here, load(flags={"gpu_sharing": "mps"})).gres_text == "gpu:h100:2,mps:200"
    assert plan_cluster(here, load()).sharing is None
    assert plan_cluster(facts(), load(flags={"gpu_sharing": "mps"})).sharing is None


def test_mps_is_nvidias_and_shards_are_everybodys() -> None:
    amd = replace(gpu(0, "mi300x"), vendor="amd", device_files=("/dev/dri/renderD128",))
    plan = plan_cluster(facts(amd), load(flags={"gpu_sharing": "mps"}))
    assert plan.sharing is None
    assert "GPUs of amd" in plan.left_out[0]
    plan = plan_cluster(facts(amd), load(flags={"gpu_sharing": "shard:2"}))
    assert (plan.sharing, plan.left_out) == (Sharing("shard", 2), ())


def test_the_vendors_name_the_image_and_the_variables() -> None:
    amd = replace(gpu(1, "mi300x"), vendor="amd", device_files=("/dev/dri/renderD128",))
    one = plan_cluster(facts(gpu(0)), load())
    assert (one.vendor, one.gpu_type, one.gres_flags) == ("nvidia", "nvidia", "nvidia_gpu_env")
    both = plan_cluster(facts(gpu(0), amd), load())
    assert (both.vendor, both.gpu_type) == ("mixed", "all")
    assert both.gres_flags == "nvidia_gpu_env,amd_gpu_env"


def test_a_gpu_that_is_not_there_is_named_with_its_place() -> None:
    for given, where in (
        ({"flags": {"devices": "0,7"}}, "--devices"),
        ({"yaml_text": "devices: [0, 7]\n"}, "dshpc.yaml:1:14"),
    ):
        with pytest.raises(DshpcError) as caught:
            plan_cluster(facts(gpu(0)), load(**given))
        assert caught.value.brief == f"{where} names 7, but there is no such GPU."


def test_partitions_beside_the_default_one() -> None:
    settings = load(flags={"partition": "gpu", "partitions": "short=1:00:00,long"})
    assert [(item.name, item.max_time) for item in plan_cluster(facts(), settings).partitions] == [
        ("gpu", "INFINITE"),
        ("short", "1:00:00"),
        ("long", "INFINITE"),
    ]
    with pytest.raises(DshpcError) as caught:
        plan_cluster(facts(), load(yaml_text="partitions: [a, Debug]\n"))
    assert caught.value.brief.startswith("dshpc.yaml:1:17: partitions, item 2: 'Debug'")
    assert caught.value.exit_code == Exit.USAGE
