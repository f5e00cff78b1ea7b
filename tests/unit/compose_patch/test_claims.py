"""Every kind of claim is known wherever claims are told apart: what fails here names the list to extend."""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args, get_type_hints

import pytest

from dshpc_setup.compose_patch.document import Document
from dshpc_setup.compose_patch.own import said
from dshpc_setup.documents import yaml_nodes
from dshpc_setup.errors import DshpcError
from dshpc_setup.render.gpu_lines import Claim, read
from dshpc_setup.render.gpu_part import words

KINDS: tuple[str, ...] = get_args(get_type_hints(Claim)["kind"])
# A line of a service that makes a claim of that kind and no other, by a key of its own; and what stands there
EXAMPLES = {
    "runtime": ("runtime: %s", "nvidia"),
    "request": ("gpus: %s", "all"),
    "cdi": (
        "deploy: {resources: {reservations: {devices: [{driver: cdi, device_ids: [%s]}]}}}",
        "a/b=0",
    ),
    "node": ("devices: [%s]", "/dev/kfd"),
    "group": ("group_add: [%s]", "44"),
    "variable": ("environment: {NVIDIA_VISIBLE_DEVICES: %s}", "all"),
}
NO_GPU = {"group"}  # by itself it hands nothing over
MAY_VARY = {"group", "variable"}  # a variable of the shell may stand there


def example(kind: str, name: str = "") -> str:
    line, usual = EXAMPLES[kind]
    return line % (name or usual)


def claimed(service: str) -> set[str]:
    document = Document(service, "c.yml")
    return {item.claim.kind for item in said(document, document.root, raw_nodes=True)}


def in_words(kinds: Collection[str]) -> tuple[str, ...]:
    service = yaml_nodes.load("\n".join(map(example, kinds)))
    return words({"services": {"a": service}})


def test_each_kind_has_an_example() -> None:
    assert set(KINDS) == set(EXAMPLES), "a new kind has its line in EXAMPLES of this file"


@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_kind_is_read_from_its_example(kind: str) -> None:
    found = {claim.kind for claim in read(yaml_nodes.load(example(kind)))}
    assert found == {kind}, "`read` in render/gpu_lines.py makes the claim"


@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_kind_has_words_in_files_of_others(kind: str) -> None:
    wanted = {kind} - NO_GPU
    assert claimed(example(kind)) == wanted, "into _words of compose_patch/own.py, or NO_GPU here"


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_variable_in_the_place_of_a_claim_is_refused(kind: str) -> None:
    try:
        claimed(example(kind, "$X"))
        refused = False
    except DshpcError:
        refused = True
    assert refused == (kind not in MAY_VARY), "its key into _READ of compose_patch/own.py"


@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_kind_is_in_the_words_of_a_file(kind: str) -> None:
    others = [each for each in EXAMPLES if each != kind]
    assert in_words(EXAMPLES) != in_words(others), "into `words` or _words of render/gpu_part.py"
