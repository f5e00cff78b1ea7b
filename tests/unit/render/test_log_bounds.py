"""The container's log is bounded where nobody else bounds it, and an administrator's choice stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Engine
from dshpc_setup.render.log_bounds import LogBounds, log_bounds
from dshpc_setup.settings import load
from tests.unit.render.test_stanza import FACTS, written


def bounds(log_size: str | None, driver: str | None, max_size: str | None = None) -> object:
    engine = Engine("present", log_driver=driver, log_max_size=max_size)
    return log_bounds(load(flags={"log_size": log_size}), engine)


@pytest.mark.parametrize(
    ("asked", "driver", "max_size", "found"),
    [
        (None, "json-file", None, LogBounds("json-file", "10240k")),
        (None, "json-file", "100m", None),  # daemon.json's own
        (None, "local", None, None),  # it bounds itself
        (None, "journald", None, None),
        (None, "none", None, None),
        (None, None, None, None),
        ("engine", "json-file", None, None),
        ("engine", "journald", None, None),
        ("1G", "json-file", "100m", LogBounds("json-file", "209715k")),
        ("1m", "local", None, LogBounds("local", "204k")),
    ],
)
def test_who_bounds_the_log(
    asked: str | None, driver: str | None, max_size: str | None, found: LogBounds | None
) -> None:
    assert bounds(asked, driver, max_size) == found


@pytest.mark.parametrize(
    ("driver", "word"), [("journald", "'journald'"), (None, "does not say"), ("none", "'none'")]
)
def test_a_size_that_the_driver_cannot_keep_is_refused(driver: str | None, word: str) -> None:
    with pytest.raises(DshpcError) as caught:
        bounds("100m", driver)
    assert caught.value.exit_code == Exit.USAGE
    assert word in caught.value.brief
    assert "--log-size" in caught.value.brief


def test_the_compose_file_says_so() -> None:
    unbounded = written()
    assert "logging" not in yaml.safe_load(unbounded)["services"]["slurm"]
    facts = replace(FACTS, engine=replace(FACTS.engine, log_driver="json-file"))
    assert yaml.safe_load(written(facts=facts))["services"]["slurm"]["logging"] == {
        "driver": "json-file",
        "options": {"max-size": "10240k", "max-file": "5"},  # Docker takes texts alone
    }
