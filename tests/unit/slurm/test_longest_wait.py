"""Who comes first after longest_wait, and what may begin beside: values in, a decision out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.slurm import longest_wait
from dshpc_setup.slurm.holders import Holder
from dshpc_setup.slurm.longest_wait import Look, Place, Reservation, Waiting
from dshpc_setup.slurm.nodes import Node
from dshpc_setup.slurm.pending import Request
from dshpc_setup.slurm.turns import Decision, decide, next_look_s

L = 3600.0
CUT, NEXT = "\x1f", "\x1e"
NOW = datetime.fromisoformat("2026-11-26T10:52:36")
# Slurm 24.11.5's own answer, of a cluster with two nodes
SAID = """\
308_[29-30]|debug|ReqNodeNotAvail, May be reserved for other job|cpu=1,mem=2711M,node=1,billing=1|N/A|\
gres/gpu:t4:1|N/A|N/A|gpu:6328|N/A|1|(null)|(null)||root|arr|2026-11-26T10:51:38|1|(null)|YES||N/A|
306|debug|Resources|cpu=2,mem=5422M,node=2,billing=2|N/A|gres/gpu:h100:2|N/A|N/A|gpu:6328|N/A|2|(null)|\
(null)||root|BIG|2026-11-26T10:51:36|1|longest_wait-306|NO|two|N/A|
309|debug|JobHeldUser|cpu=1,mem=2711M,node=1,billing=1|N/A|N/A|N/A|N/A|N/A|N/A|1|(null)|(null)||root|x|\
N/A|0|(null)|YES||N/A|
310|debug|Dependency|cpu=1,mem=2711M,node=1,billing=1|N/A|N/A|N/A|N/A|N/A|N/A|1|(null)|(null)||root|x|\
2026-11-26T10:51:38|1|(null)|YES||N/A|

\x1eh4c|debug*|2|21695|gpu:h100:2,gpu:t4:1|gpu:h100:2(IDX:0-1),gpu:t4:1(IDX:2)|allocated|nvidia|FORCE:2|
two|debug*|2|21695|gpu:h100:2,gpu:t4:1|gpu:h100:2(IDX:0-1),gpu:t4:0(IDX:N/A)|mixed|nvidia|FORCE:2|
two|long|2|21695|gpu:h100:2,gpu:t4:1|gpu:h100:2(IDX:0-1),gpu:t4:0(IDX:N/A)|mixed|nvidia|NO|
\x1eReservationName=longest_wait-306 StartTime=2026-11-26T10:51:48 EndTime=2026-11-26T10:54:51 \
Nodes=h4c,two[1-2] NodeCnt=2 Users=-nobody State=ACTIVE
ReservationName=friday StartTime=2026-11-26T10:51:48 EndTime=2026-11-26T10:54:51 Nodes=h4c
""".replace("|", CUT)


def node(name: str = "lab", cpus: int = 8, memory: int = 64_000, **gpus: str) -> Place:
    """`h100="1/2"`: one of two is in use."""
    counts = {f"gpu:{kind}": tuple(map(int, text.split("/"))) for kind, text in gpus.items()}
    total, used = ({kind: pair[at] for kind, pair in counts.items()} for at in (1, 0))
    return Place(Node(name, "mixed", None, total, used), cpus, memory, frozenset({"nvidia"}))


def job(
    name: str, gres: Mapping[str, int] | None = None, waited: float | None = 0, **more: object
) -> Waiting:
    of_request = {key: more.pop(key) for key in [*more] if key in Request.__dataclass_fields__}
    asked = {"cpus": 1, "memory_mib": 1000, "gres_per_node": gres or {}, **of_request}
    return Waiting(Request(name, "ada", "x", ("debug",), "Resources", **asked), waited, **more)  # type: ignore[arg-type]


def holder(
    name: str, held: str = "", on: str = "lab", until: float | None = None, cpus: int = 1
) -> Holder:
    return Holder(name, "bob", "x", (held,) if held else (), (on,), until, (cpus,), (1000,))


def decided(
    queue: list[Waiting],
    places: list[Place],
    holders: list[Holder],
    known: Mapping[str, str] | None = None,
) -> Decision:
    reservations = {name: Reservation(name, (at,)) for name, at in (known or {}).items()}
    return decide(Look(tuple(queue), tuple(places), reservations), holders, L)


H2, H1, T1 = {"gpu:h100": 2}, {"gpu:h100": 1}, {"gpu:t4": 1}
MIXED = node(h100="1/2", t4="0/1")
HOLDS = holder("1", "gpu:h100:1(IDX:0)")
OLD = job("2", H2, L)


def test_the_answer_of_a_real_controller() -> None:
    look = longest_wait.parse(SAID, NOW)
    by_name = {each.asked.job: each for each in look.queue}
    assert list(by_name) == ["306", "308_[29-30]", "310", "309"], "a held job has priority 0"
    big, array = by_name["306"], by_name["308_[29-30]"]
    assert (big.waited_s, big.reservation, big.alone, big.excluded) == (
        60.0,
        "longest_wait-306",
        True,
        "two",
    )
    assert (array.waited_s, array.reservation, array.alone) == (58.0, "", False)
    assert array.tasks == ("308_29", "308_30")
    assert by_name["309"].waited_s is by_name["310"].waited_s is None
    assert big.need.gpus == {"gpu:h100": 2}
    assert (big.need.cpus, big.need.memory_mib) == (1, 12656)
    first, two = look.places
    assert first.cpus == 4
    assert two.partitions == {"debug", "long"}
    assert two.gpus == {"gpu:h100": 2, "gpu:t4": 1}
    assert first.free({"gpu:h100"}) == 0
    assert two.free({"gpu:t4"}) == 1
    assert look.reservations == {
        "longest_wait-306": Reservation(
            "longest_wait-306",
            ("h4c", "two1", "two2"),
            datetime.fromisoformat("2026-11-26T10:54:51"),
        )
    }


def test_one_that_is_overtaken_comes_first_and_others_begin_beside() -> None:
    queue = [OLD, job("3", H1), job("4", T1), job("5")]
    found = decided(queue, [MIXED], [HOLDS])
    assert found.members == {
        "2": "longest_wait-2",
        "4": "longest_wait-beside-t4",
        "5": "longest_wait-beside-cpu",
    }
    assert found.reservations == dict.fromkeys(found.members.values(), ("lab",))


@pytest.mark.parametrize(
    "queue",
    [
        [job("2", H2, L - 1), job("3", H1)],
        [job("2", H2, None), job("3", H1)],  # held, or waiting for another
        [job("2", {"gpu:h100": 3}, L)],  # can never run
        [job("2", H2, L, reservation="friday")],
        [job("2", H2, L, features="a|b")],
        [job("2", H2, L, wanted_nodes="other")],
        [job("2", H2, L, excluded="lab")],
        [job("2", H1, L), job("3", H1, L)],  # what each holder leaves is enough for the first
    ],
)
def test_who_does_not(queue: list[Waiting]) -> None:
    place = MIXED if queue[0].asked.gres_per_node != H1 else node(h100="2/2")
    assert decided(queue, [place], [HOLDS]) == Decision()


def test_a_node_that_is_out_of_use_is_kept_for_nobody() -> None:
    down = Place(Node("lab", "drained", None, {"gpu:h100": 2}, {}), 8, 64_000)
    assert decided([OLD], [down], []) == Decision()


def test_one_that_came_first_stays_there_until_the_node_is_taken_out() -> None:
    """A slurmctld that has just started: of a reservation less, others would begin in that moment."""
    known = {"longest_wait-2": "lab"}
    for state, stays in (("unknown", True), ("idle*", True), ("drained", False), ("down", False)):
        lab = Place(Node("lab", state, None, {"gpu:h100": 2}, {"gpu:h100": 1}), 8, 64_000)
        holders = [HOLDS, holder("7", "gpu:h100:1", "other")]
        found = decided([OLD], [lab, node("other", h100="1/2")], holders, known)
        assert found.turns[0].nodes == (("lab",) if stays else ("other",)), state
        alone = decided([OLD], [lab], [HOLDS], known)
        assert alone.turns[0].nodes == ("lab",), "there is no other"


def test_one_that_stands_further_in_front_comes_before() -> None:
    queue = [job("1", H1, 2 * L), job("2", H2, L)]
    assert not decided(
        queue, [node(h100="2/2")], [holder("7", "gpu:h100:1"), holder("8", "gpu:h100:1")]
    ).turns


def test_of_two_kinds_each_has_its_first() -> None:
    place = node(h100="1/2", t4="1/2")
    queue = [OLD, job("3", {"gpu:t4": 2}, L), job("4", T1), job("5", H1), job("6")]
    found = decided(queue, [place], [HOLDS, holder("7", "gpu:t4:1")])
    assert found.members == {
        "2": "longest_wait-2", "3": "longest_wait-3", "6": "longest_wait-beside-cpu",
    }  # fmt: skip


@pytest.mark.parametrize(("cpus", "begins"), [(4, True), (3, True), (2, False)])
def test_cpus_that_it_needs_are_left_to_it(cpus: int, begins: bool) -> None:
    """One is free, or comes free with the GPU that it waits for."""
    place = node(cpus=cpus, h100="1/2")
    found = decided([job("2", H2, L, cpus=2), job("3")], [place], [HOLDS])
    assert ("3" in found.members) is begins


def test_memory_that_it_needs_is_left_to_it() -> None:
    for memory, begins in ((3000, True), (2999, False)):
        place = node(memory=memory, h100="1/2")
        found = decided([job("2", H2, L, memory_mib=2000), job("3")], [place], [HOLDS])
        assert ("3" in found.members) is begins, memory


def test_without_gpus_cpus_are_what_it_waits_for() -> None:
    queue = [job("2", waited=L, cpus=8), job("3")]
    found = decided(queue, [node(cpus=8)], [holder("1", cpus=1)])
    assert found.members == {"2": "longest_wait-2"}
    assert (
        decided([job("2", waited=L, cpus=8)], [node(cpus=8)], [holder("1", cpus=8)]) == Decision()
    )


def test_cpus_can_be_what_is_missing_where_gpus_are_free() -> None:
    queue = [job("2", H1, L, cpus=8)]
    holders = [holder("1", "gpu:h100:1", cpus=7), holder("7", cpus=1)]
    assert decided(queue, [node(cpus=8, h100="1/2")], holders).turns


def test_one_that_wants_a_node_alone_leaves_nothing() -> None:
    found = decided([job("2", waited=L, alone=True), job("3", T1)], [MIXED], [HOLDS])
    assert found.members == {"2": "longest_wait-2"}
    found = decided([OLD, job("3", T1, alone=True)], [MIXED], [HOLDS])
    assert found.members == {"2": "longest_wait-2"}


def test_one_that_takes_any_gpu_begins_where_it_gets_another() -> None:
    any_gpu = job("3", {"gpu": 1})
    found = decided(
        [OLD, any_gpu], [node(h100="2/2", t4="0/1")], [HOLDS, holder("7", "gpu:h100:1")]
    )
    assert found.members["3"] == "longest_wait-beside-any"
    found = decided([OLD, any_gpu], [MIXED], [HOLDS])
    assert "3" not in found.members, "Slurm may give it the H100 that is free"


def test_shares_of_gpus() -> None:
    shared = Place(
        Node("lab", "mixed", None, {"gpu:h100": 2, "shard": 8}, {"gpu:h100": 0, "shard:h100": 1}),
        8,
        64_000,
    )
    found = decided([OLD, job("3", {"shard": 1})], [shared], [holder("1", "shard:h100:1(1/4,0/4)")])
    assert found.members == {"2": "longest_wait-2"}


def test_of_several_nodes_the_others_go_on() -> None:
    places = [node("a", h100="1/2"), node("b", h100="1/2"), node("c", h100="2/2")]
    holders = [
        holder("1", "gpu:h100:1", "a"),
        holder("7", "gpu:h100:1", "b", until=9000.0),
        holder("8", "gpu:h100:2", "c", until=9900.0),
    ]
    found = decided([OLD, job("3", H1)], places, holders)
    assert found.reservations == {"longest_wait-2": ("b",)}, "where it can begin soonest"


def test_it_stays_where_it_came_first() -> None:
    places = [node("a", h100="1/2"), node("b", h100="1/2")]
    holders = [holder("1", "gpu:h100:1", "a"), holder("7", "gpu:h100:1", "b", until=9000.0)]
    found = decided([OLD], places, holders, {"longest_wait-2": "a"})
    assert found.reservations == {"longest_wait-2": ("a",)}


def test_one_that_wants_several_nodes_keeps_them_all() -> None:
    places = [node("a", h100="1/2"), node("b", h100="0/2"), node("c", h100="0/2")]
    found = decided(
        [job("2", H2, L, nodes=2), job("3", H1)], places, [holder("1", "gpu:h100:1", "a")]
    )
    assert found.reservations == {"longest_wait-2": ("b", "c")}
    assert not decided([job("2", H2, L, nodes=4)], places, []).turns


def test_tasks_of_an_array_are_let_begin_by_themselves() -> None:
    found = decided(
        [OLD, job("3_[1-900]", T1)], [node(h100="1/2", t4="0/4", cpus=99, memory=10**6)], [HOLDS]
    )
    beside = [name for name in found.members if name != "2"]
    assert beside == [f"3_{task}" for task in range(1, 9)]
    found = decided([job("3_[5-900%2]", H2, L)], [MIXED], [HOLDS])
    assert found.members == {"3_5": "longest_wait-3_5"}


def test_when_to_look_again() -> None:
    queue = [job("2", waited=10), job("3", waited=None), job("4", waited=1000)]
    assert next_look_s(queue, L) == L - 1000
    assert next_look_s([], L) == L
    assert next_look_s([job("2", waited=L + 9)], L) == 0


@given(st.text())
def test_any_answer_is_read(text: str) -> None:
    longest_wait.parse(text, NOW)


JOBS = st.builds(
    lambda nth, kind, count, waited, cpus: job(
        str(nth), {kind: count} if kind else {}, waited, cpus=cpus
    ),
    st.integers(1, 50),
    st.sampled_from(["", "gpu", "gpu:h100", "gpu:t4"]),
    st.integers(1, 3),
    st.sampled_from([None, 0, L]),
    st.integers(1, 9),
)


@given(
    st.lists(JOBS, max_size=8, unique_by=lambda each: each.asked.job),
    st.integers(0, 2),
    st.integers(0, 1),
)
def test_nothing_begins_that_takes_a_gpu_of_a_kind_that_the_first_needs(
    queue: list[Waiting], h100: int, t4: int
) -> None:
    place = node(h100=f"{h100}/2", t4=f"{t4}/1")
    holders = [holder(f"9{n}", "gpu:h100:1") for n in range(h100)] + [holder("99", "gpu:t4:1")] * t4
    found = decided(queue, [place], holders)
    by_name = {each.asked.job: each for each in queue}
    first = frozenset[str]().union(*(place.kinds(turn.job.need) for turn in found.turns))
    for name, reservation in found.members.items():
        if "beside" in reservation:
            need = by_name[name].need
            assert not (need.gpus.keys() & first)
            assert need.cpus + sum(turn.job.need.cpus for turn in found.turns) <= place.cpus
