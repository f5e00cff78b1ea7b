from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.jobs import answer
from dshpc_setup.jobs.availability import Availability
from dshpc_setup.jobs.fit import Fit, Refusal, fit, needs_room, suits
from dshpc_setup.jobs.gpu_words import Clock, asked_size
from dshpc_setup.methods.model import Resources
from tests.unit.jobs.offers import offer

NOW = time.mktime(time.strptime("2026-01-31 13:00", "%Y-%m-%d %H:%M")) - time.timezone
CLOCK = Clock(NOW)
MIXED = offer("h100", "h100", "t4")


def gres(
    wanted: Resources, has: object = MIXED, room: Availability | None = None
) -> tuple[str, ...]:
    found = fit(wanted, has, room)  # type: ignore[arg-type]
    assert isinstance(found, Fit), found
    return found.gres


def why(wanted: Resources, room: Availability | None = None, partition: str | None = None) -> str:
    found = fit(wanted, MIXED, room, partition, CLOCK)
    assert isinstance(found, Refusal), found
    return "; ".join(found.whys)


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (Resources(gpus=1), "gpu:t4:1"),
        (Resources(gpus=2), "gpu:h100:2"),
        (Resources(gpus=1, gpu_memory_mb=16384), "gpu:t4:1"),
        (Resources(gpus=1, gpu_memory_mb=16000), "gpu:t4:1"),  # sold with 16 GB, reports 15360 MiB
        (Resources(gpus=1, gpu_memory_mb=15361), "gpu:h100:1"),
        (Resources(gpus=1, gpu_memory_mb=17000), "gpu:h100:1"),
        (Resources(gpus=1, gpu_memory_mb=81920), "gpu:h100:1"),
        (Resources(gpus=1, min_compute_capability="7.5"), "gpu:t4:1"),
        (Resources(gpus=1, min_compute_capability="8.0"), "gpu:h100:1"),
        (Resources(gpus=1, gpu_type="H100"), "gpu:h100:1"),
        (Resources(gpus=2, gpu_type="nvidia"), "gpu:h100:2"),
        (Resources(gpus=1, cuda="12.4"), "gpu:t4:1"),
    ],
)
def test_the_smallest_that_satisfies_all_is_chosen(wanted: Resources, chosen: str) -> None:
    assert gres(wanted) == (chosen,)


def test_what_is_free_goes_before_what_is_small() -> None:
    busy = Availability({"t4": (None,)})
    assert gres(Resources(gpus=1), room=busy) == ("gpu:h100:1",)
    assert gres(Resources(gpus=1), room=Availability({"t4": (None,), "h100": (None, None)})) == (
        "gpu:t4:1",
    )


def test_what_is_free_is_asked_for_only_where_it_makes_a_difference() -> None:
    assert needs_room(Resources(gpus=1), MIXED)
    assert not needs_room(Resources(gpus=2), MIXED)
    assert not needs_room(Resources(), MIXED)


def test_a_refusal_says_what_there_is_and_until_when_it_is_held() -> None:
    room = Availability({"h100": (NOW + 65 * 60,)})
    told = why(Resources(gpus=3, gpu_memory_mb=40960), room)
    assert told == (
        "it needs 3 GPUs with 40 GB, this cluster has 1x h100 (80 GB) free and 1 busy until 14:05, "
        "and 1x t4 (16 GB)"
    )
    without_end = why(Resources(gpus=4), Availability({"t4": (None,)}))
    assert without_end.startswith("it needs 4 GPUs, this cluster has")
    assert without_end.endswith("2x h100 (80 GB), and 1x t4 (16 GB), busy")


def test_an_end_on_another_day_says_which() -> None:
    assert Clock(NOW).until(NOW + 24 * 3600) == "Sun 13:00"
    assert Clock(NOW).until(NOW + 9 * 24 * 3600) == "2026-02-09 13:00"
    assert Clock(NOW, 2 * 3600).until(NOW) == "15:00"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Resources(gpus=1, gpu_type="a100"), "1 GPU named a100"),
        (Resources(gpus=1, cuda="13.0"), "and CUDA 12.4"),
        (Resources(cpus=9), "it needs 9 CPUs, this cluster has 8"),
        (Resources(cpus=3, tasks=3), "9 CPUs (3 tasks with 3 each)"),
        (Resources(memory_mb=32001), "31.3 GB of memory, this cluster has 31.2 GB"),
        (Resources(nodes=2), "it needs 2 nodes, this cluster has 1"),
        (Resources(gpus=1, gpu_type="t4", gpu_memory_mb=40960), "named t4 with 40 GB"),
        (Resources(shards=1), "it needs 1 shard of a GPU, and no GPU of this cluster is shared"),
        (Resources(gpus=1, shards=1), "whole GPUs and for shards"),
        (Resources(exclusive=True, shards=1), "shards and for the node alone"),
    ],
)
def test_what_there_is_not_is_refused_in_words(wanted: Resources, words: str) -> None:
    assert words in why(wanted)


def test_a_cuda_that_is_not_known_is_said_to_be_so() -> None:
    for has, words in (
        (replace(MIXED, cuda=None), "1x t4 (16 GB) and CUDA of a version that is not known"),
        (offer("mi300x"), "has 1x mi300x (192 GB)"),
    ):
        found = fit(Resources(gpus=1, cuda="12.4"), has, None)
        assert isinstance(found, Refusal)
        assert found.whys[0].endswith(words)


def test_all_that_is_too_much_is_said_at_once() -> None:
    assert why(Resources(cpus=9, memory_mb=99999, gpus=5)).count("it needs") == 3


def test_times_are_held_against_the_partition() -> None:
    assert isinstance(fit(Resources(time_limit=61), MIXED, None), Fit)
    assert isinstance(fit(Resources(time_limit=60), MIXED, None, "short"), Fit)
    assert "the partition short gives 1 hour" in why(Resources(time_limit=61), partition="short")
    assert "no partition long, only debug, short" in why(Resources(), partition="long")


def test_optional_gpus() -> None:
    some = Resources(gpus=1, gpu_type="a100", optional_gpus="auto")
    found = fit(some, MIXED, None)
    assert isinstance(found, Fit)
    assert found.gres == ()
    assert "runs without a GPU" in found.notes[0]
    assert gres(Resources(gpus=1, optional_gpus="auto")) == ("gpu:t4:1",)
    assert gres(Resources(gpus=1, optional_gpus="never")) == ()


def test_shards_are_of_one_gpu() -> None:
    shared = offer("h100", "h100", shards=8)
    assert gres(Resources(shards=4), shared) == ("shard:4",)
    refused = fit(Resources(shards=5), shared, None)
    assert refused == Refusal(("it needs 5 shards, and a GPU of this cluster has 4",))
    mixed = offer("h100", "t4", shards=8)
    assert isinstance(fit(Resources(shards=1, gpu_memory_mb=40960), mixed, None), Refusal)


def test_gpus_with_a_type_each_are_named_where_others_are_beside_them() -> None:
    alone = offer("h100", "h100", slurm_types=("g0", "g1"))
    assert gres(Resources(gpus=2, gpu_type="h100"), alone) == ("gpu:2",)
    beside = offer("t4", "h100", "h100", slurm_types=("g0", "g1", "g2"))
    wanted = Resources(gpus=1, gpu_type="h100")
    assert needs_room(wanted, beside)
    assert gres(wanted, beside, Availability({"g1": (None,)})) == ("gpu:g2:1",)
    assert gres(wanted, beside, Availability({"g1": (NOW + 9,), "g2": (NOW,)})) == ("gpu:g2:1",)
    assert gres(wanted, beside, Availability({"g1": (None,), "g2": (NOW,)})) == ("gpu:g2:1",)
    assert gres(Resources(gpus=2, gpu_type="nvidia"), beside) == ("gpu:g1:1", "gpu:g2:1")


def test_several_gpus_for_one_program_are_whole_cards() -> None:
    cut = offer("1g.10gb", "1g.10gb", "1g.10gb", "h100", "h100")
    assert gres(Resources(gpus=1), cut) == ("gpu:1g.10gb:1",)
    both_busy = Availability({"h100": (None, None)})
    assert gres(Resources(gpus=2), cut, both_busy) == ("gpu:h100:2",)
    assert gres(Resources(gpus=2, gpu_type="1g.10gb"), cut) == ("gpu:1g.10gb:2",)
    only = fit(Resources(gpus=3), cut, None)
    assert isinstance(only, Fit)
    assert (only.gres, "one program can use one" in only.notes[0]) == (("gpu:1g.10gb:3",), True)
    whole = fit(Resources(gpus=2), cut, None)
    assert isinstance(whole, Fit)
    assert whole.notes == ()
    amd = replace(offer("mi300x", "mi300x"), gpus=tuple(
        replace(gpu, is_part=True) for gpu in offer("mi300x", "mi300x").gpus))  # fmt: skip
    parts = fit(Resources(gpus=2), amd, None)
    assert isinstance(parts, Fit)
    assert parts.notes == ()


def test_a_type_of_two_models_is_chosen_only_where_both_do() -> None:
    one_type = offer("h100", "t4", slurm_types=("nvidia", "nvidia"))
    assert gres(Resources(gpus=2), one_type) == ("gpu:nvidia:2",)
    assert isinstance(fit(Resources(gpus=1, gpu_memory_mb=40960), one_type, None), Refusal)


def test_all_cpus_and_the_memory_that_there_is() -> None:
    found = fit(Resources(cpus=0, tasks=2), MIXED, None)
    assert isinstance(found, Fit)
    assert found.cpus_per_task == 4
    less = fit(Resources(memory_mb=64000, min_memory_mb=16000), MIXED, None)
    assert isinstance(less, Fit)
    assert less.memory_mib == 32000
    assert less.notes


def test_a_job_that_shares_the_node_with_nobody_gets_all_of_its_memory() -> None:
    """Slurm alone would let others in where there are more GPUs than CPUs."""
    alone = fit(Resources(exclusive=True, memory_mb=100, gpus=1), MIXED, None)
    assert isinstance(alone, Fit)
    assert (alone.memory_mib, alone.gres) == (32000, ("gpu:t4:1",))
    assert "it waits until no other job runs there" in alone.notes[0]
    beside = fit(Resources(memory_mb=100, gpus=1), MIXED, None)
    assert isinstance(beside, Fit)
    assert (beside.memory_mib, beside.notes) == (100, ())


MODELS = st.lists(st.sampled_from(["h100", "t4", "1g.10gb", "mi300x"]), max_size=5)
WANTED = st.builds(
    Resources,
    gpus=st.integers(0, 4),
    gpu_type=st.sampled_from([None, "nvidia", "amd", "h100", "T4", "1g.10gb", "k80", "%j", "x:9"]),
    gpu_memory_mb=st.sampled_from(
        [None, 1, 9728, 10000, 10240, 15361, 16384, 81559, 81920, 200000]
    ),
    min_compute_capability=st.sampled_from([None, "7.5", "8.0", "9.0", "9.1"]),
    cuda=st.sampled_from([None, "11.0", "12.4", "12.10"]),
    cpus=st.sampled_from([None, 0, 1, 8, 9]),
    memory_mb=st.sampled_from([None, 1, 32000, 32001]),
    shards=st.integers(0, 3),
    optional_gpus=st.sampled_from(["auto", "always", "never"]),
)


@given(MODELS, WANTED, st.dictionaries(st.sampled_from(["h100", "t4"]), st.just((None,))))
def test_nothing_is_chosen_that_does_not_satisfy(
    models: list[str], wanted: Resources, held: dict[str, tuple[None]]
) -> None:
    has = offer(*models, shards=2 * len(models))
    found = fit(wanted, has, Availability(held))
    if isinstance(found, Refusal):
        assert all(found.whys)
        return
    if found.kind is None:
        assert not wanted.gpus or wanted.optional_gpus != "always" or wanted.shards
        return
    assert found.gpus == wanted.gpus <= len(found.kind.gpus)
    for gpu in found.kind.gpus:
        assert suits(gpu, wanted, has)
        assert gpu in has.gpus
    assert set(found.kind.types) <= set(models)
    assert found.gres == (f"gpu:{found.kind.types[0]}:{wanted.gpus}",)


def test_gpus_of_several_models_where_none_has_enough_and_any_does() -> None:
    two = offer("h100", "t4")
    found = fit(Resources(gpus=2), two, None)
    assert isinstance(found, Fit)
    assert (found.gres, found.gpus) == (("gpu:2",), 2)
    assert found.notes == ("Its GPUs are of different models: 1x h100 (80 GB) and 1x t4 (16 GB).",)
    room = Availability({"t4": (None,)})
    busy = fit(Resources(gpus=2), two, room)
    assert isinstance(busy, Fit)
    assert busy.free == 1
    assert answer.where(busy, two, room, CLOCK).startswith(
        "on 2 GPUs h100 (80 GB) and t4 (16 GB) of node, later: 1x h100 (80 GB), and 1x t4"
    )


@pytest.mark.parametrize(
    ("wanted", "models"),
    [
        (Resources(gpus=2, gpu_type="nvidia"), ("h100", "t4")),
        (Resources(gpus=2, gpu_memory_mb=40000), ("h100", "t4")),
        (Resources(gpus=3), ("h100", "t4")),
        (Resources(gpus=2), ("h100", "mi300x")),
        (Resources(gpus=2), ("h100", "1g.10gb")),
    ],
)
def test_gpus_of_several_models_are_not_given_where_one_would_not_do(
    wanted: Resources, models: tuple[str, ...]
) -> None:
    assert isinstance(fit(wanted, offer(*models), None), Refusal)


@pytest.mark.parametrize(
    ("mib", "words"),
    [(40000, "40 GB"), (1000, "1 GB"), (40960, "40 GB"), (128000, "125 GB"), (40001, "39.1 GB"),
     (512, "512 MB"), (0, "0 MB")],
)  # fmt: skip
def test_sizes_are_told_as_they_were_asked_for(mib: int, words: str) -> None:
    assert asked_size(mib) == words
    if mib == 40000:
        assert "it needs 3 GPUs with 40 GB," in why(Resources(gpus=3, gpu_memory_mb=mib))


def test_of_several_that_are_held_the_first_that_becomes_free_is_told() -> None:
    later, soon = NOW + 7200, NOW + 3600
    held = Availability({"h100": (later, soon)})
    assert "2x h100 (80 GB), busy, the first until 14:00, and" in why(Resources(gpus=4), held)
    assert "busy, the first until 14:00, and" in why(
        Resources(gpus=4), Availability({"h100": (None, soon)})
    )
    assert "2x h100 (80 GB), busy until 14:00, and" in why(
        Resources(gpus=4), Availability({"h100": (soon, soon)})
    )


@pytest.mark.parametrize(
    ("wanted", "is_told"),
    [
        (Resources(gpus=3, gpu_type="nvidia"), True),  # there are three of them
        (Resources(gpus=2, gpu_memory_mb=10000), True),
        (Resources(gpus=2, gpu_memory_mb=40960), False),
        (Resources(gpus=4, gpu_type="nvidia"), False),
        (Resources(gpus=3), True),
        (Resources(gpus=4), False),
    ],
)
def test_that_gpus_must_be_alike_is_told_where_there_would_be_enough(
    wanted: Resources, is_told: bool
) -> None:
    refused = fit(wanted, offer("h100", "t4", "1g.10gb"), None)
    assert isinstance(refused, Refusal)
    assert ("of one kind" in refused.whys[0]) == is_told
