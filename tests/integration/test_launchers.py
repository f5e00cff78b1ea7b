"""./configure-environment and ./dshpc as far as they are shell: from no Python to the entry point.

A checkout is made whose package only reports how it was started; the launchers, scripts and lock
files are the real ones. On the host the lock file is cut down to the build backend, so that an
environment takes seconds; the container installs the whole of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dshpc_setup.image.base import BaseImage
from scripts.environment import locked_lines

pytestmark = pytest.mark.engines("docker", why="launchers look for Docker")

ROOT = Path(__file__).parents[2]
REAL_FILES = ("configure-environment", "dshpc", "pyproject.toml", "LICENSE", "scripts")
BACKEND = {"editables", "hatchling", "packaging", "pathspec", "pluggy", "tomli", "tomlkit"} | {
    "trove-classifiers",
    "uv",
}
AWKWARD = ["two words", "it's", '"', "", "*", "$HOME", "`id`", "--", "-y", "back\\slash", "é\n2"]
REPORT = """
import json, os, sys

def main():
    report = {"argv": sys.argv[1:], "cwd": os.getcwd(), "environ": dict(os.environ)}
    print(json.dumps({"command": os.path.basename(sys.argv[0])} | report))
    return 7

configure_environment_main = main
"""


@dataclass(frozen=True)
class Outcome:
    """How a launcher ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, object]:
        """What the reporting package said: stdout must hold that and nothing else."""
        assert self.code == 7, self
        loaded: dict[str, object] = json.loads(self.stdout)
        return loaded


@dataclass(frozen=True)
class Checkout:
    """A checkout with the reporting package in it."""

    path: Path

    @property
    def stamp(self) -> Path:
        return self.path / ".venv" / ".dshpc" / "stamp"

    def start(self, command: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.path / command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environ},
            start_new_session=True,
        )

    def run(self, command: str, *arguments: str, **environ: str) -> Outcome:
        return finish(self.start(command, *arguments, **environ))


def finish(process: subprocess.Popen[str]) -> Outcome:
    stdout, stderr = process.communicate(timeout=300)
    return Outcome(process.returncode, stdout, stderr)


def backend_only(lock_file: str) -> str:
    """The lock file's entries for the build backend, hashes and all."""
    entries = re.split(r"\n(?=\S)", lock_file.strip())
    return "\n".join(entry for entry in entries if entry.partition("==")[0] in BACKEND) + "\n"


def make_checkout(path: Path, *, whole_lock: bool = False) -> Checkout:
    path.mkdir(parents=True)
    for name in REAL_FILES:
        source = ROOT / name
        if source.is_dir():  # other tests write bytecode meanwhile
            shutil.copytree(source, path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, path / name)
    lock = (ROOT / "requirements.lock").read_text()
    (path / "requirements.lock").write_text(lock if whole_lock else backend_only(lock))
    (path / "README.md").write_text("A checkout of the launchers' tests.\n")
    for name in ("__init__.py", "pip_settings.py"):  # what the environment is made with
        (path / "dshpc_setup" / "environment").mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / "dshpc_setup/environment" / name, path / "dshpc_setup/environment")
    (path / "dshpc_setup" / "__init__.py").write_text('__version__ = "0"\n')
    (path / "dshpc_setup" / "cli.py").write_text(REPORT)
    return Checkout(path)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One whose environment is finished; its path has a space, as users' have."""
    made = make_checkout(tmp_path_factory.mktemp("launchers") / "my checkout")
    outcome = made.run("configure-environment", "--version")
    assert outcome.report["argv"] == ["--version"]
    assert "preparing a private Python environment" in outcome.stderr
    return made


@pytest.mark.parametrize("command", ["configure-environment", "dshpc"])
def test_arguments_and_environment_are_handed_over_unchanged(
    checkout: Checkout, command: str
) -> None:
    mine = {name: f"mine {name}" for name in ("root", "venv", "python", "ID", "NAME", "target")}
    outcome = checkout.run(command, *AWKWARD, **mine)
    assert outcome.report["command"] == command
    assert outcome.report["argv"] == AWKWARD
    assert outcome.stderr == ""
    environ = outcome.report["environ"]
    assert isinstance(environ, dict)
    shell_own = {"_", "PWD", "OLDPWD", "SHLVL"}
    kept = {name: value for name, value in environ.items() if name not in shell_own}
    # the launcher's own word to the program: what to call it by
    given = {**os.environ, **mine, "DSHPC_COMMAND": str(checkout.path / "dshpc")}
    assert kept == {name: value for name, value in given.items() if name not in shell_own}


def test_links_from_elsewhere_lead_to_the_checkout(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "absolute").symlink_to(checkout.path / "dshpc")
    (tmp_path / "relative").symlink_to("bin/absolute")
    done = subprocess.run(
        ["./relative", "x"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    report = Outcome(done.returncode, done.stdout, done.stderr).report
    assert report["cwd"] == str(tmp_path)
    assert report["argv"] == ["x"]
    assert "DSHPC_ON_PATH" not in str(report["environ"])
    by_path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", "absolute y"],
        env={**os.environ, **by_path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    report = Outcome(done.returncode, done.stdout, done.stderr).report
    assert report["argv"] == ["y"]
    assert "'DSHPC_ON_PATH': 'yes'" in str(report["environ"])  # advice names it as it was typed


@pytest.fixture
def silent_index() -> Iterator[dict[str, str]]:
    """Environment in which pip downloads from a server that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/simple"
        yield {"PIP_INDEX_URL": url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def test_interrupted_then_started_twice_at_once(
    tmp_path: Path, silent_index: dict[str, str]
) -> None:
    """Ctrl-C leaves nothing that is taken as good; of two, one builds and the other takes it."""
    checkout = make_checkout(tmp_path / "fresh")
    process = checkout.start("dshpc", "never", **silent_index)
    assert process.stderr is not None
    while "downloading" not in process.stderr.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    interrupted = finish(process)
    # Whether it exits with 130 or ends by the signal itself is the shell's habit.
    assert interrupted.code in (130, -signal.SIGINT)
    assert interrupted.stdout == ""
    assert "interrupted" in interrupted.stderr
    assert not checkout.stamp.exists()

    both = [checkout.start("dshpc", "one"), checkout.start("configure-environment", "two")]
    outcomes = [finish(process) for process in both]
    assert [outcome.report["argv"] for outcome in outcomes] == [["one"], ["two"]]
    built = [outcome for outcome in outcomes if "preparing a private" in outcome.stderr]
    assert len(built) == 1, outcomes
    assert checkout.run("dshpc", "three").stderr == ""


def test_broken_environment_is_made_anew(checkout: Checkout) -> None:
    """The system's Python was upgraded and the old one is gone: the link leads nowhere."""
    before = checkout.stamp.read_text()
    versioned = next((checkout.path / ".venv" / "bin").glob("python3.*"))
    versioned.unlink()
    versioned.symlink_to("/nowhere/python3")
    (checkout.path / ".venv" / "mine.txt").write_text("not of the environment")
    outcome = checkout.run("dshpc", "after")
    assert outcome.report["argv"] == ["after"]
    assert "preparing a private Python environment" in outcome.stderr
    assert checkout.stamp.read_text() == before
    assert (checkout.path / ".venv" / "mine.txt").read_text() == "not of the environment"


def test_changed_lock_file_means_a_new_environment(checkout: Checkout) -> None:
    lock_file = checkout.path / "requirements.lock"
    lock_file.write_text(lock_file.read_text() + "# another version\n")
    before = checkout.stamp.read_text()
    outcome = checkout.run("dshpc", "pulled")
    assert outcome.report["argv"] == ["pulled"]
    assert "preparing a private Python environment" in outcome.stderr
    assert checkout.stamp.read_text() != before


def test_killed_builder_holds_up_nobody(checkout: Checkout) -> None:
    """It leaves a lock file, not a lock, once the installer that outlived it is done."""
    checkout.stamp.unlink()
    process = checkout.start("dshpc", "killed")
    assert process.stderr is not None
    while "downloading" not in process.stderr.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    started = time.monotonic()
    assert checkout.run("dshpc", "next").report["argv"] == ["next"]
    assert time.monotonic() - started < 120


@pytest.mark.parametrize("package", ["uv", "pathspec"])
def test_altered_download_is_refused(package: str, tmp_path: Path) -> None:
    """By pip, which fetches uv, and by uv and pip, which fetch the rest."""
    checkout = make_checkout(tmp_path / "altered")
    lock_file = checkout.path / "requirements.lock"
    text = lock_file.read_text()
    block = locked_lines(text, package)
    lock_file.write_text(text.replace(block, re.sub(r"sha256:\w{8}", "sha256:00000000", block)))
    outcome = checkout.run("dshpc", "never")
    assert outcome.code == 2
    assert outcome.stdout == ""
    assert "not what the lock file says" in outcome.stderr
    assert ("uv could not" in outcome.stderr) == (package != "uv")
    assert not checkout.stamp.exists()
    assert not (checkout.path / ".venv" / "bin" / "dshpc").exists()


def test_where_uv_reaches_no_index_pip_installs(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "pip")
    outcome = checkout.run(
        "dshpc", "x", UV_DEFAULT_INDEX="http://127.0.0.1:9/simple", UV_HTTP_RETRIES="0"
    )
    assert outcome.report["argv"] == ["x"]
    assert "uv could not: error: Failed to fetch: http://127.0.0.1:9/simple/" in outcome.stderr
    assert "Connection refused" in (checkout.path / ".venv/.dshpc/log-uv").read_text()


def test_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "checkout")
    thesis = tmp_path / "documents" / "thesis.tex"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    outcome = checkout.run("dshpc", "never", DSHPC_VENV=str(thesis.parent))
    assert outcome.code == 2
    assert f"{thesis.parent} is in use by something else" in outcome.stderr
    assert "DSHPC_VENV" in outcome.stderr
    assert list(thesis.parent.iterdir()) == [thesis]


@dataclass(frozen=True)
class Programs:
    """A PATH of our own: the few tools that the launchers call, and Pythons that we make up."""

    folder: Path

    def add_tools(self) -> None:
        for name in ("cksum", "cat", "id", "readlink", "sh", "uname"):
            found = shutil.which(name)
            assert found is not None, name
            (self.folder / name).symlink_to(found)

    def add(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{textwrap.dedent(text)}")
        path.chmod(0o755)
        return path

    def add_python(self, name: str, pretence: str) -> Path:
        """The real Python running the launcher's real question under a pretence."""
        program = f"import sys; {pretence}; exec(sys.argv[1])"
        return self.add(name, f"""exec '{sys.executable}' -I -c "{program}" "$3"\n""")


OLD = "sys.version_info = (3, 9, 18, 'final', 0)"
NO_VENV = "sys.version_info = (3, 11, 2, 'final', 0); sys.modules['ensurepip'] = None"
GOOD = "sys.version_info = (3, 12, 1, 'final', 0)"


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    (tmp_path / "programs").mkdir()
    made = Programs(tmp_path / "programs")
    made.add_tools()
    return made


def find_python(programs: Programs) -> str:
    question = f". '{ROOT}/scripts/launch.sh'; dshpc_find_python; echo \"$dshpc_python\""
    done = subprocess.run(
        ["/bin/sh", "-c", question],
        env={"PATH": str(programs.folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_python_is_found_under_its_versioned_name(programs: Programs) -> None:
    programs.add_python("python3", OLD)
    programs.add_python("python3.11", NO_VENV)
    programs.add("python3.14", 'echo "version 3.14 is not installed" >&2; exit 127\n')
    good = programs.add_python("python3.12", GOOD)
    assert find_python(programs) == str(good)


def test_python_is_found_under_its_plain_name(programs: Programs) -> None:
    good = programs.add_python("python", GOOD)
    assert find_python(programs) == str(good)


@pytest.mark.parametrize(
    ("pythons", "said", "packages"),
    [
        ({"python3": OLD}, "no Python 3.10 or later", "python3 python3-venv"),
        (
            {"python3": NO_VENV},
            "Python 3.11 is here, but the part of it that makes environments is not",
            "python3 python3.11-venv python3-venv",
        ),
        ({}, "no Python at all", "python3 python3-venv"),
    ],
    ids=["too old", "no venv module", "none"],
)
def test_without_a_fitting_python_the_package_is_named_and_nothing_installed(
    programs: Programs, tmp_path: Path, pythons: Mapping[str, str], said: str, packages: str
) -> None:
    called = tmp_path / "called"
    programs.add("apt-get", f"echo \"$@\" >>'{called}'\n")
    for name, pretence in pythons.items():
        programs.add_python(name, pretence)
    checkout = make_checkout(tmp_path / "checkout")
    path = str(programs.folder)
    for arguments in ([], ["--json"], ["--yes", "--dry-run"], ["srun", "--", "--yes"]):
        outcome = checkout.run("configure-environment", *arguments, PATH=path)
        assert outcome.code == 2
        assert outcome.stdout == ""
        assert said in outcome.stderr
        assert f"apt-get install -y {packages}\n" in outcome.stderr
        assert "--yes" in outcome.stderr
    assert not called.exists()
    assert not (checkout.path / ".venv").exists()


def test_package_that_brings_no_fitting_python_is_an_error_not_a_loop(
    programs: Programs, tmp_path: Path
) -> None:
    """An old release: its package manager succeeds, its Python stays too old."""
    called = tmp_path / "called"
    programs.add("apt-get", f"echo \"$@\" >>'{called}'\n")
    programs.add("env", 'shift; exec "$@"\n')
    programs.add("sudo", 'while [ "$1" = -n ]; do shift; done; exec "$@"\n')
    programs.add_python("python3", OLD)
    checkout = make_checkout(tmp_path / "checkout")
    outcome = checkout.run("configure-environment", "--yes", PATH=str(programs.folder))
    assert outcome.code == 2
    assert outcome.stdout == ""
    assert "still no fitting Python" in outcome.stderr
    calls = called.read_text().splitlines()
    assert [call.split()[-1] for call in calls] == ["update", "python3-venv"]


@pytest.mark.parametrize("shell", [["sh"], ["bash", "--posix"]])
def test_shell_files_parse(shell: list[str]) -> None:
    files = ["configure-environment", "dshpc", "run-tests", "scripts/launch.sh"]
    for name in [*files, "scripts/packages.sh", "scripts/others.sh"]:
        done = subprocess.run(
            [*shell, "-n", ROOT / name], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), name


def site_ca_bundle() -> str | None:
    """What this machine trusts: behind a TLS-inspecting proxy the container needs it too."""
    named = (os.environ.get(name) for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"))
    known = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
    return next((path for path in (*named, *known) if path and Path(path).is_file()), None)


def host_apt_settings() -> str:
    """A mirror that is a snapshot, or behind a proxy, needs the host's settings to be of use."""
    if shutil.which("apt-config") is None:
        return ""
    dump = subprocess.run(
        ["apt-config", "dump"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    wanted = ("Acquire::Check-", "Acquire::http::Proxy", "Acquire::https::Proxy")
    return "".join(f"{line}\n" for line in dump.splitlines() if line.startswith(wanted))


@dataclass(frozen=True)
class Container:
    """A running container of the plain base image with the checkout in /opt/project."""

    name: str

    def run(self, *command: str, user: str = "root", home: str = "/root") -> Outcome:
        done = subprocess.run(
            ["docker", "exec", "--user", user, "--env", f"HOME={home}", self.name, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)


def docker(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], capture_output=True, timeout=120, check=True)


@pytest.fixture
def bare_container(base_image: BaseImage, tmp_path: Path) -> Iterator[Container]:
    make_checkout(tmp_path / "project", whole_lock=True)
    (tmp_path / "99site").write_text(f"Acquire::Retries 3;\n{host_apt_settings()}")
    name = f"dshpc-test-launchers-{uuid.uuid4().hex[:8]}"
    passed = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL")
    options = [f"--env={key}={os.environ[key]}" for key in passed if key in os.environ]
    bundle = site_ca_bundle()
    if bundle is not None:
        options += ["--env=SSL_CERT_FILE=/site/ca.crt", f"--volume={bundle}:/site/ca.crt:ro"]
    docker("run", "--detach", "--init", "--name", name, *options, base_image.ref, "sleep", "900")
    try:
        docker("cp", str(tmp_path / "99site"), f"{name}:/etc/apt/apt.conf.d/99site")
        docker("cp", str(tmp_path / "project"), f"{name}:/opt/project")
        yield Container(name)
    finally:
        docker("rm", "--force", name)


def test_machine_without_python_gets_one_and_the_entry_point_runs(
    bare_container: Container,
) -> None:
    assert bare_container.run("sh", "-c", "command -v python3").code != 0
    refused = bare_container.run("/opt/project/configure-environment", "--json")
    assert (refused.code, refused.stdout) == (2, "")
    assert "apt-get install -y python3 python3-venv\n" in refused.stderr

    arguments: Sequence[str] = ("--yes", "--json", "two words")
    installed = bare_container.run("/opt/project/configure-environment", *arguments)
    assert installed.report["argv"] == list(arguments), installed.stderr

    # A user who may not write to the checkout shares what root made, and makes an environment of
    # their own where the checkout has changed since.
    nobody = {"user": "65534:65534", "home": "/tmp/nobody"}
    shared = bare_container.run("/opt/project/dshpc", "shared", **nobody)
    assert (shared.report["argv"], shared.stderr) == (["shared"], "")
    changed = bare_container.run("sh", "-c", "echo '# new' >>/opt/project/requirements.lock")
    assert changed.code == 0
    own = bare_container.run("/opt/project/dshpc", "own", **nobody)
    assert own.report["argv"] == ["own"]
    assert "/tmp/nobody/.local/share/dshpc/environments/opt/project" in own.stderr
    assert bare_container.run("/opt/project/dshpc", "again", **nobody).stderr == ""


_NO_LAUNCH = """
dshpc_locate() { dshpc_venv=/none; }
dshpc_find_python() { :; }
dshpc_make_environment() { :; }
dshpc_say() { printf '%s\\n' "$@" >&2; }
"""


@pytest.mark.parametrize("manager", ["", "dnf", "apt-get"])
def test_what_the_tests_lack_is_said_in_words(manager: str, tmp_path: Path) -> None:
    """Also where a package manager with other names is there, or has installed what it could."""
    shutil.copy2(ROOT / "run-tests", tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/launch.sh").write_text(_NO_LAUNCH)
    shutil.copy2(ROOT / "scripts/packages.sh", tmp_path / "scripts")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "dirname", "id"):
        (folder / name).symlink_to(str(shutil.which(name)))
    for name in filter(None, ("ruff", "mypy", "lint-imports", "codespell", "env", "sudo", manager)):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    done = subprocess.run(
        [folder / "sh", tmp_path / "run-tests"],
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "the tests need what is not on this machine: cc bash" in done.stderr
    assert "./run-tests --unit" in done.stderr
    assert ("apt-get install" in done.stderr) is (manager == "apt-get")


@pytest.mark.parametrize("asked", [["--help"], ["-h"], ["--unit", "--help"]])
def test_help_of_the_tests_installs_nothing(asked: list[str], tmp_path: Path) -> None:
    """Where nothing else of the checkout lies, so that whatever it began with would fail."""
    shutil.copy2(ROOT / "run-tests", tmp_path)
    done = subprocess.run(
        ["sh", tmp_path / "run-tests", *asked],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--unit" in done.stdout
    assert "#" not in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["run-tests"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["all", "--no-such-option"], "unknown option"),
        (["run", "--as-user", "script"], "--as-user is of guest all"),
    ],
)
def test_the_guest_refuses_before_it_builds(
    arguments: list[str], told: str, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    done = subprocess.run(
        [ROOT / "tests/acceptance/guest", *arguments],
        env={
            **os.environ,
            "DSHPC_GUEST_CACHE": str(cache),
            "DSHPC_GUEST_MIRROR": "http://x/debian",
            "DSHPC_GUEST_SECURITY_MIRROR": "http://x/debian-security",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 64
    assert told in done.stderr
    assert not cache.exists()
