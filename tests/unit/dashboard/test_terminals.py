"""Terminals in the browser: how they begin, who may join one, what it shows, when it ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.dashboard import terminals
from dshpc_setup.dashboard.app import application
from dshpc_setup.dashboard.browser_files import Browser, Scripts
from dshpc_setup.dashboard.terminal_pages import size_of, wanted
from dshpc_setup.dashboard.terminals import Terminals
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine.pseudo_terminal import Size
from dshpc_setup.slurm import shells
from tests.unit.dashboard.conftest import HOST, FakeChild, Visitor


@pytest.fixture
def at(visitor: Visitor) -> Visitor:
    """One whose browser's scripts are there."""
    there = Scripts((), ())
    there.files = {"xterm.js": b"x", "xterm.css": b"y"}
    object.__setattr__(visitor.site, "browser", Browser(Scripts((), ()), there))
    return visitor


def begun(at: Visitor, **form: str) -> str:
    answer = at.post("/terminals", form)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def test_a_shell_is_an_srun_of_ours(at: Visitor) -> None:
    place = begun(at, gpus="2", gpu_type="h100", time="2h")
    words = (
        "srun",
        "--job-name=terminal",
        "--gres=gpu:h100:2",
        "--time=120",
        "--pty",
        "bash",
        "-l",
    )
    assert at.source.done == [("terminal", words)]
    answer = at.get(place)
    assert "--gres=gpu:h100:2" in answer.text
    policy = answer.headers["content-security-policy"]
    (nonce,) = [each for each in policy.split("'") if each.startswith("nonce-")]
    assert f'data-nonce="{nonce.removeprefix("nonce-")}"' in answer.text
    assert "script-src 'self';" in policy
    assert f'href="{place}"' in at.page("/run")
    at.site.terminals.end_all()


def test_a_shell_in_a_job(at: Visitor) -> None:
    assert 'action="/jobs/3/terminal"' in at.page("/jobs/3")
    assert at.post("/jobs/3/terminal").status_code == 303
    assert at.source.done == [
        ("terminal", ("srun", "--jobid=3", "--overlap", "--pty", "bash", "-l"))
    ]
    assert at.post("/jobs/3;id/terminal").status_code == 404
    at.site.terminals.end_all()


def test_without_its_script_the_page_says_what_to_type(visitor: Visitor) -> None:
    assert "--pty bash" in visitor.page("/run")
    answer = visitor.post("/terminals", {"gpus": "1"})
    assert answer.status_code == 409
    assert "srun --job-name=terminal --gres=gpu:1 --pty bash -l" in answer.text
    assert visitor.source.done == []


@pytest.mark.parametrize(
    "form",
    [{"gpus": "1;id"}, {"gpus": "-1"}, {"gpu_type": "a b"}, {"time": "soon"}, {"gpu_type": "x:9"}],
)
def test_what_is_no_size_is_refused(at: Visitor, form: dict[str, str]) -> None:
    assert at.post("/terminals", form).status_code == 400
    assert at.source.done == []


@given(st.dictionaries(st.sampled_from(["gpus", "gpu_type", "time", "cpus"]), st.text(min_size=1)))
def test_no_form_makes_another_word_of_the_command(form: dict[str, str]) -> None:
    try:
        words = shells.new(wanted(form))
    except DshpcError:
        return
    assert words[:2] == ("srun", "--job-name=terminal")
    assert words[-3:] == ("--pty", "bash", "-l")
    names = [word.partition("=")[0] for word in words[2:-3]]
    assert set(names) <= {"--gres", "--cpus-per-task", "--mem", "--time"}
    assert all(not char.isspace() for word in words for char in word)


@given(
    st.text()
    | st.fixed_dictionaries({"rows": st.integers(), "columns": st.integers()}).map(json.dumps)
)
def test_a_size_is_of_a_screen_or_nothing(text: str) -> None:
    found = size_of(text)
    assert found is None or (0 < found.rows <= 1000 and 0 < found.columns <= 1000)


def joined(
    at: Visitor, place: str, sends: list[dict[str, Any]], headers: dict[str, str] | None = None
) -> list[Any]:
    """What is said to a page that opens the socket, and then sends that."""
    cookie = "; ".join(f"{name}={value}" for name, value in at.cookies.items())
    given = {"host": HOST, "origin": f"http://{HOST}", "cookie": cookie, **(headers or {})}
    path = f"{place}/socket"
    scope = {
        "type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"",
        "scheme": "ws", "root_path": "", "http_version": "1.1", "subprotocols": [],
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
    }  # fmt: skip
    said: list[Any] = []

    async def talk() -> None:
        coming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for each in [{"type": "websocket.connect"}, *sends]:
            coming.put_nowait(each)

        async def send(message: Any) -> None:
            said.append(message)

        await asyncio.wait_for(application(at.site)(scope, coming.get, send), 30)

    at.loop.run_until_complete(talk())
    return said


def keys(data: bytes) -> dict[str, Any]:
    return {"type": "websocket.receive", "bytes": data}


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": ""},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": f"http://{HOST}.evil.example"},
        {"host": "evil.example"},
        {"cookie": ""},
        {"cookie": "dshpc-dashboard-8410=x"},
    ],
)
def test_a_page_of_somebody_else_joins_nothing(at: Visitor, headers: dict[str, str]) -> None:
    place = begun(at)
    assert joined(at, place, [keys(b"x")], headers) == [{"type": "websocket.close", "code": 1008}]
    at.site.terminals.end_all()


def test_what_is_typed_and_printed(at: Visitor) -> None:
    at.source.prints = [b"prompt"]
    place = begun(at)
    one = at.site.terminals.running()[0]
    size = {"type": "websocket.receive", "text": '{"rows": 30, "columns": 100}'}
    said = joined(at, place, [size, {"type": "websocket.receive", "text": "{"}, keys(b"x")])
    assert said[0]["type"] == "websocket.accept"
    assert b"".join(each.get("bytes") or b"" for each in said) == b"promptx"
    assert json.loads(said[-2]["text"]) == {"ended": 3}
    assert said[-1]["type"] == "websocket.close"
    assert isinstance(one.child, FakeChild)
    assert one.child.size == Size(30, 100)
    # A page that is loaded again finds it as it was, also after its end
    assert b"promptx" in b"".join(each.get("bytes") or b"" for each in joined(at, place, []))


def test_a_key_that_is_none_there(at: Visitor) -> None:
    assert joined(at, "/terminals/none", [])[-1]["code"] == 4004
    assert at.get("/terminals/none").status_code == 404


def soon(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.01)


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_that_nobody_shows_is_ended_after_a_while() -> None:
    clock = _Clock()
    all_ = Terminals(lambda _words, _size: FakeChild([]), clock)
    seen, left = all_.open(["srun"]), all_.open(["srun"])
    page, _ = seen.attach()
    clock.now = terminals.LINGER_S + 1
    all_.tidy()
    soon(lambda: all_.running() == (seen,))
    assert left.code == 129
    seen.detach(page)
    clock.now += terminals.LINGER_S - 1
    all_.tidy()
    assert all_.running() == (seen,)
    seen.attach()
    clock.now = terminals.LONGEST_S + 1
    all_.tidy()
    soon(lambda: all_.running() == ())
    all_.end_all()


def test_there_is_a_bound_to_all() -> None:
    all_ = Terminals(lambda _words, _size: FakeChild([]))
    for _ in range(terminals.MOST):
        all_.open(["srun"])
    with pytest.raises(DshpcError, match="no more at once"):
        all_.open(["srun"])
    all_.end_all()
    soon(lambda: all_.running() == ())
    with pytest.raises(DshpcError):
        all_.open(["srun"])


def test_output_is_bounded_and_waits_for_a_slow_page() -> None:
    child = FakeChild([b"y" * 65536] * 20)
    one = Terminals(lambda _words, _size: child).open(["srun"])
    soon(lambda: one.next(0, 20 * 65536 - 1, 0) is not None and child._prints.empty())
    page, begin = one.attach()
    assert begin == 20 * 65536 - (1 << 18)
    for _ in range(20):
        child._prints.put(b"z" * 65536)
    assert child._prints.qsize() >= 19  # it is not read ahead of the page
    told, at = b"", begin
    while told.count(b"z") < 20 * 65536:
        printed = one.next(page, at, 10)
        assert printed is not None
        told += printed.data
        at = printed.end
    assert told == b"y" * (1 << 18) + b"z" * 20 * 65536
    one.detach(page)
    child.hang_up()
