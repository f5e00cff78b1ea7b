"""Make the private Python environment of a checkout: all of it, or nothing that is taken as good.

Started by scripts/launch.sh with the machine's own Python, so it needs nothing but the standard
library. Prints the environment's path on stdout, everything else on stderr.

Two launchers at once: one builds, the other waits for its lock and takes what was built. The stamp
that a launcher looks for is written last, so that a broken network or Ctrl-C leaves an environment
that is made anew at the next start.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

# uv and pip give up by themselves where a network is silent: these are for what hangs. A busy machine with
# an emulated processor was seen to take more than ten minutes for what takes 20 s elsewhere.
STEP_DEADLINE_S = 3600.0
LOCK_DEADLINE_S = STEP_DEADLINE_S + 300.0
MARKER = ".dshpc"
"""The folder inside an environment that says it is ours: stamp, lock and log are kept there."""

PARTS = ("bin", "include", "lib", "lib64", "share", "pyvenv.cfg")
"""What an environment is made of; nothing else in its folder is ever deleted."""

CA_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/pki/tls/certs/ca-bundle.crt",  # older RHEL
    "/etc/ssl/cert.pem",  # Alpine
)


SYSTEM_PYTHONS = (
    (
        *("/usr/bin/python3", "/usr/local/bin/python3", "/usr/libexec/platform-python"),
        *(f"/usr/bin/python3.{minor}" for minor in range(20, 9, -1)),
    )
    if sys.platform != "darwin"
    else ()
)  # Apple's opens a window where its tools are not installed
"""Where distributions have theirs."""


class SetupError(Exception):
    """What happened, why, and what to do next; ends the run with `exit_code`."""

    def __init__(self, brief: str, *details: str, exit_code: int = 2) -> None:
        super().__init__(brief)
        self.brief = brief
        self.details = details
        self.exit_code = exit_code


@dataclass(frozen=True)
class Request:
    """What a launcher asks for: `inputs` is the text that the stamp will hold."""

    root: Path
    inputs: str
    places: tuple[Path, ...]
    dev: bool


def main(argv: Sequence[str]) -> int:
    """Make or find the environment; 0, 2 for an error, 130 where the user interrupted."""
    for number in heeded():
        signal.signal(number, _interrupt)
    # Nothing in an environment is secret, and who may run the checkout shares it: made with a umask of
    # 077 it would be of use to its owner alone, with 002 it would be safe for nobody.
    os.umask(0o022)
    try:
        print(make(parse(argv)))
    except SetupError as error:
        say(f"dshpc: {error.brief}", *(f"  {line}" for line in error.details))
        return error.exit_code
    except KeyboardInterrupt:
        say("dshpc: interrupted; the environment will be made anew at the next start.")
        return 130
    return 0


def parse(argv: Sequence[str]) -> Request:
    """Read the launcher's arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--place", type=Path, action="append", required=True)
    parser.add_argument("--dev", action="store_true")
    given = parser.parse_args(argv)
    return Request(given.root, given.inputs, tuple(given.place), given.dev)


def make(request: Request) -> Path:
    """Return a finished environment at the first place that can be written to."""
    venv = choose_place(request.places)
    with locked(venv) as lock:
        if not is_finished(venv, "stamp", request.inputs):
            build(request, venv, lock)
            give_to_owner(venv, request.root)
        if request.dev:
            dev_inputs = request.inputs + (request.root / "requirements-dev.lock").read_text()
            if not is_finished(venv, "stamp-dev", dev_inputs):
                say("  installing what the tests need ...")
                install_locked(request.root / "requirements-dev.lock", venv, lock)
                open_to_all(venv)
                write_stamp(venv, "stamp-dev", dev_inputs)
    return venv


def choose_place(places: Sequence[Path]) -> Path:
    """Claim the first writable place with our marker; refuse a folder that something else made."""
    refusals = []
    for venv in places:
        marker = venv / MARKER
        try:
            # No venv is made through one, and what it leads to may be another checkout's
            if venv.is_symlink():
                raise SetupError(
                    f"{venv} is a link, to {os.path.realpath(venv)}: it is left alone.",
                    "Remove the link, or name the folder itself: DSHPC_VENV=DIR",
                )
            if venv.is_dir() and any(venv.iterdir()) and not marker.is_dir():
                raise SetupError(
                    f"{venv} is in use by something else.",
                    "It was not made by this project, so it is left alone.",
                    "Move it away, or name another folder: DSHPC_VENV=DIR",
                )
            marker.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=marker), tempfile.TemporaryFile(dir=venv):
                return venv
        except OSError as error:
            refusals.append(f"{venv}: {error.strerror or error}")
    raise SetupError(
        "there is no place for the private Python environment.",
        *refusals,
        "Name a folder that you may write to, with 100 MB free: DSHPC_VENV=DIR",
    )


@contextlib.contextmanager
def locked(venv: Path) -> Iterator[int]:
    """Hold the environment's lock; wait for another launcher up to LOCK_DEADLINE_S.

    The file descriptor is handed to the processes that write into the environment, so that one
    which outlives us (kill -9) keeps the next launcher waiting until it is done.
    """
    # Whoever may open it may hold it
    descriptor = os.open(venv / MARKER / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with contextlib.suppress(PermissionError):  # another user's, or a file system without modes
        os.fchmod(descriptor, 0o600)
    deadline = time.monotonic() + LOCK_DEADLINE_S
    told = False
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    say(f"dshpc: waiting for another command that is preparing {venv} ...")
                    told = True
            if time.monotonic() > deadline:
                raise SetupError(
                    f"another command has been preparing {venv} for {LOCK_DEADLINE_S:.0f} s.",
                    "See what it is doing, end it if it hangs, and run this again.",
                )
            time.sleep(0.1)
        yield descriptor
    finally:
        os.close(descriptor)


def is_finished(venv: Path, stamp: str, inputs: str) -> bool:
    """Whether the environment was made from these inputs and its Python still starts."""
    try:
        if (venv / MARKER / stamp).read_text() != inputs + "\n":
            return False
    except OSError:
        return False
    probe = [str(venv / "bin" / "python"), "-I", "-c", "import dshpc_setup"]
    try:
        done = subprocess.run(probe, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def build(request: Request, venv: Path, lock: int) -> None:
    """Make the environment anew from the lock file, the checkout on top, and stamp it."""
    started = time.monotonic()
    say(f"dshpc: preparing a private Python environment, once: {venv}")
    for stamp in ("stamp", "stamp-dev"):
        (venv / MARKER / stamp).unlink(missing_ok=True)
    remove_parts(venv)
    base, version = choose_interpreter(request.root)
    say(f"  Python {version} ({base}) ...")
    run([base, "-I", "-m", "venv", "--without-pip", str(venv)], venv, lock)
    if (carried := carried_packages(request.root, version)) is not None:
        say("  taking the packages that were carried here ...")
        install_carried(carried, request.root, venv)
    else:
        say("  downloading and installing the locked packages ...")
        install_locked(request.root / "requirements.lock", venv, lock)
        install_checkout(request.root, venv, lock)
    open_to_all(venv)
    write_stamp(venv, "stamp", request.inputs)
    say(f"  ready after {time.monotonic() - started:.0f} s")


def choose_interpreter(root: Path, others: Sequence[str] = SYSTEM_PYTHONS) -> tuple[str, str]:
    """The path and version of the Python to build with: ours, or where other users can enter the
    checkout but cannot run ours (pyenv and uv keep it in a home), the first of `others` that fits.

    It is the interpreter's own versioned path: after an upgrade of the system's Python the link is
    broken and the environment is made anew, where `python3` would silently be another version.
    """
    ours = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    if is_open(root) and not is_open(Path(ours)):
        for path in map(os.path.realpath, others):
            if is_open(Path(path)) and (version := version_that_fits(path)):
                return path, version
    return ours, platform.python_version()


def is_open(path: Path) -> bool:
    """Whether all users can enter a folder or run a program, so far as modes say."""
    try:
        real = path.resolve(strict=True)
        return all(part.stat().st_mode & stat.S_IXOTH for part in (real, *real.parents))
    except OSError:
        return False


def version_that_fits(python: str) -> str | None:
    """Its version, where it can make environments for us."""
    question = (
        "import ensurepip, platform, sys, venv; "
        "print(platform.python_version() if sys.version_info >= (3, 10) else '')"
    )
    try:
        done = subprocess.run(
            [python, "-I", "-c", question], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout.strip() or None) if done.returncode == 0 else None


def open_to_all(venv: Path) -> None:
    """Let everybody read what they need: uv's copies have the modes that its cache was filled with."""
    for part in PARTS:
        for at, _, files in os.walk(venv / part):
            for path in (at, *(os.path.join(at, name) for name in files)):
                mode = os.lstat(path).st_mode
                wanted = mode | (0o055 if mode & stat.S_IXUSR else 0o044)
                if mode != wanted and not stat.S_ISLNK(mode):
                    os.chmod(path, wanted)


def give_to_owner(venv: Path, root: Path) -> None:
    """What root made inside of a user's checkout (sudo) is that user's, who updates it later."""
    owner = root.stat()
    if os.geteuid() != 0 or owner.st_uid == 0 or not venv.is_relative_to(root):
        return
    for at, folders, files in os.walk(venv):
        for name in ("", *folders, *files):
            path = os.path.join(at, name) if name else at
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def remove_parts(venv: Path) -> None:
    """Delete a former environment, and nothing else that may lie in its folder."""
    for name in PARTS:
        part = venv / name
        if part.is_dir() and not part.is_symlink():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


def carried_packages(root: Path, version: str) -> Path | None:
    """Those that `dshpc node add` has brought for this Python and processor, installed as on its machine."""
    major, minor, *_ = version.split(".")
    found = root / ".carried" / f"packages-{major}.{minor}-{platform.machine()}"
    return found if found.is_dir() else None


def install_carried(packages: Path, root: Path, venv: Path) -> None:
    """Copied as they are, with the checkout on top: no index is asked, and no installer is needed."""
    (site,) = venv.glob("lib/python*/site-packages")
    shutil.copytree(packages, site, dirs_exist_ok=True)
    (site / "dshpc_setup.pth").write_text(f"{root}\n", encoding="utf-8")
    told = (root / "pyproject.toml").read_text(encoding="utf-8")
    section = told.partition("[project.scripts]\n")[2].partition("\n\n")[0]
    for name, module, function in re.findall(
        r'^([\w-]+) = "([\w.]+):(\w+)"$', section, re.MULTILINE
    ):
        program = venv / "bin" / name
        program.write_text(
            f"#!{venv}/bin/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n",
            encoding="utf-8",
        )
        program.chmod(0o755)


def install_locked(lock_file: Path, venv: Path, lock: int) -> None:
    """Install exactly what the lock file names, every download checked against its hash.

    uv comes first. A folder of wheels (PIP_NO_INDEX) may lack it: it is two thirds of them, and only
    what makes this faster and `dshpc env` want it.
    """
    checked = ["install", "--require-hashes", "--requirement"]
    if not has_uv(venv):
        text = lock_file.read_text()
        own = locked_lines(text, "uv")
        with tempfile.TemporaryDirectory(prefix="dshpc-") as folder:
            part = Path(folder) / "part.lock"
            try:
                part.write_text(own)
                pip([*checked, str(part)], venv, lock)
            except SetupError:
                if not offline():
                    raise
                say("  without uv, which is not among the packages here ...")
                part.write_text(text.replace(own, ""))
                pip([*checked, str(part)], venv, lock)
                return
    install([*checked[1:], str(lock_file)], venv, lock)


def has_uv(venv: Path) -> bool:
    return (venv / "bin" / "uv").exists()


def offline() -> bool:
    """Whether no index is to be asked (PIP_NO_INDEX, or pip's configuration)."""
    from dshpc_setup.environment import pip_settings

    return pip_settings.is_on(pip_options().get("no-index"))


def locked_lines(lock_text: str, name: str) -> str:
    """What a lock file says of one package: its line, and the hashes below it."""
    found = re.search(rf"^{re.escape(name)}==.*\n(?:[ \t]+.*\n?)*", lock_text, re.MULTILINE)
    return found[0] if found else ""


def install_checkout(root: Path, venv: Path, lock: int) -> None:
    """Install the checkout itself, editable, with the locked build backend and no download.

    The backend is called without an installer in between: the pip of Python 3.10.0 knows no editable
    installation of a project without setup.py.
    """
    script = "import sys, hatchling.build; hatchling.build.build_editable(sys.argv[1])"
    with tempfile.TemporaryDirectory(prefix="dshpc-") as wheels:
        run([str(venv / "bin" / "python"), "-I", "-c", script, wheels], venv, lock, cwd=root)
        built = [str(wheel) for wheel in Path(wheels).glob("*.whl")]
        install(["--no-index", "--no-deps", *built], venv, lock)


def install(arguments: Sequence[str], venv: Path, lock: int) -> None:
    """Install with uv, which takes a second, or else with pip, which takes half a minute."""
    if offline() and not has_uv(venv):
        pip(["install", *arguments], venv, lock)
        return
    try:
        uv(arguments, venv, lock)
    except SetupError as error:
        log = venv / MARKER / "log"
        shutil.copy(log, log.with_name("log-uv"))
        lines = log.read_text(errors="replace").splitlines()
        said = next((line for line in lines if line.startswith("error: ")), error.brief)
        say(f"  uv could not: {said}", f"  pip is used in its place ({log}-uv) ...")
        pip(["install", *arguments], venv, lock)


def uv(arguments: Sequence[str], venv: Path, lock: int) -> None:
    """Run the environment's own uv, which asks the index that pip would ask."""
    from dshpc_setup.environment import pip_settings

    command = [str(venv / "bin" / "uv"), "pip", "install", "--no-config", "--no-progress"]
    command += ["--python", str(venv / "bin" / "python"), "--compile-bytecode", "--link-mode=copy"]
    told = pip_options()
    environ = uv_environment(os.environ) | pip_settings.for_uv(told, os.environ)
    if pip_settings.is_on(told.get("no-index")):
        command.append("--no-index")
    environ["UV_CONSTRAINT"] = ""  # what is locked is constrained enough
    run([*command, *arguments], venv, lock, environ=environ)


# The pip that Python itself brings is run from where it lies: installing it takes longer than all the rest.
_PIP = """
import ensurepip, glob, os, runpy, sys, sysconfig
folders = (os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"), "/usr/share/python-wheels",
           sysconfig.get_config_var("WHEEL_PKG_DIR"))
wheels = [wheel for folder in folders if folder for wheel in glob.glob(folder + "/pip-*.whl")]
if wheels:
    sys.path.insert(0, wheels[0])
else:
    ensurepip.bootstrap()
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def pip(arguments: Sequence[str], venv: Path, lock: int) -> None:
    """Run pip for the environment, trusting the authorities that this machine trusts."""
    environ = pip_environment(os.environ)
    bundle = choose_ca_bundle(pip_options(), os.environ, CA_BUNDLES)
    if bundle is not None:
        environ["PIP_CERT"] = bundle
    quiet = ["--no-input", "--disable-pip-version-check"]
    command = [str(venv / "bin" / "python"), "-I", "-c", _PIP]
    run([*command, *quiet, *arguments], venv, lock, environ=environ)


def pip_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment less what would make pip install elsewhere."""
    elsewhere = {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN", "PIP_PYTHON"}
    kept = {name: value for name, value in environ.items() if name not in elsewhere}
    return kept | {"PIP_USER": "0"}


def uv_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment less what would make uv install elsewhere, or other things."""
    other = {
        "UV_SYSTEM_PYTHON",
        "UV_PYTHON",
        "UV_PROJECT",
        "UV_WORKING_DIR",
        "UV_OVERRIDE",
        "UV_EXCLUDE",
    }
    return {name: value for name, value in environ.items() if name not in other}


def pip_options() -> dict[str, str]:
    """What this machine's files and variables tell pip."""
    from dshpc_setup.environment import pip_settings  # the checkout's: nothing is installed yet

    return pip_settings.read(os.environ, _text_of, sys.prefix)


def _text_of(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None


def choose_ca_bundle(
    options: Mapping[str, str], environ: Mapping[str, str], known: Sequence[str]
) -> str | None:
    """The CA bundle that pip must be told of; None where it already knows one.

    pip itself reads PIP_CERT, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE and its configuration files. It
    does not read SSL_CERT_FILE, and where nothing is set an older pip trusts only the authorities
    that came with it: behind a proxy that inspects TLS the site's own is in the system's bundle.
    """
    from dshpc_setup.environment import pip_settings

    if pip_settings.certificates(options, environ):
        return None
    if environ.get("SSL_CERT_FILE"):
        return environ["SSL_CERT_FILE"]
    if sys.platform == "darwin":  # pip asks the keychain there
        return None
    return next((path for path in known if Path(path).is_file()), None)


def run(
    command: Sequence[str],
    venv: Path,
    lock: int,
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Run one step, its output in the log; at the deadline end it and its children."""
    log_path = venv / MARKER / "log"
    process = None
    with log_path.open("w+") as log:
        with contextlib.suppress(PermissionError):  # it may name an index with its password
            os.fchmod(log.fileno(), 0o600)
        try:
            with not_interrupted():
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env=environ,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
            code = process.wait(timeout=STEP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            raise SetupError(
                f"a step was not done after {STEP_DEADLINE_S:.0f} s: {' '.join(command[:6])}",
                f"What it said: {log_path}",
                "See what keeps this machine busy (uptime), whether the network is slow or a proxy holds "
                "the connection; run this again.",
            ) from None
        finally:
            if process is not None and process.returncode is None:
                _end(process)
    if code != 0:
        text = log_path.read_text(errors="replace")
        raise SetupError(
            "the private Python environment could not be made.", *explain(text, log_path)
        )


@contextlib.contextmanager
def not_interrupted() -> Iterator[None]:
    """Ctrl-C counts when it is over: a start that it cuts in two leaves a process that nobody knows.

    As dshpc_setup.signals.held_back, which this script does not see: it runs alone (-I).
    """
    caught: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: caught.append(number))
        for number in heeded()
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for late in caught:
        os.kill(os.getpid(), late)


def heeded() -> tuple[signal.Signals, ...]:
    """What ends us: not what whoever started us has us ignore, as nohup does."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return tuple(number for number in ending if signal.getsignal(number) != signal.SIG_IGN)


def explain(log: str, log_path: Path) -> tuple[str, ...]:
    """Say why a step failed and what to do, from what it said; the last lines, where unknown."""
    lower = log.lower()
    end = tuple(f"| {line}" for line in log.strip().splitlines()[-4:])
    known = (
        (
            ("certificate verify failed", "certificate_verify_failed", "confirming the ssl"),
            "The certificate of the Python package index is not trusted here: most likely a proxy "
            "that inspects TLS.",
            "Name your site's CA bundle and try again: export SSL_CERT_FILE=/path/to/bundle.crt",
        ),
        (
            ("do not match the hashes",),
            "A download is not what the lock file says it must be: a broken transfer or an index "
            "that changes packages.",
            "Nothing of it was installed. Run this again; if it stays, ask who runs the index.",
        ),
        (
            ("no space left on device", "errno 28"),
            "The disk is full.",
            "Make room (100 MB is enough), or name a folder on another disk: DSHPC_VENV=DIR",
        ),
        (
            (
                "connection broken",
                "newconnectionerror",
                "name resolution",
                "proxyerror",
                "timed out",
            ),
            "The Python package index cannot be reached.",
            "Look at the network and at https_proxy; an index of your own goes into PIP_INDEX_URL.",
        ),
    )
    for signs, why, remedy in known:
        if any(sign in lower for sign in signs):
            return (why, *end, remedy, f"All that it said: {log_path}")
    return (*end, f"All that it said: {log_path}")


def write_stamp(venv: Path, name: str, inputs: str) -> None:
    """Declare the environment finished, in one step."""
    temporary = venv / MARKER / f"{name}.new"
    temporary.write_text(inputs + "\n")
    temporary.replace(venv / MARKER / name)


def say(*lines: str) -> None:
    """Speak to the person, on stderr."""
    print(*lines, sep="\n", file=sys.stderr, flush=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a step and its children; one that cannot die is left to the lock."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))  # -I leaves it out
    sys.dont_write_bytecode = True  # as root, in a user's checkout
    sys.exit(main(sys.argv[1:]))
