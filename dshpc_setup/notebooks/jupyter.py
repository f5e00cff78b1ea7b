"""JupyterLab as a program of a job: its words and its variables. Pure."""

from __future__ import annotations

import hashlib
from pathlib import Path

PACKAGES = Path(__file__).parent / "lab"
"""The folder that declares its environment; CONTRIBUTING.md says how its lock is renewed."""
PAGE = "/lab"
_TOKEN = "JUPYTER_TOKEN"
_LOOKS_EVERY_S = 60  # for kernels and terminals that nobody uses


def argv(environment: str, folder: str, socket: str, idle_s: float) -> tuple[str, ...]:
    """It serves `folder`, and ends when nothing has run and nobody has looked for `idle_s`: a kernel that
    computes, or that a page shows, keeps it. `socket`: where it listens."""
    idle, look = max(1, round(idle_s)), max(1, min(_LOOKS_EVERY_S, round(idle_s)))
    settings = {
        "ServerApp.root_dir": folder,
        "ServerApp.sock": socket,
        "ServerApp.open_browser": False,
        "ServerApp.sock_mode": "0600",
        "ServerApp.allow_root": True,  # of the container, where a job is root's
        "ServerApp.shutdown_no_activity_timeout": idle,
        "MappingKernelManager.cull_idle_timeout": idle,
        "MappingKernelManager.cull_interval": look,
        "TerminalManager.cull_inactive_timeout": idle,
        "TerminalManager.cull_interval": look,
        # Of a port each user of the cluster could read what a kernel prints: that takes no key
        "KernelManager.transport": "ipc",
        # It asks nobody on the internet
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.news_url": None,
    }
    words = (f"--{name}={value}" for name, value in settings.items())
    # -P: what lies in the folder is no module of its own
    return (f"{environment}/bin/python3", "-P", "-m", "jupyterlab", *words)


def variables(token: str, kernels: str | None) -> dict[str, str]:
    """`kernels`: an environment whose kernels are offered in place of its own."""
    # Sockets of kernels lie there, and a path of theirs has no room for a long home. Nobody guesses its name,
    # and Jupyter makes it for its user alone
    name = hashlib.sha256(token.encode()).hexdigest()[:24]
    found = {_TOKEN: token, "JUPYTER_RUNTIME_DIR": f"/tmp/dshpc-lab-{name}"}
    if kernels is not None:
        found["JUPYTER_PATH"] = f"{kernels}/share/jupyter"
    return found


def address(port: int, token: str) -> str:
    return f"http://127.0.0.1:{port}{PAGE}?token={token}"
