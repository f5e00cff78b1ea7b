"""Fixtures of the laboratory; a test module has them by `pytest_plugins`, so that each is made once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.errors import DshpcError
from dshpc_setup.image.base import BaseImage
from tests.integration.slurms import cluster
from tests.integration.slurms.cases import Case, cases
from tests.integration.slurms.cluster import Outcome, Runs
from tests.integration.slurms.roots import SUITES, SlurmRoot, slurm_root

_AT_ONCE = 3  # rooms: a little more than there are CPUs, for a cluster often waits


@pytest.fixture(scope="session")
def slurms(
    base_image: BaseImage, site: SiteFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, SlurmRoot]]:
    """Suite -> its Slurm. Both are made at the same time."""
    folder = tmp_path_factory.mktemp("slurms")
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(SUITES)) as pool:
        making = {
            suite: pool.submit(stack.enter_context, slurm_root(suite, base_image, site, folder))
            for suite in SUITES
        }
        yield {suite: future.result() for suite, future in making.items()}


@pytest.fixture(scope="session")
def runs(
    slurms: dict[str, SlurmRoot],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Runs]:
    """What each case did. All that the tests of this session want are begun at once."""
    folder = tmp_path_factory.mktemp("runs")
    begun: dict[tuple[object, ...], Future[Outcome]] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:

        def begin(suite: str, case: Case) -> Future[Outcome]:
            key = (suite, *case.key)
            if key not in begun:
                place = folder / f"{suite}-{len(begun)}"
                begun[key] = pool.submit(cluster.run, slurms[suite], case, place)
            return begun[key]

        for suite, name in _wanted(request.session):
            case = cases()[name]
            if isinstance(case, Case):
                begin(suite, case)

        def outcome(suite: str, name: str) -> Outcome:
            case = cases()[name]
            assert not isinstance(case, DshpcError), f"{name} has no plan: {case}"
            return begin(suite, case).result()

        yield outcome
        pool.shutdown(cancel_futures=True)


def _wanted(session: pytest.Session) -> Iterator[tuple[str, str]]:
    """(suite, name) of every test that was chosen."""
    for item in session.items:
        values = getattr(getattr(item, "callspec", None), "params", {})
        if "suite" in values and "name" in values and "runs" in getattr(item, "fixturenames", ()):
            yield values["suite"], values["name"]
