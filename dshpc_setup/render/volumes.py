"""What of the machine, and which volumes, the containers of a cluster see."""

from __future__ import annotations

from pathlib import Path

from dshpc_setup.errors import usage_error
from dshpc_setup.facts import HostFacts
from dshpc_setup.project.folder import HIDDEN, OWN
from dshpc_setup.settings import Settings, lent
from dshpc_setup.settings.places import folder_of, hides_the_system, lies_in, unfit_for_mount
from dshpc_setup.slurm.paths import HOMES

VOLUMES = ("state", "key", "home")  # behind the prefix; removed by `dshpc destroy` alone
METHODS = "methods"  # a folder of the project, seen under the same path in the container


def work_folder(project: Path, settings: Settings) -> Path:
    """The absolute work folder; raises DshpcError (usage) where it or the project cannot be mounted."""
    if unfit_for_mount(str(project)):
        raise usage_error(
            f"The project folder {str(project)!r} cannot be mounted into a container.",
            "Docker separates the parts of a mount by ':'.",
            "Choose a folder without ':' and control characters: --dir DIR.",
        )
    try:
        path = Path(settings.work).expanduser()
    except RuntimeError:
        raise usage_error(
            f"The work folder {settings.work!r} names a home that is not known.",
            "",
            "Give the whole path: --work DIR.",
        ) from None
    path = path if path.is_absolute() else project / path
    path = Path("/", *path.parts[1:])  # two slashes at the front would pass for another folder
    text = str(path)
    if ".." in path.parts:
        path = path.resolve()
        text = str(path)
    if unfit_for_mount(text):
        raise usage_error(
            f"The work folder {text!r} cannot be mounted into a container.",
            "Docker separates the parts of a mount by ':'.",
            "Choose a folder without ':' and control characters: --work DIR.",
        )
    if hides_the_system(text):
        raise usage_error(
            f"The work folder must not be {text}.",
            "It is mounted under the same path in the container and would hide the system there.",
            "Choose a folder of your own: --work DIR.",
        )
    return path


def mounts(project: Path, settings: Settings, facts: HostFacts) -> tuple[str, ...]:
    # SELinux keeps a container from files that are not labelled for containers
    shared = ":z" if facts.platform.selinux == "enforcing" else ""
    read_only = ":ro,z" if shared else ":ro"
    work = work_folder(project, settings)
    folders: tuple[str, ...] = (
        f"{work}:{work}{shared}",
        f"{project / METHODS}:{project / METHODS}{read_only}",
    )
    if settings.homes or settings.mounts or settings.toolkits:
        # Without a label (see _unlabelled); what is mounted below another after it, or it would be hidden
        more = (
            *(f"{each}:{each}" for each in settings.homes),
            *map(_mounted, settings.mounts),
            *lent.mounts(settings.toolkits, beside=settings.mounts),
            *_hidden(project, settings, read_only),
        )
        folders = tuple(sorted((*folders, *more), key=lambda each: each.split(":")[1].count("/")))
    return (
        f"{project / 'config'}:/config{read_only}",
        *folders,
        "state:/var/lib/dshpc/state",
        "key:/var/lib/dshpc/key",
        f"home:{HOMES}",
    )


def _hidden(project: Path, settings: Settings, read_only: str) -> tuple[str, ...]:
    """What the cluster keeps for itself, covered where the project lies in what jobs see: keys of the
    built-in engine's volumes are there."""
    seen = (
        *settings.homes,
        *map(folder_of, settings.mounts),
        *lent.sources(settings.toolkits),
    )
    if not any(lies_in(str(project), each) for each in seen):
        return ()
    return (f"{project / HIDDEN}:{project / OWN}{read_only}",)


def _mounted(mount: str) -> str:
    return f"{folder_of(mount)}:{mount}"
