"""What people did by hand in the system that this one follows: its recipes, step by step.

Where its words cannot be taken literally (8 CPUs, groups by name) they are replaced by
this machine's, as docs/how-to/own-configuration.md says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import pytest

from tests.integration.cluster import Cluster, Outcome, docker, made, run, wait_until
from tests.integration.engines import Engine
from tests.integration.shown import blocks

pytestmark = pytest.mark.engines("docker", why="its recipes are typed with compose")

MARKER = "# USER_CUSTOMIZED=true\n"
MANUAL = ("config/slurm.conf", "config/gres.conf", "docker-compose.yml")
REQUESTS = ("--gres=gpu:1", "--gres=gpu:nvidia:1", "--gpus=1", "--gpus=nvidia:1")
# As docs/how-to/own-configuration.md shows them; here the nodes of AMD's GPUs are made up
NVIDIA, _AMD = (
    block.text for block in blocks("docs/how-to/own-configuration.md") if block.language == "yaml"
)
AMD = _AMD.replace("/dev/kfd:/dev/kfd", "/dev/null:/dev/kfd").replace(
    "/dev/dri:/dev/dri", "/dev/null:/dev/dri/renderD128"
)


def compose(cluster: Cluster, *arguments: str) -> Outcome:
    """The compose tool of this machine, as people call it: in the folder, without options."""
    v2 = run(["docker", "compose", "version"]).code == 0
    tool = ["docker", "compose"] if v2 else ["docker-compose"]
    return run([*tool, *arguments], cwd=cluster.folder, timeout_s=800)


@pytest.fixture(scope="module")
def shared(engine: Engine) -> Iterator[Cluster]:
    with made("seed", engine=engine) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """Two made-up H100 and all files ours."""
    for path in [*(shared.folder / "config").glob("*"), *shared.folder.glob("docker-compose.yml*")]:
        path.unlink()
    (shared.folder / ".dshpc/remembered.json").unlink(missing_ok=True)
    shared.configure("--simulate", "h100:2").good()
    wait_until(lambda: shared.node() == ("gpu:h100:2", "idle"), "the node is idle")
    return shared


def ready(cluster: Cluster) -> None:
    cluster.said("dshpc-node", "wait", "--timeout", "100")


def node_line(cluster: Cluster, gres: str) -> str:
    """The recipe's NodeName line, with this machine's name, CPUs and memory."""
    found = cluster.said("sinfo", "-h", "-N", "-o", "%N %c %m").split()
    name, cpus, memory = found[0], found[1], found[2]
    assert name == cluster.prefix
    return f"NodeName={name} CPUs={cpus} RealMemory={memory} Gres={gres} State=UNKNOWN"


def with_node_line(cluster: Cluster, line: str) -> None:
    """Edit config/slurm.conf as the recipe says, and mark it."""
    path = cluster.folder / "config/slurm.conf"
    text = path.read_text()
    assert "\nGresTypes=gpu\n" in text, "the recipe's first line is there already"
    new = re.sub(r"(?m)^NodeName=.*$", line, text)
    assert new != text
    path.write_text(MARKER + new)


def stamps(cluster: Cluster) -> dict[str, tuple[int, str]]:
    return {
        name: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for name in MANUAL
        if (path := cluster.folder / name).exists()
    }


def down_and_up(cluster: Cluster) -> None:
    compose(cluster, "down").good()
    compose(cluster, "up", "-d").good()
    ready(cluster)


def compose_restart(cluster: Cluster) -> None:
    compose(cluster, "restart").good()
    ready(cluster)


def dshpc_restart(cluster: Cluster) -> None:
    cluster.dshpc("restart").good()


def dshpc_reconfigure(cluster: Cluster) -> None:
    cluster.dshpc("reconfigure").good()


def configure(cluster: Cluster) -> None:
    cluster.configure().good()


# --- "Invalid GRES specification"


def test_invalid_gres_delete_the_files_and_restart(cluster: Cluster) -> None:
    path, gres = (cluster.folder / "config" / name for name in ("slurm.conf", "gres.conf"))
    ours = cluster.dshpc("config", "show", "slurm.conf").good().stdout
    lines = cluster.dshpc("config", "show", "gres.conf").good().stdout
    for again in (down_and_up, compose_restart, dshpc_restart, dshpc_reconfigure, configure):
        # Files of a machine with other GPUs, as they are after a move
        path.write_text(ours.replace("gpu:h100:2", "gpu:a100:2"))
        gres.write_text(lines.replace("Type=h100", "Type=a100"))
        cluster.dshpc("reconfigure").good()
        broken = cluster.exec("srun", "--gres=gpu:h100:1", "true")
        assert broken.code != 0
        words = ("Invalid generic resource (gres) specification",
                 "Requested node configuration is not available")  # fmt: skip
        assert any(word in broken.stderr for word in words), broken.stderr

        path.unlink()
        gres.unlink()
        again(cluster)
        wait_until(lambda: cluster.node() == ("gpu:h100:2", "idle"), again.__name__)
        cluster.said("srun", "--gres=gpu:h100:2", "true")
        assert path.exists() is (again is configure), "the container writes none in config/"
        assert cluster.dshpc("config", "show", "slurm.conf").good().stdout == ours


# --- "Manual GPU Configuration"


def test_manual_configuration_step_by_step(cluster: Cluster) -> None:
    # 1. The compose file is made one's own; its GPU section stays, since it is right
    path = cluster.folder / "docker-compose.yml"
    path.write_text(MARKER + path.read_text())
    # 2. gres.conf
    node = cluster.prefix
    line = f"NodeName={node} Name=gpu Type=nvidia File=/dev/nvidia0"
    run(["sh", "-c", f'echo "{line}" > config/gres.conf'], cwd=cluster.folder).good()
    # 3. slurm.conf
    with_node_line(cluster, node_line(cluster, "gpu:nvidia:1"))
    before = stamps(cluster)
    # 4. Rebuild and restart
    image = str(cluster.inspect()["Config"]["Image"])
    was = docker("image", "inspect", "--format", "{{.Id}}", image)
    compose(cluster, "build", "--no-cache", "--build-arg", "GPU_TYPE=nvidia").good()
    assert docker("image", "inspect", "--format", "{{.Id}}", image) != was, "nothing was built"
    down_and_up(cluster)

    container = ["docker", "exec", "-i", cluster.container]
    said = run([*container, "sinfo", "-o", "%n %G"]).good().stdout
    assert f"{node} gpu:nvidia:1" in said.splitlines()
    shown = run([*container, "scontrol", "show", f"node={node}"]).good().stdout
    assert "Gres=gpu:nvidia:1" in shown
    for request in REQUESTS:
        seen = run([*container, "srun", request, "printenv", "CUDA_VISIBLE_DEVICES"])
        assert seen.good().stdout == "0\n", request
    job = cluster.submit("--gres=gpu:1", script="printenv CUDA_VISIBLE_DEVICES")
    cluster.completed(job)
    assert cluster.output(job) == "0\n"

    for again in (compose_restart, dshpc_restart, dshpc_reconfigure, configure):
        again(cluster)
        wait_until(lambda: cluster.node() == ("gpu:nvidia:1", "idle"), again.__name__)
        assert stamps(cluster) == before, again.__name__


def test_the_image_is_built_for_the_gpus_that_are_named(cluster: Cluster) -> None:
    """With the compose of this machine; compose 1 said "uses an image, skipping" and ended well."""
    image = str(cluster.inspect()["Config"]["Image"])
    label = '{{index .Config.Labels "org.dshpc.gpu-type"}}'
    for gpu_type in ("none", "nvidia"):
        compose(cluster, "build", "--build-arg", f"GPU_TYPE={gpu_type}").good()
        assert docker("image", "inspect", "--format", label, image).strip() == gpu_type
    down_and_up(cluster)
    assert cluster.node() == ("gpu:h100:2", "idle")
    built = docker("image", "inspect", "--format", "{{.Id}}", image)
    cluster.configure().good()
    assert docker("image", "inspect", "--format", "{{.Id}}", image) == built, "it is the same image"


def test_gres_conf_alone_is_enough(cluster: Cluster) -> None:
    """Its second step without the third: what stands there is meant, unmarked as the recipe has it."""
    line = f"NodeName={cluster.prefix} Name=gpu Type=nvidia File=/dev/nvidia1"
    (cluster.folder / "config/gres.conf").write_text(f"{line}\n")
    before = stamps(cluster)
    dshpc_restart(cluster)
    wait_until(lambda: cluster.node() == ("gpu:nvidia:1", "idle"), "what was written is used")
    cluster.said("srun", "--gres=gpu:1", "true")
    assert stamps(cluster) == before


def test_the_literal_localhost_is_the_node(cluster: Cluster) -> None:
    path = cluster.folder / "config/gres.conf"
    path.write_text("NodeName=localhost Name=gpu Type=nvidia File=/dev/nvidia0\n")
    before = stamps(cluster)
    said = cluster.dshpc("reconfigure").good().stdout
    assert f"NodeName=localhost is taken as this node, {cluster.prefix}." in said
    wait_until(lambda: cluster.node() == ("gpu:nvidia:1", "idle"), "what was written is used")
    assert stamps(cluster) == before, "the file of the user stays as it is"
    cluster.said("srun", "--gres=gpu:1", "true")
    shown = cluster.dshpc("scontrol", "show", "node", "localhost").good().stdout
    assert shown.startswith(f"NodeName={cluster.prefix} ")
    cluster.dshpc("srun", "-w", "localhost", "--gres=gpu:1", "true").good()
    down_and_up(cluster)
    wait_until(lambda: cluster.node() == ("gpu:nvidia:1", "idle"), "a start takes it as well")


def test_localhost_in_slurm_conf_is_refused_with_words(cluster: Cluster) -> None:
    right = node_line(cluster, "gpu:nvidia:1")
    with_node_line(cluster, right.replace(f"NodeName={cluster.prefix}", "NodeName=localhost"))
    before = stamps(cluster)
    refused = cluster.dshpc("reconfigure")
    assert refused.code == 2, refused.stdout
    assert "config/slurm.conf" in refused.stdout
    assert cluster.prefix in refused.stdout, "the name that would be right"
    assert cluster.node() == ("gpu:h100:2", "idle"), "it goes on as it was"
    assert stamps(cluster) == before


def test_nvidia_section_of_the_recipe_is_a_compose_file(cluster: Cluster) -> None:
    """Where there is no toolkit the engine refuses it in its own words; the file stays as it is."""
    path = cluster.folder / "docker-compose.yml"
    text = path.read_text()
    assert "\n    volumes:\n" in text
    path.write_text(MARKER + text.replace("\n    volumes:\n", f"\n{NVIDIA}    volumes:\n", 1))
    before = stamps(cluster)
    compose(cluster, "config", "-q").good()
    shown = cluster.dshpc("config", "show", "docker-compose.yml", "--json").good().report
    assert shown["owner"] == "custom"
    assert stamps(cluster) == before


def test_amd_section_with_numeric_groups(cluster: Cluster) -> None:
    cluster.configure("--simulate", "mi300x:1").good()
    path = cluster.folder / "docker-compose.yml"
    text = re.sub(
        r"(?m)^    (?:devices|security_opt|group_add):\n(?:      .*\n)+", "", path.read_text()
    )
    path.write_text(MARKER + text.replace("\n    volumes:\n", f"\n{AMD}    volumes:\n", 1))
    node = cluster.prefix
    line = f"NodeName={node} Name=gpu Type=amd File=/dev/dri/renderD128 Flags=amd_gpu_env"
    (cluster.folder / "config/gres.conf").write_text(f"{MARKER}{line}\n")
    with_node_line(cluster, node_line(cluster, "gpu:amd:1"))
    before = stamps(cluster)
    down_and_up(cluster)
    assert cluster.inspect()["HostConfig"]["GroupAdd"] == ["44", "992"]
    wait_until(lambda: cluster.node() == ("gpu:amd:1", "idle"), "what was written is used")
    for request in ("--gres=gpu:1", "--gres=gpu:amd:1"):
        assert cluster.said("srun", request, "printenv", "ROCR_VISIBLE_DEVICES") == "0"
    configure(cluster)
    assert stamps(cluster) == before
