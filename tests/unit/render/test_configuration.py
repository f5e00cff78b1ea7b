from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import resources
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
from dshpc_setup.files.ownership import is_marked
from dshpc_setup.passthrough.handover import GpuStanza
from dshpc_setup.plan import (
    ClusterPlan,
    DeviceLink,
    ExtraLine,
    GresLine,
    Partition,
    Sharing,
    plan_cluster,
)
from dshpc_setup.render import gpu_lines
from dshpc_setup.render.configuration import (
    CONFIG_FILES,
    LUA_FILES,
    ComposeFile,
    inputs,
    render_slurm,
)
from dshpc_setup.settings import DECLARATIONS, load

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
    aliases={"nvidia": ("h100",)},
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


def test_slow_cores_count_unless_the_user_says_another_word_to_slurmd() -> None:
    """Without allow_ecores slurmd has 16 of a 13900K's 32 CPUs, and the node is refused."""
    assert "SlurmdParameters=allow_ecores" in lines(render_slurm(PLAN)["slurm.conf"])
    own = ExtraLine("SlurmdParameters", "SlurmdParameters=l3cache_as_socket")
    text = render_slurm(replace(PLAN, extra=(own,)))["slurm.conf"]
    found = [line for line in lines(text) if line.startswith("SlurmdParameters")]
    assert found == [own.text]


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


def test_names_stand_in_both_lua_files() -> None:
    texts = render_slurm(GPUS)
    for name in LUA_FILES:
        assert re.search(r'\["nvidia"\] = \{ "h100" \},', texts[name]), name


@pytest.mark.parametrize("kind", ["shard", "mps"])
def test_types_of_shares_are_dealt_with_only_where_there_are_shares(
    kind: Literal["shard", "mps"],
) -> None:
    texts = render_slurm(replace(GPUS, sharing=Sharing(kind, 12)))
    for name in LUA_FILES:
        assert f'item:match("^({kind}[:=])(.+)$")' in texts[name], name
    assert f"{kind} has no type here" in texts["job_submit.lua"]
    plain = render_slurm(GPUS)
    assert not re.search("without_type|typed_share", "".join(plain[name] for name in LUA_FILES))


def test_places_and_connections_of_gpus() -> None:
    near = replace(GPUS.gres[0], cores="0-7", links=(-1, 4, 0))
    found = lines(render_slurm(replace(GPUS, gres=(near, *GPUS.gres[1:])))["gres.conf"])
    assert "Type=h100 File=/dev/nvidia0 Cores=0-7 Links=-1,4,0 Flags=" in found[1]
    assert not re.search("Cores=|Links=", "".join(found[2:]))


def test_links_of_our_own_and_shares() -> None:
    link = DeviceLink("/run/dshpc/gpus/dxg0", "/dev/dxg")
    plan = replace(GPUS, device_links=(link,), sharing=Sharing("shard", 12))
    text = render_slurm(plan)["gres.conf"]
    assert "# /run/dshpc/gpus/dxg0 is /dev/dxg, which stands for several GPUs" in text
    assert lines(text)[-1] == "Name=shard Count=12"
    slurm = render_slurm(plan)["slurm.conf"]
    assert "GresTypes=gpu,shard" in lines(slurm)
    assert "Gres=gpu:h100:1,gpu:1g.10gb:1,gpu:mi300x:1,shard:12 " in slurm


def test_features_disk_shares_and_more_partitions() -> None:
    plan = replace(
        PLAN,
        gres=GPUS.gres,
        features=("nvidia", "gpumem80g"),
        tmp_disk_mib=10240,
        def_cpu_per_gpu=2,
        def_mem_per_gpu_mib=4000,
        more_partitions=(Partition("short", "1:00:00"),),
        extra=(ExtraLine("KillWait", "KillWait=10"),),
    )
    text = render_slurm(plan)["slurm.conf"]
    assert " RealMemory=14374 TmpDisk=10240 Feature=nvidia,gpumem80g Gres=gpu:h100:1," in text
    found = lines(text)
    shares = "State=UP DefMemPerGPU=4000"
    assert found[-2:] == [
        f"PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE {shares}",
        f"PartitionName=short Nodes=ALL Default=NO MaxTime=1:00:00 {shares}",
    ]
    assert found.index("KillWait=10") < found.index(found[-3]), "before the node and its partitions"


_SETTINGS = {
    item.name: st.text(max_size=20) | st.sampled_from([str(item.default), "a", "shard:4", "x=1"])
    for item in DECLARATIONS
    if item.name in ("prefix", "partition", "partitions", "gpu_sharing", "isolation", "reserve_mib")
}


@given(st.fixed_dictionaries({}, optional=_SETTINGS))
def test_any_settings_are_refused_or_make_the_lines_that_are_ours(flags: dict[str, str]) -> None:
    facts = HostFacts(
        Platform("linux"),
        Cpu(8, 1, 4, 2, 8),
        Memory(16000, 16000),
        Gpus("absent"),
        Engine("absent"),
    )
    usual = render_slurm(plan_cluster(facts, load(flags={"isolation": "default"})))["slurm.conf"]
    try:
        plan = plan_cluster(facts, load(flags=flags))
    except DshpcError as error:
        assert error.exit_code == Exit.USAGE
        told = f"{error.brief}\n{error.details}".replace("-", "_")
        assert any(name in told for name in flags)
        return
    text = render_slurm(plan)["slurm.conf"]
    assert text.isascii()
    rest = "\n".join(line for line in lines(text) if line != 'PrEpPlugins=""')
    assert not re.search(r"[\\\"']|#.*#", rest)
    keys = [line.partition("=")[0] for line in lines(text)]
    expected = [line.partition("=")[0] for line in lines(usual)]
    assert keys == expected + ["PartitionName"] * len(plan.more_partitions)


def test_no_secret_and_no_munge() -> None:
    for text in render_slurm(PLAN).values():
        assert "munge" not in text.lower()


COMPOSE = ComposeFile(
    "lab", "lab-slurm", "lab", "lab-slurm:none", "1g", (), {}, {}, (), GpuStanza()
)


def test_inputs_name_what_the_texts_are_made_of() -> None:
    """Whatever else there is beside them changes nothing: the build section, the time."""
    same = inputs(PLAN, COMPOSE)
    assert inputs(replace(PLAN), replace(COMPOSE, build={"build": {"context": "."}})) == same
    others = {
        inputs(replace(PLAN, cpus=9), COMPOSE),
        inputs(PLAN, replace(COMPOSE, shm_size="2g")),
        inputs(PLAN, replace(COMPOSE, environment={"A": "b"})),
    }
    assert len({same, *others}) == 4


def test_inputs_name_the_module_that_writes_the_gpu_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = inputs(PLAN, COMPOSE)
    changed = tmp_path / "gpu_lines.py"
    changed.write_text("# another version\n")
    monkeypatch.setattr(gpu_lines, "__file__", str(changed))
    assert inputs(PLAN, COMPOSE) != same


@pytest.mark.parametrize("name", ["slurm.conf.j2", "isolation.conf.j2", "docker-compose.yml.j2"])
def test_inputs_name_the_templates(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = inputs(PLAN, COMPOSE)
    for source in (resources.templates(), resources.share()):
        for path in source.glob("*.j2"):
            shutil.copy(path, tmp_path)
    (tmp_path / name).write_text((tmp_path / name).read_text() + "# one line more\n")
    folder = "share" if name == "docker-compose.yml.j2" else "templates"
    monkeypatch.setattr(resources, folder, lambda: tmp_path)
    assert inputs(PLAN, COMPOSE) != same
