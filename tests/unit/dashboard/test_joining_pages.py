"""The page of machines that join, and the notebook that is started from the Run page."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from dshpc_setup.cluster.nodes import NodeNow
from dshpc_setup.dashboard.notebooks import Notebook
from dshpc_setup.dashboard.source import Joining
from dshpc_setup.errors import DshpcError
from dshpc_setup.join.tokens import Given
from tests.unit.dashboard.conftest import Visitor

LATER = time.time() + 86400.0
HOSTILE = "<b>x</b>"


def test_a_token_is_made_by_button_and_shown_once(visitor: Visitor) -> None:
    answer = visitor.post("/joining/token", {"ttl": "2h", "once": "1"})
    assert visitor.source.done == [("token", "2h", True)]
    assert "./configure-environment --yes --join " in answer.text
    assert "for one machine" in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert "--join" not in visitor.page("/joining")
    assert visitor.ask("POST", "/joining/token").status_code == 403
    visitor.post("/joining/token", {"ttl": " "})
    assert visitor.source.done[1:] == [("token", "24h", False)]


def test_who_came_with_it_and_how_far(visitor: Visitor) -> None:
    used = ("gpu1 at 10.0.0.5", f"{HOSTILE} at 10.0.0.6")
    tokens = (
        Given("aaaa", "", LATER, used_by=used),
        Given("bbbb", "", 0.0),
        Given("cccc", "", LATER, revoked=True),
        Given("dddd", "", LATER, once=True, used_by=("gpu1 at 10.0.0.5",)),
    )
    node = NodeNow("gpu1", "gpu1", "worker", "idle", "gpu:h100:2", "10.0.0.5", None)
    visitor.source.told_joining = Joining(tokens, (node,), f"joined: {HOSTILE}\n")
    page = visitor.page("/joining")
    for words in (">gpu1 at 10.0.0.5</th><td>aaaa</td><td>yes</td><td>idle<", "<td>not yet</td>",
                  "<td>good</td>", "its time is over", "<td>revoked</td>", "<td>used</td>"):  # fmt: skip
        assert words in page
    assert HOSTILE not in page


def test_all_are_revoked_after_asking(visitor: Visitor) -> None:
    assert "/joining/revoke" not in visitor.page("/joining")
    visitor.source.told_joining = Joining((Given("aaaa", "", LATER),))
    assert 'href="/joining/revoke"' in visitor.page("/joining")
    assert "Nodes that have joined stay" in visitor.page("/joining/revoke")
    assert visitor.source.done == []
    answer = visitor.post("/joining/revoke")
    assert (answer.status_code, visitor.source.done) == (303, [("revoke",)])
    assert "The tokens are revoked" in visitor.page(answer.headers["location"])


def test_what_keeps_machines_from_joining_is_said(visitor: Visitor) -> None:
    visitor.source.fails = DshpcError("Slurm listens for this machine alone.")
    assert "Slurm listens for this machine alone." in visitor.page("/joining")


def test_a_notebook_is_started_from_the_run_page(visitor: Visitor) -> None:
    assert 'action="/notebook"' in visitor.page("/run")
    assert "None was started" in visitor.page("/notebook")
    answer = visitor.post("/notebook", {"gpus": "2", "gpu_type": "--dir=/x", "time": "4h"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/notebook")
    until = time.monotonic() + 20
    while visitor.site.notebook.runs and time.monotonic() < until:
        time.sleep(0.01)
    assert visitor.source.done == [
        ("notebook", ("lab", "--no-browser", "--gpus=2", "--gpu-type=--dir=/x", "--time=4h"))
    ]
    assert 'href="http://127.0.0.1:9999/lab?token=abc" rel="noreferrer"' in visitor.page(
        "/notebook"
    )


def test_one_notebook_begins_at_a_time_and_says_what_went_wrong() -> None:
    go = threading.Event()

    def start(words: Sequence[str]) -> str:
        go.wait(20)
        raise DshpcError("No GPU is free.")

    notebook = Notebook(start)
    notebook.begin(["lab"])
    with pytest.raises(DshpcError, match="wait until it is there"):
        notebook.begin(["lab"])
    go.set()
    until = time.monotonic() + 20
    while notebook.runs and time.monotonic() < until:
        time.sleep(0.01)
    assert notebook.error is not None
    assert notebook.url is None
