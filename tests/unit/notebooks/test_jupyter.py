"""How JupyterLab is started, and which packages it has."""

from __future__ import annotations

import re

from dshpc_setup.environment import declared_folder
from dshpc_setup.notebooks import jupyter


def test_its_words() -> None:
    words = jupyter.argv("/e", "/work", "/home/.state/lab.sock", 900.0)
    assert words[:4] == ("/e/bin/python3", "-P", "-m", "jupyterlab")
    settings = dict(word[2:].split("=", 1) for word in words[4:])
    assert settings["ServerApp.sock"] == "/home/.state/lab.sock"
    assert settings["ServerApp.sock_mode"] == "0600"
    assert settings["ServerApp.shutdown_no_activity_timeout"] == "900"
    assert settings["MappingKernelManager.cull_idle_timeout"] == "900"
    assert settings["KernelManager.transport"] == "ipc"
    assert "ServerApp.port" not in settings


def test_the_token_is_no_word() -> None:
    found = jupyter.variables("secret", None)
    folder = found.pop("JUPYTER_RUNTIME_DIR")
    assert found == {"JUPYTER_TOKEN": "secret"}
    assert re.fullmatch("/tmp/dshpc-lab-[0-9a-f]{24}", folder), "short: it holds sockets"
    assert folder not in jupyter.variables("other", None).values()
    assert jupyter.variables("secret", "/mine")["JUPYTER_PATH"] == "/mine/share/jupyter"


def test_its_packages_are_locked_by_hash() -> None:
    declared = declared_folder.read(str(jupyter.PACKAGES))
    ((_, data),) = declared.texts
    packages = re.findall(r"(?m)^([a-z0-9.-]+)==[^ ]+", data.decode())
    assert {"jupyterlab", "ipykernel"} <= set(packages)
    blocks = re.split(r"(?m)^(?=[a-z0-9.-]+==)", data.decode())[1:]
    assert all("--hash=sha256:" in block for block in blocks)
