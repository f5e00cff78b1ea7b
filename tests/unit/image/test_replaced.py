"""An image that was replaced goes once the new one is proven; what is in use or has a name stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dshpc_setup.image import replaced
from dshpc_setup.image.build import LABEL
from tests.unit.engine.fake import Answer, FakeMachine

OLD, NEW = "sha256:old", "sha256:new"


def image(**more: Any) -> Answer:
    told = {"Id": OLD, "Architecture": "amd64", "Size": 7, "Config": {"Labels": {LABEL: "a"}}}
    return Answer(json.dumps({**told, "RepoTags": [], **more}))


def removes(answer: Answer, rmi: Answer = Answer(), **_: Any) -> tuple[int, list[str]]:
    fake = FakeMachine(
        programs={"docker"},
        commands={"/usr/bin/docker image inspect": answer, "docker image inspect": answer, "docker rmi": rmi},
    )  # fmt: skip
    return replaced.remove(fake, (OLD, None, "", NEW, OLD), NEW), fake.lines(" rmi ")


def test_one_without_a_name_is_removed_once() -> None:
    assert removes(image()) == (7, [f"docker rmi -- {OLD}"])
    assert removes(image(RepoTags=None))[0] == 7


@pytest.mark.parametrize(
    "answer",
    [
        image(RepoTags=["p-slurm:nvidia"]),  # somebody has given it another name
        image(Config={"Labels": {}}),  # of somebody else's making
        Answer(code=1, stderr="Error: No such image: old"),
        Answer(state="timeout"),
    ],
)
def test_what_is_named_or_not_ours_stays(answer: Answer) -> None:
    assert removes(answer) == (0, [])


@pytest.mark.parametrize(
    "refusal",
    [
        Answer(code=1, stderr="Error response from daemon: conflict: unable to delete old (must be "
                              "forced) - image is being used by stopped container 1"),
        Answer(state="timeout"),
    ],
)  # fmt: skip
def test_one_that_a_container_uses_is_the_engines_to_keep(refusal: Answer) -> None:
    freed, asked = removes(image(), refusal)
    assert (freed, asked) == (0, [f"docker rmi -- {OLD}"]), "without force"
