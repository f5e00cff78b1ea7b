"""Of a long queue some jobs are asked for: everybody's share, and in calls that can be answered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.slurm import queue_index
from dshpc_setup.slurm.queue_index import Entry

TEXT = """17 17 N/A PENDING 1000 ada
18 5 3 RUNNING 1000 ada
5 5 4-9,11,... PENDING 1000 ada
19 19 N/A COMPLETED 0 root
slurm_load_jobs error: x
20 20 N/A PENDING 1001
"""


def plain(number: int, uid: int, state: str = "PENDING") -> Entry:
    return Entry(number, number, None, is_group=False, state=state, uid=uid, user=f"u{uid}")


def test_lines_of_squeue_are_read_and_others_are_not() -> None:
    assert queue_index.parse(TEXT) == (
        Entry(17, 17, None, is_group=False, state="PENDING", uid=1000, user="ada"),
        Entry(18, 5, 3, is_group=False, state="RUNNING", uid=1000, user="ada"),
        Entry(5, 5, None, is_group=True, state="PENDING", uid=1000, user="ada"),
        Entry(19, 19, None, is_group=False, state="COMPLETED", uid=0, user="root"),
    )


@given(st.text(max_size=200))
def test_any_answer_is_read(text: str) -> None:
    queue_index.parse(text)


def test_tasks_and_what_waits_together_are_asked_for_by_themselves() -> None:
    entries = queue_index.parse(TEXT)
    assert list(queue_index.in_parts(entries)) == [
        ("-t", "all", "-j", "17,5_3,19"),
        ("-t", "PENDING", "-j", "5"),
    ]
    many = [plain(number, 1) for number in range(25)]
    parts = list(queue_index.in_parts(many, most=10))
    assert [len(part[3].split(",")) for part in parts] == [10, 10, 5]


def test_a_long_queue_of_one_user_leaves_the_jobs_of_the_others_in_the_list() -> None:
    flood = [plain(number, 1) for number in range(12_000)]
    bob = [plain(number, 2) for number in range(20_000, 20_003)]
    runs = [plain(30_000, 1, "RUNNING"), plain(30_001, 3, "COMPLETING")]
    entries = [*flood, *bob, *runs]
    for uid in (2, 4):
        chosen = queue_index.choose(entries, uid, 1000)
        assert len(chosen) == len(set(chosen)) == 1000
        assert {*runs, *bob} <= set(chosen)
        assert queue_index.left_out(entries, chosen) == {"u1": 11_005}
    # Who floods it sees the first of his own, and the others' all the same
    chosen = queue_index.choose(entries, 1, 1000)
    assert {*runs, *bob, *flood[:900]} <= set(chosen)


def test_of_many_long_queues_everybody_sees_a_share_and_half_of_the_list_for_his_own() -> None:
    entries = [plain(1000 * uid + number, uid) for uid in range(1, 11) for number in range(500)]
    chosen = queue_index.choose(entries, 7, 100)
    of = [sum(each.uid == uid for each in chosen) for uid in range(1, 11)]
    assert of[6] == 50
    assert [count for place, count in enumerate(of) if place != 6] == [6, 6, 6, 6, 6, 5, 5, 5, 5]
