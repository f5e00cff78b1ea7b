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

    parser.addoption("--line", choices=LINES, help="see scripts/side_by_side.py")


LINES = ("engine", "others", "jobs")
# Of the tests on this machine's engine, those that go with another line: all take about as long.
_ELSEWHERE = {
    "others": "test_apart test_container test_denial test_image test_isolation test_limits "
    "test_security test_trust",
    "jobs": "test_doctor test_durable test_environment test_job_signals test_jobs test_key "
    "test_methods test_record test_restarts test_shipped_methods test_start_faults test_targets "
    "test_workflows test_workspaces",
}
_LINE_OF = {name: line for line, names in _ELSEWHERE.items() for name in names.split()}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--line engine`: tests on this machine's engine; `jobs`: what people do with a cluster; `others`:
    all but these. A test in a private room of its own says so by `pytest_plugins`, which bring the rooms.
    """
    line = config.getoption("--line")
    if line is None:
        return
    here = Path(__file__).parent / "integration"
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        module = item.getparent(pytest.Module)
        rooms = module is not None and hasattr(module.obj, "pytest_plugins")
        on_engine = here in item.path.parents and not rooms
        its_line = _LINE_OF.get(item.path.stem, "engine") if on_engine else "others"
        (kept if its_line == line else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def pytest_configure(config: pytest.Config) -> None:
    line = config.getoption("--line")
    if line in _ELSEWHERE:  # its clusters beside those of the other lines
        os.environ["DSHPC_TEST_PREFIX"] = f"dshpc-test-{line[0]}-"
    # Who was started in the background of a script ignores these, and so would all that the tests start
    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(name) == signal.SIG_IGN:
            signal.signal(name, signal.SIG_DFL)
    settings.load_profile("full" if config.getoption("--full") else "sample")


def pytest_keyboard_interrupt() -> None:
    """The first Ctrl-C ends the tests; a second one would end what removes their containers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("\nInterrupted: what the tests have made is removed, which takes a while.", flush=True)


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the long soaks and matrices are to run whole."""
    return bool(request.config.getoption("--full"))
