"""Forms from declarations: what they ask for is what the command line asks for."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import pytest

from dshpc_setup.dashboard.source import JobReport
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs.request_building import CommandLine
from dshpc_setup.methods.model import Method, Parameter, Resources
from dshpc_setup.methods.store import Entry
from tests.unit.dashboard.conftest import Visitor, a_job

METHOD = Method(
    "train",
    ("python3",),
    "train.py",
    Path("/m/train"),
    "Train <it>.",
    "1",
    ("multi_file",),
    (
        Parameter("epochs", "integer", "How often.", default=10),
        Parameter("kind", "string", allowed_values=("small", "large"), default="small"),
        Parameter("fast", "boolean"),
        Parameter("rate", "number", required=True),
        Parameter("data", "file"),
    ),
    Resources(gpus=1, gpu_memory_mb=40000),
)


@pytest.fixture(autouse=True)
def _methods(visitor: Visitor) -> None:
    found = Entry("train", Path("/m/train"), "project", METHOD, ())
    broken = Entry("broken", Path("/m/broken"), "project", None, ())
    visitor.source.told_methods = (broken, found)


def submitted(visitor: Visitor) -> tuple[CommandLine, dict[str, bytes]]:
    (done,) = [each for each in visitor.source.done if each[0] == "submit"]
    return done[1], done[2]


def test_the_page_lists_methods_and_the_form_has_a_field_for_each_parameter(
    visitor: Visitor,
) -> None:
    page = visitor.page("/run")
    assert 'href="/run/train"' in page
    assert "dshpc method validate broken" in page
    form = visitor.page("/run/train")
    for name in ("epochs", "kind", "fast", "rate", "data"):
        assert f'name="p-{name}"' in form
    assert re.search(r'name="p-epochs" value="10"', form)
    assert "<option selected>small</option>" in form
    assert re.search(r'name="p-rate"[^>]* required', form)
    assert "1 GPU (40000 MB each)" in form
    assert "Train &lt;it&gt;." in form
    assert visitor.get("/run/none").status_code == 404
    assert visitor.get("/run/broken").status_code == 404


def test_what_is_filled_in_is_what_the_command_line_asks_for(visitor: Visitor) -> None:
    data = {
        "p-epochs": "3", "p-kind": "large", "p-fast": "", "p-rate": "0.1", "p-data": "a b.csv",
        "gpus": "2", "gpu_type": " h100 ", "time": "2h", "paths": "/data/x\n\n /data/y ", "act": "submit",
    }  # fmt: skip
    answer = visitor.post("/run/train", data)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/7?said=submitted")
    asked, _ = submitted(visitor)
    assert asked == CommandLine(
        "train", parameters=("epochs=3", "kind=large", "rate=0.1", "data=a b.csv"),
        inputs=("/data/x", "/data/y"), gpus="2", gpu_type="h100", time="2h",
    )  # fmt: skip


def test_before_it_is_submitted_it_says_whether_it_can_run_and_shows_the_call(
    visitor: Visitor,
) -> None:
    page = visitor.post("/run/train", {"p-rate": "0.1", "act": "check"}).text
    assert "Yes, it can run here" in page
    assert "sbatch --parsable" in page
    assert "dshpc method run train -p rate=0.1" in page
    assert 'name="p-rate" value="0.1"' in page  # what was filled in stays
    asked, _ = submitted(visitor)
    assert asked.dry_run


def test_what_is_wrong_is_said_beside_the_form(visitor: Visitor) -> None:
    visitor.source.fails = DshpcError("What was given does not fit the method train.", "-p: rate")
    page = visitor.post("/run/train", {"p-epochs": "many", "act": "submit"})
    assert page.status_code == 200
    assert "does not fit the method train" in page.text
    assert 'value="many"' in page.text


def test_a_command_is_words_and_no_shell(visitor: Visitor) -> None:
    data = {"command": "python3 'a b.py' ; rm -rf $HOME", "name": "try", "act": "submit"}
    assert visitor.post("/run", data).status_code == 303
    asked, _ = submitted(visitor)
    assert asked.command == ("python3", "a b.py", ";", "rm", "-rf", "$HOME")
    assert asked.name == "try"
    assert "The command is not whole." in visitor.post("/run", {"command": "a 'b"}).text


def test_files_that_are_uploaded_are_inputs_and_gone_afterwards(visitor: Visitor) -> None:
    files = [
        ("upload", ("data.csv", b"1,2\n")),
        ("upload", ("C:\\temp\\..\\note.txt", b"n")),
        ("upload", ("../../../evil", b"e")),
        ("upload", ("", b"")),
    ]
    answer = visitor.post("/run/train", {"p-rate": "1", "act": "submit"}, files=files)
    assert answer.status_code == 303
    asked, kept = submitted(visitor)
    assert kept == {"data.csv": b"1,2\n", "note.txt": b"n", "evil": b"e"}
    assert not any(Path(path).exists() for path in asked.inputs)


def test_two_uploads_of_one_name_are_refused(visitor: Visitor) -> None:
    files = [("upload", ("a", b"1")), ("upload", ("x/a", b"2"))]
    answer = visitor.post("/run/train", {"act": "submit"}, files=files)
    assert answer.status_code == 400
    assert visitor.source.done == []


def test_a_job_is_run_again_with_what_it_had(visitor: Visitor) -> None:
    request = {"parameters": [{"epochs": 7, "fast": True, "rate": None}]}
    visitor.source.reports["3"] = JobReport((a_job(3),), request, None, (), {})
    form = visitor.page("/run/train?from=3")
    assert 'name="p-epochs" value="7"' in form
    assert "<option selected>true</option>" in form


def test_a_command_is_run_again_with_what_it_had(visitor: Visitor) -> None:
    told = {
        "kind": "command", "name": "sh", "argv": ["sh", "-c", "echo '<b>'; sleep 9"],
        "resources": {"gpus": 2, "memory_mb": 2048, "time_limit": 10, "cpus": None},
    }  # fmt: skip
    visitor.source.reports["3"] = JobReport((a_job(3),), told, None, (), {})
    assert 'href="/run?from=3#command"' in visitor.page("/jobs/3")
    page = visitor.page("/run?from=3")
    (words,) = re.findall(r'name="command" value="([^"]*)"', page)
    assert shlex.split(html.unescape(words)) == told["argv"]
    for name, value in (("gpus", "2"), ("memory", "2048M"), ("time", "10m"), ("cpus", "")):
        assert re.search(rf'name="{name}" value="{value}"', page), name
    for other in ("4", "x", "../3", "٣"):
        assert visitor.get(f"/run?from={other}").status_code in (200, 404)
