"""Of several nodes the one whose offer a request is judged by."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import answer, availability, call, choosing, node_choice
from dshpc_setup.jobs.fit import Fit, Refusal, fit, limits
from dshpc_setup.jobs.gpu_words import Clock
from dshpc_setup.jobs.offer import Offer, OfferedGpu
from dshpc_setup.jobs.request import Request
from dshpc_setup.methods.model import Resources
from dshpc_setup.slurm.holders import Holder
from tests.unit.engine.fake import Answer, FakeMachine

NOBODY = FakeMachine()


def offer(node: str, *types: str) -> Offer:
    gpus = tuple(
        OfferedGpu(at, None, kind, kind, kind, "nvidia", 16384, None)
        for at, kind in enumerate(types)
    )
    return Offer(node, 8, 8192, gpus, nodes=3)


OFFERS = (offer("lab", "t4"), offer("lab-2", "h100", "h100"), offer("lab-3", "h100", "h100"))


def request(node: str | None = None, **resources: Any) -> Request:
    return Request("command", "x", ("true",), "/lab", Resources(**resources), node=node)


def held(monkeypatch: pytest.MonkeyPatch, *holders: Holder) -> None:
    monkeypatch.setattr(availability, "holders", lambda _: holders)


def test_it_is_one_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    held(monkeypatch)
    assert node_choice.chosen(NOBODY, request(), OFFERS).node == "lab"
    assert node_choice.chosen(NOBODY, request(gpus=1, gpu_type="t4"), OFFERS).node == "lab"
    assert node_choice.chosen(NOBODY, request(gpus=2), OFFERS).node == "lab-2"


def test_of_those_one_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Holder("7", "ada", "x", ("gpu:h100:2(IDX:0-1)",), ("lab-2",), None)
    held(monkeypatch, busy)
    assert node_choice.chosen(NOBODY, request(gpus=2), OFFERS).node == "lab-3"
    both = replace(busy, held=(busy.held[0], "gpu:h100:1(IDX:0)"), nodes=("lab-2", "lab-3"))
    held(monkeypatch, both)
    assert availability.on(NOBODY, (both,), OFFERS[2]).used("h100") == 1
    assert availability.on(NOBODY, (both,), OFFERS[1]).used("h100") == 2
    assert availability.on(NOBODY, (both,), OFFERS[0]).used("h100") == 0


def test_where_none_can_the_largest_says_why() -> None:
    has = node_choice.chosen(NOBODY, request(gpus=3), OFFERS)
    found = fit(Resources(gpus=3), has, None)
    assert isinstance(found, Refusal)
    assert found.whys == ("it needs 3 GPUs, node lab-2 has 2x h100 (16 GB)",)


def test_a_node_that_is_named_is_that_one_or_refused() -> None:
    assert node_choice.chosen(NOBODY, request("lab-3"), OFFERS).node == "lab-3"
    assert node_choice.chosen(NOBODY, request("localhost"), OFFERS).node == "lab"
    with pytest.raises(DshpcError, match="no node lab-9") as told:
        node_choice.chosen(NOBODY, request("lab-9"), OFFERS)
    assert "lab, lab-2 and lab-3" in told.value.details


def test_tasks_are_spread_over_the_nodes() -> None:
    assert not list(limits(Resources(nodes=3, tasks=24), OFFERS[0], None))
    (why,) = limits(Resources(nodes=2, tasks=24), OFFERS[0], None)
    assert "it needs 12 CPUs" in why
    (why,) = limits(Resources(nodes=4), OFFERS[0], None)
    assert why == "it needs 4 nodes, this cluster has 3"


def test_they_are_read_where_each_has_left_its_own(tmp_path: Path) -> None:
    for each in OFFERS[1:]:
        (tmp_path / each.node).mkdir()
        (tmp_path / each.node / "offer.json").write_text(json.dumps(each.to_json()))
    (tmp_path / "lab-4").mkdir()
    (tmp_path / "lab-4/offer.json").write_text("{")
    found = node_choice.all_of(replace(OFFERS[0], nodes=1), str(tmp_path))
    assert [(each.node, each.nodes) for each in found] == [("lab", 3), ("lab-2", 3), ("lab-3", 3)]
    assert node_choice.all_of(OFFERS[0], str(tmp_path / "none")) == (OFFERS[0],)


def test_more_nodes_than_have_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    held(monkeypatch)
    assert node_choice.chosen(NOBODY, request(gpus=2, nodes=2), OFFERS).node == "lab-2"
    with pytest.raises(DshpcError) as told:
        node_choice.chosen(NOBODY, request(gpus=2, nodes=3), OFFERS)
    assert "it needs 3 nodes with 2 GPUs each, this cluster has 2" in told.value.brief
    with pytest.raises(DshpcError) as told:
        node_choice.chosen(NOBODY, request(gpus=1, nodes=3), OFFERS)
    assert "it needs 3 nodes with 1 GPU each, of one kind, this cluster has 2" in told.value.brief


def test_each_target_is_judged_by_its_own_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_choice, "all_of", lambda _, **__: OFFERS)
    monkeypatch.setattr(availability, "ask", lambda *_: availability.Availability())
    clock = Clock(0.0)
    wanted = replace(request(gpus=1), targets=(("0", "1"), ("0",)), target_nodes=("lab-3", "lab"))
    first, second = choosing.planned(NOBODY, wanted, OFFERS[0], clock)
    assert (first.fit.node, first.fit.gres) == ("lab-3", ("gpu:h100:2",))
    assert (second.fit.node, second.fit.gres) == ("lab", ("gpu:t4:1",))
    assert second.request.targets == (("0",),)
    choosing.check_free([first, second], wanted, clock)
    twice = choosing.planned(
        NOBODY,
        replace(wanted, targets=(("0",), ("0",)), target_nodes=("lab", "lab")),
        OFFERS[0],
        clock,
    )
    with pytest.raises(DshpcError, match="several targets name one GPU"):
        choosing.check_free(twice, wanted, clock)
    with pytest.raises(DshpcError, match="no node lab-9"):
        choosing.planned(NOBODY, replace(wanted, target_nodes=("lab-3", "lab-9")), OFFERS[0], clock)


def test_what_is_free_now_is_counted_over_the_nodes_that_take_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_choice, "all_of", lambda _, **__: OFFERS)
    states = {"lab": "idle", "lab-2": "drained", "lab-3": "idle"}
    said = "".join(f"{name}|gpu:h100:2|gpu:0|{state}|none\n" for name, state in states.items())
    machine = FakeMachine(commands={"sinfo": Answer(said)})
    held(monkeypatch)
    has, free = node_choice.free_now(machine, request(gpus=2), OFFERS[1])
    assert (has.node, free) == ("lab-3", ("lab-3",))
    has, free = node_choice.free_now(machine, request(gpus=1), OFFERS[0])
    assert (has.node, free) == ("lab", ("lab",))  # of its kind
    held(monkeypatch, Holder("7", "ada", "x", ("gpu:h100:1(IDX:0)",), ("lab-3",), None))
    has, free = node_choice.free_now(machine, request(gpus=2), OFFERS[1])
    assert (has.node, free) == ("lab-3", ())
    found = fit(Resources(gpus=2), OFFERS[2], None)
    assert isinstance(found, Fit)
    assert answer.free_nodes(found, ("lab-2", "lab-3")) == [
        "2 nodes have 2x h100 (16 GB) free now: lab-2, lab-3."
    ]
    assert answer.free_nodes(found, ()) == ["No node has 2x h100 (16 GB) free now."]


FAR = (*OFFERS[:2], replace(offer("lab9", "a100"), own_work=True))


def test_a_node_without_the_work_folder_takes_no_job_that_has_one() -> None:
    assert node_choice.chosen(NOBODY, request(), FAR).node == "lab"
    with pytest.raises(DshpcError, match="Node lab9 could take this job, but has not the work"):
        node_choice.chosen(NOBODY, request(gpus=1, gpu_type="a100"), FAR)
    for asked in (request("lab9"), replace(request(), target_nodes=("lab", "lab9"))):
        with pytest.raises(DshpcError, match="has not the work folder") as told:
            node_choice.chosen(NOBODY, asked, FAR)
        assert "dshpc srun -w lab9 --chdir=/tmp" in " ".join(told.value.resolution)


def test_a_node_of_another_user_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = replace(offer("lab9", "a100"), owner=4711)
    folder = _left(tmp_path, owned)
    for uid, there in ((4711, True), (4712, False), (0, False)):
        monkeypatch.setattr("os.getuid", lambda uid=uid: uid)
        known = [each.node for each in node_choice.all_of(OFFERS[0], folder)]
        assert ("lab9" in known) == there
        named = node_choice.all_of(OFFERS[0], folder, asked=request("lab9"))
        if uid == 4712:
            with pytest.raises(
                DshpcError, match="Node lab9 takes the jobs of user number 4711 alone"
            ):
                node_choice.chosen(NOBODY, request("lab9"), named)
        else:
            assert node_choice.chosen(NOBODY, request("lab9"), named).node == "lab9"


def _left(folder: Path, *offers: Offer) -> str:
    for each in offers:
        (folder / each.node).mkdir(parents=True, exist_ok=True)
        (folder / each.node / "offer.json").write_text(json.dumps(each.to_json()))
    return str(folder)


def test_a_node_to_which_workspaces_are_carried_takes_what_can_be(tmp_path: Path) -> None:
    carrier = replace(FAR[2], carried_work="/lab")
    folder = _left(tmp_path, FAR[0], carrier)
    asked = request(gpus=1, gpu_type="a100")
    offers = node_choice.all_of(FAR[0], folder, asked=asked)
    found = node_choice.chosen(NOBODY, asked, offers)
    assert (found.node, found.carriers, found.without_work) == ("lab9", ("lab9",), ())
    gone = str(tmp_path / "gone")
    own = replace(FAR[0], processor="x86_64")
    cases: tuple[tuple[dict[str, Any], str, str], ...] = (
        ({"environment": gone}, "aarch64", "another processor than the node's, aarch64"),
        ({"image": gone}, "aarch64", "another processor"),
        ({"cwd": gone}, "x86_64", "No such"),
        ({"in_place": True}, "x86_64", "a copy of that would not do"),
    )
    for fields, processor, word in cases:
        other = replace(asked, **fields)
        folder = _left(tmp_path / "nodes", FAR[0], replace(carrier, processor=processor))
        offers = node_choice.all_of(own, folder, asked=other)
        assert (offers[0].carriers, offers[0].without_work) == ((), ("lab9",))
        with pytest.raises(DshpcError, match="has not the work folder") as told:
            node_choice.chosen(NOBODY, other, offers)
        assert word in told.value.details
    for processor in ("x86_64", ""):  # "": of a version that did not say it
        folder = _left(tmp_path / "nodes", FAR[0], replace(carrier, processor=processor))
        offers = node_choice.all_of(own, folder, asked=replace(asked, environment=gone))
        assert offers[0].carriers == ("lab9",)


def test_where_no_node_could_take_it_that_is_what_is_told() -> None:
    found = fit(
        Resources(gpus=9), node_choice.chosen(NOBODY, request(gpus=9, gpu_type="a100"), FAR), None
    )
    assert isinstance(found, Refusal)


def test_slurm_is_told_to_keep_such_jobs_off_it(tmp_path: Path) -> None:
    for each in FAR:
        (tmp_path / each.node).mkdir()
        (tmp_path / each.node / "offer.json").write_text(json.dumps(each.to_json()))
    own, *_ = node_choice.all_of(FAR[0], str(tmp_path))
    found = fit(Resources(), own, None)
    assert isinstance(found, Fit)
    assert "--exclude=lab9" in call.argv(request(), found, "/lab/jobs/1/x")
    assert not [
        word for word in call.argv(request(), Fit(node="lab"), "/lab/jobs/1/x") if "exclude" in word
    ]
