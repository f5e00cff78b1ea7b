"""The project folder: what a run of `configure-environment` leaves there for the next one.

config/                 slurm.conf gres.conf cgroup.conf manifest.json (mounted into the container)
docker-compose.yml .env
.dshpc/                 ours alone: lock, remembered flags, proofs, build context, runtime.json
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dshpc_setup import settings as settings_module
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import make_folder, write_atomic, write_error
from dshpc_setup.settings import Settings

LABEL = "org.dshpc.project"  # of what is the project's in the engine: its folder
OWN = ".dshpc"
PROOF = f"{OWN}/passthrough.json"  # the passthrough proof of an earlier run
RENDERED = f"{OWN}/rendered.json"  # what the files were last rendered from: render.inputs
REJECTED = f"{OWN}/rejected.json"  # new texts that the user does not want
REMEMBERED = f"{OWN}/remembered.json"
RUNTIME = f"{OWN}/runtime.json"
MANIFEST = "config/manifest.json"
MANIFEST_SCHEMA = "dshpc.manifest/1"


class Project:
    """A project folder; `owner` is the (uid, gid) that files made under sudo are given to."""

    def __init__(self, folder: Path, owner: tuple[int, int] | None = None) -> None:
        self.folder = folder
        self.owner = owner

    @property
    def own(self) -> Path:
        return self.folder / OWN

    def prepare(self) -> None:
        """Make the folder and `.dshpc/`; raises DshpcError where it cannot be written."""
        make_folder(self.folder, self.owner)
        make_folder(self.own, self.owner)

    def give_to_owner(self, *folders: Path) -> None:
        """Hand what was made under sudo to the calling user, files in it too."""
        if self.owner is None:
            return
        for folder in folders:
            for at, _, files in os.walk(folder):
                os.chown(at, *self.owner)
                for name in files:
                    os.chown(os.path.join(at, name), *self.owner, follow_symlinks=False)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one run; a second one is refused with the first one's process id."""
        self._refuse_strangers()
        self.prepare()
        why = "Two runs in one folder would write over each other."
        with held(self.own / "lock", f"in {self.folder}", why, self.owner):
            yield

    def _refuse_strangers(self) -> None:
        """Raises DshpcError for who may not write where the files of somebody else's cluster are."""
        me = os.geteuid()
        for path in (self.own, self.own / "lock"):
            try:
                uid = path.stat().st_uid
            except OSError:  # not there, or in a folder that may not be looked into
                continue
            if me not in (0, uid) and not os.access(path, os.W_OK):
                name = _user_name(uid)
                raise DshpcError(
                    f"The cluster in {self.folder} belongs to {name}.",
                    f"Only {name} and root may change it: {path} is not yours to write.",
                    (
                        f"Ask {name}, or do it as root: sudo.",
                        "Or make one of your own in another folder: configure-environment --dir DIR",
                    ),
                )

    def read_json(self, name: str) -> dict[str, Any]:
        """An object of ours under the project folder; {} where there is none.

        Raises DshpcError for one that cannot be read: to go on without it would be to forget what
        the user chose, or whose a file is.
        """
        path = self.folder / name
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(value, dict):
                raise ValueError("it holds no JSON object")
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError) as error:
            raise DshpcError(
                f"{path} cannot be read.",
                str(error),
                (
                    "Make it readable, or bring it back from a backup.",
                    "Or delete it: what it remembered of earlier runs is then forgotten.",
                ),
            ) from None
        return value

    def read_note(self, name: str) -> dict[str, Any]:
        """As read_json, for what is made anew at no cost: {} where it is damaged."""
        try:
            return self.read_json(name)
        except DshpcError:
            return {}

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        path = self.folder / name
        text = json_text(value)
        try:
            if path.read_text(encoding="utf-8") == text:
                return
        except (OSError, ValueError):
            pass
        write_atomic(path, text, owner=self.owner)

    @property
    def remembered(self) -> dict[str, str]:
        """Setting name -> text, as flags of earlier runs gave them."""
        values = self.read_json(REMEMBERED)
        return {
            name: text
            for name, text in values.items()
            if name in settings_module.BY_NAME and isinstance(text, str)
        }

    def remembering(self, flags: Mapping[str, str | None]) -> dict[str, str]:
        """What flags chose, on top of what earlier runs remember."""
        chosen = {name: text for name, text in flags.items() if text is not None}
        return {**self.remembered, **chosen}

    def forget(self, names: list[str]) -> None:
        """Drop remembered flags: the next run takes environment, dshpc.yaml or the default."""
        kept = {name: text for name, text in self.remembered.items() if name not in names}
        self.write_json(REMEMBERED, kept)

    def settings(
        self,
        env: Mapping[str, str],
        flags: Mapping[str, str | None] | None = None,
        settings_file: Path | None = None,
    ) -> Settings:
        """The settings in force here; `settings_file` must exist, dshpc.yaml in the folder may."""
        path = settings_file or self.folder / "dshpc.yaml"
        try:
            text: str | None = path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            if settings_file is not None:
                raise DshpcError(
                    f"There is no settings file {settings_file}.",
                    "",
                    ("Give the path of an existing file to --settings.",),
                    64,
                ) from None
            text = None
        except (OSError, UnicodeDecodeError) as error:
            raise DshpcError(
                f"Cannot read {path}.", str(error), ("Make it a readable UTF-8 text.",), 64
            ) from None
        return settings_module.load(
            flags=flags,
            env=env,
            remembered=self.remembered,
            yaml_text=text,
            yaml_name=str(settings_file) if settings_file else "dshpc.yaml",
        )

    @property
    def manifest(self) -> dict[str, str]:
        """Path in the project folder -> SHA-256 of what we last wrote there."""
        files = self.read_json(MANIFEST).get("files")
        if not isinstance(files, dict):
            return {}
        return {str(name): str(value) for name, value in files.items()}

    @property
    def rejected(self) -> dict[str, str]:
        """Path in the project folder -> SHA-256 of the new text that was last rejected for it."""
        return {str(path): str(digest) for path, digest in self.read_json(REJECTED).items()}

    def runtime(self) -> dict[str, Any]:
        """What the commands need to reach the cluster: container, work, prefix."""
        return self.read_note(RUNTIME)


@contextlib.contextmanager
def held(path: Path, where: str, why: str, owner: tuple[int, int] | None = None) -> Iterator[None]:
    """Hold the file for one run; raises DshpcError with the process id of another that holds it.

    `where` is what is worked on ("in DIR"), `why` says in a sentence what two runs would do to it.
    """
    import fcntl

    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        if owner is not None:
            os.fchown(handle, *owner)
    except OSError as error:
        raise write_error(error, path) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            raise DshpcError(
                f"Another run (process {holder}) is at work {where}.",
                why,
                ("Wait until it has ended, then run again.",),
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _user_name(uid: int) -> str:
    import pwd

    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def json_text(value: Mapping[str, Any]) -> str:
    """As our own files are written."""
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def find_project(start: Path, env: Mapping[str, str]) -> Project | None:
    """The project at or above `start`; DSHPC_DIR names one outright."""
    named = env.get("DSHPC_DIR")
    if named:
        return Project(Path(named).absolute().resolve())
    for folder in (start, *start.parents):
        if (folder / OWN).is_dir():
            return Project(folder)
    return None


def need_project(start: Path, env: Mapping[str, str]) -> Project:
    """As find_project; raises DshpcError where there is none."""
    project = find_project(start, env)
    if project is None:
        raise DshpcError(
            f"There is no cluster in {start} or above it.",
            "No folder there holds .dshpc, which configure-environment makes.",
            (
                "Go to the folder where you ran configure-environment, or run it here.",
                "Or name that folder in the environment variable DSHPC_DIR.",
            ),
        )
    return project
