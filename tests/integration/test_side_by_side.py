"""`./run-tests` from its lines on: each test is run once, and an interrupt ends all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from scripts.side_by_side import LINES, STAGES
from tests.integration.cluster import wait_until

ROOT = Path(__file__).parents[2]
CONFTEST = f"""
    import sys

    sys.path.insert(0, {str(ROOT)!r})
    from scripts.side_by_side import pytest_runtest_teardown

    def pytest_addoption(parser):
        parser.addoption("--full", action="store_true")
        parser.addoption("--line")

    def pytest_collection_modifyitems(config, items):
        line = config.getoption("--line")
        items[:] = [item for item in items if line is None or line in item.name]
"""
TESTS = """
    import pathlib

    def runs(name):
        with pathlib.Path(name).open("a") as ran: ran.write(".")
        assert name != FAILING, f"{name} for once"

    def test_engine(): runs("engine")
    def test_others(): runs("others")
    def test_jobs(): runs("jobs")
    def test_unit(): runs("unit")
    def test_kills(): runs("kills")
    def test_attacks(): runs("attacks")
    def test_hosts(): runs("hosts")
    def test_extras(): runs("extras")
"""


@pytest.mark.parametrize(
    ("arguments", "failing"),
    [
        ((), ""),
        ((), "engine"),
        (("--all",), ""),
        # a failure of the first stage keeps nothing of the second from being known
        (("--all",), "others"),
        (("--all",), "hosts"),
        (("--full",), "engine"),
    ],
)
def test_all_are_run_once_whatever_fails(
    tmp_path: Path, arguments: tuple[str, ...], failing: str
) -> None:
    folder = tmp_path / "tests" / "integration"
    folder.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(textwrap.dedent(CONFTEST))
    text = textwrap.dedent(TESTS.replace("FAILING", repr(failing)))
    (folder / "test_it.py").write_text(text)
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "side_by_side.py", *arguments],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    run = {line for stage in STAGES[: 2 if arguments else 1] for line in stage}
    assert {line: _read(tmp_path / line) for line in LINES} == {
        line: "." if line in run else "" for line in LINES
    }
    assert done.returncode == (failing in run), done.stdout
    # Its traceback: with `CI` in the environment pytest's summary at the end has the words, too.
    assert done.stdout.count(f"E       AssertionError: {failing} for once") == (failing in run)


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


INTERRUPTED = """
    import os, pathlib, subprocess, time, pytest

    @pytest.fixture
    def container():
        with open("made", "a") as made: made.write(".")
        yield
        time.sleep(1)  # longer than Python gives to what it runs
        with open("removed", "a") as removed: removed.write(".")

    def waits(container): subprocess.run(["sleep", "600"])
    def test_engine(container): waits(container)
    def test_others(container): waits(container)
    def test_jobs(container): waits(container)
    def test_unit(container):
        with pytest.raises(KeyboardInterrupt): waits(container)  # it takes it for its own
    def test_unit_next(container): waits(container)
"""


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_an_interrupt_lets_each_line_remove_what_it_made(tmp_path: Path, name: str) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(textwrap.dedent(CONFTEST))
    (tmp_path / "test_it.py").write_text(textwrap.dedent(INTERRUPTED))
    with subprocess.Popen(
        [sys.executable, ROOT / "scripts" / "side_by_side.py"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as child:
        made = tmp_path / "made"
        wait_until(lambda: made.exists() and len(made.read_text()) == 4, "all four wait")
        # as a terminal does, to the whole group; SIGTERM comes to the one process
        (os.killpg if name == "INT" else os.kill)(child.pid, getattr(signal, f"SIG{name}"))
        assert child.wait(60) == 130
    assert (tmp_path / "removed").read_text() == "...."
