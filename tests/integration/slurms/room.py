"""A room of its own with a Slurm root in it: files to write on, /dev, /run, a host name, a loopback."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integration.bench.room import Room
from tests.integration.slurms.roots import SlurmRoot

_END_S = 20.0

# Slurm asks for addresses only of families that the machine has one of, and the loopback's own does
# not count: it gets one more, of a network that is for examples (RFC 5737). /proc/driver is made anew
# for what NVIDIA's driver tells there.
_OPEN = """
lower=$1 folder=$2 host=$3
mount -t tmpfs -o mode=755 tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay -o "lowerdir=$lower,upperdir=$folder/upper,workdir=$folder/work" overlay "$folder/root"
cd "$folder/root"
mount -t proc proc proc
mount -t tmpfs tmpfs proc/driver
mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm mnt.old
for node in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "dev/${node%:*}" c 1 "${node#*:}"; done
mount -t tmpfs -o mode=755 tmpfs run
hostname "$host"
printf '127.0.0.1\\tlocalhost\\n192.0.2.1\\t%s\\n' "$host" > etc/hosts
ip link set lo up
ip address add 192.0.2.1/32 dev lo
pivot_root . mnt.old
cd /
umount -l /mnt.old
echo ready
exec cat > /dev/null
"""


@dataclass(frozen=True)
class NamedRoom(Room):
    """A room whose host name is its own too."""

    def argv(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-m", "-n", "-p", "-u", "-r", "-w", "--", *argv]


@contextlib.contextmanager
def slurm_room(root: SlurmRoot, host: str, folder: Path) -> Iterator[NamedRoom]:
    """A room that bears this host name; `folder` is an empty one, and all in it ends with the room."""
    namespaces = ["--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
    script = ["sh", "-euc", _OPEN, "sh", str(root.folder), str(folder), host]
    with subprocess.Popen(
        ["unshare", *namespaces, "--propagation", "private", "--", *script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"ready\n", "the room was not made"
            inner = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
            assert len(inner) == 1
            yield NamedRoom(int(inner[0]))
        finally:
            child.stdin.close()
            try:
                child.wait(_END_S)
            except subprocess.TimeoutExpired:
                child.kill()
