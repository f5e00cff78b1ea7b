"""What `dshpc-node job watch` sees as a change."""

from __future__ import annotations

from dshpc_setup.jobs.watch import NODES, QUEUE, Looks


def test_it_tells_what_is_other_than_before() -> None:
    queue, nodes = ["1|RUNNING"], ["node1|idle"]
    looks = Looks(lambda: queue[0], lambda: nodes[0])
    assert looks.look() == QUEUE  # the first list is news
    assert looks.look() == ""
    queue[0] = "1|COMPLETED"
    assert looks.look() == QUEUE
    assert looks.look() == ""
    nodes[0] = "node1|drained"
    said = [looks.look() for _ in range(5)]
    assert said.count(NODES) == 1
    assert QUEUE not in said
