"""`logs` of the built-in engine: the bytes of a container's log; and `exec` in one that does not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup import engine_client
from dshpc_setup.builtin.archive import Unpacked
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin.rootfs import Rootfs
from dshpc_setup.builtin.wanted import Wanted
from dshpc_setup.builtin_client import main
from dshpc_setup.builtin_client.store import Container, Store

OLD, NEW = b"first\x1b[2J\nsecond\r20%\n", b"\xff third\x0c\xc2\x85\nno end"


@pytest.fixture(autouse=True)
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store({"XDG_CACHE_HOME": str(tmp_path)})
    root = Rootfs("ab" * 32, Ids("root"), str(tmp_path), Unpacked(0, 0, 0, None))
    wanted = Wanted("lab-slurm", root, str(tmp_path), ("/init",), "lab")
    store.put("container", "lab-slurm", Container("1", "lab-slurm", "i", "now", wanted))
    (tmp_path / "container.log.1").write_bytes(OLD)
    (tmp_path / "container.log").write_bytes(NEW)
    (tmp_path / "container.log.times").write_bytes(b"1767225600.250 0\n1767225660.5 9\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), OLD + NEW),
        (("--tail", "all"), OLD + NEW),
        (("--tail", "2"), NEW),
        (("--tail", "3"), b"second\r20%\n" + NEW),
        (("--tail", "0"), b""),
        (("--since", "2026-01-01T00:00:00Z"), OLD + NEW),
        (("--since", "2026-01-01T00:00:00.251123456Z"), NEW),
        (("--since", "2026-01-01T01:02:00+01:00"), NEW[9:]),
        (("--follow", "--since", "2026-01-01T00:02:00Z", "--tail", "1"), b"no end"),
        (("--follow", "--tail", "1"), b"no end"),  # it does not run: it ends there
    ],
)
def test_the_bytes_as_they_were_written(
    capfdbinary: pytest.CaptureFixture[bytes], words: tuple[str, ...], said: bytes
) -> None:
    assert main.main(["logs", *words, "--", "lab-slurm"]) == 0
    assert capfdbinary.readouterr().out == said


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01T00:00:00Z"])
def test_a_time_that_is_none_is_told(capfdbinary: pytest.CaptureFixture[bytes], text: str) -> None:
    assert main.main(["logs", "--since", text, "--", "lab-slurm"]) != 0
    told = capfdbinary.readouterr()
    assert told.out == b""
    assert b"invalid value for --since" in told.err


@pytest.mark.parametrize("name", ["lab-slurm", "none"])
def test_who_tells_by_himself_that_it_is_down_is_told_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(engine_client.QUIET, "1")
    assert main.main(["exec", name, "true"]) == 1
    assert capsys.readouterr().err == ""


def test_all_others_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["exec", "none", "true"]) == 1
    assert capsys.readouterr().err.startswith(engine_client.SAYS)
