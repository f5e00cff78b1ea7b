"""Which settings a machine that joins is given."""

from __future__ import annotations

from dshpc_setup.join.cluster_facts import SHARED
from dshpc_setup.settings import DECLARATIONS

# Of this machine alone, of the controller's side, or of what slurmd does not read
OWN = {
    "gpu", "devices", "simulate", "nodes", "engine", "work", "home", "mounts", "toolkit",
    "cuda_paths", "containers", "reserve_mib", "shm_size", "pids_limit", "log_size", "slurm_ports",
    "listen", "srun_ports", "clean_after", "accounting", "rest", "idle_gpu", "release_idle",
    "metrics", "dashboard", "apt_mirror", "amd_profiling",
}  # fmt: skip


def test_each_setting_is_alike_on_all_nodes_or_each_machines_own() -> None:
    names = {item.name for item in DECLARATIONS}
    assert names == OWN | set(SHARED), (
        "it belongs into SHARED of join/cluster_facts.py, or into OWN"
    )
    assert not OWN & set(SHARED)
