"""Options and hypothesis profiles that all tests share."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from scripts.side_by_side import LINES, pytest_runtest_teardown
from tests.integration.engines import ENGINES
from tests.lines import ELSEWHERE, line_of

__all__ = ["pytest_runtest_teardown"]

# A machine of CI may say so for all that it runs. Here each of thousands of commands would compile hundreds
# of modules anew, and each process of pytest the tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Without --full the same examples are tried at each run: a red run can be repeated as it was.
settings.register_profile("sample", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("full", deadline=None, max_examples=1000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="the long soaks whole, not as a sample")
    parser.addoption("--line", choices=LINES, help="see scripts/side_by_side.py")
    parser.addoption(
        "--engine",
        choices=list(ENGINES),
        help="clusters that could be on either are on this one (tests/integration/engines.py)",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--line` the files of the others are not even imported."""
    line = config.getoption("--line")
    if line is None or not collection_path.is_relative_to(Path(__file__).parent):
        return None
    return True if line_of(collection_path) not in (line, None) else None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "engines(*names, why=None): see tests/integration/engines.py"
    )
    line = config.getoption("--line")
    if line in ELSEWHERE:  # its clusters beside those of the other lines
        os.environ["DSHPC_TEST_PREFIX"] = f"dshpc-test-{line[0]}-"
    # Who was started in the background of a script ignores these, and so would all that the tests start
    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(name) == signal.SIG_IGN:
            signal.signal(name, signal.SIG_DFL)
    settings.load_profile("full" if config.getoption("--full") else "sample")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: looking through it for garbage takes a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_keyboard_interrupt() -> None:
    """The first Ctrl-C ends the tests; a second one would end what removes their containers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("\nInterrupted: what the tests have made is removed, which takes a while.", flush=True)


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the long soaks and matrices are to run whole."""
    return bool(request.config.getoption("--full"))
