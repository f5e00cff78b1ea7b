"""Options and hypothesis profiles that all tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Without --full the same examples are tried at each run: a red run can be repeated as it was.
settings.register_profile("sample", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("full", deadline=None, max_examples=1000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="the long soaks whole, not as a sample")

    parser.addoption("--line", choices=["engine", "others"], help="see scripts/side_by_side.py")


# Of the tests on this machine's engine, those that go with the other line: both take about as long.
_WITH_OTHERS = frozenset(
    "test_apart test_container test_image test_isolation test_record test_restarts test_security "
    "test_seed_recipes".split()
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--line engine`: tests on this machine's engine; `others`: all but these.

    A test in a private room of its own says so by `pytest_plugins`, which bring the rooms.
    """
    line = config.getoption("--line")
    if line is None:
        return
    here = Path(__file__).parent / "integration"
    kept: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        module = item.getparent(pytest.Module)
        rooms = module is not None and hasattr(module.obj, "pytest_plugins")
        on_engine = here in item.path.parents and not rooms and item.path.stem not in _WITH_OTHERS
        kept[on_engine == (line == "engine")].append(item)
    items[:] = kept[True]
    config.hook.pytest_deselected(items=kept[False])


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--line") == "others":  # its clusters beside those of the other line
        os.environ["DSHPC_TEST_PREFIX"] = "dshpc-test-o-"
    # Who was started in the background of a script ignores these, and so would all that the tests start
    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(name) == signal.SIG_IGN:
            signal.signal(name, signal.SIG_DFL)
    settings.load_profile("full" if config.getoption("--full") else "sample")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the long soaks and matrices are to run whole."""
    return bool(request.config.getoption("--full"))
