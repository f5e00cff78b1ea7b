"""Private namespaces on this machine: its files to write on, a /dev and a /run of its own.

Nothing that is written, mounted or started in a room is there outside; the room ends with its process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_READY_S = 20.0

# /etc, /usr and /sys stay readable and become writable, without the GPUs that this machine may have;
# /dev and /run are made anew. The first process waits
# for the end of its standard input, so that the room ends with whoever opened it, and it collects
# the processes that lose their parent.
_OPEN = """
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/bench
for name in etc usr; do
    mkdir /run/bench/$name /run/bench/$name.work
    mount -t overlay -o lowerdir=/$name,upperdir=/run/bench/$name,workdir=/run/bench/$name.work overlay /$name
done
mkdir /run/bench/sysfs /run/bench/cgroup /run/bench/sys /run/bench/sys.work
mount -t sysfs sysfs /run/bench/sysfs
mount --rbind /sys/fs/cgroup /run/bench/cgroup
mount -t overlay -o lowerdir=/run/bench/sysfs,upperdir=/run/bench/sys,workdir=/run/bench/sys.work overlay /sys
mount --rbind /run/bench/cgroup /sys/fs/cgroup
rm -rf /sys/bus/pci/devices /sys/class/drm /sys/class/kfd /sys/module/nvidia* /sys/module/amdgpu
mkdir /sys/bus/pci/devices /sys/class/drm
mount -t tmpfs -o mode=755 tmpfs /dev
mkdir /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ln -s pts/ptmx /dev/ptmx
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
for node in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 /dev/${node%:*} c 1 ${node#*:}; done
mknod -m 666 /dev/tty c 5 0
mkdir -p /etc/cdi /run/cdi
[ ! -d /proc/driver/nvidia ] || mount -t tmpfs tmpfs /proc/driver/nvidia
ip link set lo up 2>/dev/null || :
"""

# Another root file system in the room, which shares /dev, /run, /sys, the CDI specifications and one
# folder of the disk with it.
_OPEN_INNER = """
lower=$1 folder=$2
mkdir -p /run/bench/inner /run/bench/inner.work "$folder/merged"
mount -t overlay -o "lowerdir=$lower,upperdir=/run/bench/inner,workdir=/run/bench/inner.work" \
    overlay "$folder/merged"
cd "$folder/merged"
mkdir -p etc/cdi run ".$folder"
for each in dev proc sys; do mount --rbind /$each $each; done
mount --bind /run run
mount --bind /etc/cdi etc/cdi
mount --bind "$folder" ".$folder"
pivot_root . mnt
cd /
umount -l /mnt
"""

_HOLD = "echo ready; exec 3<&0; cat <&3 >/dev/null & wait $!"


@dataclass(frozen=True)
class Room:
    """`pid`: a process of the room, as this machine counts; `root`: its files, seen from here."""

    pid: int

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.pid}/root")

    def path(self, path: str) -> Path:
        """A path of the room, for reading and writing from outside (never through a link)."""
        return self.root / path.lstrip("/")

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(mode)

    def argv(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` in the room."""
        return ["nsenter", "-t", str(self.pid), "-m", "-n", "-p", "-r", "-w", "--", *argv]

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        """A process that goes on; its words go to the log."""
        with log.open("ab") as output:
            return subprocess.Popen(
                self.argv(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(env),
                start_new_session=True,
            )

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        deadline_s: float = 60,
        given: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """A command to its end; raises subprocess.TimeoutExpired, with all of it ended."""
        with subprocess.Popen(
            self.argv(argv),
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(env),
            start_new_session=True,
        ) as child:
            try:
                output, errors = child.communicate(given, timeout=deadline_s)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(list(argv), child.returncode, output, errors)


@contextlib.contextmanager
def room(folder: Path) -> Iterator[Room]:
    """A room of its own; all that runs in it is killed at the end."""
    namespaces = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv = ["unshare", *namespaces, "--propagation", "private"]
    with _held([*argv, "--", "/bin/sh", "-euc", f"{_OPEN}{_HOLD}"], folder / "room.log") as pid:
        yield Room(pid)


@contextlib.contextmanager
def inner_room(outer: Room, lower: Path, folder: Path) -> Iterator[Room]:
    """A room in the room with the root file system `lower`; `folder` is the same place in both."""
    script = f"{_OPEN_INNER}{_HOLD}"
    inner = ["unshare", "--mount", "--fork", "--kill-child", "--propagation", "private", "--"]
    argv = outer.argv([*inner, "/bin/sh", "-euc", script, "sh", str(lower), str(folder)])
    with _held(argv, folder / "inner.log") as pid:
        yield Room(pid)


@contextlib.contextmanager
def _held(argv: Sequence[str], log: Path) -> Iterator[int]:
    """The process that holds a room, once it has said that all is mounted."""
    with log.open("ab") as errors:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        said = child.stdout.readline()
        assert said == b"ready\n", f"no room: {log.read_text()[-2000:]}"
        yield _innermost(child.pid)
    finally:
        child.stdin.close()
        try:
            child.wait(_READY_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(_READY_S)
        child.stdout.close()


def _innermost(pid: int) -> int:
    """The shell that holds the room: the last of a line of only children (nsenter, unshare)."""
    until = time.monotonic() + _READY_S
    while time.monotonic() < until:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        if name not in ("unshare", "nsenter"):
            return pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        assert len(children) <= 1
        if children:
            pid = int(children[0])
    raise AssertionError("the process that holds the room was not found")
