"""`--target`: what stands there, which GPUs it means, and what becomes of the request."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import targets
from dshpc_setup.jobs.availability import Availability
from dshpc_setup.jobs.fit import Fit, Refusal
from dshpc_setup.jobs.gpu_words import Clock
from dshpc_setup.jobs.offer import Offer
from dshpc_setup.methods.model import Resources
from tests.unit.jobs.offers import offer


def by_index(*models: str) -> Offer:
    """Each GPU with a type of its own; UUIDs as NVIDIA has them."""
    types = tuple(f"gpu{index}" for index in range(len(models)))
    found = offer(*models, slurm_types=types)
    cards = tuple(replace(gpu, uuid=f"GPU-{gpu.index}aB-77") for gpu in found.gpus)
    return replace(found, gres_type="index", gpus=cards)


NODE = by_index("h100", "h100", "t4")


@pytest.mark.parametrize(
    ("texts", "nodes", "found"),
    [
        ((), (), ()),
        (("node",), ("node",), ((),)),
        (("node::0,2",), ("node",), (("0", "2"),)),
        (("a-b::GPU-1f3a", "c::0.1"), ("a-b", "c"), (("GPU-1f3a",), ("0.1",))),
        (("node::MIG-GPU-5/1/0",), ("node",), (("MIG-GPU-5/1/0",),)),
    ],
)
def test_what_stands_there(
    texts: tuple[str, ...], nodes: tuple[str, ...], found: tuple[tuple[str, ...], ...]
) -> None:
    assert targets.parse(texts) == (nodes, found)


@pytest.mark.parametrize(
    "text",
    ["", "::0", "node:", "node::", "node:0", "node::0,", "node::,0", "node::0 ", "node::-1",
     "node::0;id", "--x::0", "node::0::1", "node::\u0660", "node::$(id)", "n\n::0"],
)  # fmt: skip
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(DshpcError, match="is no target") as told:
        targets.parse((text,))
    assert told.value.exit_code == 64


_ITEM = st.from_regex(r"[0-9A-Za-z][0-9A-Za-z./-]{0,20}", fullmatch=True)


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True), st.lists(_ITEM))
def test_what_is_written_is_read_again(node: str, words: list[str]) -> None:
    text = f"{node}::{','.join(words)}" if words else node
    assert targets.parse((text,)) == ((node,), (tuple(words),))


@given(st.text(max_size=30) | st.text("n:0,.-/G", max_size=12))
def test_any_text_is_read_or_refused_and_never_more_than_words(text: str) -> None:
    try:
        (node,), found = targets.parse((text,))
    except DshpcError as error:
        assert error.exit_code == 64
        return
    assert re.fullmatch(r"[A-Za-z0-9._-]+", node)
    assert all(re.fullmatch(r"[A-Za-z0-9./-]+", word) for word in found[0])


@pytest.mark.parametrize(
    ("words", "indices"),
    [
        (("0",), [0]),
        (("2", "0"), [2, 0]),
        (("GPU-1aB-77",), [1]),
        (("gpu-1ab",), [1]),  # people copy them in either case
    ],
)
def test_by_index_uuid_and_prefix(words: tuple[str, ...], indices: list[int]) -> None:
    assert [gpu.index for gpu in targets.chosen(words, NODE)] == indices


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("3",), "node has no such GPU"),
        (("00",), "no such GPU"),
        (("0.0",), "no such GPU"),
        (("GPU-9",), "no such GPU"),
        (("aB-77",), "no such GPU"),
        (("GPU-",), "several GPUs of node begin so"),
        (("0", "GPU-0aB-77"), "GPU 0 twice"),
    ],
)
def test_what_is_not_there(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(DshpcError, match=why) as told:
        targets.chosen(words, NODE)
    assert told.value.exit_code == 64
    if "twice" not in why:
        assert (
            "0 (h100, GPU-0aB-77)\n1 (h100, GPU-1aB-77)\n2 (t4, GPU-2aB-77)" in told.value.details
        )


def test_a_whole_uuid_that_another_begins_with_is_that_one() -> None:
    gpus = (replace(NODE.gpus[0], uuid="GPU-1"), replace(NODE.gpus[1], uuid="GPU-12"))
    assert [gpu.index for gpu in targets.chosen(("GPU-1",), replace(NODE, gpus=gpus))] == [0]


def test_instances_are_counted_on_their_card() -> None:
    cut = by_index("1g.10gb", "1g.10gb", "h100")
    gpus = (
        replace(cut.gpus[0], slurm_type="gpu0.0", index=0),
        replace(cut.gpus[1], slurm_type="gpu0.1", index=0),
        replace(cut.gpus[2], slurm_type="gpu1", index=1),
    )
    has = replace(cut, gpus=gpus)
    assert targets.chosen(("0.1", "1"), has) == (gpus[1], gpus[2])
    with pytest.raises(DshpcError, match="no such GPU") as told:
        targets.chosen(("0",), has)
    assert "0.0 (1g.10gb" in told.value.details


def test_types_of_the_users_own_go_by_the_cards_index() -> None:
    gpus = tuple(replace(gpu, slurm_type=f"card{9 - gpu.index}") for gpu in NODE.gpus)
    assert [gpu.index for gpu in targets.chosen(("2",), replace(NODE, gpus=gpus))] == [2]


BY_MODEL = offer("h100", "h100", "t4")


@pytest.mark.parametrize(
    ("words", "gres"),
    [
        (("2",), ("gpu:t4:1",)),  # the only one of its type
        (("0", "1"), ("gpu:h100:2",)),  # all of theirs
        (("2", "1", "0"), ("gpu:t4:1", "gpu:h100:2")),
    ],
)
def test_by_model_what_is_unambiguous_can_be_named(
    words: tuple[str, ...], gres: tuple[str, ...]
) -> None:
    found = targets.fit(Resources(), BY_MODEL, targets.chosen(words, BY_MODEL), Availability())
    assert isinstance(found, Fit)
    assert (found.gres, found.gpus, found.free) == (gres, len(words), len(words))


def test_by_model_one_of_several_cannot_be_named_and_how_to_change_is_said() -> None:
    with pytest.raises(DshpcError, match="GPU 0 of node cannot be requested by index") as told:
        targets.chosen(("0",), BY_MODEL)
    assert "Slurm knows GPUs 0 and 1 as h100" in told.value.brief
    assert told.value.resolution == (
        "Give each GPU a type of its own: configure-environment --gres-type index",
        "Or take any: --gpus 1 --gpu-type h100",
    )
    with pytest.raises(DshpcError, match="node has none"):
        targets.chosen(("0",), offer())


def test_the_node_is_checked() -> None:
    targets.check_node(None, NODE)
    targets.check_node("node", NODE)
    targets.check_node("localhost", NODE)
    with pytest.raises(DshpcError, match="no node nod") as told:
        targets.check_node("nod", NODE)
    assert told.value.resolution == ("Name that: --target node",)


def test_a_target_is_asked_for_by_name_and_says_the_count() -> None:
    found = targets.fit(Resources(gpus=1, cpus=2), NODE, NODE.gpus[1:], Availability())
    assert isinstance(found, Fit)
    assert found.gres == ("gpu:gpu1:1", "gpu:gpu2:1")  # of two models
    assert (found.gpus, found.free, found.cpus_per_task) == (2, 2, 2)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Resources(gpu_memory_mb=40 * 1024), r"40 GB, and GPU 2 is t4 \(16 GB\)"),
        (Resources(gpu_type="h100"), "named h100, and GPU 2 is t4"),
        (Resources(shards=1), "asks for shards"),
        (Resources(cpus=99), "99 CPUs"),
    ],
)
def test_a_target_that_is_not_what_it_needs(wanted: Resources, why: str) -> None:
    found = targets.fit(wanted, NODE, NODE.gpus[2:], None)
    assert isinstance(found, Refusal)
    assert re.search(why, found.whys[0])


def test_who_has_it_is_said() -> None:
    room = Availability({"gpu0": (3600.0,), "gpu2": (None,)}, {"gpu0": ("job 12 of ada",)})
    clock = Clock(0)
    assert targets.taken(NODE.gpus, room, clock) == (
        "GPU 0 is taken by job 12 of ada until 01:00; GPU 2 is taken"
    )
    assert targets.taken(NODE.gpus[1:2], room, clock) == ""
    by_type = Availability({"h100": (3600.0,), "t4": (None,)}, {"h100": ("job 12 of ada",)})
    assert targets.taken(BY_MODEL.gpus, by_type, clock) == (
        "1 of the GPUs 0 and 1 is taken by job 12 of ada until 01:00; GPU 2 is taken"
    )
    assert targets.taken(NODE.gpus, None, clock) == ""
