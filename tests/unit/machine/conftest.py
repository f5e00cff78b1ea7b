"""`pytest tests/unit/machine --rewrite-machines` writes what is seen now as what is expected."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-machines",
        action="store_true",
        help="write tests/machines/*/expected anew, for a human to review",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    # Known only where this folder was named on the command line.
    return bool(request.config.getoption("--rewrite-machines", default=False))
