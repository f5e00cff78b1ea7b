"""Settings that go into a configuration file which is the user's own, and so are not in force."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Overruled:
    """`missing`: what the setting would have written into that file, and what is not in it.

    `offered`: the text that would be written lies beside it.
    """

    setting: str
    where: str  # the setting stands
    file: str  # "slurm.conf", of config/
    owner: Literal["custom", "edited"]
    missing: tuple[str, ...]
    offered: bool = False

    @property
    def why(self) -> str:
        how = "marked USER_CUSTOMIZED" if self.owner == "custom" else "edited by hand"
        return (
            f"{self.setting} ({self.where}) is not in force: config/{self.file} is your own file "
            f"({how}) and does not have: {'; '.join(self.missing)}."
        )

    @property
    def to_add(self) -> str:
        """What to do, without its command: `reconfigure`."""
        return f"Add it to config/{self.file} and apply it"

    @property
    def to_give_up(self) -> tuple[str, str]:
        """The other way, by which the file is rendered again: words and command."""
        if self.offered:
            return f"Or take the rendered {self.file}", f"dshpc config accept {self.file}"
        path = f"config/{self.file}"
        return (
            f"Or put your {self.file} aside and have it rendered",
            f"mv {path} {path}.old && configure-environment",
        )

    @property
    def sentence(self) -> str:
        words, command = self.to_give_up
        return f"{self.why} {self.to_add}: dshpc reconfigure. {words}: {command}"
