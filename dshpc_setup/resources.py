"""Where the files that travel with the package lie: in a checkout at its top, in a wheel in `_share`."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def share() -> Path:
    """The folder holding `templates/`, `container/`, `methods/` and `docker-compose.yml.j2`."""
    packed = _PACKAGE / "_share"
    return packed if packed.is_dir() else _PACKAGE.parent


def templates() -> Path:
    return share() / "templates"


def container() -> Path:
    return share() / "container"


def methods() -> Path:
    """The methods that are shipped; in the image they lie at METHODS_IN_IMAGE."""
    return share() / "methods"


METHODS_IN_IMAGE = "/usr/local/share/dshpc/methods"


def package() -> Path:
    """The package's own folder."""
    return _PACKAGE
