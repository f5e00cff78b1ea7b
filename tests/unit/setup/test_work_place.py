"""A mistyped work folder is not made silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.settings import load
from dshpc_setup.setup import work_place
from dshpc_setup.terminal.reporter import Silent


class Asked(Silent):
    def __init__(self, answer: bool) -> None:
        super().__init__(answer)
        self.questions: list[str] = []

    def ask(self, question: str, *, by_yes: bool = True) -> bool:
        self.questions.append(question)
        assert by_yes, "--yes answers it"
        return self.answer


def agreed(path: Path, answer: bool = True, **given: str) -> list[str]:
    reporter = Asked(answer)
    settings = load(yaml_text=f"work: {path}\n") if not given else load(**given)  # type: ignore[arg-type]
    work_place.agreed(path, settings, path.parents[1] / "project", reporter)
    return reporter.questions


def test_one_that_is_there_is_taken(tmp_path: Path) -> None:
    assert agreed(tmp_path) == []
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert agreed(tmp_path / "link") == [], "what is wrong with it is told as it is used"


def test_the_default_is_made_without_a_word(tmp_path: Path) -> None:
    assert agreed(tmp_path / "work", yaml_text="gpu: none\n") == []


def test_one_that_is_not_there_is_asked_about(tmp_path: Path) -> None:
    (question,) = agreed(tmp_path / "imagin")
    assert question == (
        f"The work folder {tmp_path}/imagin (dshpc.yaml:1:1) is not there. Make it, empty?"
    )
    with pytest.raises(DshpcError) as caught:
        agreed(tmp_path / "imagin", answer=False)
    assert caught.value.exit_code == Exit.USAGE
    assert "dshpc.yaml:1:1" in caught.value.details
    assert not (tmp_path / "imagin").exists()


def test_where_nothing_is_there_no_answer_helps(tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="cannot be meant") as caught:
        agreed(tmp_path / "dta" / "imaging" / "x")
    assert f"Of its path, {tmp_path} is there." in caught.value.details
    assert f"mkdir -p {tmp_path}/dta/imaging/x" in caught.value.resolution[1]


def test_the_projects_own_folder_is_made_by_the_run(tmp_path: Path) -> None:
    project = tmp_path / "lab"
    reporter = Asked(answer=True)
    work_place.agreed(project / "data", load(flags={"work": "data"}), project, reporter)
    assert len(reporter.questions) == 1


def test_a_dry_run_only_says_so(tmp_path: Path) -> None:
    settings = load(flags={"work": str(tmp_path / "x")})
    assert "(--work)" in (work_place.foreseen(tmp_path / "x", settings, tmp_path) or "")
    assert work_place.foreseen(tmp_path, settings, tmp_path) is None
