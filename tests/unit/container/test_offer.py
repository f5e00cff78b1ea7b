from __future__ import annotations

import json
from pathlib import Path

from dshpc_setup.container import offer
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.gpu_places import as_planned
from dshpc_setup.container.look import Seen
from dshpc_setup.facts import Cpu, Engine, GpuDevice, Gpus, HostFacts, Memory, MigInstance, Platform
from dshpc_setup.jobs.offer import Offer, from_json
from dshpc_setup.plan import plan_cluster
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.gpus import SlurmGpu
from dshpc_setup.slurm.paths import Paths

H100 = GpuDevice(
    0, "nvidia", "NVIDIA H100 80GB HBM3", "GPU-a", memory_mib=81559, compute="9.0",
    slurm_type="h100", device_files=("/dev/nvidia0",), mig_mode="disabled",
)  # fmt: skip
T4 = GpuDevice(
    1, "nvidia", "Tesla T4", "GPU-b", memory_mib=15360, compute="7.5",
    slurm_type="t4", device_files=("/dev/nvidia1",),
)  # fmt: skip


def seen(*devices: GpuDevice, settings: Settings | None = None) -> Seen:
    facts = HostFacts(
        Platform("linux"), Cpu(logical=8, usable=8), Memory(16000, 16000),
        Gpus("present" if devices else "absent", devices, cuda_version="12.4"), Engine("absent"),
    )  # fmt: skip
    return Seen(facts, plan_cluster(facts, settings or Settings()), "", ())


def offered(
    now: Seen, text: str | None = None, listed: tuple[SlurmGpu, ...] | None = None
) -> Offer:
    texts = render_slurm(now.plan)
    if text is not None:
        texts["slurm.conf"] = text
    plan_list = as_planned(now.plan) if listed is None else listed
    return offer.offer(Candidate(texts, {}, {}), now, now.plan.node, plan_list)


def test_what_is_rendered_is_offered() -> None:
    now = seen(H100, T4)
    found = offered(now)
    assert [(gpu.slurm_type, gpu.memory_mib, gpu.sold_gb) for gpu in found.gpus] == [
        ("h100", 81559, 80),
        ("t4", 15360, 16),
    ]
    assert (found.cpus, found.memory_mib, found.cuda) == (8, now.plan.real_memory_mib, "12.4")
    assert found.partitions == ((now.plan.partition, "INFINITE"),)
    assert found.aliases["nvidia"] == ("h100", "t4")
    assert found.aliases["nvidia_h100_80gb_hbm3"] == ("h100",)


def test_a_users_own_types_and_counts_are_what_is_in_force() -> None:
    now = seen(H100, T4)
    own = (SlurmGpu("mine", ("/dev/nvidia0",)), SlurmGpu("mine", ("/dev/nvidia1",)))
    text = f"NodeName={now.plan.node} CPUs=4 RealMemory=1000 Gres=gpu:mine:1\n"
    found = offered(now, text, own)
    assert [(gpu.slurm_type, gpu.model) for gpu in found.gpus] == [("mine", "h100")]
    assert found.aliases["h100"] == ("mine",)
    assert (found.cpus, found.memory_mib) == (4, 1000)


def test_a_file_that_no_card_has_is_offered_with_nothing_known_of_it() -> None:
    now = seen(H100)
    text = f"NodeName={now.plan.node} Gres=gpu:odd:1\n"
    (gpu,) = offered(now, text, (SlurmGpu("odd", ("/dev/other",)),)).gpus
    assert (gpu.slurm_type, gpu.memory_mib, gpu.compute) == ("odd", None, None)
    assert offered(now, text, (SlurmGpu("o]d", ("/dev/other",)),)).gpus == ()


def test_a_mig_instance_is_sold_by_its_profile() -> None:
    part = MigInstance("1g.10gb", "MIG-a", 9728, ("/dev/nvidia-caps/nvidia-cap30",))
    cut = GpuDevice(
        0, "nvidia", "NVIDIA H100 80GB HBM3", "GPU-a", memory_mib=81559, compute="9.0",
        slurm_type="h100", device_files=("/dev/nvidia0",), mig_mode="enabled", mig=(part,),
    )  # fmt: skip
    (gpu,) = offered(seen(cut)).gpus
    assert (gpu.model, gpu.memory_mib, gpu.sold_gb, gpu.is_part) == ("1g.10gb", 9728, 10, True)


def test_partitions_and_arrays_of_an_own_slurm_conf() -> None:
    now = seen()
    text = (
        f"MaxArraySize=5001\nNodeName={now.plan.node}\nPartitionName=DEFAULT MaxTime=2:00:00\n"
        "PartitionName=a Nodes=ALL\nPartitionName=b Nodes=ALL Default=YES MaxTime=UNLIMITED\n"
    )
    found = offered(now, text)
    assert found.partitions == (("b", "UNLIMITED"), ("a", "2:00:00"))
    assert found.max_array == 5001
    assert (found.cpus, found.memory_mib, found.gpus) == (1, 1, ())


def test_it_is_written_for_all_users_and_read_back(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    (tmp_path / "run/dshpc").mkdir(parents=True)
    found = offered(seen(H100))
    offer.write(paths, found)
    file = tmp_path / "run/dshpc/offer.json"
    assert file.stat().st_mode & 0o777 == 0o644
    assert from_json(json.loads(file.read_text())) == found


def test_gpus_with_a_type_each() -> None:
    now = seen(H100, T4, settings=Settings(gres_type="index"))
    found = offered(now)
    assert found.gres_type == "index"
    assert [(gpu.slurm_type, gpu.model) for gpu in found.gpus] == [("gpu0", "h100"), ("gpu1", "t4")]
    assert found.aliases["h100"] == ("gpu0",)
    own = (SlurmGpu("mine", ("/dev/nvidia0",)), SlurmGpu("mine", ("/dev/nvidia1",)))
    text = render_slurm(now.plan)["slurm.conf"].replace("gpu:gpu0:1,gpu:gpu1:1", "gpu:mine:2")
    assert offered(now, text, own).gres_type == "model"  # files of the user's own undo it
    assert offered(seen(H100, T4)).gres_type == "model"
