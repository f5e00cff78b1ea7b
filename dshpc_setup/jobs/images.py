"""The images of a user's jobs: unpacked once, in the user's folder of the work folder, by the user.

<work>/jobs/<uid>/.images/<digest>/     an OCI bundle, by the content of its image
                          .known-.../   a file that says which image a file or a name of the engine's was
                          .new-.../     one that is being unpacked, held by a lock

As with environments (environments.py) nobody else uses it, each use changes the time of its folder, and
one that none has used for a month, and that no job holds, goes as another one is unpacked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from pathlib import Path

from dshpc_setup.errors import DshpcError, Exit, Fix, usage_error
from dshpc_setup.jobs import environments, removal, safe_open, workspace

TYPE_CHECKING = False  # imports are counted where a job is submitted
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from dshpc_setup.jobs.staging import Incoming
    from dshpc_setup.machine import Machine

FOLDER = ".images"
RUN = "/usr/local/lib/dshpc/image-run"
_KNOWN = ".known-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ASK_S, _SAVE_S = 30.0, 1800.0


def ready(named: str, incoming: Incoming) -> str:
    """The bundle of an image's file, or of an image that the engine has by that name; unpacked where it
    is not yet.

    With a dry `incoming` an image that was never used is only looked for. Raises DshpcError.
    """
    _need_rights(incoming.runtime)
    _need_own(incoming)
    path = os.path.realpath(os.path.expanduser(named))
    top = f"{workspace.of_user(incoming.work, incoming.uid)}/{FOLDER}"
    if "'" in top:
        raise DshpcError(
            f"Slurm cannot run images from {top}.", "Its path holds an apostrophe.",
            ("Give the work folder another name, and run configure-environment again.",),
        )  # fmt: skip
    if incoming.dry and not os.path.isdir(top):
        _sought(named, path, incoming)
        return f"{top}/{'0' * 64}"
    failed = f"The image cannot be unpacked in {top}"
    with environments.kept(FOLDER, incoming, failed, "images") as at:
        return f"{top}/{_Cache(top, at, incoming).digest(named, path)}"


def argv(bundle: str, words: list[str], *, tasks: int) -> list[str]:
    """What runs these words in the image: Slurm's own step where there are several tasks, else this process.

    A srun in between would answer a TERM by killing what it started.
    """
    if tasks > 1:
        from dshpc_setup.oci import runtime

        return ["srun", f"--container={bundle}", "--", *runtime.quoted(words)]
    return [RUN, bundle, *words]


def check_node() -> None:
    """On the node, before a submission: raises DshpcError where the kernel lets nobody into an image here."""
    from dshpc_setup.oci import entering

    refused = entering.refused_here()
    if refused is not None:
        raise DshpcError(
            "No job can run in an image on this cluster.",
            f"The kernel refused {refused.step} of the user's own: {os.strerror(refused.number)}.",
            _STEPS,
        )


_STEPS = (
    Fix("With Docker and Podman let jobs run in images", "dshpc config set containers on"),
    Fix("Put it into effect", "configure-environment"),
    "What that gives to the container: docs/security.md",
)


def _need_rights(runtime: Mapping[str, Any]) -> None:
    if not runtime.get("images") and runtime.get("engine") != "builtin":
        raise DshpcError(
            "Jobs may not run in images on this cluster: the setting containers is off.",
            "It takes more rights for the container than it has: namespaces of users and of mounts.",
            _STEPS,
        )


def _need_own(incoming: Incoming) -> None:
    if incoming.owner is not None:
        raise DshpcError(
            "An image is unpacked by the user whom it is for.",
            "Under sudo, root would unpack what somebody else made.",
            ("Run the same command without sudo.",),
        )


class _Cache:
    """The folder of images, open as `at`."""

    def __init__(self, top: str, at: int, incoming: Incoming) -> None:
        from dshpc_setup.machine.local import LocalMachine

        self._top, self._at, self._incoming = top, at, incoming
        self._machine: Machine = LocalMachine()

    def digest(self, named: str, path: str) -> str:
        """Of the image, which is unpacked then."""
        place, key = _sought(named, path, self._incoming)
        known = self._known(key)
        if known is not None and environments.used(known, self._at):
            return known
        before = time.time() - environments.UNUSED_S
        if not self._incoming.dry:
            environments.clean(self._at, before)
            self._forget(before)
        digest = self._unpacked(named, place)
        if not self._incoming.dry:
            safe_open.replace(f"{_KNOWN}{key}", f"{digest}\n", self._at)
        return digest

    def _known(self, key: str) -> str | None:
        name = f"{_KNOWN}{key}"
        try:
            with open(safe_open.file(name, self._at, self._incoming.uid), encoding="ascii") as file:
                text = file.read(80).strip()
            os.utime(name, dir_fd=self._at, follow_symlinks=False)
        except (OSError, UnicodeDecodeError):
            return None
        return text if _DIGEST.fullmatch(text) else None

    def _forget(self, before: float) -> None:
        for name in os.listdir(self._at):
            with contextlib.suppress(OSError):
                if name.startswith(_KNOWN) and os.stat(name, dir_fd=self._at).st_mtime < before:
                    os.unlink(name, dir_fd=self._at)

    def _unpacked(self, named: str, place: Path | None) -> str:
        from dshpc_setup.oci import bundle, words
        from dshpc_setup.oci.model import ImageError

        self._incoming.before_long()
        processor = self._machine.system[2]
        with self._new() as new:
            try:
                archive = self._saved(named, new) if place is None else place
                with bundle.found(archive, new, processor) as image:
                    if not environments.used(image.digest, self._at) and not self._incoming.dry:
                        environments.say(f"image {named}: unpacking it, once")
                        (new / "tree").mkdir(0o700)
                        bundle.make(self._machine, image, new / "tree")
                        environments.keep(new.name, image.digest, self._at)
                    return image.digest
            except ImageError as error:
                raise words.told(error, named, processor) from None

    @contextlib.contextmanager
    def _new(self) -> Iterator[Path]:
        name, handle = environments.new_and_held(self._at)
        try:
            yield Path(self._top) / name
        finally:
            os.close(handle)
            removal.discard(name, self._at)

    def _saved(self, named: str, new: Path) -> Path:
        from dshpc_setup import engine_client

        file = new / "saved.tar"
        environments.say(f"image {named}: the engine saves it, once")
        client = engine_client.of(self._incoming.runtime)
        done = self._machine.run(client.save(named, str(file)), deadline_s=_SAVE_S)
        if not done.ok:
            raise DshpcError(
                f"The engine could not save the image {named}.", done.text.strip()[-400:],
                ("Run this again, or save it yourself and give the file.",),
            )  # fmt: skip
        return file


def _sought(named: str, path: str, incoming: Incoming) -> tuple[Path | None, str]:
    """The file, or None for a name of the engine's; and what tells this very one. Raises DshpcError."""
    try:
        seen = os.stat(path if named else "")
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None, hashlib.sha256(f"engine {_id(named, incoming.runtime)}".encode()).hexdigest()
    if not os.access(path, os.R_OK):
        raise usage_error(f"You may not read the image {named}.", "", "Make it readable for you.")
    # A folder's own time says nothing of what is in it: what describes the image does
    inner = [os.path.join(path, name) for name in ("index.json", "manifest.json")]
    for each in inner if os.path.isdir(path) else ():
        with contextlib.suppress(OSError):
            seen = os.stat(each)
    told = (path, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    return Path(path), hashlib.sha256(repr(told).encode(errors="surrogateescape")).hexdigest()


def _id(named: str, runtime: Mapping[str, Any]) -> str:
    """By which the engine knows the image; raises DshpcError."""
    from dshpc_setup import engine_client
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.oci import words
    from dshpc_setup.oci.model import ImageError

    machine = LocalMachine()
    absent = words.told(ImageError("absent"), named, machine.system[2])
    if not _NAME.fullmatch(named) or named.endswith((".tar", ".sif", ".gz", ".img")):
        raise absent
    if runtime.get("engine") == "builtin":
        raise usage_error(
            f"There is no file {named}, and the built-in engine has no images of others.", "",
            f"Let Docker or Podman write it: docker save {named} -o FILE",
            "Then: dshpc run --image FILE -- COMMAND",
        )  # fmt: skip
    client = engine_client.of(runtime)
    done = machine.run(client.inspect("image", named, template="{{.Id}}"), deadline_s=_ASK_S)
    if done.ok and done.stdout.strip():
        return done.stdout.strip()
    if done.state == "present" and "no such image" in done.text.lower():
        raise absent
    raise DshpcError(
        f"The engine did not say whether it has the image {named}.", done.text.strip()[-400:],
        ("See whether it answers: dshpc status",), Exit.INCOMPLETE,
    )  # fmt: skip
