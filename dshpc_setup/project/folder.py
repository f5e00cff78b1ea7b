"""The project folder: what a run of `configure-environment` leaves there for the next one.

config/                 slurm.conf gres.conf cgroup.conf manifest.json (mounted into the container)
docker-compose.yml .env
.dshpc/                 ours alone: lock, remembered flags, proofs, build context, runtime.json
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dshpc_setup import settings as settings_module
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import tree
from dshpc_setup.files.anchored import anchored
from dshpc_setup.files.atomic import (
    make_folder,
    read_error,
    read_plain,
    remove,
    write_atomic,
    write_error,
)
from dshpc_setup.project import trust, writers
from dshpc_setup.project.refusals import no_project, of_another, unsafe
from dshpc_setup.project.run_lock import held, held_by_another
from dshpc_setup.settings import Reading, Settings, WrongSetting
from dshpc_setup.settings.wrong import OWN_FILE

LABEL = "org.dshpc.project"  # of what is the project's in the engine: its folder
GPUS_LABEL = "org.dshpc.gpus"  # the GPUs that the jobs of a cluster get, where they are real
OWN = trust.OWN
HIDDEN = f"{OWN}/hidden"  # an empty folder, which jobs see in place of OWN
PROOF = f"{OWN}/passthrough.json"  # the passthrough proof of an earlier run
RENDERED = f"{OWN}/rendered.json"  # what the files were last rendered from: render.inputs
REFUSED = f"{OWN}/refused.json"  # why the last run put nothing in force: refused.py
REJECTED = f"{OWN}/rejected.json"  # new texts that the user does not want
REMEMBERED = f"{OWN}/remembered.json"
RUNTIME = f"{OWN}/runtime.json"
JOINED = f"{OWN}/joined.json"  # of which cluster elsewhere this machine is a node
ADDED = f"{OWN}/join/added.json"  # nodes on other machines that are reached by ssh from here
SETTINGS = f"{OWN}/settings.json"  # those that the files were last made with: settings/applied.py
MANIFEST = "config/manifest.json"
LIVE = f"config/{settings_module.LIVE_FILE}"  # read anew while the container runs: variable -> text
MANIFEST_SCHEMA = "dshpc.manifest/1"
_MOST_GIVEN = 1_000_000  # files of a build context, with the packages of its methods
_TWO_RUNS = "Two runs in one folder would write over each other."
# What leads to programs, mounts and settings of the cluster, and the folders that it lies in
_READ = (
    OWN, "config", "environment", "dshpc.yaml", "docker-compose.yml", ".env", MANIFEST, LIVE,
    *(f"config/{name}" for name in ("slurm.conf", "gres.conf", "cgroup.conf")),
    REMEMBERED, RUNTIME, SETTINGS, PROOF, RENDERED, REFUSED, REJECTED, f"{OWN}/journal.json",
    JOINED, f"{OWN}/used.json", f"{OWN}/engine.json", f"{OWN}/build", f"{OWN}/packages",
    f"{OWN}/packages.json", f"{OWN}/join", f"{OWN}/join/tokens.json", f"{OWN}/join/service.json",
    ADDED,
)  # fmt: skip


class Project:
    """A project folder; `owner` is the (uid, gid) that files made under sudo are given to.

    `foreign` is the uid of another user whose it is: then it is data at most, and only the name of
    its cluster and its settings are read, to be shown. `ignored` are folders nearer to where the search
    began that are not used.
    """

    def __init__(
        self,
        folder: Path,
        owner: tuple[int, int] | None = None,
        *,
        foreign: int | None = None,
        ignored: Sequence[trust.Place] = (),
    ) -> None:
        self.folder = folder
        self.owner = owner
        self.foreign = foreign
        self.ignored = tuple(ignored)
        # What a join that is under way will leave in JOINED
        self.joining: Mapping[str, Any] | None = None

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
            try:
                _give(folder, self.owner)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise write_error(error, folder) from None

    @contextlib.contextmanager
    def lock(self, *, files: bool = True) -> Iterator[None]:
        """Hold the folder for one run; a second one is refused with the first one's process id.

        `files`: the run uses what lies in the folder; without it, root may hold another user's. Raises
        DshpcError where the folder is not this user's, or others could have written there.
        """
        self._refuse_strangers()
        where = f"in {self.folder}"
        if self.foreign is not None and not files:
            with held_by_another(self.own / "lock", where, _TWO_RUNS):
                yield
            return
        self.need_own()
        self.prepare()
        self.need_own()  # of what was made now, too
        with held(self.own / "lock", where, _TWO_RUNS, self.owner):
            yield

    def need_own(self) -> None:
        """Raises DshpcError where files of this folder may not be used: it is another user's, or others
        could have written them."""
        place = trust.judged(os.path.realpath(self.folder))
        if place.foreign:
            raise of_another(place)
        fault = place.fault
        for name in _READ if fault is None else ():
            fault = fault or trust.of_file(str(self.folder / name))
        if fault is not None:
            raise unsafe(str(self.folder), fault)

    def _refuse_strangers(self) -> None:
        """Raises DshpcError for who may not write where the files of somebody else's cluster are."""
        me = os.geteuid()
        for path in (self.own, self.own / "lock"):
            try:
                uid = path.stat().st_uid
            except OSError:  # not there, or in a folder that may not be looked into
                continue
            if me not in (0, uid) and not os.access(path, os.W_OK):
                name = writers.user_name(uid)
                raise DshpcError(
                    f"The cluster in {self.folder} belongs to {name}.",
                    f"Only {name if uid == 0 else f'{name} or root'} may change it: you have no write "
                    f"access to {path}.",
                    (
                        "Run it as root: sudo dshpc ..."
                        if uid == 0
                        else f"Ask {name}, or run it as root: sudo dshpc ...",
                        "Or make one of your own in another folder: configure-environment --dir DIR",
                    ),
                )

    def _bytes(self, name: str) -> bytes | None:
        """A file under the project folder, None where there is none; raises OSError.

        Of another user's folder only what is a plain file of his, and no link to another.
        """
        if self.foreign is None:
            return read_plain(self.folder / name)
        return trust.read(str(self.folder), name.split("/"), (0, self.foreign))

    def read_json(self, name: str) -> dict[str, Any]:
        """An object of ours under the project folder; {} where there is none.

        Raises DshpcError for one that cannot be read: to go on without it would be to forget what
        the user chose, or whose a file is.
        """
        path = self.folder / name
        try:
            text = self._bytes(name)
            value = {} if text is None else foreign.value(text.decode("utf-8"))
            if not isinstance(value, dict):
                raise ValueError("it holds no JSON object")
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
            if read_plain(path) == text.encode("utf-8"):
                return
        except OSError:
            pass
        write_atomic(path, text, owner=self.owner)

    def drop_json(self, name: str) -> None:
        path = self.folder / name
        try:
            remove(path)
        except OSError as error:
            raise write_error(error, path) from None

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
        """The settings in force here; `settings_file` must exist, dshpc.yaml in the folder may.

        Raises SettingsError, which tells all that is wrong with them at once.
        """
        return self.read_settings(env, flags, settings_file).usable()

    def read_settings(
        self,
        env: Mapping[str, str],
        flags: Mapping[str, str | None] | None = None,
        settings_file: Path | None = None,
    ) -> Reading:
        """What can be used of them, and what is wrong with the others; raises for a file that is named
        and cannot be read."""
        path = settings_file or self.folder / OWN_FILE
        try:
            data = self._bytes(OWN_FILE) if settings_file is None else read_plain(path)
            text = None if data is None else data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            said = read_error(error, path)
            where = OWN_FILE if settings_file is None else str(path)
            unread = WrongSetting(
                "file", "file", where, said.brief, said.details, steps=said.resolution
            )
            found = settings_module.read(flags=flags, env=env, remembered=self.remembered)
            return self._placed(replace(found, wrong=(unread, *found.wrong)))
        if text is None and settings_file is not None:
            raise DshpcError(
                f"There is no settings file {settings_file}.",
                "",
                ("Give the path of an existing file to --settings.",),
                64,
            )
        return self._placed(
            settings_module.read(
                flags=flags,
                env=env,
                remembered=self.remembered,
                yaml_text=text,
                yaml_name=str(settings_file) if settings_file else OWN_FILE,
            )
        )

    def _placed(self, found: Reading) -> Reading:
        """For the node that this machine has of a cluster elsewhere, where it has joined one."""
        note = self.joining if self.joining is not None else self.read_note(JOINED)
        node, controller = note.get("node"), note.get("controller")
        if not isinstance(node, str) or not isinstance(controller, str):
            return found
        carried, owner = note.get("carried_work"), note.get("owner")
        place = settings_module.Place(
            "worker",
            node,
            controller=controller,
            own_work=note.get("own_work") is True,
            carried_work=carried if isinstance(carried, str) else "",
            owner=owner if isinstance(owner, int) else None,
        )
        return replace(found, settings=found.settings.joined(place))

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

    @property
    def in_force(self) -> dict[str, str]:
        """What the cluster came to where nobody chose, by the setting's name."""
        runtime = self.runtime()
        return {"home": "host" if runtime.get("homes") else "kept"} if runtime else {}

    def with_homes(self, settings: Settings) -> Settings:
        """With what this cluster sees of the machine: folders above users' homes, and toolkits."""
        # Written twice: by one damaged file no home goes out of the sight of jobs
        seen = self.runtime() or self._usable(SETTINGS)
        homes = () if settings.home == "kept" else tuple(seen.get("homes", ()))
        toolkits = tuple(seen.get("toolkits", ())) if settings.toolkit == "host" else ()
        return replace(settings, homes=homes, toolkits=toolkits)

    def runtime(self) -> dict[str, Any]:
        """What the commands need to reach the cluster: container, work, prefix; data, never a program."""
        return self._usable(RUNTIME)

    def _usable(self, name: str) -> dict[str, Any]:
        try:
            return trust.usable(self._bytes(name))
        except OSError:
            return {}


def _give(folder: Path, owner: tuple[int, int]) -> None:
    """What root has made there, and only that: it may be that user's folder, with anything in it."""
    with anchored(folder) as at:
        top = os.open(at, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for entry in tree.entries(top, _MOST_GIVEN):
            if not entry.is_folder and not entry.is_file:
                continue  # whose a link is matters to nobody
            open_it = tree.open_folder if entry.is_folder else tree.open_file
            handle = open_it(entry.name, entry.at)
            try:
                seen = os.fstat(handle)
                if seen.st_uid == os.geteuid() and (entry.is_folder or seen.st_nlink == 1):
                    os.fchown(handle, *owner)
            finally:
                os.close(handle)
        os.fchown(top, *owner)
    finally:
        os.close(top)


def json_text(value: Mapping[str, Any]) -> str:
    """As our own files are written."""
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def find_project(start: Path, env: Mapping[str, str]) -> Project | None:
    """The project at or above `start`; DSHPC_DIR names one outright.

    Raises DshpcError where the one that is named could have been written by others.
    """
    named = env.get("DSHPC_DIR")
    if named:
        return project_at(Path(named))
    place, ignored = trust.search(os.path.realpath(start))
    return None if place is None else _project(place, ignored)


def need_project(start: Path, env: Mapping[str, str]) -> Project:
    """As find_project; raises DshpcError where there is none."""
    project = find_project(start, env)
    if project is None:
        raise no_project(str(start), trust.search(os.path.realpath(start))[1])
    return project


def project_at(folder: Path, owner: tuple[int, int] | None = None) -> Project:
    """The project in a folder that was named, which need not be there yet.

    Raises DshpcError where others could have written what is in it.
    """
    place = trust.judged(os.path.realpath(folder))
    if place.fault is not None:
        raise unsafe(place.folder, place.fault)
    return _project(place, (), owner)


def _project(
    place: trust.Place, ignored: Sequence[trust.Place], owner: tuple[int, int] | None = None
) -> Project:
    foreign = place.uid if place.foreign else None
    return Project(Path(place.folder), owner, foreign=foreign, ignored=ignored)
