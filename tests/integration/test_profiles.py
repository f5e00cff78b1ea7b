"""Other made-up machines than two H100, each as a real cluster; and the newer Docker tools."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.cluster import FILES, Cluster, docker, environment, made, run, wait_until
from tests.integration.engines import Engine

pytestmark = pytest.mark.engines("builtin", "docker")

NVIDIA, AMD = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


@pytest.fixture
def profile(engine: Engine, standard: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster of the made-up machine that the test names."""
    with made("profile", engine=engine) as cluster:
        report = cluster.configure("--simulate", request.param).good().report
        assert report["simulated"] is True
        assert report["cluster"]["ready"] is True
        yield cluster


def held(cluster: Cluster, variable: str, *requests: str) -> list[str]:
    """The GPUs of jobs with these requests that all run at once."""
    go = cluster.work / "go"
    script = f"echo ${variable}; until [ -e {go} ]; do sleep 0.2; done"
    jobs = [cluster.submit("--mem=16", text, script=script) for text in requests]
    try:
        wait_until(lambda: all(cluster.output(job).strip() for job in jobs), "all run at once")
        assert {cluster.job_state(job)[0] for job in jobs} == {"RUNNING"}
        return [cluster.output(job).strip() for job in jobs]
    finally:
        go.touch()
        wait_until(lambda: cluster.said("squeue", "-h") == "", "all have ended")
        go.unlink()


@pytest.mark.parametrize("profile", ["h100:8"], indirect=True)
def test_eight_gpus_carry_eight_jobs_whatever_the_cpus(profile: Cluster) -> None:
    assert profile.node() == ("gpu:h100:8", "idle")
    seen = held(profile, NVIDIA, *["--gres=gpu:1"] * 8)
    assert sorted(seen) == [str(index) for index in range(8)]
    assert profile.said("srun", "--gres=gpu:nvidia:8", "printenv", NVIDIA) == "0,1,2,3,4,5,6,7"
    too_many = profile.exec("srun", "--gres=gpu:9", "true")
    assert too_many.code != 0
    assert "configuration is not available" in too_many.stderr


@pytest.mark.parametrize("profile", ["mig"], indirect=True)
def test_instances_of_a_card_are_gpus_of_their_own(profile: Cluster) -> None:
    gres, state = profile.node()
    assert state == "idle"
    counts = dict(item.removeprefix("gpu:").rsplit(":", 1) for item in gres.split(","))
    assert counts["1g.10gb"] == "4"
    assert counts["3g.40gb"] == "1"
    assert counts["h100"] == "1"
    kinds = ["1g.10gb"] * 4 + ["3g.40gb", "h100"]
    seen = held(profile, NVIDIA, *(f"--gres=gpu:{kind}:1" for kind in kinds))
    assert len(set(seen)) == len(kinds), seen
    gres_conf = profile.texts()["config/gres.conf"] or ""
    assert gres_conf.count("MultipleFiles=") == 5


@pytest.mark.parametrize("profile", ["mixed"], indirect=True)
def test_cards_of_two_kinds(profile: Cluster) -> None:
    assert profile.node() == ("gpu:h100:2,gpu:t4:1", "idle")
    requests = ("--gres=gpu:h100:2", "--gres=gpu:t4:1")
    assert held(profile, NVIDIA, *requests) == ["0,1", "2"]
    seen = held(profile, NVIDIA, *["--gres=gpu:1"] * 3)
    assert sorted(seen) == ["0", "1", "2"]
    # The vendor's name means one type: that of which there are most
    assert sorted(held(profile, NVIDIA, *["--gres=gpu:nvidia:1"] * 2)) == ["0", "1"]
    assert profile.said("srun", "--gres=gpu:tesla_t4:1", "printenv", NVIDIA) == "2"


@pytest.mark.engines("docker", why="about the image of each vendor")
@pytest.mark.parametrize("profile", ["mi300x:2"], indirect=True)
def test_amd_has_its_own_variable_and_tools(profile: Cluster) -> None:
    assert profile.node() == ("gpu:mi300x:2", "idle")
    assert profile.said("srun", "--gres=gpu:mi300x:1", "printenv", AMD) == "0"
    assert profile.said("srun", "--gres=gpu:amd:1", "printenv", AMD) == "0"
    assert sorted(held(profile, AMD, "--gres=gpu:1", "--gres=gpu:1")) == ["0", "1"]
    assert profile.inspect()["Config"]["Image"] == f"{profile.container}:amd"
    (image,) = json.loads(docker("image", "inspect", f"{profile.container}:amd"))
    assert "amd" in image["Config"]["Labels"].values()
    for tool in ("rocm-smi", "rocminfo"):
        assert profile.said("sh", "-c", f"command -v {tool}") == f"/usr/bin/{tool}"


def test_machine_without_a_gpu(engine: Engine, standard: Cluster) -> None:
    with made("profile", engine=engine) as cluster:
        report = cluster.configure("--gpu", "none").good().report
        assert report["simulated"] is False
        assert cluster.node()[1] == "idle"
        assert report["cluster"]["nodes"][0]["gres"] == ""
        assert "SIMULATED" not in "".join(text or "" for text in cluster.texts().values())
        assert cluster.said("srun", "hostname") == cluster.prefix
        # without GresTypes it would run, with no GPU
        refused = cluster.exec("srun", "--gres=gpu:1", "true")
        assert refused.code != 0
        assert "Invalid generic resource" in refused.stderr or (
            "configuration is not available" in refused.stderr
        )
        assert cluster.exec("sbatch", "--gres=gpu:1", "--wrap", "true").code != 0


@pytest.mark.engines("docker", why="about compose 2")
def test_compose_2_and_buildx(standard: Cluster, v2_plugins: dict[str, str]) -> None:
    with made("plugins", v2_plugins) as cluster:
        first = cluster.configure("--simulate", "h100:2").good()
        assert first.report["cluster"]["ready"] is True
        assert cluster.said("srun", "--gres=gpu:nvidia:1", "printenv", NVIDIA) == "0"
        assert cluster.configure().good().actions == dict.fromkeys(FILES, "unchanged")

        # the compose file alone builds the same image
        tag = f"{cluster.container}:nvidia"
        label = '{{index .Config.Labels "org.dshpc.build"}}'
        digest = docker("image", "inspect", "--format", label, tag)
        before = docker("image", "inspect", "--format", "{{.Id}}", tag)
        docker("tag", tag, f"{cluster.container}:kept")
        docker("rmi", tag)
        assert len(digest.strip()) == 64
        compose = ["docker", "compose", "build"]
        run(compose, cwd=cluster.folder, env=cluster.env, timeout_s=600).good()
        assert docker("image", "inspect", "--format", label, tag) == digest
        started = cluster.started_at
        again = cluster.configure().good()
        assert again.steps["build"]["detail"].endswith("here already")
        if docker("image", "inspect", "--format", "{{.Id}}", tag) == before:
            assert cluster.started_at == started

        cluster.dshpc("down").good()
        cluster.dshpc("up").good()
        assert cluster.node() == ("gpu:h100:2", "idle")
        assert environment(cluster.env)["DOCKER_CONFIG"] == v2_plugins["DOCKER_CONFIG"]

        # the recipe's build for other GPUs, which test_seed_recipes does with this machine's compose
        other = [*compose, "--build-arg", "GPU_TYPE=none"]
        run(other, cwd=cluster.folder, env=cluster.env, timeout_s=600).good()
        kind = '{{index .Config.Labels "org.dshpc.gpu-type"}}'
        assert docker("image", "inspect", "--format", kind, tag).strip() == "none"
