"""The dashboard behind a reverse proxy: who is not it gets nothing, and each user acts as himself."""

from __future__ import annotations

import asyncio
import http.client
import http.server
import os
import re
import shutil
import signal
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urlencode, urlsplit

import pytest

from dshpc_setup.dashboard import front, login
from tests.integration.cluster import (
    ROOT,
    Cluster,
    as_user,
    command,
    environment,
    run,
    users_of_this_machine,
    wait_until,
)
from tests.integration.shown import blocks
from tests.integration.web_socket import web_socket

if TYPE_CHECKING:
    from dshpc_setup.dashboard.people import People

pytestmark = pytest.mark.engines("docker", why="other users reach the cluster through Docker")

NAME = "gpu.example.org"
HEADER = "X-Forwarded-Preferred-Username"
USERS = ("dshpc-ada", "dshpc-bob")


@pytest.fixture(scope="module")
def people() -> Iterator[None]:
    group = str(Path("/var/run/docker.sock").stat().st_gid)
    with users_of_this_machine(*USERS, groups=group):
        yield


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of the dashboard's, and one of the proxy's; each signs itself."""
    folder = tmp_path_factory.mktemp("pki")
    for name in ("server", "proxy"):
        made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
        files = ("-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem")
        more = ("-nodes", "-days", "2", "-subj", f"/CN={name}")
        run([*made, *files, *more, "-addext", f"subjectAltName=IP:127.0.0.1,DNS:{NAME}"]).good()
        (folder / f"{name}.key").chmod(0o600)
    return folder


@dataclass
class Proxy:
    """As one would ask for a user who has logged in; or, with `by_cookie`, as that user's browser asks
    one, which also lies in the header that is the proxy's."""

    port: int
    tls: ssl.SSLContext
    by_cookie: bool = False

    def ask(
        self,
        path: str,
        user: str | None = None,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        status, text, _ = self.told(path, user, form, headers)
        return status, text

    def told(
        self,
        path: str,
        user: str | None,
        form: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
    ) -> tuple[int, str, str]:
        line = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.tls)
        more = {"Host": NAME, "Cookie": "of-the-proxy=1", **({HEADER: user} if user else {})}
        if self.by_cookie:
            more.update({"Cookie": f"user={user or ''}", HEADER: "root"})
        if form is not None:
            more["Content-Type"] = "application/x-www-form-urlencoded"
            more["Origin"] = f"https://{NAME}"
        try:
            method = "GET" if form is None else "POST"
            line.request(
                method, path, urlencode(form) if form else None, {**more, **(headers or {})}
            )
            with line.getresponse() as answer:
                return answer.status, answer.read().decode(), answer.getheader("Location", "")
        finally:
            line.close()

    def waits_for(self, path: str, user: str, words: str) -> None:
        """Until the page holds them; one that is not there says why."""
        seen = [(0, "")]

        def holds() -> bool:
            seen[0] = self.ask(path, user)
            page = seen[0][1]
            return words in page or words in re.sub(r"<[^>]*>", "", page)

        try:
            wait_until(holds, f"{user} sees {words!r}", 120)
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen[0]}") from None

    def post(self, path: str, user: str, **form: str) -> tuple[int, str, str]:
        csrf = re.search(r'name="csrf" value="([^"]+)"', self.ask("/run", user)[1])
        assert csrf is not None
        return self.told(path, user, {"csrf": csrf[1], **form}, None)


def options(pki: Path) -> list[str]:
    return [
        *("--tls-certificate", f"{pki}/server.pem", "--tls-key", f"{pki}/server.key"),
        *("--login-header", HEADER, "--login-from", "127.0.0.1", "--name", NAME),
        *("--proxy-ca", f"{pki}/proxy.pem"),
    ]


@contextmanager
def opened(cluster: Cluster, pki: Path) -> Iterator[Proxy]:
    child = subprocess.Popen(
        command("dshpc", "dashboard", *options(pki)),
        cwd=cluster.folder,
        env=environment({**cluster.env, "PYTHONUNBUFFERED": "1"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        address = re.fullmatch(r"https://127\.0\.0\.1:(\d+)/\n", line)
        assert address is not None, line + child.communicate(timeout=30)[1]
        tls = ssl.create_default_context(cafile=f"{pki}/server.pem")
        tls.load_cert_chain(f"{pki}/proxy.pem", f"{pki}/proxy.key")
        yield Proxy(int(address[1]), tls)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=40)
        assert (child.returncode, out, err) == (130, "", "")
    finally:
        child.kill()


def test_it_refuses_to_begin_without(standard: Cluster, pki: Path, people: None) -> None:
    """TLS, a login, a proxy that nobody else can be, and the right to act as others."""
    whole = options(pki)
    for given, words in (
        (["--listen", "0.0.0.0"], "neither TLS nor a login"),
        (whole[2:], "--tls-certificate"),
        (["--listen", "0.0.0.0", *whole[:4]], "--login-header, --login-from, --name"),
        (whole[:-2], "every user of this machine"),
    ):
        refused = standard.dshpc("dashboard", *given)
        assert refused.code == 64, refused
        assert words in refused.stderr
    env = {"DSHPC_DIR": str(standard.folder)}
    open_to_all = [each.replace(".key", ".pem") for each in whole]
    refused = as_user(5001, "dshpc", "dashboard", *open_to_all, cwd=standard.folder, env=env)
    assert refused.code == 2, refused
    assert "takes root" in refused.stderr


def test_who_is_not_the_proxy_holds_nothing_open(pki: Path) -> None:
    """Some hundred connections that say nothing would else keep the proxy's waiting."""
    proxy = login.proxy(HEADER, "127.0.0.2", NAME)
    tls = front.context(pki / "server.pem", pki / "server.key", None)
    client = ssl.create_default_context(cafile=f"{pki}/server.pem")
    door = front.Front(proxy, cast("People", None))  # nobody is led to any
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        at = listening.getsockname()

        async def serve() -> None:
            serving = asyncio.ensure_future(door.serve(listening, tls, lambda: None))
            await asyncio.to_thread(over.wait, 60)
            serving.cancel()

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        try:
            with socket.create_connection(at, 8, ("127.0.0.1", 0)) as stranger:
                assert stranger.recv(1) == b""
            with (
                socket.create_connection(at, 8, ("127.0.0.2", 0)) as raw,
                client.wrap_socket(raw, server_hostname=NAME) as line,
            ):
                line.sendall(f"GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
                assert line.recv(12) == b"HTTP/1.1 401"
        finally:
            over.set()
            thread.join(20)


def test_each_user_acts_as_himself(standard: Cluster, pki: Path, people: None) -> None:
    ada, bob = USERS
    with opened(standard, pki) as proxy:
        stranger = Proxy(proxy.port, ssl.create_default_context(cafile=f"{pki}/server.pem"))
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            stranger.ask("/", ada)
        assert proxy.ask("/")[0] == 401
        assert proxy.ask("/", "../root")[0] == 401
        assert proxy.ask("/", ada, headers={"Host": "evil.example"})[0] == 400
        assert proxy.ask("/", ada, headers={"Origin": "https://evil.example"})[0] == 403
        assert proxy.ask("/", "root")[0] == 403
        assert proxy.ask("/", "nobody-of-that-name")[0] == 403
        proxy.waits_for("/", ada, "2 of 2 h100")

        code, text, place = proxy.post(
            "/run", ada, command="sh -c 'id -un; sleep 300'", act="submit"
        )
        assert code == 303, text
        page = place.partition("?")[0]
        number = page.rpartition("/")[2]
        try:
            users = standard.said("squeue", "-h", "-j", number, "-o", "%u")
            assert users.strip() == ada
            proxy.waits_for(page, ada, f">{ada}")
            # He sees that there is a job, as Slurm tells everybody, and neither reads nor ends it
            proxy.waits_for("/jobs", bob, f'href="{page}"')
            assert proxy.ask(f"{page}/raw/output.log", bob)[0] == 409
            assert proxy.post(f"{page}/cancel", bob)[0] == 409
            code, _, inputs = proxy.post(
                "/run", bob, command="true", act="submit", paths="/etc/shadow"
            )
            assert (code, inputs) == (200, "")
            _terminal(standard, proxy, bob)
            assert proxy.post(f"{page}/cancel", ada)[0] == 303
        finally:
            standard.said("scancel", number)
    left = run(["pgrep", "-u", f"{ada},{bob}", "-f", str(ROOT / "dshpc_setup")])
    assert left.stdout == ""


class Login(http.server.BaseHTTPRequestHandler):
    """In place of oauth2-proxy: whoever has a cookie has logged in, and it is his name."""

    def do_GET(self) -> None:
        name = (self.headers["Cookie"] or "").partition("user=")[2]
        self.send_response(202 if name else 401)
        self.send_header("X-Auth-Request-Preferred-Username", name)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def nginx(pki: Path, port: int, folder: Path) -> Iterator[int]:
    """With the lines of the document, on a port of its own; to the dashboard at that port."""
    (text,) = (each.text for each in blocks("docs/how-to/dashboard.md") if each.language == "nginx")
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Login) as login, free_port() as own:
        threading.Thread(target=login.serve_forever, daemon=True).start()
        for stood, stands in (
            ("listen 443 ssl", f"listen 127.0.0.1:{own} ssl"),
            ("127.0.0.1:4180", f"127.0.0.1:{login.server_address[1]}"),
            ("10.0.0.7:8443", f"127.0.0.1:{port}"),
            ("/etc/nginx/gpu.", f"{pki}/server."),
            ("/etc/nginx/proxy.", f"{pki}/proxy."),
            ("/etc/nginx/dashboard-ca.pem", f"{pki}/server.pem"),
        ):
            assert stood in text
            text = text.replace(stood, stands)
        (folder / "nginx.conf").write_text(
            f"daemon off; user root; pid {folder}/pid; error_log {folder}/log;\n"
            f"events {{}}\nhttp {{ access_log off;\n{text}\n}}\n"
        )
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program is not None
        child = subprocess.Popen([program, "-c", str(folder / "nginx.conf"), "-e", f"{folder}/log"])
        try:
            wait_until(lambda: is_listened_at(own), "nginx answers", 30)
            yield own
        finally:
            child.terminate()
            child.wait(30)
            login.shutdown()


@contextmanager
def free_port() -> Iterator[int]:
    """Nobody else's, as far as is known, once it is given back."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
    yield port


def is_listened_at(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def test_the_example_leads_each_user_to_his_own(
    standard: Cluster, pki: Path, people: None, tmp_path: Path
) -> None:
    ada, bob = USERS
    with opened(standard, pki) as proxy, nginx(pki, proxy.port, tmp_path) as port:
        browser = Proxy(
            port, ssl.create_default_context(cafile=f"{pki}/server.pem"), by_cookie=True
        )
        assert browser.ask("/")[0] == 401
        jobs = []
        for name in (ada, bob):
            code, text, place = browser.post("/run", name, command="sleep 300", act="submit")
            assert code == 303, text
            jobs.append(place.partition("?")[0].rpartition("/")[2])
        try:
            said = standard.said("squeue", "-h", "--sort=i", "-j", ",".join(jobs), "-o", "%u")
            assert said.split() == [ada, bob]
            head = {"Host": NAME, "Origin": "null", "Cookie": f"user={ada}"}
            with web_socket(port, "/terminals/1/socket", head, browser.tls) as line:
                assert line.refused == 403
        finally:
            standard.said("scancel", *jobs)


@dataclass
class Visitor(Proxy):
    """A browser with its cookies, which also sends the header that is the proxy's."""

    cookies: dict[str, str] = field(default_factory=dict)

    def told(
        self,
        path: str,
        user: str | None,
        form: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
    ) -> tuple[int, str, str]:
        line = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.tls)
        more = {**self.head, "Content-Type": "application/x-www-form-urlencoded"}
        try:
            body = None if form is None else urlencode(form)
            line.request("GET" if form is None else "POST", path, body, {**more, **(headers or {})})
            with line.getresponse() as answer:
                for each in answer.headers.get_all("Set-Cookie") or ():
                    name, _, value = each.partition(";")[0].partition("=")
                    self.cookies[name] = value
                return answer.status, answer.read().decode(), answer.getheader("Location", "")
        finally:
            line.close()

    @property
    def head(self) -> dict[str, str]:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items() if value)
        told = {"Host": NAME, "Origin": f"https://{NAME}", HEADER: "root", "Cookie": cookies}
        return {**told, "Accept": "text/html"}  # what is no page is answered 401, and led nowhere

    def log_in(self, provider: int, user: str) -> None:
        code, _, form = self.told("/", None, None, None)
        assert (code, urlsplit(form).netloc) == (302, f"localhost:{provider}")
        code, back = at_provider(provider, "POST", form, f"sub={user}")
        assert (code, urlsplit(back).netloc) == (302, NAME)
        code, text, _ = self.told(f"/oidc?{urlsplit(back).query}", None, None, None)
        assert code == 302, text


def at_provider(port: int, method: str, url: str, body: str) -> tuple[int, str]:
    line = http.client.HTTPConnection("localhost", port, timeout=30)
    kind = "application/json" if method == "PUT" else "application/x-www-form-urlencoded"
    asked = urlsplit(url)
    try:
        line.request(method, f"{asked.path}?{asked.query}", body, {"Content-Type": kind})
        with line.getresponse() as answer:
            return answer.status, answer.getheader("Location", "")
    finally:
        line.close()


@contextmanager
def provider() -> Iterator[int]:
    """A real one of OIDC, which knows both users by their names."""
    with free_port() as port:
        words = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port)]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: is_listened_at(port), "the provider answers", 60)
        for name in USERS:
            claims = f'{{"preferred_username": "{name}"}}'
            assert at_provider(port, "PUT", f"/users/{quote(name)}", claims)[0] == 204
        yield port
    finally:
        child.terminate()
        child.wait(30)


@contextmanager
def apache(pki: Path, port: int, login: int, folder: Path) -> Iterator[int]:
    """With the lines of the document, on a port of its own; to the dashboard at that port."""
    (text,) = (
        each.text for each in blocks("docs/how-to/dashboard.md") if each.language == "apache"
    )
    both = (pki / "proxy.pem").read_text() + (pki / "proxy.key").read_text()
    (folder / "both.pem").write_text(both)
    with free_port() as own:
        for stood, stands in (
            ("https://login.example.org", f"http://localhost:{login}"),
            ("*:443", f"127.0.0.1:{own}"),
            ("10.0.0.7:8443", f"127.0.0.1:{port}"),
            ("/etc/apache2/gpu.", f"{pki}/server."),
            ("/etc/apache2/proxy-with-key.pem", f"{folder}/both.pem"),
            ("/etc/apache2/dashboard-ca.pem", f"{pki}/server.pem"),
        ):
            assert stood in text
            text = text.replace(stood, stands)
        kinds = "mpm_event authn_core authz_core authz_user socache_shmcb ssl proxy proxy_http"
        modules = "".join(
            f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"
            for name in (*kinds.split(), "headers", "auth_openidc")
        )
        (folder / "apache.conf").write_text(
            f"{modules}Listen 127.0.0.1:{own}\nServerName {NAME}\nUser www-data\nGroup www-data\n"
            f"PidFile {folder}/pid\nDefaultRuntimeDir {folder}\nErrorLog {folder}/log\n{text}"
        )
    program = shutil.which("apache2", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None
    child = subprocess.Popen([program, "-DFOREGROUND", "-f", str(folder / "apache.conf")])
    try:
        wait_until(lambda: is_listened_at(own), "apache answers", 30)
        yield own
    finally:
        child.terminate()
        child.wait(30)


def test_two_users_log_in_by_oidc(
    standard: Cluster, pki: Path, people: None, tmp_path: Path
) -> None:
    """By the example with Apache: each is himself whatever his browser says, until he logs out."""
    with (
        opened(standard, pki) as proxy,
        provider() as login,
        apache(pki, proxy.port, login, tmp_path) as port,
    ):
        tls = ssl.create_default_context(cafile=f"{pki}/server.pem")
        visitors = {name: Visitor(port, tls) for name in USERS}
        jobs = []
        try:
            for name, browser in visitors.items():
                assert browser.ask("/jobs")[0] == 302
                browser.log_in(login, name)
                code, text, place = browser.post("/run", name, command="sleep 300", act="submit")
                assert code == 303, text
                jobs.append(place.partition("?")[0].rpartition("/")[2])
            said = standard.said("squeue", "-h", "--sort=i", "-j", ",".join(jobs), "-o", "%u")
            assert said.split() == list(USERS)
        finally:
            for each in jobs:
                standard.said("scancel", each)
        bob = visitors[USERS[1]]
        _live(bob)
        _terminal(standard, bob, USERS[1])
        code, _, place = bob.told(f"/oidc?logout={quote(f'https://{NAME}/', '')}", None, None, None)
        assert (code, urlsplit(place).path) == (302, "/oauth2/end_session")
        assert bob.ask("/jobs")[0] == 302
        assert visitors[USERS[0]].ask("/jobs")[0] == 200


def _live(browser: Visitor) -> None:
    """An event passes before the stream has ended."""
    line = http.client.HTTPSConnection("127.0.0.1", browser.port, timeout=60, context=browser.tls)
    try:
        line.request("GET", "/live/overview", headers=browser.head)
        with line.getresponse() as answer:
            assert answer.getheader("Content-Type", "").startswith("text/event-stream")
            assert answer.read1()
    finally:
        line.close()


def _terminal(cluster: Cluster, proxy: Proxy, user: str) -> None:
    proxy.waits_for("/run", user, "Open a shell")
    code, text, place = proxy.post("/terminals", user, gpus="1")
    assert code == 303, text
    head = {"Host": NAME, "Origin": f"https://{NAME}", HEADER: user}
    if isinstance(proxy, Visitor):
        head = proxy.head
    with web_socket(proxy.port, f"{place}/socket", {**head, "Origin": "null"}, proxy.tls) as line:
        assert line.refused == 403
    with web_socket(proxy.port, f"{place}/socket", head, proxy.tls) as line:
        line.until(b"$")
        line.send(b"echo i-am-$(id -un)-\n")
        line.until(f"i-am-{user}-".encode())
        line.send(b"exit\n")
        line.until(b"never said")
    assert line.closed == 1000
