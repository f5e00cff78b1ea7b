"""A Slurm command that cannot work here says in one line what it needs."""

from __future__ import annotations

import pytest

from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import exec_needs
from tests.unit.engine.fake import Answer, FakeMachine

RUNTIME = {"container": "c", "work": "/w", "docker": "docker", "prefix": "p"}
ASKS = "docker exec c scontrol show config"
CONFIG = """Configuration data as of 2026-11-23T04:20:00
AccountingStorageType   = {}
ScronParameters         = {}
"""


UP = "slurmdbd(primary) at p is UP\n"


def _hint(command: str, storage: str, scron: str, code: int = 0, ping: str = UP) -> str | None:
    config = Answer(code=code, stdout=CONFIG.format(storage, scron))
    pinged = Answer(code=0 if ping == UP else 1, stdout=ping)
    machine = FakeMachine(commands={ASKS: config, "docker exec c sacctmgr ping": pinged})
    return exec_needs.hint(machine, execution.Call(command, ["-l"], RUNTIME))


@pytest.mark.parametrize("storage", ["(null)", "accounting_storage/none"])
@pytest.mark.parametrize("command", ["sacct", "sacctmgr", "sreport", "sshare"])
def test_without_accounting(command: str, storage: str) -> None:
    said = _hint(command, storage, "enable")
    assert said is not None
    assert said.startswith(f"{command} needs accounting")
    assert "dshpc config set accounting on" in said


@pytest.mark.parametrize("command", ["sacct", "sacctmgr", "sreport", "sshare", "sbatch"])
def test_where_it_does_not_answer_that_is_said(command: str) -> None:
    said = _hint(command, "accounting_storage/slurmdbd", "", ping=UP.replace("UP", "DOWN"))
    assert said is not None
    assert "does not answer" in said


def test_without_scron() -> None:
    said = _hint("scrontab", "accounting_storage/slurmdbd", "(null)")
    assert said is not None
    assert "ScronParameters=enable" in said


@pytest.mark.parametrize("command", ["sacct", "sacctmgr", "sreport", "sshare", "scrontab"])
def test_where_it_is_there_the_fault_is_another(command: str) -> None:
    assert _hint(command, "accounting_storage/slurmdbd", "enable,jobs_to_keep=3") is None
    assert _hint(command, "(null)", "(null)", code=1) is None  # nobody knows


COUNTS = "docker exec c squeue -h -a -r -t all -O JobID:|"


@pytest.mark.parametrize(
    ("config", "jobs", "code", "told"),
    [
        ("MaxJobCount             = 12\n", 6, 0, True),
        ("MaxJobCount             = 12\n", 5, 0, False),
        ("MaxJobCount             = 12\n", 6, 1, False),
        ("", 6, 0, False),
    ],
)
def test_an_sbatch_that_met_the_limit_of_jobs(
    config: str, jobs: int, code: int, told: bool
) -> None:
    listed = Answer(code=code, stdout="7|\n" * jobs)
    machine = FakeMachine(commands={ASKS: Answer(stdout=config), COUNTS: listed})
    said = exec_needs.hint(machine, execution.Call("sbatch", [], RUNTIME))
    assert (said is not None and "dshpc config set job_limit" in said) is told


def test_other_commands_ask_nothing() -> None:
    machine = FakeMachine()
    assert exec_needs.hint(machine, execution.Call("squeue", [], RUNTIME)) is None
    assert machine.ran == []
