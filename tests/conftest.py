"""Options and hypothesis profiles that all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Without --full the same examples are tried at each run: a red run can be repeated as it was.
settings.register_profile("sample", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("full", deadline=None, max_examples=1000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="the long soaks whole, not as a sample")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("full" if config.getoption("--full") else "sample")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the long soaks and matrices are to run whole."""
    return bool(request.config.getoption("--full"))
