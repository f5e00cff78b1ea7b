"""How large the log of the cluster's container may grow: the `logging` keys of its compose service.

Docker's driver json-file keeps all that a container ever said, unless somebody says how much. The driver
`local` bounds itself, and the others hand the log to a program that has rules of its own (journald): those
are an administrator's choice, and stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.facts import Engine
from dshpc_setup.settings import Settings

BY_ENGINE = "engine"
_DEFAULT = "50m"
_FILES = 5
_BOUNDED = ("json-file", "local")  # drivers that know max-size and max-file
_KIB = {"k": 1, "m": 1024, "g": 1024 * 1024}


@dataclass(frozen=True)
class LogBounds:
    """`max_size` of each of `max_file` files, as Docker writes it: "10240k"."""

    driver: str
    max_size: str
    max_file: int = _FILES


def log_bounds(settings: Settings, engine: Engine) -> LogBounds | None:
    """None where the engine's own settings are to count.

    The driver is written down, too: options of one driver are refused by another, should the engine's
    default change before the file is written anew. Raises DshpcError (usage) where somebody asks for a
    size that this engine's driver cannot keep.
    """
    asked = settings.log_size
    if asked == BY_ENGINE:
        return None
    if not asked:
        # The size that daemon.json names was chosen by somebody
        is_open = engine.log_driver == "json-file" and engine.log_max_size is None
        return _bounds("json-file", _DEFAULT) if is_open else None
    if engine.log_driver not in _BOUNDED:
        raise _cannot_keep(settings, engine.log_driver)
    return _bounds(engine.log_driver, asked)


def _bounds(driver: str, whole: str) -> LogBounds:
    each = int(whole[:-1]) * _KIB[whole[-1]] // _FILES
    return LogBounds(driver, f"{each}k")


def _cannot_keep(settings: Settings, driver: str | None) -> DshpcError:
    source = settings.sources.get("log_size")
    where = source.where if source else "log_size"
    whose = f"hands containers' logs to {driver!r}" if driver else "does not say how it keeps logs"
    return usage_error(
        f"{where}: log_size = {settings.log_size!r} cannot be kept: this engine {whose}.",
        f"Only its drivers {' and '.join(_BOUNDED)} know a size.",
        "Leave log_size out, or set it to: engine",
        "To bound the log where it is kept, see the documentation of that driver.",
    )
