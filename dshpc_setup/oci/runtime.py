"""What oci.conf names as its runtime: this process gets an image's root filesystem and becomes the job's
program.

    image-run BUNDLE WORD...              in the image of a bundle
    image-run BUNDLE --words TEXT         words that Slurm could not hand over as they are: see `quoted`
    image-run --environment FILE ...      with the variables of a file: Slurm's runtimes get the daemon's
    image-run --try                       whether this node lets anybody into an image

A namespace of users and one of mounts, and no other: what the job starts stays in sight of Slurm, and this
process stays the same one, so that exit codes, signals and accounting are those of any job. The user is who
he was; root of the image is nobody. Each job in an image goes through here, so imports are counted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal

from dshpc_setup.documents import foreign
from dshpc_setup.oci import entering
from dshpc_setup.oci.entering import DRIVER, SCRIPT, RefusedError

TYPE_CHECKING = False  # importing typing would cost as much as all of the rest
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence
    from typing import Any

NOT_FOUND, NOT_RUN = 127, 126  # as a shell says it
IMAGES_OWN = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "SHELL")
"""Variables that name places in a root filesystem: the image's are right, those of the node's are not."""


def main(argv: Sequence[str]) -> int:
    """Never returns where the program begins; else the exit code, as a shell has it."""
    if list(argv) == ["--try"]:
        return 0 if entering.refused_here() is None else 1
    environ = dict(os.environ)
    if argv[:1] == ["--environment"]:
        environ, argv = of_file(argv[1]), argv[2:]
    if len(argv) < 2:
        _say("it is called by Slurm and by jobs of dshpc run --image")
        return NOT_RUN
    bundle = argv[0]
    try:
        root, process = described(bundle)
        words = unquoted(argv[1:])
    except (OSError, ValueError) as error:
        _say(f"{bundle} is no OCI bundle: {_text(error)}")
        return NOT_RUN
    folder = os.getcwd()
    script = words[0] if _is_batch_script(words[0]) else None
    try:
        entering.enter(root, environ.get("HOME", ""), script)
    except RefusedError as refused:
        _say(told(refused, root))
        return NOT_RUN
    words[0] = words[0] if script is None else SCRIPT
    lay_over(environ, process, has_driver=os.path.isdir(DRIVER) and bool(os.listdir(DRIVER)))
    for place in (folder, str(process.get("cwd") or "/"), "/"):
        with contextlib.suppress(OSError):
            os.chdir(place)
            break
    return _become(words, environ)


def of_file(path: str) -> dict[str, str]:
    """The variables of a file, each with a NUL behind it (CreateEnvFile=null)."""
    found = (each.partition("=") for each in entering.read(path).split("\0"))
    return {name: value for name, equals, value in found if name and equals}


def quoted(words: Sequence[str]) -> list[str]:
    """Words as `unquoted` reads them: Slurm 24.11 makes an apostrophe in one the end of a text (%@ of
    oci.conf). Pure."""
    return ["--words", "\0".join(words).encode(errors="surrogateescape").hex()]


def unquoted(words: Sequence[str]) -> list[str]:
    """ValueError for what is not quoted so. Pure."""
    if len(words) == 2 and words[0] == "--words":
        return bytes.fromhex(words[1]).decode(errors="surrogateescape").split("\0")
    return list(words)


def described(bundle: str) -> tuple[str, Mapping[str, Any]]:
    """The root filesystem and `process` of a bundle's config.json; OSError and ValueError."""
    with open(f"{bundle}/config.json", "rb") as file:
        config = foreign.of_file(file)
    if not isinstance(config, dict) or not isinstance(config.get("root"), dict):
        raise ValueError("config.json names no root")
    process = config.get("process")
    path = config["root"].get("path")
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError("config.json names no root.path")
    root = os.path.realpath(os.path.join(bundle, path), strict=True)
    if not os.path.isdir(root) or root == "/":
        raise ValueError(f"{root} is no root filesystem")
    return root, process if isinstance(process, dict) else {}


def lay_over(
    environ: MutableMapping[str, str], image: Mapping[str, Any], *, has_driver: bool
) -> None:
    """The job's variables with those of the image that the job does not set, and the image's places. Pure."""
    for name in IMAGES_OWN:
        environ.pop(name, None)
    for each in image.get("env") or ():
        name, equals, value = str(each).partition("=")
        if name and equals and "\0" not in value:
            environ.setdefault(name, value)
    environ.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if has_driver:
        for name in ("LD_LIBRARY_PATH", "PATH"):
            environ[name] = ":".join(filter(None, (environ.get(name), DRIVER)))


def told(refused: RefusedError, root: str) -> str:
    """What is said of it in the job's log."""
    why = os.strerror(refused.number)
    if refused.step in ("namespaces", "ids", "mounts"):
        return (
            f"this node lets no job into an image: it refused {refused.step} of the user's own ({why}). "
            "With Docker and Podman it takes the setting containers: dshpc config set containers on, "
            "then configure-environment"
        )
    if refused.number == errno.ELOOP:
        why = "in the image it is a link that leads out of it"
    return f"the image {root} cannot be entered: {refused.place or refused.step}: {why}"


def _become(words: list[str], environ: Mapping[str, str]) -> int:
    """Not by os.execvpe: it imports, and what it would import is out of sight here."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    word = words[0]
    places = (
        [word] if "/" in word else [f"{each or '.'}/{word}" for each in environ["PATH"].split(":")]
    )
    worst: OSError | None = None
    for place in places:
        try:
            os.execve(place, words, environ)
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.exists(place):
                worst = error
        except OSError as error:
            worst = error
    if worst is None:
        _say(f"{word}: there is no such command in the image")
        return NOT_FOUND
    if isinstance(worst, FileNotFoundError):
        _say(
            f"{word} cannot be started: what its first line names, or its loader, is not in the image"
        )
        return NOT_FOUND
    _say(f"{word} cannot be started in the image: {worst.strerror}")
    return NOT_RUN


def _is_batch_script(word: str) -> bool:
    """Of `sbatch --container`: slurmd has written it where no image has anything."""
    return word.startswith("/var/") and word.endswith("/slurm_script")


def _text(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"dshpc: {text}\n".encode(errors="replace"))
