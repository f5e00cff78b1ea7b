"""Who came through the reverse proxy, and what of a request's head goes on to his own dashboard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.dashboard import login
from dshpc_setup.dashboard.others import Others
from dshpc_setup.errors import DshpcError

PROXY = login.proxy("X-User", "10.0.0.5, fd00::/126", "gpu.example.org,[fd00::1]:8443")
GOOD = [(b"Host", b"gpu.example.org"), (b"X-User", b"ada")]


@pytest.mark.parametrize("peer", ["10.0.0.5", "::ffff:10.0.0.5", "fd00::2", "fd00::2%eth0"])
def test_the_proxy_names_the_user(peer: str) -> None:
    assert login.user(PROXY, peer, GOOD) == ("ada", None)
    ours = [*GOOD, (b"origin", b"https://gpu.example.org"), (b"Upgrade", b"websocket")]
    assert login.user(PROXY, peer, ours) == ("ada", None)


@pytest.mark.parametrize(
    ("peer", "headers", "refusal"),
    [
        ("10.0.0.6", GOOD, "address"),
        ("127.0.0.1", GOOD, "address"),
        ("fd00::4", GOOD, "address"),
        ("10.0.0.5", GOOD[1:], "host"),
        ("10.0.0.5", [(b"host", b"evil.example"), GOOD[1]], "host"),
        ("10.0.0.5", [GOOD[0], *GOOD], "host"),
        ("10.0.0.5", [*GOOD, (b"Origin", b"https://evil.example")], "origin"),
        ("10.0.0.5", [*GOOD, (b"Origin", b"http://gpu.example.org")], "origin"),
        ("10.0.0.5", [*GOOD, (b"Origin", b"null")], "origin"),
        ("10.0.0.5", [*GOOD, (b"Upgrade", b"WebSocket")], "origin"),
        ("10.0.0.5", GOOD[:1], "login"),
        ("10.0.0.5", [*GOOD, (b"x-user", b"root")], "login"),
        ("10.0.0.5", [GOOD[0], (b"X_User", b"ada")], "login"),
        ("10.0.0.5", [GOOD[0], (b"X-User", b"ada,root")], "login"),
        ("10.0.0.5", [GOOD[0], (b"X-User", b"../ada")], "login"),
        ("10.0.0.5", [GOOD[0], (b"X-User", b"-ada")], "login"),
        ("10.0.0.5", [GOOD[0], (b"X-User", b"")], "login"),
        ("10.0.0.5", [GOOD[0], (b"X-User", "ädä".encode())], "login"),
    ],
)
def test_what_is_not_the_proxys_word_is_refused(
    peer: str, headers: login.Headers, refusal: str
) -> None:
    assert login.user(PROXY, peer, headers) == ("", refusal)
    assert refusal in login.WORDS


NAMES = st.sampled_from(
    ["Host", "COOKIE", "Origin", "authorization", "X-User", "x-user", "Connection", "Accept", "X_User",
     "Upgrade", "Content-Type", "Proxy-Authorization", "Sec-WebSocket-Key"]
)  # fmt: skip


@given(st.lists(st.tuples(NAMES.map(str.encode), st.binary(max_size=20))))
def test_nothing_that_lets_one_in_goes_on(headers: list[tuple[bytes, bytes]]) -> None:
    told = login.handed_on(PROXY, headers, 4711, "c=secret")
    names = [name.lower() for name, _ in told]
    for name in (b"host", b"cookie", b"connection"):
        assert names.count(name) == 1
    assert names.count(b"origin") <= 1
    for name in (b"x-user", b"x_user", b"authorization", b"proxy-authorization"):
        assert name not in names
    assert dict(told)[b"Host"] == b"127.0.0.1:4711"
    assert dict(told)[b"Cookie"] == b"c=secret"
    is_socket = login.opens_socket(headers)
    assert dict(told)[b"Connection"] == (b"Upgrade" if is_socket else b"close")
    assert (b"upgrade" in names) == is_socket
    kept = [
        pair for pair in headers if pair[0] in (b"Accept", b"Content-Type", b"Sec-WebSocket-Key")
    ]
    assert [pair for pair in told if pair in kept] == kept


@pytest.mark.parametrize(
    ("header", "addresses", "names"),
    [
        ("Host", "10.0.0.5", "a.example"),
        ("Cookie", "10.0.0.5", "a.example"),
        ("X User", "10.0.0.5", "a.example"),
        ("X_User", "10.0.0.5", "a.example"),
        ("X-User", "", "a.example"),
        ("X-User", "proxy", "a.example"),
        ("X-User", "10.0.0.5/8", "a.example"),
        ("X-User", "0.0.0.0/0", "a.example"),
        ("X-User", "10.0.0.5", ""),
        ("X-User", "10.0.0.5", "https://a.example"),
        ("X-User", "10.0.0.5", "a.example/x"),
    ],
)
def test_a_command_line_that_means_no_proxy(header: str, addresses: str, names: str) -> None:
    with pytest.raises(DshpcError) as refused:
        login.proxy(header, addresses, names)
    assert refused.value.exit_code == 64


def test_what_is_missing_is_named() -> None:
    assert not Others().is_asked
    assert Others(login_header="X").missing == (
        "--tls-certificate", "--tls-key", "--login-from", "--name",
    )  # fmt: skip
    assert Others("a", "b", "c", "d", "e").missing == ()
