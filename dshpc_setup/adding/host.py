"""The machine that is to be a node, as ssh is to be told of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dshpc_setup.errors import DshpcError, Fix, usage_error
from dshpc_setup.terminal.sanitize import plain

# A user, a name of ~/.ssh/config or of the network, an address. Nothing that ssh would take for an option.
_HOST = re.compile(
    r"(?:[A-Za-z0-9_][A-Za-z0-9_.+-]*@)?(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\[?[0-9A-Fa-f:]+\]?)"
)
_FOLDER = re.compile(r"/?[A-Za-z0-9_.][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_.+-]+)*")
_MOST = 255


@dataclass(frozen=True)
class Host:
    """`name`: [USER@]HOST as it was typed. `folder`: of the program and the node there, below the home or
    absolute."""

    name: str
    folder: str
    port: int | None = None

    @property
    def short(self) -> str:
        """What stands before its lines."""
        return self.name.rpartition("@")[2]

    @property
    def shell_folder(self) -> str:
        """As a word of any shell there."""
        return f'"{self.folder}"' if self.folder.startswith("/") else f'"$HOME/{self.folder}"'

    @property
    def shown_folder(self) -> str:
        return self.folder if self.folder.startswith("/") else f"~/{self.folder}"

    def typed(self, *words: str) -> str:
        """The ssh command by which a person gets there."""
        port = ["-p", str(self.port)] if self.port is not None else []
        return " ".join(["ssh", *port, self.name, *words])

    def look(self, text: str, *words: str) -> Fix:
        return Fix(text, self.typed(*words), step="look")


def read(text: str, folder: str, port: int | None = None) -> Host:
    """Raises DshpcError (usage) for what names no machine, and no folder of its own there."""
    if len(text) > _MOST or not _HOST.fullmatch(text):
        raise usage_error(
            f"{plain(text)} names no machine that ssh could reach.",
            "",
            "Such as: dshpc node add ada@10.0.0.7",
        )
    if port is not None and not 0 < port < 1 << 16:
        raise usage_error(f"-p {port} is no port.", "", "A number from 1 to 65535.")
    parts = folder.split("/")
    if len(folder) > _MOST or not _FOLDER.fullmatch(folder) or {".", ".."} & set(parts):
        raise _no_folder(folder)
    return Host(text, folder, port)


def _no_folder(folder: str) -> DshpcError:
    return usage_error(
        f"--folder {plain(folder)}: that is no folder for the node.",
        "Letters, digits and . _ + - are what its parts may have.",
        "Such as: --folder dshpc-lab, which is below the home there, or --folder /srv/dshpc",
    )
