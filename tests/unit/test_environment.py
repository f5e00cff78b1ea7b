"""What scripts/environment.py decides, without making an environment."""

from __future__ import annotations

import os
import platform
import signal
import sys
from pathlib import Path

import pytest

from scripts import environment


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    path = tmp_path / "system.crt"
    path.write_text("-----BEGIN CERTIFICATE-----\n")
    return str(path)


@pytest.mark.parametrize("name", ["PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_bundle_that_pip_reads_by_itself_is_not_overruled(name: str, bundle: str) -> None:
    environ = {name: "/site.crt", "SSL_CERT_FILE": "/other.crt"}
    assert environment.choose_ca_bundle(environ, "", [bundle]) is None


@pytest.mark.parametrize(
    "line", ["global.cert='/site.crt'", ":env:.cert='/x'", "install.cert='/x'"]
)
def test_pip_s_own_configuration_is_not_overruled(line: str, bundle: str) -> None:
    config = f"global.timeout='60'\n{line}\n"
    assert environment.choose_ca_bundle({"SSL_CERT_FILE": "/x"}, config, [bundle]) is None


def test_a_client_certificate_is_not_a_ca_bundle(bundle: str, linux: None) -> None:
    config = "global.client-cert='/me.pem'\n"
    assert environment.choose_ca_bundle({}, config, [bundle]) == bundle


def test_openssl_s_variable_is_passed_on_to_pip(bundle: str) -> None:
    assert environment.choose_ca_bundle({"SSL_CERT_FILE": "/site.crt"}, "", [bundle]) == "/site.crt"


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")


def test_with_nothing_set_the_first_system_bundle_is_taken(bundle: str, linux: None) -> None:
    assert environment.choose_ca_bundle({}, "", ["/nowhere.crt", bundle, "/later"]) == bundle
    assert environment.choose_ca_bundle({}, "", ["/nowhere.crt"]) is None


def test_pip_is_kept_from_installing_elsewhere() -> None:
    environ = {"PIP_TARGET": "/t", "PIP_PREFIX": "/p", "PIP_USER": "1", "PIP_INDEX_URL": "u"}
    assert environment.pip_environment(environ) == {"PIP_USER": "0", "PIP_INDEX_URL": "u"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_step_that_is_interrupted_as_it_starts_is_ended(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between fork and the return of Popen: its process is known to nobody yet."""

    class Started:
        returncode = None

        def __init__(self, *_given: object, **_more: object) -> None:
            os.kill(os.getpid(), number)

    ended: list[object] = []
    monkeypatch.setattr("scripts.environment.subprocess.Popen", Started)
    monkeypatch.setattr(environment, "_end", ended.append)
    (tmp_path / environment.MARKER).mkdir()
    before = signal.signal(number, environment._interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            environment.run(["pip"], tmp_path, lock=9)
        assert signal.getsignal(number) is environment._interrupt
    finally:
        signal.signal(number, before)
    assert [type(process) for process in ended] == [Started]


def test_what_whoever_started_it_has_it_ignore_does_not_end_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    try:
        assert environment.heeded() == (signal.SIGINT, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("log", "why", "remedy"),
    [
        (
            "Retrying after connection broken by 'SSLError(... certificate verify failed ...)'",
            "proxy that inspects TLS",
            "SSL_CERT_FILE",
        ),
        (
            "Retrying after connection broken by 'NewConnectionError(...)'",
            "cannot be reached",
            "https_proxy",
        ),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM",
            "lock file says",
            "who runs the index",
        ),
        ("OSError: [Errno 28] No space left on device", "disk is full", "DSHPC_VENV"),
    ],
)
def test_a_failed_step_is_explained(log: str, why: str, remedy: str) -> None:
    lines = environment.explain(log, Path("/venv/.dshpc/log"))
    assert why in lines[0]
    assert remedy in lines[-2]
    assert lines[-1].endswith("/venv/.dshpc/log")


def test_an_unknown_failure_shows_its_last_lines() -> None:
    log = "\n".join(f"line {number}" for number in range(9))
    lines = environment.explain(log, Path("/log"))
    assert lines[:-1] == ("| line 5", "| line 6", "| line 7", "| line 8")


def test_only_parts_of_an_environment_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib64").symlink_to("lib")
    (tmp_path / "pyvenv.cfg").write_text("")
    (tmp_path / "notes").mkdir()
    environment.remove_parts(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_a_place_in_use_is_refused_and_an_unwritable_one_passed_over(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("")
    with pytest.raises(environment.SetupError, match="in use by something else"):
        environment.choose_place([foreign])
    # A file where a folder should be: nobody can write below it, root included.
    blocked = tmp_path / "foreign" / "thesis.tex" / "venv"
    second = tmp_path / "second"
    assert environment.choose_place([blocked, second]) == second
    assert environment.choose_place([second]) == second, "ours, so taken again"
    with pytest.raises(environment.SetupError, match="no place") as caught:
        environment.choose_place([blocked])
    assert str(blocked) in caught.value.details[0]


def test_an_environment_is_open_to_who_may_run_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a umask of 077 it would be of use to its owner alone."""
    made = tmp_path / "file"

    def make(_request: environment.Request) -> Path:
        made.write_text("")
        return made

    monkeypatch.setattr(environment, "make", make)
    before = os.umask(0o077)
    try:
        assert environment.main(["--root", "/r", "--inputs", "", "--place", "/p"]) == 0
    finally:
        os.umask(before)
        for number in environment.heeded():
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert made.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("checkout", "python", "taken"),
    [
        ("open", "shut", "/usr/bin/other"),
        ("open", "open", "ours"),
        ("shut", "shut", "ours"),
    ],
)
def test_a_python_that_only_its_owner_can_run_makes_no_shared_environment(
    checkout: str, python: str, taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyenv and uv keep them in a home; the distribution's is for all."""
    ours, root = "/home/ada/.pyenv/bin/python3.12", tmp_path
    monkeypatch.setattr(sys, "_base_executable", ours, raising=False)
    is_open = {ours: python == "open", str(root): checkout == "open", "/usr/bin/other": True}
    monkeypatch.setattr(environment, "is_open", lambda path: is_open.get(str(path), False))
    versions = {"/usr/bin/other": "3.11.2"}
    monkeypatch.setattr(environment, "version_that_fits", versions.get)
    others = ("/usr/bin/none", "/usr/bin/other")
    base, version = environment.choose_interpreter(root, others)
    assert base == (ours if taken == "ours" else taken)
    assert version == ("3.11.2" if taken != "ours" else platform.python_version())


def test_open_is_what_all_can_enter(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert environment.is_open(Path("/usr"))
    inner.parent.chmod(0o700)
    assert not environment.is_open(inner)
    assert not environment.is_open(tmp_path / "nowhere")
