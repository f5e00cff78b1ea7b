"""An engine of the tests' own, which may be killed: nobody else's containers are in it."""

from __future__ import annotations

import contextlib
import os
import subprocess

from tests.integration.cluster import (
    as_root,
    docker,
    new_folder,
    one_at_a_time,
    remove_folder,
    run,
    wait_until,
)

_BRIDGE = "dshpc-test0"


class SecondEngine:
    """Runs in a `with` and has one image of the first engine's; `host` is its endpoint.

    It has a bridge of its own that leads nowhere: with `--bridge none` it would take docker0 away. There is
    one such engine at a time: tests of two lines have one.
    """

    def __init__(self, image: str) -> None:
        self._image = image
        self._top = new_folder("engine")
        self.host = f"unix://{self._top}/s"
        self._alone = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SecondEngine:
        self._alone.enter_context(one_at_a_time("engine"))
        try:
            run(as_root("ip", "link", "delete", _BRIDGE))  # of a run that crashed
            run(as_root("ip", "link", "add", _BRIDGE, "type", "bridge")).good()
            run(as_root("ip", "address", "add", "198.51.100.1/29", "dev", _BRIDGE)).good()
            self.start()
            archive = str(self._top / "image.tar")
            docker("save", "--output", archive, self._image)
            run(["docker", "--host", self.host, "load", "--input", archive]).good()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with self._alone:
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()
                self._process.wait(60)
            # a shim outlives the engine that was killed, and its container with it
            for shim in run(["pgrep", "-f", f"containerd-shim.*{self._top}/"]).stdout.split():
                _kill_tree(int(shim))
            remove_folder(self._top)
            run(as_root("ip", "link", "delete", _BRIDGE)).good()

    def start(self) -> None:
        """Until it answers; its containers with a policy for it are started again."""
        top = self._top
        namespace = (
            f"dshpc-test-{os.getpid()}"  # the folder's own name may hold "_" where none may be
        )
        argv = [
            "setpriv", "--pdeathsig", "TERM",  # it ends with us
            "dockerd", "--host", self.host, "--data-root", f"{top}/data", "--exec-root", f"{top}/exec",
            "--pidfile", f"{top}/pid", "--group", str(os.getgid()), "--containerd-namespace", namespace,
            "--bridge", _BRIDGE, "--iptables=false", "--ip6tables=false", "--ip-forward=false",
            "--ip-masq=false", "--userland-proxy=false",
        ]  # fmt: skip
        with (top / "log").open("ab") as log:
            self._process = subprocess.Popen(
                as_root(*argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        ping = ["docker", "--host", self.host, "version"]
        wait_until(lambda: run(ping).code == 0, f"dockerd answers, see {top / 'log'}", 120)

    def kill(self) -> None:
        """By SIGKILL, with what it has started itself."""
        assert self._process is not None
        _kill_tree(self._process.pid)
        self._process.wait(30)
        # Its containerd is a zombie for ever where process 1 reaps none, and would count as alive
        (self._top / "exec/containerd/containerd.pid").unlink(missing_ok=True)


def _kill_tree(pid: int) -> None:
    """SIGKILL for a process and all that it started, whatever group they are in, at one moment."""
    pairs = [line.split() for line in run(["ps", "-eo", "pid=,ppid="]).stdout.splitlines()]
    tree = [str(pid)]
    for one in tree:
        tree += [child for child, parent in pairs if parent == one]
    run(as_root("kill", "-KILL", *tree))
