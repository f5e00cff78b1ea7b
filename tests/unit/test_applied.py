"""Settings that somebody has changed and nobody applied: told with both values, and where it stands."""

from __future__ import annotations

from typing import Any

import pytest

from dshpc_setup.settings import applied, load


def sentences(before: dict[str, Any], **now: Any) -> list[str]:
    record = applied.record(load(**before))
    return [each.sentence for each in applied.behind(record, load(**now))]


def test_what_differs_is_told_with_its_place() -> None:
    told = sentences({"yaml_text": "shm_size: 2g\n"}, yaml_text="shm_size: 4g\npids_limit: 512\n")
    assert told == [
        "shm_size is now 4g (dshpc.yaml:1:1), but the cluster still runs with 2g. To apply it: "
        "configure-environment",
        "pids_limit is now 512 (dshpc.yaml:2:1), but the cluster still runs with the default. To apply "
        "it: configure-environment",
    ]


def test_what_is_taken_out_counts_too() -> None:
    (told,) = sentences({"flags": {"partition": "gpu"}})
    assert told.startswith("partition is back to its default, but the cluster still runs with gpu.")


def test_lines_are_told_on_one() -> None:
    (told,) = sentences({}, yaml_text="slurm_conf_extra: |\n  KillWait=10\n  InactiveLimit=9\n")
    assert told.startswith("slurm_conf_extra is now KillWait=10; InactiveLimit=9 (dshpc.yaml:1:1)")
    assert "runs with the default." in told, "it was empty"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"yaml_text": "devices: [0, 2]\n"}, {"yaml_text": "devices: '0, 2'\n"}),
        ({"flags": {"prefix": "a"}}, {"remembered": {"prefix": "a"}}),
        ({}, {"yaml_text": "shm_size: 1G\n"}),  # the default, said
        ({"env": {"DSHPC_GPU": "amd"}}, {}),  # a variable of another shell
        # A file of another run, of which this folder's says nothing
        ({"yaml_text": "gpu: amd\n", "yaml_name": "/tmp/other.yaml"}, {"yaml_text": "gpu: none\n"}),
    ],
)
def test_what_is_the_same_or_cannot_be_compared(
    before: dict[str, Any], now: dict[str, Any]
) -> None:
    assert sentences(before, **now) == []


@pytest.mark.parametrize("record", [{}, {"texts": 3}, {"texts": {}}, {"by_variable": []}])
def test_a_record_of_another_version(record: dict[str, Any]) -> None:
    assert list(applied.behind(record, load(flags={"gpu": "amd"}))) == []


def test_a_value_that_is_none_any_more() -> None:
    record = {"texts": {"gpu": "voodoo"}, "by_variable": []}
    (told,) = applied.behind(record, load())
    assert (told.in_force, told.here) == ("voodoo", "auto")
