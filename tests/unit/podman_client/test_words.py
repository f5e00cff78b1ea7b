"""Docker's words for Podman, and Podman's answers in Docker's: as 4.3.1 gave them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.engine_client import in_podmans_words
from dshpc_setup.podman_client import words
from dshpc_setup.podman_client.service import Here

ADA = Here(rootless=True, uids=(1000, 65537), gids=(1000, 65537))


def test_a_test_container_has_the_ids_of_the_clusters() -> None:
    asked = words.asked(["run", "--rm", "--user", "1000:1000", "image", "true"], ADA)
    assert asked[0] == "run"
    assert asked[-5:] == ["--rm", "--user", "1000:1000", "image", "true"]
    assert "1000:0:1" in asked
    assert "--userns" not in asked
    assert (
        words.asked(["version", "--format", "{{.Server.Version}}"], ADA)[-1]
        == "{{.Client.Version}}"
    )
    assert words.asked(["exec", "c", "run"], ADA) == ["exec", "c", "run"]


@pytest.mark.parametrize(
    ("asked", "stderr", "said"),
    [
        (["inspect"], "Error: inspecting object: no such container c", "Error: No such container: c"),
        (["inspect"], "Error: no such container c", "Error: No such container: c"),
        (["image", "inspect"], "Error: inspecting object: a:b: image not known", "Error: No such image: a:b"),
        (["inspect"], "Error: inspecting object: no such volume v", "Error: No such volume: v"),
        (["rmi"], "Error: a:b: image not known", "Error: No such image: a:b"),
        (
            ["volume", "rm"],
            'Error: no volume with name "v" found: no such volume',
            "Error: No such volume: v",
        ),
        (
            ["logs"],
            'Error: no container with name or ID "c" found: no such container',
            "Error: No such container: c",
        ),
        (
            ["network", "rm"],
            "Error: unable to find network with name or ID n: network not found",
            "Error: network n not found",
        ),
        (
            ["exec", "c", "true"],
            "Error: can only create exec sessions on running containers: container state improper",
            "Error response from daemon: the container is not running",
        ),
        (["exec", "c", "true"], "Error: conmon died", "Error response from daemon: conmon died"),
        (["start"], "Error: something else", "Error: something else"),
    ],
)  # fmt: skip
def test_errors(asked: list[str], stderr: str, said: str) -> None:
    assert words.answered(asked, "", f"{stderr}\n", 125) == ("", f"{said}\n")


def test_what_a_program_in_the_container_says_is_its_own() -> None:
    asked = ["exec", "c", "sh"]
    assert words.answered(asked, "", "Error: mine\n", 1) == ("", "Error: mine\n")


def test_names_of_images() -> None:
    said, _ = words.answered(["images", "--format", "x"], "localhost/a:b\ndocker.io/c:d\n", "", 0)
    assert said == "a:b\ndocker.io/c:d\n"


def test_a_container() -> None:
    told = {
        "Id": "1" * 64,
        "Image": "2" * 64,
        "State": {"Status": "stopped", "Running": False},
        "Config": {
            "Image": "localhost/lab-slurm:none",
            "CreateCommand": ["podman", "create", "--device", "/dev/null:/dev/nvidia0", "--device",
                              "nvidia.com/gpu=0"],
        },
        "HostConfig": {"Devices": [], "ShmSize": 5},
    }  # fmt: skip
    said, _ = words.answered(["inspect", "--type", "container"], json.dumps([told]), "", 0)
    (found,) = json.loads(said)
    assert found["Image"] == f"sha256:{'2' * 64}"
    assert found["State"] == {"Status": "exited", "Running": False}
    assert found["Config"]["Image"] == "lab-slurm:none"
    host = found["HostConfig"]
    assert host["Devices"] == [{"PathOnHost": "/dev/null", "PathInContainer": "/dev/nvidia0"}]
    assert host["DeviceRequests"][0]["DeviceIDs"] == ["nvidia.com/gpu=0"]
    assert host["ShmSize"] == 5


def test_an_image_is_one_object_though_podman_prints_a_list() -> None:
    told = [{"Id": "3" * 64, "RepoTags": ["localhost/a:b"], "Size": 1}]
    asked = ["image", "inspect", "--format", "{{json .}}", "a:b"]
    said, _ = words.answered(asked, json.dumps(told, indent=5), "", 0)
    assert json.loads(said) == {"Id": f"sha256:{'3' * 64}", "RepoTags": ["a:b"], "Size": 1}


@given(st.text(), st.sampled_from([None, "{{json .}}", "{{.Name}}"]))
def test_any_answer_is_taken(text: str, template: str | None) -> None:
    asked = ["inspect", *(["--format", template] if template else [])]
    said, _ = words.answered(asked, text, "", 0)
    assert isinstance(said, str)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("docker logs --tail 50 lab-slurm", "podman logs --tail 50 lab-slurm"),
        ("sudo docker system df; docker volume rm x", "sudo podman system df; podman volume rm x"),
        ("docker compose up failed", "podman compose up failed"),
        ("docker-compose.yml", "docker-compose.yml"),
        ("--engine docker", "--engine docker"),
        (
            "unix:///run/docker.sock and /etc/docker images",
            "unix:///run/docker.sock and /etc/docker images",
        ),
        ("sudo usermod -aG docker ada", "sudo usermod -aG docker ada"),
    ],
)
def test_commands_in_advice(text: str, said: str) -> None:
    assert in_podmans_words(text) == said
