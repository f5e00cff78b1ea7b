"""Users' homes in a container that keeps them in its own layer: copied into the volume before it goes."""

from __future__ import annotations

from dshpc_setup.engine.containers import Container, engine_error, volume_labels
from dshpc_setup.engine.packages import last_lines
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.render.labels import PROJECT_LABEL
from dshpc_setup.slurm.paths import HOMES
from dshpc_setup.terminal.reporter import Reporter

_ASK_S = 20.0
_COPY_S = 1800.0
# Below /home may be the work folder, another file system: it stays where it is
_READ = f"""set -eu
if cd {HOMES} 2>/dev/null; then
    find . -mindepth 1 -maxdepth 1 -type d -print0 | tar --null -T - --one-file-system -cf -
else
    cd /
    {{ find home -mindepth 1 -maxdepth 1 -type d -print0; printf 'root\\0'; }} |
        tar --null -T - --one-file-system --transform 's,^home/,,S' -cf -
fi"""
_TAKE = 'docker run --rm -i --network none --entrypoint tar -v "$2:/to" "$3" --keep-newer-files -xpf - -C /to'
_COPY = f'docker exec "$1" sh -c "$4" | {_TAKE}'
# A container that does not run is read as an image of its layers: these hold what lies in it alone, and
# nothing of what is mounted. Its last line is its exit code.
_COPY_STOPPED = f"""image=$(docker commit "$1") || exit
docker run --rm --network none --user 0 --entrypoint sh "$image" -c "$4" | {_TAKE}
code=$?
docker rmi "$image" >/dev/null
exit "$code\""""


def rescue(
    machine: Machine, found: Container, prefix: str, folder: str, text: str, reporter: Reporter
) -> None:
    """Where the container is to be replaced by one that has the volume; raises where that failed.

    `text` is the compose file that is to come. What is in the volume already stays as it is. A container
    that is stopped is replaced as well, and is read without being started.
    """
    if HOMES in found.mounts or HOMES not in text:
        return
    reporter.progress("copying the users' homes into their volume")
    volume = f"{prefix}-home"
    if volume_labels(machine, volume) is None:
        labels = [f"{PROJECT_LABEL}={folder}", f"com.docker.compose.project={prefix}",
                  "com.docker.compose.volume=home"]  # fmt: skip
        made = machine.run(DOCKER.make_volume(volume, labels), deadline_s=_ASK_S)
        if not made.ok:
            raise engine_error(made, f"The volume {volume} could not be made")
    how = _COPY if found.running else _COPY_STOPPED
    argv = ["sh", "-c", how, "sh", found.name, volume, found.image_id, _READ]
    done = machine.run(argv, deadline_s=_COPY_S)
    if not done.ok:
        raise DshpcError(
            "The users' homes could not be copied out of the container, which would take them along.",
            last_lines(done),
            _by_hand(found),
        )
    reporter.note(
        f"The users' homes were in the container alone: they are in the volume {volume} now."
    )


def _by_hand(found: Container) -> tuple[str, ...]:
    stopped = f"docker export {found.name} | tar -xf - home"
    copy = "dshpc exec -- cp -r ~ ." if found.running else stopped
    return (
        f"Copy by hand what is needed: {copy}",
        "Then stop it, which removes them: dshpc down",
    )
