"""A job gets the GPU that Slurm gave it, by the numbers that programs count by: on real clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.cluster import Cluster, made
from tests.integration.engines import Engine

pytestmark = pytest.mark.engines("docker", why="not tried elsewhere")

WORDS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
SHOWS = 'echo "' + " ".join(f"{name}=${{{name}-unset}}" for name in WORDS) + '"'


@pytest.fixture(scope="module")
def alternating(engine: Engine, standard: Cluster) -> Iterator[Cluster]:
    """An H100, a T4, an H100 and an AMD card: in slurmd's list the H100s stand together."""
    with made("places", engine=engine) as cluster:
        cluster.configure("--simulate", "h100+t4+h100+mi210").good()
        yield cluster


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def parse(text: str) -> list[dict[str, str]]:
    """The variables of each task: a line each, for tasks write at the same time."""
    lines = [line.split() for line in text.splitlines() if line.startswith(WORDS[0])]
    return [dict(map(_pair, line)) for line in lines]


def seen(cluster: Cluster, *options: str) -> list[dict[str, str]]:
    return parse(cluster.said("srun", "--mem=50", *options, "sh", "-c", SHOWS))


def cuda(cluster: Cluster, *options: str) -> list[str]:
    return sorted(task["CUDA_VISIBLE_DEVICES"] for task in seen(cluster, *options))


def test_the_list_is_not_in_the_order_of_the_cards(alternating: Cluster) -> None:
    listed = alternating.exec("slurmd", "-G").good()
    files = [
        word.removeprefix("File=")
        for line in (listed.stdout + listed.stderr).splitlines()
        if " Gres Name=gpu " in line
        for word in line.split()
        if word.startswith("File=")
    ]
    assert files == ["/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia1", "/dev/dri/renderD128"]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--gres=gpu:t4:1"], ["1"]),
        (["--gres=gpu:h100:2"], ["0,2"]),
        (["--gres=gpu:t4:1,gpu:h100:1"], ["0,1"]),
        (["--gpus=t4:1", "--export=NONE"], ["1"]),
        (["-n2", "--gpus-per-task=h100:1"], ["0", "2"]),
        (["-n2", "--gres=gpu:h100:2", "--gpu-bind=single:1"], ["0", "2"]),
        (["-n2", "--gres=gpu:h100:1,gpu:t4:1", "--gpu-bind=map_gpu:2,0"], ["0", "1"]),
        (["--gres=gpu:mi210:1"], [""]),
        (["--gres=none"], [""]),
    ],
)
def test_numbers_as_cuda_counts(
    alternating: Cluster, options: list[str], numbers: list[str]
) -> None:
    assert cuda(alternating, *options) == numbers


def test_each_vendor_sees_its_own(alternating: Cluster) -> None:
    (task,) = seen(alternating, "--gres=gpu:mi210:1")
    assert (task["ROCR_VISIBLE_DEVICES"], task["HIP_VISIBLE_DEVICES"]) == ("0", "0")
    (task,) = seen(alternating, "--gres=gpu:t4:1")
    assert (task["ROCR_VISIBLE_DEVICES"], task["HIP_VISIBLE_DEVICES"]) == ("", "unset")
    assert task["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_in_batch_in_its_steps_in_arrays_and_in_salloc(alternating: Cluster) -> None:
    steps = f"srun --mem=50 sh -c '{SHOWS}'; srun --mem=50 --gres=none sh -c '{SHOWS}'"
    text = f"{SHOWS}; {steps}"
    alternating.said(
        *("sbatch", "--wait", "--mem=100", "--gres=gpu:t4:1", "--array=3", "-D", "/tmp"),
        *("-o", "/tmp/batch", "--wrap", text),
    )
    found = [task["CUDA_VISIBLE_DEVICES"] for task in parse(alternating.said("cat", "/tmp/batch"))]
    assert found == ["1", "1", ""]
    text = alternating.said(
        *("salloc", "--mem=100", "--gres=gpu:t4:1,gpu:h100:1"),
        *("srun", "--mem=50", "--gres=gpu:t4:1", "sh", "-c", SHOWS),
    )
    assert [task["CUDA_VISIBLE_DEVICES"] for task in parse(text)] == ["1"]


def test_a_batch_job_without_the_submitters_variables_has_a_home(alternating: Cluster) -> None:
    """slurmd of 24.11 would end: it wants a process namespace for a login of the user's."""
    alternating.said(
        *("sbatch", "--wait", "--export=NONE", "--mem=100", "--gres=gpu:t4:1", "-D", "/tmp"),
        *("-o", "/tmp/none", "--wrap", f"{SHOWS}; echo home $HOME, $USER"),
    )
    text = alternating.said("cat", "/tmp/none")
    assert parse(text)[0]["CUDA_VISIBLE_DEVICES"] == "1"
    assert "home /var/lib/dshpc/home/root, root" in text


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--gres=gpu:nvidia:1"], ["0"]),
        (["--gres=gpu:NVIDIA:2"], ["0,2"]),
        (["--gres=gpu:Tesla_T4:1"], ["1"]),
        (["--gpus=nvidia_h100_80gb_hbm3:2"], ["0,2"]),
        (["--gpus-per-node=nvidia:1"], ["0"]),
        (["-n2", "--gpus-per-task=nvidia:1"], ["0", "2"]),
        (["-n2", "--tres-per-task=cpu=1,gres/gpu:nvidia:1"], ["0", "2"]),
    ],
)
def test_names_that_people_say(
    alternating: Cluster, options: list[str], numbers: list[str]
) -> None:
    assert cuda(alternating, *options) == numbers


def test_a_vendors_name_in_a_step_means_what_the_job_has(alternating: Cluster) -> None:
    lines = [
        "#!/bin/sh",
        "#SBATCH --gpus=tesla_t4:1",
        "#SBATCH --mem=100",
        "#SBATCH -o /tmp/step",
        f"srun --mem=50 --gres=gpu:nvidia:1 sh -c '{SHOWS}'",
    ]
    text = "\n".join(lines).replace("'", "'\\''")
    alternating.said(
        "sh", "-c", f"cd /tmp; printf '%s\\n' '{text}' >step.sh; sbatch --wait step.sh"
    )
    found = parse(alternating.said("cat", "/tmp/step"))
    assert [task["CUDA_VISIBLE_DEVICES"] for task in found] == ["1"]


@pytest.mark.parametrize("gres", ["gpu:nvidia:9", "gpu:bogus:1", "gpu:nvidia:x"])
def test_what_there_is_not_is_refused_by_slurm(alternating: Cluster, gres: str) -> None:
    refused = alternating.exec("srun", "--mem=50", f"--gres={gres}", "true")
    assert refused.code != 0
    assert "srun: error:" in refused.stderr


def test_on_a_node_of_one_type_too_a_job_without_a_gpu_sees_none(standard: Cluster) -> None:
    assert cuda(standard, "--gres=gpu:h100:2") == ["0,1"]
    assert cuda(standard) == [""]


def test_beside_a_card_that_is_cut_uuids_are_given(alternating: Cluster) -> None:
    alternating.configure("--simulate", "mig").good()
    (task,) = seen(alternating, "--gres=gpu:1g.10gb:1")
    assert task["CUDA_VISIBLE_DEVICES"].startswith("MIG-facade00-")
    (task,) = seen(alternating, "--gres=gpu:h100:1")
    assert task["CUDA_VISIBLE_DEVICES"].startswith("GPU-facade00-")
