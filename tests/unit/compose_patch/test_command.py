"""`dshpc compose patch` without its screen: what is asked, checked, written, and told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.compose_patch import check, command
from dshpc_setup.compose_patch.command import Checked, ChosenHandover, Done, PatchOptions
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Compose
from dshpc_setup.terminal.reporter import Silent
from tests.unit.compose_patch.expected import refused, said
from tests.unit.compose_patch.texts import CDI, OLLAMA, REQUEST, TRAINING
from tests.unit.engine.fake import Answer, FakeMachine

V1 = Compose("1.29.2", ("docker-compose",))
WAY = ChosenHandover(REQUEST, "Proven by a test container.")


@pytest.fixture
def compose(tmp_path: Path) -> Path:
    path = tmp_path / "docker-compose.yml"
    path.write_text(TRAINING)
    return path


def fine(file: Path, old: str, new: str) -> Checked:
    assert old != new
    return Checked(by="docker-compose 1.29.2")


def run(
    wish: PatchOptions,
    *,
    way: ChosenHandover = WAY,
    answer: bool = True,
    checker: command.Check = fine,
) -> Done:
    return command.run(wish, lambda: way, checker, Silent(answer))


def test_patched_again_and_removed(compose: Path) -> None:
    done = run(PatchOptions(compose))
    assert (done.action, done.service, done.mechanism) == ("patched", "train", "device-request")
    assert done.backup == compose.with_name("docker-compose.yml.dshpc-backup")
    assert done.backup.read_text() == TRAINING
    assert "#   Proven by a test container." in compose.read_text()
    new = compose.read_text()
    again = run(PatchOptions(compose), checker=never)
    assert (again.action, again.backup, again.diff) == ("unchanged", None, "")
    assert again.notes == ("The service train has this GPU stanza already.",)
    assert compose.read_text() == new
    gone = run(PatchOptions(compose, remove=True), answer=True)
    assert (gone.action, gone.mechanism) == ("removed", None)
    assert compose.read_text() == TRAINING
    assert run(PatchOptions(compose, remove=True), checker=never).action == "unchanged"


def never(file: Path, old: str, new: str) -> Checked:
    raise AssertionError("there was nothing to check")


def test_a_dry_run_writes_nothing(compose: Path) -> None:
    done = run(PatchOptions(compose, dry_run=True), answer=False)
    assert done.action == "would-patch"
    assert '+      - "NVIDIA_DRIVER_CAPABILITIES=compute,utility"\n' in done.diff
    assert [path.name for path in compose.parent.iterdir()] == ["docker-compose.yml"]
    run(PatchOptions(compose))
    done = run(PatchOptions(compose, remove=True, dry_run=True), answer=False)
    assert done.action == "would-remove"
    assert '-      - "NVIDIA_DRIVER_CAPABILITIES=compute,utility"\n' in done.diff


def test_without_a_yes_nothing_is_written(compose: Path) -> None:
    error = refused(lambda: run(PatchOptions(compose), answer=False))
    assert error.exit_code == Exit.USAGE
    assert compose.read_text() == TRAINING
    assert [path.name for path in compose.parent.iterdir()] == ["docker-compose.yml"]


def test_who_is_asked_has_seen_what_would_be_done(compose: Path) -> None:
    shown: list[Done] = []

    class Asked(Silent):
        def ask(self, question: str, *, by_yes: bool = True) -> bool:
            assert [done.action for done in shown] == ["would-patch"]
            assert "service train" in question
            return False

    refused(lambda: command.run(PatchOptions(compose), lambda: WAY, fine, Asked(), shown.append))
    assert shown[0].diff
    assert compose.read_text() == TRAINING


def test_what_the_compose_tool_refuses_is_not_written(compose: Path) -> None:
    def refusing(file: Path, old: str, new: str) -> Checked:
        raise DshpcError("no")

    assert refused(lambda: run(PatchOptions(compose), checker=refusing)).brief == "no"
    assert compose.read_text() == TRAINING


def test_the_way_is_asked_for_a_service_that_is_there_only(compose: Path) -> None:
    def way() -> ChosenHandover:
        raise AssertionError("a test-run for nothing")

    for wish in (PatchOptions(compose, "trian"), PatchOptions(compose.with_name("no.yml"))):
        error = refused(command.run, wish, way, fine, Silent(True))
        assert error.exit_code == Exit.USAGE


def test_the_form_is_that_of_the_compose_that_will_read_it(compose: Path) -> None:
    for version, key in (("2.30.3", "gpus"), ("1.29.2", "deploy"), (None, "deploy")):
        compose.write_text(TRAINING)
        run(PatchOptions(compose), way=replace(WAY, compose=version))
        assert key in said(compose.read_text())["services"]["train"]


def test_hard_links_are_told(compose: Path) -> None:
    (compose.parent / "other.yml").hardlink_to(compose)
    assert "hard links" in run(PatchOptions(compose)).notes[0]
    assert (compose.parent / "other.yml").read_text() == TRAINING


def test_the_object(compose: Path) -> None:
    done = run(PatchOptions(compose), way=ChosenHandover(CDI, "x"))
    found = done.to_json()
    assert found["schema"] == "dshpc.compose-patch/1"
    assert found["file"] == str(compose)
    assert found["backup"] == f"{compose}.dshpc-backup"
    assert (found["action"], found["mechanism"]) == ("patched", "cdi")
    assert found["diff"].startswith(f"--- {compose} (now)\n+++ {compose} (new)\n@@")


def test_the_diff_of_a_file_without_a_last_line_end(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_bytes(b"services:\r\n  a:\r\n    image: x")
    done = run(PatchOptions(path, dry_run=True))
    assert "-    image: x\n\\ No newline at end of file\n+    image: x\r\n" in done.diff
    assert all(line[:1] in "+- @\\" for line in done.diff.split("\n"))


# The compose tool


def test_a_text_that_it_takes() -> None:
    machine = FakeMachine(commands={"docker-compose": Answer()})
    found = check.config(machine, V1, Path("/p/c.yml"), "old", "new")
    assert found == Checked(by="docker-compose 1.29.2")
    assert machine.ran == [
        ("docker-compose", "--project-directory", "/p", "-f", "-", "config", "-q")
    ]


def test_a_text_that_it_no_longer_takes() -> None:
    answers = [Answer(code=1, stderr="Unsupported config option: gpus"), Answer()]
    machine = FakeMachine(commands={"docker-compose": answers})
    error = refused(check.config, machine, V1, Path("/p/c.yml"), "old", "new")
    assert error.exit_code == Exit.ERROR
    assert error.details == "Unsupported config option: gpus"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            Answer(code=1, stderr="image is missing"),
            "without the GPU stanza either: image is missing",
        ),
        (
            Answer(state="timeout"),
            "docker-compose --project-directory /p did not answer within 1 s",
        ),
    ],
)
def test_what_it_cannot_judge_is_told(answer: Answer, words: str) -> None:
    machine = FakeMachine(commands={"docker-compose": answer})
    found = check.config(machine, V1, Path("/p/c.yml"), "old", "new")
    assert found.by is None
    assert words in (found.note or "")


def test_without_a_tool_that_is_told() -> None:
    found = check.checked(FakeMachine(), Path("/p/c.yml"), "old", "new")
    assert found == Checked(note="No compose tool checked it: none is installed here.")
    machine = FakeMachine(
        programs={"docker"},
        commands={"docker compose version": Answer("2.26.1\n"), "docker compose": Answer()},
    )
    assert check.checked(machine, Path("/p/c.yml"), "old", "new").by == "docker compose 2.26.1"


def test_several_services_need_a_name(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_text(OLLAMA)
    assert refused(lambda: run(PatchOptions(path))).exit_code == Exit.USAGE
    run(PatchOptions(path, "ollama"))
    done: Any = run(PatchOptions(path, remove=True))
    assert (done.service, path.read_text()) == ("ollama", OLLAMA)


def test_the_file_of_the_cluster_itself_is_not_patched(tmp_path: Path) -> None:
    path = tmp_path / "docker-compose.yml"
    text = 'services:\n  slurm:\n    labels:\n      org.dshpc.rendered: "12ab"\n'
    path.write_text(text)
    error = refused(lambda: run(PatchOptions(path)))
    assert error.exit_code == Exit.USAGE
    assert "configure-environment" in error.resolution[0]
    path.write_text(f"# USER_CUSTOMIZED=true\n{text}")
    assert run(PatchOptions(path)).action == "patched"
    assert run(PatchOptions(path, remove=True)).action == "removed"
