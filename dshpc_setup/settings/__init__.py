"""What the user may choose: each setting declared once, and where its value came from.

Precedence: flag, environment, remembered flag (an earlier run in this project folder), dshpc.yaml,
default. `load` is pure: texts and mappings in, `Settings` out.
"""

from __future__ import annotations

from dshpc_setup.settings.declarations import BY_NAME, DECLARATIONS, Declaration
from dshpc_setup.settings.reading import Reading, load, of_container, read
from dshpc_setup.settings.values import ELSEWHERE, LIVE_FILE, Place, Settings
from dshpc_setup.settings.wrong import Origin, SettingsError, Source, WrongSetting, together

__all__ = [
    "BY_NAME",
    "DECLARATIONS",
    "ELSEWHERE",
    "LIVE_FILE",
    "Declaration",
    "Origin",
    "Place",
    "Reading",
    "Settings",
    "SettingsError",
    "Source",
    "WrongSetting",
    "load",
    "of_container",
    "read",
    "together",
]
