"""Names and addresses of nodes on several machines, and what one offers as a word of Slurm's."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import far
from dshpc_setup.errors import DshpcError
from dshpc_setup.settings import Place, Settings, of_container
from dshpc_setup.slurm import nodes
from dshpc_setup.slurm.paths import Paths


@given(st.text(max_size=3000))
def test_an_offer_comes_back_out_of_a_nodes_line(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    packed = far.packed(text)
    assert " " not in packed
    line = f"NodeName=lab2 State=IDLE Reason=new disk [root@2026-11-26T10:00:00] Extra={packed} "
    assert far.unpacked(line) == text
    found = nodes.parse_line(line)
    assert found is not None
    assert found.reason == "new disk"


@pytest.mark.parametrize("word", ["", "x", "dshpc1:", "dshpc1:AAAA", "dshpc1:&&", "other"])
def test_any_other_word_is_none(word: str) -> None:
    assert far.unpacked(f"NodeName=a Extra={word} State=IDLE") is None


def test_a_word_that_would_become_far_too_large_is_none() -> None:
    assert far.unpacked(f"NodeName=a Extra={far.packed('0' * (2 << 20))} ") is None
    assert len(zlib.compress(b"0" * (2 << 20))) < 5000


def test_names_lead_to_addresses_and_others_stay() -> None:
    text = "127.0.0.1\tlocalhost lab2\n127.0.1.1 lab2\n# lab2\n10.0.0.9 nas\n"
    wanted = {"lab2": "10.0.0.2", "lab": "10.0.0.1"}
    made = far.hosts_with(text, wanted)
    assert made == "127.0.0.1 localhost\n# lab2\n10.0.0.9 nas\n10.0.0.2 lab2\n10.0.0.1 lab\n"
    assert far.hosts_with(made, wanted) == made


def test_a_node_goes_by_the_address_that_it_was_told_and_by_no_other(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    hosts, paths = tmp_path / "etc/hosts", Paths(str(tmp_path))
    hosts.write_text("127.0.0.1 localhost\n10.0.0.1 dshpc\n")
    here = Settings(listen="10.0.0.2", place=Place("worker", "lab2", controller="10.0.0.9"))
    env = {**here.container_env(), **here.place.to_env()}
    with pytest.raises(DshpcError, match="does not find where the controller"):
        far.lead_to_controller(paths, of_container(env))
    moved = [far.lead_to_controller(paths, of_container({**env, **here.live_env()})) for _ in "ab"]
    assert moved == [True, False]
    assert hosts.read_text() == "127.0.0.1 localhost\n10.0.0.9 dshpc\n"
