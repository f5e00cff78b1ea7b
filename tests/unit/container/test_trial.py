"""The texts that Slurm's programs are asked with, beside those that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import network, trial
from dshpc_setup.container.config import Candidate
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.paths import ASK, Paths

TEXT = "ClusterName=lab\nauthinfo = ttl=99\nSlurmctldPort=6817\nNodeName=lab Gres=gpu:h100:2\n"


def test_whoever_is_asked_makes_no_socket_of_its_own() -> None:
    found = trial.asking(TEXT)
    assert slurm_conf.last(found, "AuthInfo") == "ttl=99,disable_sack"
    assert slurm_conf.last(trial.asking("ClusterName=lab\n"), "AuthInfo") == "disable_sack"


def test_a_trial_meets_nothing_of_what_runs() -> None:
    found = trial._moved(TEXT, (7000, 7001), "/x")
    assert slurm_conf.last(found, "SlurmctldPort") == "7000"
    assert slurm_conf.last(found, "StateSaveLocation") == "/x/state"
    assert "6817" not in found


@given(st.text(max_size=300))
def test_lines_keep_their_numbers(text: str) -> None:
    for made in (trial.asking(text), trial._moved(text, (7000, 7001), "/x")):
        lines = made.split("\n")
        for number, line in enumerate(text.split("\n")):
            assert lines[number] in (line, "")


class Slurmd(LocalMachine):
    """Answers as `slurmd -G` would."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__()
        self.code, self.said = code, said
        self.argv: Sequence[str] = ()

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        self.argv = argv
        return CommandResult(tuple(argv), "present", self.code, "", self.said, 1.0)


TEXTS: Mapping[str, str] = {"slurm.conf": TEXT, "gres.conf": "Name=gpu File=/dev/nvidia0\n"}
EXTRA = "slurmd: warning: A line in gres.conf for GRES gpu:h100 has 1 more. Ignoring extra GRES.\n"
LESS = "slurmd: warning: Ignoring file-less GPU gpu:h100 from final GRES list\n"


@pytest.mark.parametrize(
    ("code", "said", "brief"),
    [
        (0, "", None),
        (0, EXTRA, None),
        (0, LESS, "Slurm refuses this configuration."),
        (0, EXTRA + LESS, "Slurm refuses this configuration."),
        (1, "slurmd: fatal: no\n", "Slurm refuses this configuration."),
    ],
)
def test_what_slurmd_says_to_a_set(code: int, said: str, brief: str | None) -> None:
    machine = Slurmd(code, said)
    error = trial.parse_error(machine, Candidate(TEXTS, {}, {}), "/set", "lab")
    assert (error.brief if error else None) == brief
    assert list(machine.argv[-2:]) == ["-f", f"/set/{ASK}"]


def test_the_set_that_is_asked_with_lies_beside_the_real_one(tmp_path: Path) -> None:
    trial.write_set(str(tmp_path / "set"), TEXTS, str(tmp_path / "key"))
    assert (tmp_path / "set/slurm.conf").read_text() == TEXT
    assert "disable_sack" in (tmp_path / "set" / ASK).read_text()


class Slurmctld(LocalMachine):
    """A controller that says `said` into its log, or cannot be started."""

    def __init__(self, said: str | None) -> None:
        super().__init__()
        self.said = said

    def start_daemon(self, argv: Sequence[str], **how: Any) -> int:
        if self.said is None:
            raise OSError(12, "Cannot allocate memory")
        Path(how["log"]).write_text(self.said)
        return 1


@pytest.mark.parametrize(
    ("said", "brief"),
    [
        ("Running as primary controller\n", None),
        ("slurmctld: fatal: no\n", "Slurm refuses this configuration."),
    ],
)
def test_a_trial_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, brief: str | None
) -> None:
    paths = _trial_paths(tmp_path, monkeypatch)
    error = trial.trial_error(Slurmctld(said), Candidate(TEXTS, {}, {}), paths)
    assert (error.brief if error else None) == brief
    assert not (tmp_path / "run/dshpc/trial").exists()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_key_that_the_start_would_make_is_no_reason_to_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """`rest` switched on in a cluster that runs."""
    paths = _trial_paths(tmp_path, monkeypatch)
    if is_there:
        Path(paths.rest_key).write_bytes(bytes(32))
    text = f"{TEXT}AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={Paths().rest_key}\n"
    given: list[tuple[str, int | None]] = []

    class Reads(Slurmctld):
        def start_daemon(self, argv: Sequence[str], **how: Any) -> int:
            conf = Path(argv[argv.index("-f") + 1]).read_text()
            key = str(slurm_conf.last(conf, "AuthAltParameters")).removeprefix("jwt_key=")
            size = len(Path(key).read_bytes()) if key.startswith(str(tmp_path)) else None
            given.append((key, size))
            return super().start_daemon(argv, **how)

    machine = Reads("Running as primary controller\n")
    assert (
        trial.trial_error(machine, Candidate({**TEXTS, "slurm.conf": text}, {}, {}), paths) is None
    )
    ((key, size),) = given
    assert (key == Paths().rest_key, size) == (is_there, None if is_there else 32)
    assert Path(paths.rest_key).exists() == is_there


def test_a_trial_that_cannot_begin_leaves_no_folder_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = _trial_paths(tmp_path, monkeypatch)
    with pytest.raises(OSError, match="Cannot allocate"):
        trial.trial_error(Slurmctld(None), Candidate(TEXTS, {}, {}), paths)
    assert not (tmp_path / "run/dshpc/trial").exists()


def _trial_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    (tmp_path / "run/dshpc").mkdir(parents=True)
    (tmp_path / "var/lib/dshpc/key").mkdir(parents=True)
    (tmp_path / "var/lib/dshpc/key/slurm.key").write_bytes(bytes(64))
    ports = iter((7000, 7001))
    monkeypatch.setattr(network, "spare_port", lambda: next(ports))
    monkeypatch.setattr(network, "end", str)
    monkeypatch.setattr(network, "reaped", bool)
    return Paths(str(tmp_path))
