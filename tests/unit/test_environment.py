"""What scripts/environment.py decides, without making an environment."""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scripts import environment


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    path = tmp_path / "system.crt"
    path.write_text("-----BEGIN CERTIFICATE-----\n")
    return str(path)


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_bundle_that_pip_reads_by_itself_is_not_overruled(name: str, bundle: str) -> None:
    environ = {name: "/site.crt", "SSL_CERT_FILE": "/other.crt"}
    assert environment.choose_ca_bundle({}, environ, [bundle]) is None


def test_pip_s_own_configuration_is_not_overruled(bundle: str) -> None:
    told = {"timeout": "60", "cert": "/site.crt"}
    assert environment.choose_ca_bundle(told, {"SSL_CERT_FILE": "/x"}, [bundle]) is None


def test_a_client_certificate_is_not_a_ca_bundle(bundle: str, linux: None) -> None:
    assert environment.choose_ca_bundle({"client-cert": "/me.pem"}, {}, [bundle]) == bundle


def test_openssl_s_variable_is_passed_on_to_pip(bundle: str) -> None:
    assert environment.choose_ca_bundle({}, {"SSL_CERT_FILE": "/site.crt"}, [bundle]) == "/site.crt"


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")


def test_with_nothing_set_the_first_system_bundle_is_taken(bundle: str, linux: None) -> None:
    assert environment.choose_ca_bundle({}, {}, ["/nowhere.crt", bundle, "/later"]) == bundle
    assert environment.choose_ca_bundle({}, {}, ["/nowhere.crt"]) is None


def test_pip_is_kept_from_installing_elsewhere() -> None:
    environ = {"PIP_TARGET": "/t", "PIP_PREFIX": "/p", "PIP_USER": "1", "PIP_INDEX_URL": "u"}
    assert environment.pip_environment(environ) == {"PIP_USER": "0", "PIP_INDEX_URL": "u"}


def test_uv_is_kept_from_installing_elsewhere() -> None:
    environ = {"UV_SYSTEM_PYTHON": "1", "UV_PYTHON": "3.9", "UV_DEFAULT_INDEX": "u", "HOME": "/h"}
    assert environment.uv_environment(environ) == {"UV_DEFAULT_INDEX": "u", "HOME": "/h"}


@dataclass
class Steps:
    """What would be run in an environment; a command that holds one of `failing` fails, so often."""

    failing: tuple[str, ...] = ()
    times: int = 99
    ran: list[tuple[Sequence[str], Mapping[str, str]]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def __call__(
        self,
        command: Sequence[str],
        venv: Path,
        lock: int,
        *,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.ran.append((command, environ or {}))
        if "--requirement" in command:
            self.files.append(Path(command[command.index("--requirement") + 1]).read_text())
        (venv / environment.MARKER / "log").write_text("error: invalid peer certificate\n")
        if self.times and any(word in part for word in self.failing for part in command):
            self.times -= 1
            raise environment.SetupError("the private Python environment could not be made.")


LOCKED = """\
typer==0.12 ; sys_platform != 'win32' \\
    --hash=sha256:aa
    # via dshpc-setup (pyproject.toml)
uv==0.13.9 ; sys_platform != 'win32' \\
    --hash=sha256:bb \\
    --hash=sha256:cc
    # via dshpc-setup (pyproject.toml)
uvloop==1 \\
    --hash=sha256:dd
"""


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    (tmp_path / environment.MARKER).mkdir()
    (tmp_path / "requirements.lock").write_text(LOCKED)
    return tmp_path


def test_uv_is_fetched_by_its_hashes_and_installs_the_rest(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps()
    monkeypatch.setattr(environment, "run", steps)
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("UV_CONSTRAINT", "/mine.txt")
    environment.install_locked(venv / "requirements.lock", venv, 9)
    (pip, _), (uv, environ) = steps.ran
    assert (pip[0], uv[0]) == (str(venv / "bin/python"), str(venv / "bin/uv"))
    assert "--require-hashes" in pip
    assert "--require-hashes" in uv
    assert steps.files == [LOCKED[LOCKED.index("uv==") : LOCKED.index("uvloop")], LOCKED]
    assert environ["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert environ["UV_CONSTRAINT"] == ""
    (venv / "bin").mkdir()
    (venv / "bin/uv").write_text("")
    environment.install_locked(venv / "requirements.lock", venv, 9)
    assert len(steps.ran) == 3  # it is there already


def test_a_folder_of_wheels_may_lack_uv(
    venv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = Steps(failing=("part.lock",))
    monkeypatch.setattr(environment, "run", steps)
    with pytest.raises(environment.SetupError):  # there is an index: the fault is another one
        environment.install_locked(venv / "requirements.lock", venv, 9)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    steps = Steps(failing=("part.lock",), times=1)
    monkeypatch.setattr(environment, "run", steps)
    environment.install_locked(venv / "requirements.lock", venv, 9)
    uv = LOCKED[LOCKED.index("uv==") : LOCKED.index("uvloop")]
    assert steps.files == [uv, LOCKED.replace(uv, "")]
    assert "without uv" in capsys.readouterr().err
    environment.install(["--no-index", "made.whl"], venv, 9)
    assert Path(steps.ran[-1][0][0]).name == "python"


def test_where_uv_fails_pip_installs_and_the_reason_is_kept(
    venv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = Steps(failing=("bin/uv",))
    monkeypatch.setattr(environment, "run", steps)
    environment.install(
        ["--require-hashes", "--requirement", str(venv / "requirements.lock")], venv, 9
    )
    assert [Path(command[0]).name for command, _ in steps.ran] == ["uv", "python"]
    assert list(steps.ran[1][0][-4:-1]) == ["install", "--require-hashes", "--requirement"]
    assert "uv could not: error: invalid peer certificate" in capsys.readouterr().err
    assert "invalid peer certificate" in (venv / environment.MARKER / "log-uv").read_text()


def test_both_locks_name_uv_with_its_hashes() -> None:
    root = Path(environment.__file__).parent.parent
    for name in ("requirements.lock", "requirements-dev.lock"):
        lines = environment.locked_lines((root / name).read_text(), "uv").splitlines()
        assert lines[0].startswith("uv==")
        assert sum("--hash=sha256:" in line for line in lines) > 10


def test_what_uv_s_cache_has_for_its_owner_alone_is_for_all_in_the_environment(
    tmp_path: Path,
) -> None:
    (tmp_path / "lib/six").mkdir(parents=True, mode=0o700)
    (tmp_path / "bin").mkdir()
    (tmp_path / ".dshpc").mkdir()
    for name, mode in (("lib/six/a.py", 0o600), ("bin/tool", 0o700), (".dshpc/log", 0o600)):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(mode)
    (tmp_path / "bin/python").symlink_to(tmp_path / ".dshpc/log")
    environment.open_to_all(tmp_path)
    modes = {
        name: (tmp_path / name).stat().st_mode & 0o777
        for name in ("lib/six", "lib/six/a.py", "bin/tool", ".dshpc/log")
    }
    assert modes == {
        "lib/six": 0o755,
        "lib/six/a.py": 0o644,
        "bin/tool": 0o755,
        ".dshpc/log": 0o600,
    }


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


def test_another_checkouts_environment_behind_a_link_is_left_alone(tmp_path: Path) -> None:
    theirs, link = tmp_path / "theirs", tmp_path / ".venv"
    (theirs / environment.MARKER).mkdir(parents=True)
    (theirs / "bin").mkdir()
    link.symlink_to(theirs)
    with pytest.raises(environment.SetupError, match="is a link") as refused:
        environment.choose_place([link])
    assert "DSHPC_VENV" in refused.value.details[0]
    assert sorted(os.listdir(theirs)) == [environment.MARKER, "bin"]


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


def test_packages_that_were_carried_are_taken_as_they_are(tmp_path: Path) -> None:
    root, venv = tmp_path / "root", tmp_path / "venv"
    site = venv / "lib/python3.12/site-packages"
    site.mkdir(parents=True)
    (venv / "bin").mkdir()
    assert environment.carried_packages(root, "3.12.4") is None
    carried = root / f".carried/packages-3.12-{platform.machine()}"
    (carried / "typer").mkdir(parents=True)
    (carried / "typer/__init__.py").write_text("")
    (root / "pyproject.toml").write_text(
        Path(environment.__file__).parents[1].joinpath("pyproject.toml").read_text()
    )
    assert environment.carried_packages(root, "3.12.4") == carried
    assert environment.carried_packages(root, "3.11.4") is None
    environment.install_carried(carried, root, venv)
    assert (site / "typer/__init__.py").exists()
    assert (site / "dshpc_setup.pth").read_text() == f"{root}\n"
    assert sorted(path.name for path in (venv / "bin").iterdir()) == [
        "configure-environment",
        "dshpc",
    ]
    assert "from dshpc_setup.cli import main\n" in (venv / "bin/dshpc").read_text()
