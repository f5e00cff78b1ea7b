"""What a site told pip about its package index, as uv reads it: uv knows neither pip.conf nor PIP_*.

The standard library alone: scripts/environment.py asks before anything is installed.
"""

from __future__ import annotations

import configparser
import contextlib
import os
from collections.abc import Callable, Mapping

_SECTIONS = ("global", "download", "install")  # a later one counts more

# pip's option, uv's variables for it (the first is set, unless one of them is there), and what stands
# between several values. https://pip.pypa.io/en/stable/cli/pip_install, https://docs.astral.sh/uv
_VARIABLES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("index-url", ("UV_DEFAULT_INDEX", "UV_INDEX_URL"), ""),
    ("extra-index-url", ("UV_INDEX", "UV_EXTRA_INDEX_URL"), " "),
    ("find-links", ("UV_FIND_LINKS",), ","),
    ("trusted-host", ("UV_INSECURE_HOST",), " "),
    ("constraint", ("UV_CONSTRAINT",), " "),
    ("client-cert", ("SSL_CLIENT_CERT",), ""),
    ("default-timeout", ("UV_HTTP_TIMEOUT",), ""),
    ("timeout", ("UV_HTTP_TIMEOUT",), ""),
    ("retries", ("UV_HTTP_RETRIES",), ""),
)
_PROXIES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")


def read(
    environ: Mapping[str, str], text_of: Callable[[str], str | None], prefix: str
) -> dict[str, str]:
    """pip's options by their long names ("index-url"), from where `pip config list` has them.

    `text_of`: path -> the file's text, None where there is none. `prefix`: of the Python that pip is in.
    """
    sections: dict[str, dict[str, str]] = {}
    for path in _files(environ, prefix):
        parser = configparser.RawConfigParser(strict=False)
        with contextlib.suppress(configparser.Error):
            parser.read_string(text_of(path) or "")
        for name in parser.sections():
            sections.setdefault(name, {}).update(parser.items(name))
    found: dict[str, str] = {}
    for name in _SECTIONS:
        found |= {_option(key): value for key, value in sections.get(name, {}).items()}
    return found | {
        _option(name[4:]): value
        for name, value in environ.items()
        if name.startswith("PIP_") and value
    }


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _files(environ: Mapping[str, str], prefix: str) -> list[str]:
    """pip's configuration files, Linux's and macOS's; a later one counts more."""
    named, home = environ.get("PIP_CONFIG_FILE"), environ.get("HOME", "")
    if named == os.devnull:
        return []
    sites = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    own = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    users = (f"{home}/.pip", f"{own}/pip", f"{home}/Library/Application Support/pip")
    return [
        *(f"{site}/pip/pip.conf" for site in sites),
        "/etc/pip.conf",
        "/Library/Application Support/pip/pip.conf",
        *(f"{user}/pip.conf" for user in users if home and not named),
        f"{prefix}/pip.conf",
        *([named] if named else []),
    ]


def certificates(options: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """The file (or folder) of authorities that pip was told of."""
    return (
        options.get("cert")
        or environ.get("REQUESTS_CA_BUNDLE")
        or environ.get("CURL_CA_BUNDLE")
        or None
    )


def for_uv(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that have uv ask the same index in the same way; what it has of its own stays.

    The machine's own store of certificates counts, unless a file is named.
    """
    found = {"UV_SYSTEM_CERTS": "true"}
    for option, variables, between in _VARIABLES:
        words = [word for word in options.get(option, "").split() if _is_there(option, word)]
        if words and not any(map(environ.get, variables)):
            found[variables[0]] = between.join(words) if between else words[0]
    if "UV_INDEX" in found and not environ.get("UV_INDEX_STRATEGY"):
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # all indexes are one to pip
    if is_on(options.get("pre")) and not environ.get("UV_PRERELEASE"):
        found["UV_PRERELEASE"] = "allow"
    if proxy := options.get("proxy"):
        found |= dict.fromkeys(_PROXIES, proxy)
    if named := certificates(options, environ):
        found["SSL_CERT_DIR" if os.path.isdir(named) else "SSL_CERT_FILE"] = named
    return found


def _is_there(option: str, word: str) -> bool:
    """pip passes over a folder of wheels that is not there, and uv ends."""
    return option != "find-links" or "://" in word or os.path.exists(word)


def is_on(value: str | None) -> bool:
    """Whether a switch of pip's is set ("no-index", "pre")."""
    return (value or "").lower() in ("1", "true", "yes", "on", "y", "t")
