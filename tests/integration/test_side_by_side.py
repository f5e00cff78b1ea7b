"""`./run-tests` from the lines' end on: what failed is run once more, alone, and said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.integration.cluster import wait_until

ROOT = Path(__file__).parents[2]
CONFTEST = """
    def pytest_addoption(parser):
        parser.addoption("--full", action="store_true")
        parser.addoption("--line")

    def pytest_collection_modifyitems(config, items):
        line = config.getoption("--line")
        items[:] = [item for item in items if line is None or line in item.name]
"""
TESTS = """
    import pathlib, pytest

    def fails(name, times):
        ran = pathlib.Path(name)
        ran.write_text(ran.read_text() + "." if ran.exists() else ".")
        assert len(ran.read_text()) > times, f"{name} for once"

    @pytest.mark.parametrize("odd", ["a b", "é-[x]"])
    def test_engine(odd): fails("engine" + odd, ENGINE)
    def test_others(): fails("others", OTHERS)
    def test_jobs(): fails("jobs", 0)
    def test_unit(): fails("unit", 0)
    def test_kills(): fails("kills", 0)
    def test_attacks(): fails("attacks", 0)
    def test_hosts(): fails("hosts", HOSTS)
"""
EXTENDED = ("kills", "attacks", "hosts")


@pytest.mark.parametrize(
    ("engine", "others", "arguments", "code", "ran"),
    [
        (0, 0, (), 0, (1, 1, 1)),
        (1, 0, (), 0, (2, 1, 1)),
        (1, 1, (), 0, (2, 2, 1)),
        (2, 1, (), 1, (2, 2, 1)),
        (1, 0, ("--full",), 1, (1, 1, 1)),
    ],
)
def test_a_second_look(
    tmp_path: Path,
    engine: int,
    others: int,
    arguments: tuple[str, ...],
    code: int,
    ran: tuple[int, int, int],
) -> None:
    folder = tmp_path / "tests" / "integration"
    folder.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(textwrap.dedent(CONFTEST))
    text = TESTS.replace("ENGINE", str(engine)).replace("OTHERS", str(others))
    (folder / "test_it.py").write_text(textwrap.dedent(text.replace("HOSTS", "0")))
    done = _run(tmp_path, *arguments)
    assert done.returncode == code, done.stdout
    assert [(tmp_path / name).exists() for name in EXTENDED] == ["--full" in arguments] * 3
    counted = tuple(len((tmp_path / name).read_text()) for name in ("enginea b", "others", "jobs"))
    assert counted == ran
    # Its traceback: with `CI` in the environment pytest's summary at the end has the words, too.
    assert done.stdout.count("E       AssertionError: others for once") == min(others, 1)
    told = "FAILED AT FIRST, PASSED ALONE" in done.stdout
    assert told == (code == 0 and engine > 0)
    if told:
        named = done.stdout.partition("PASSED ALONE")[2]
        assert ("test_it.py::test_others" in named) == (others > 0)
        assert "test_it.py::test_engine[a b]" in named


@pytest.mark.parametrize(
    ("engine", "hosts", "code", "extended"),
    [
        (0, 0, 0, (1, 1, 1)),
        (0, 1, 0, (1, 1, 2)),
        (0, 2, 1, (1, 1, 2)),
        (
            2,
            0,
            1,
            (1, 1, 1),
        ),  # a failure of the first stage keeps nothing of the second from being known
    ],
)
def test_the_extended_stage_follows(
    tmp_path: Path, engine: int, hosts: int, code: int, extended: tuple[int, ...]
) -> None:
    folder = tmp_path / "tests" / "integration"
    folder.mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(textwrap.dedent(CONFTEST))
    text = TESTS.replace("ENGINE", str(engine)).replace("OTHERS", "0").replace("HOSTS", str(hosts))
    (folder / "test_it.py").write_text(textwrap.dedent(text))
    done = _run(tmp_path, "--all")
    assert done.returncode == code, done.stdout
    assert tuple(len((tmp_path / name).read_text()) for name in EXTENDED) == extended


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "side_by_side.py", *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


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
    def test_unit(container): waits(container)
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
