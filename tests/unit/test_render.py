from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.ownership import is_marked
from dshpc_setup.plan import ClusterPlan, GresLine
from dshpc_setup.render import CONFIG_FILES, LUA_FILES, render_slurm

PLAN = ClusterPlan("lab", "lab", "debug", 8, 14374, 1796, 1, 4, 2)
GPUS = ClusterPlan(
    "lab",
    "lab",
    "gpu",
    2,
    14374,
    1796,
    oversubscribe=2,
    gres=(
        GresLine("h100", "nvidia", ("/dev/nvidia0",), 0),
        GresLine("1g.10gb", "nvidia", ("/dev/nvidia1", "/dev/c1", "/dev/c2"), 1),
        GresLine("mi300x", "amd", ("/dev/dri/renderD128",), 2),
    ),
    aliases={"nvidia": "h100"},
    simulated=True,
    left_out=("GPU 3: broken\nName=gpu File=/dev/null",),
)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_all_files_and_no_marker_in_what_we_write() -> None:
    texts = render_slurm(GPUS)
    assert tuple(texts) == (*CONFIG_FILES, *LUA_FILES)
    for name, text in texts.items():
        assert not is_marked(text), name
        assert text.endswith("\n")
        assert "\n\n\n" not in text


def test_node_line_with_and_without_gpus() -> None:
    plain = render_slurm(PLAN)["slurm.conf"]
    assert (
        "NodeName=lab CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=14374 "
        "State=UNKNOWN" in lines(plain)
    )
    assert "GresTypes=gpu" in lines(plain)  # without it a GPU job runs with no GPU
    text = render_slurm(GPUS)["slurm.conf"]
    assert (
        "NodeName=lab CPUs=2 RealMemory=14374 Gres=gpu:h100:1,gpu:1g.10gb:1,gpu:mi300x:1 "
        "State=UNKNOWN" in lines(text)
    )
    assert "SelectTypeParameters=CR_CPU_Memory" in lines(text)
    assert (
        "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:2"
        in lines(text)
    )


def test_gres_lines_and_reasons_that_stay_comments() -> None:
    text = render_slurm(GPUS)["gres.conf"]
    flags = "Flags=nvidia_gpu_env,amd_gpu_env"  # slurmd refuses lines with different ones
    assert lines(text) == [
        "AutoDetect=off",
        f"Name=gpu Type=h100 File=/dev/nvidia0 {flags}",
        f"Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia1,/dev/c1,/dev/c2 {flags}",
        f"Name=gpu Type=mi300x File=/dev/dri/renderD128 {flags}",
    ]
    assert "# Not used: GPU 3: broken Name=gpu File=/dev/null" in text
    assert "SIMULATED" in text


@given(st.text())
def test_a_reason_never_becomes_a_line_nor_brings_a_control_character(reason: str) -> None:
    text = render_slurm(replace(GPUS, left_out=(f"\x1b[1m{reason}",)))["gres.conf"]
    assert lines(text) == lines(render_slurm(GPUS)["gres.conf"])
    assert all(char == "\n" or char.isprintable() for char in text)


def test_nvml_gives_mig_instances_their_uuid() -> None:
    plan = replace(GPUS, gres=GPUS.gres[:2], autodetect="nvml", simulated=False)
    found = lines(render_slurm(plan)["gres.conf"])
    assert found[0] == "AutoDetect=nvml"
    assert found[2].endswith("MultipleFiles=/dev/nvidia1,/dev/c1,/dev/c2 Flags=nvidia_gpu_env")


def test_names_stand_in_both_lua_files() -> None:
    texts = render_slurm(GPUS)
    for name in LUA_FILES:
        assert re.search(r'\["nvidia"\] = "h100",', texts[name]), name


def test_no_secret_and_no_munge() -> None:
    for text in render_slurm(PLAN).values():
        assert "munge" not in text.lower()
