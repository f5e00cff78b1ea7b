"""Who is let in, and what each answer carries."""

from __future__ import annotations

import httpx2
import pytest

from dshpc_setup.dashboard.access import Access
from dshpc_setup.dashboard.serve import loopback
from dshpc_setup.errors import DshpcError
from tests.unit.dashboard.conftest import HOST, PORT, Visitor

PATHS = (
    "/", "/jobs", "/jobs/3", "/jobs/3/log", "/jobs/3/files/", "/jobs/3/raw/x", "/jobs/3/cancel", "/run",
    "/run/train", "/health", "/setup", "/gpus/0", "/nodes/node1", "/api/status", "/api/openapi.json",
    "/live/overview", "/live/jobs/3", "/static/dashboard.css", "/static/../site.py", "/none", "//none",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_without_token_or_cookie_every_path_answers_401(
    visitor: Visitor, method: str, path: str
) -> None:
    answer = visitor.stranger.ask(method, path)
    assert answer.status_code == 401
    assert "train" not in answer.text


@pytest.mark.parametrize(
    "credentials",
    [
        {"cookie": f"dshpc-dashboard-{PORT}="},
        {"cookie": f"dshpc-dashboard-{PORT}=x"},
        {"cookie": "dshpc-dashboard-1=RIGHT"},
        {"cookie": f"dshpc-dashboard-{PORT}=\xe9"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer x"},
        {"authorization": "Basic RIGHT"},
    ],
)
def test_wrong_credentials_open_nothing(visitor: Visitor, credentials: dict[str, str]) -> None:
    access = visitor.site.access
    right = access.session if "cookie" in credentials else access.token
    headers = {name: text.replace("RIGHT", right) for name, text in credentials.items()}
    answer = visitor.stranger.get("/", headers={k: v.encode("latin-1") for k, v in headers.items()})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil:{PORT}",
     f"user@127.0.0.1:{PORT}", f"{HOST}.", f"0.0.0.0:{PORT}"],
)  # fmt: skip
def test_another_host_name_is_refused_whatever_is_shown(visitor: Visitor, host: str) -> None:
    """DNS rebinding: a name of somebody else's that leads to this machine."""
    token = visitor.site.access.token
    for path in ("/", f"/?token={token}"):
        answer = visitor.get(path, headers={"host": host})
        assert answer.status_code == 400
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", [HOST, f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"])
def test_its_own_names_are_known(visitor: Visitor, host: str) -> None:
    assert visitor.get("/", headers={"host": host}).status_code == 200


def exchanged(visitor: Visitor, path: str = "/", **headers: str) -> httpx2.Response:
    token = visitor.site.access.token
    separator = "&" if "?" in path else "?"
    return visitor.stranger.get(f"{path}{separator}token={token}", headers=headers)


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address(visitor: Visitor) -> None:
    answer = exchanged(visitor)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"dshpc-dashboard-{PORT}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert visitor.site.access.token not in cookie + answer.text
    name, _, value = cookie.partition(";")[0].partition("=")
    newcomer = visitor.stranger
    newcomer.cookies[name] = value
    assert newcomer.get("/").status_code == 200


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("/jobs?state=done", "/jobs?state=done"),
        ("//evil.example/x", "/evil.example/x"),
        ("/%5Cevil.example", "/evil.example"),
        ("/jobs%0d%0aX-Evil:1", "/jobs%0D%0AX-Evil%3A1"),
    ],
)
def test_the_redirect_leads_to_no_other_machine(visitor: Visitor, path: str, to: str) -> None:
    answer = exchanged(visitor, path)
    assert (answer.status_code, answer.headers["location"]) == (303, to)


def test_who_comes_from_another_page_is_led_on_by_ours(visitor: Visitor) -> None:
    """A browser sends a strict cookie along to nothing that another page leads to, redirects included."""
    answer = exchanged(visitor, "/jobs", **{"sec-fetch-site": "cross-site"})
    assert answer.status_code == 200
    assert 'content="0; url=/jobs"' in answer.text
    assert "set-cookie" in answer.headers


def test_wrong_tokens_are_slowed_down_and_the_right_one_still_counts(visitor: Visitor) -> None:
    codes = [visitor.stranger.get("/?token=wrong").status_code for _ in range(12)]
    assert codes == [401] * 9 + [429] * 3
    assert visitor.stranger.get("/").status_code == 401
    assert exchanged(visitor).status_code == 303
    assert visitor.get("/").status_code == 200


def test_failures_are_forgotten() -> None:
    now = [0.0]
    access = Access(PORT, clock=lambda: now[0])
    for _ in range(10):
        access.failed()
    assert access.too_often
    now[0] = 61.0
    assert not access.too_often


def test_the_token_itself_is_good_for_programs(visitor: Visitor) -> None:
    bearer = {"authorization": f"Bearer {visitor.site.access.token}"}
    assert visitor.stranger.get("/api/status", headers=bearer).json()["schema"] == "dshpc.status/1"
    answer = visitor.stranger.ask("POST", "/api/jobs/3/cancel", headers=bearer)
    assert answer.json() == {
        "schema": "dshpc.job-act/1", "exit_code": 0, "job_id": "3", "result": "cancelled",
    }  # fmt: skip


POSTS = ("/jobs/3/cancel", "/jobs/3/requeue", "/run", "/run/train", "/health", "/api/jobs/3/cancel")


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("csrf", [None, "", "wrong", "SESSION"])
def test_a_form_without_our_own_token_does_nothing(
    visitor: Visitor, path: str, csrf: str | None
) -> None:
    given = visitor.site.access.session if csrf == "SESSION" else csrf
    data = {} if given is None else {"csrf": given}
    assert visitor.ask("POST", path, data=data).status_code == 403
    assert visitor.source.done == []


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"origin": f"http://127.0.0.1:{PORT + 1}"},
     {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}],
)  # fmt: skip
def test_what_another_page_sends_does_nothing(visitor: Visitor, headers: dict[str, str]) -> None:
    assert visitor.post("/jobs/3/cancel", headers=headers).status_code == 403
    assert visitor.source.done == []


def test_our_own_form_is_taken(visitor: Visitor) -> None:
    headers = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
    answer = visitor.post("/jobs/3/cancel", headers=headers)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/3?said=cancelled")
    assert visitor.source.done == [("cancel", "3")]


@pytest.mark.parametrize(
    "path", ["/", "/none", "/api/status", "/static/dashboard.css", "/jobs/abc"]
)
def test_every_answer_forbids_scripts_of_others_and_frames(visitor: Visitor, path: str) -> None:
    for one in (visitor, visitor.stranger):
        headers = one.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


def test_a_websocket_is_closed(visitor: Visitor) -> None:
    from dshpc_setup.dashboard.app import application

    said: list[object] = []

    async def send(message: object) -> None:
        said.append(message)

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/", "headers": [(b"host", HOST.encode())]}
    visitor.loop.run_until_complete(application(visitor.site)(scope, receive, send))
    assert said == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    "address", ["0.0.0.0", "::", "192.168.1.2", "10.0.0.1", "[::]", "2001:db8::1"]
)
def test_it_does_not_listen_where_others_come(address: str) -> None:
    with pytest.raises(DshpcError) as raised:
        loopback(address)
    assert raised.value.exit_code == 64


@pytest.mark.parametrize("address", ["", "here", "example.com", "127.0.0.1:80"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(DshpcError, match="no address"):
        loopback(address)


@pytest.mark.parametrize(
    ("address", "host"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "::1"), ("[::1]", "::1"),
     ("127.1.2.3", "127.1.2.3")],
)  # fmt: skip
def test_the_loopback_is_taken(address: str, host: str) -> None:
    assert loopback(address) == host
