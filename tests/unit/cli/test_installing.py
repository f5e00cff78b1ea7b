"""install-commands, completion and man: what is written where, what is asked, what is left alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import folders, man_pages, manual
from dshpc_setup.project import on_path
from dshpc_setup.project.folder import RUNTIME
from scripts import man_pages as checkout


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/nowhere")
    monkeypatch.setenv("DSHPC_COMMAND", "/r/dshpc")
    monkeypatch.delenv("SHELL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def install(*words: str) -> int:
    return cli.run(["install-commands", *words], "dshpc")


def test_everything_is_put_and_taken_away_again(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install("--yes") == 0
    names = files(home / ".local")
    assert {"bin/dshpc", "bin/srun", "bin/sbatch", "share/man/man1/dshpc-job.1"} <= names
    assert "share/bash-completion/completions/dshpc" in names
    assert "share/zsh/site-functions/_dshpc" in names
    assert "share/fish/vendor_completions.d/dshpc.fish" in names
    assert {f"bin/{name}" for name in on_path.SLURM} <= names
    said = capsys.readouterr().err
    assert f"{home}/.local/bin is not on your PATH" in said
    assert install("--remove", "--yes") == 0
    assert files(home / ".local") == set()


def test_slurms_commands_are_left_out_where_that_is_said(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install("--no-slurm", "--yes", "--to", str(home / "b")) == 0
    assert files(home / "b") == {"dshpc"}
    assert f"install-commands --to {home / 'b'} --remove" in capsys.readouterr().err


def test_what_lies_in_a_cache_is_not_installed(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As uvx has it. An environment has such a mark of its own, too."""
    cache = home / "uv"
    monkeypatch.setenv("DSHPC_COMMAND", str(cache / "archive/x/bin/dshpc"))
    (cache / "archive/x").mkdir(parents=True)
    (cache / "archive/x/CACHEDIR.TAG").touch()
    assert install("--yes", "--to", str(home / "a")) == 0
    (cache / "CACHEDIR.TAG").touch()
    assert install("--yes") == 2
    assert "uv tool install" in capsys.readouterr().err
    assert not (home / ".local").exists()
    assert install("--remove", "--yes", "--to", str(home / "a")) == 0


def test_nothing_is_done_unasked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install() == 2
    assert "--yes" in capsys.readouterr().err
    assert files(home) == set()


def test_a_real_slurm_is_not_hidden_unasked(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = home / "slurm/bin/squeue"
    real.parent.mkdir(parents=True)
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    bin_ = home / ".local/bin"
    monkeypatch.setenv("PATH", f"{bin_}:{real.parent}")
    assert install("--yes") == 0
    assert files(bin_) == {"dshpc"}
    assert str(real) in capsys.readouterr().err
    assert install("--yes", "--slurm") == 0
    assert "squeue" in files(bin_)
    assert f"squeue is the cluster's; the other is {real}" in capsys.readouterr().err
    monkeypatch.setenv("PATH", f"{real.parent}:{bin_}")
    assert install("--yes", "--slurm") == 0
    assert f"squeue is {real}; the cluster's is /r/dshpc squeue" in capsys.readouterr().err


def test_a_foreign_file_is_named_and_stays(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = home / ".local/bin/srun"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert install("--yes", "--slurm") == 0
    assert mine.read_text() == "mine"
    assert f"not ours: {mine}" in capsys.readouterr().err
    assert install("--yes", "--remove") == 0
    assert mine.read_text() == "mine"


def test_the_project_that_one_stands_in_is_the_one_elsewhere(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = home / "p"
    (project / RUNTIME).parent.mkdir(parents=True)
    (project / RUNTIME).write_text('{"container": "x-slurm", "work": "/w"}')
    monkeypatch.chdir(project)
    assert install("--yes") == 0
    text = (home / ".local/bin/sbatch").read_text()
    assert f"DSHPC_DEFAULT_DIR={project}" in text
    monkeypatch.chdir(home)
    assert folders.found_project(None) is None
    monkeypatch.setenv("DSHPC_DEFAULT_DIR", str(project))
    found = folders.found_project(None)
    assert found is not None
    assert found.folder == project


def test_the_project_above_comes_before_the_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("p", "q"):
        (home / name / RUNTIME).parent.mkdir(parents=True)
        (home / name / RUNTIME).write_text('{"container": "x-slurm", "work": "/w"}')
    monkeypatch.setenv("DSHPC_DEFAULT_DIR", str(home / "p"))
    monkeypatch.chdir(home / "q")
    found = folders.found_project(None)
    assert found is not None
    assert found.folder == home / "q"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", shell], "dshpc") == 0
    assert "__complete --" in capsys.readouterr().out


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["completion", "tcsh"], "dshpc") == 64
    assert "bash, zsh, fish" in capsys.readouterr().err


def test_a_man_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["man", "job"], "dshpc") == 0
    assert capsys.readouterr().out.startswith('.TH "DSHPC\\-JOB" 1')
    assert cli.run(["man", "srun"], "dshpc") == 64


def test_the_pages_of_the_checkout_are_as_the_commands_are() -> None:
    assert checkout.stale() == []  # else: python scripts/man_pages.py --write


def test_a_page_says_every_option_and_command() -> None:
    pages = man_pages.pages()
    for command in manual.commands():
        page = pages.get(f"dshpc-{command.words[0]}.1", pages["dshpc.1"]).replace("\\-", "-")
        for each in (command, *command.commands):
            assert each.name in page
            assert all(name in page for option in each.options for name in option.names)


def test_no_line_of_a_page_is_an_order_that_was_not_meant() -> None:
    orders = re.compile(r"\.(TH|SH|PP|TP|nf|fi)\b")
    for page in man_pages.pages().values():
        assert all(orders.match(line) for line in page.splitlines() if line[:1] in (".", "'"))
    assert man_pages._plain(".x -a \\n") == "\\&.x \\-a \\en"
