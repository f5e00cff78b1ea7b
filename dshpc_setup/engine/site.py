"""What this site needs to fetch packages: its certificates, its proxies, its apt settings.

All of it may be secret (a proxy address can hold a password). It reaches the build by files of mode
0600 and stays in no layer of the image; nothing here is printed, logged or hashed into a label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from dshpc_setup.machine import Machine
from dshpc_setup.machine.no_answer import answered

# Where the build finds the two files, whichever builder brought them there.
_ASK_S = 20.0

CA_FILE = "/run/dshpc-site/ca.pem"
APT_FILE = "/run/dshpc-site/apt.conf"

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY")

# The certificate bundle: Debian and Arch, Fedora (two places), openSUSE, Alpine and macOS.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_MAC_KEYCHAIN = "/Library/Keychains/System.keychain"

# What of the host's apt settings makes sense elsewhere: how to reach a mirror, how far its dates
# are trusted. Settings that would accept an unsigned archive are never carried over.
_CARRIED = re.compile(
    r"Acquire::(?:"
    r"https?::(?:Proxy(?:::[\w.-]+)?|Timeout|Pipeline-Depth|No-Cache|User-Agent|Verify-Peer"
    r"|Verify-Host|Verify-Peer::[\w.-]+|Verify-Host::[\w.-]+)"
    r"|Check-Valid-Until|Check-Date|Max-FutureTime|Max-ValidTime|Min-ValidTime"
    r"|Retries|ForceIPv4|ForceIPv6)",
    re.IGNORECASE,
)
_DUMPED = re.compile(r'^(Acquire::\S+) "(.*)";$')


@dataclass(frozen=True)
class SiteFiles:
    """`proxies`: upper-case variable -> value. Its repr shows nothing of the content."""

    ca_pem: str = field(default="", repr=False)
    apt_conf: str = field(default="", repr=False)
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must never be shown: whole proxy addresses and the passwords in them."""
        found = []
        for value in (*self.proxies.values(), *_proxy_values(self.apt_conf)):
            login, at, _ = value.rpartition("@")
            if at:
                found += [value, login.rpartition("//")[2], login.rpartition(":")[2]]
        return tuple(sorted({item for item in found if item}, key=len, reverse=True))

    def proxy_env(self) -> dict[str, str]:
        """The proxies under both spellings: some programs read only one of them."""
        return {key: value for name, value in self.proxies.items() for key in (name, name.lower())}

    def uses_loopback(self) -> bool:
        """Whether a proxy listens on the host's own loopback, which a build container has not."""
        return any(
            _is_loopback(value)
            for name, value in (
                *self.proxies.items(),
                *(("apt", value) for value in _proxy_values(self.apt_conf)),
            )
            if name != "NO_PROXY"
        )


def gather_site(machine: Machine) -> SiteFiles:
    """The site's files, read through the machine."""
    ca_pem = _ca_bundle(machine)
    pairs = apt_settings(machine)
    return SiteFiles(ca_pem, render_apt_conf(pairs, with_ca=bool(ca_pem)), proxies_of(machine.env))


def proxies_of(env: Mapping[str, str]) -> dict[str, str]:
    """The proxy variables, by upper-case name; the lower-case spelling wins, as curl has it."""
    found = {}
    for name in _PROXIES:
        value = env.get(name.lower()) or env.get(name)
        if value:
            found[name] = value
    return found


def apt_settings(machine: Machine) -> tuple[tuple[str, str], ...]:
    """The host's own settings for fetching packages; empty where there is no apt."""
    if machine.which("apt-config") is None:
        return ()
    asked = machine.run(["apt-config", "dump", "Acquire"], deadline_s=_ASK_S)
    result = answered(asked, "which proxies and settings apt has here")
    return parse_apt_config(result.stdout) if result.ok else ()


def parse_apt_config(text: str) -> tuple[tuple[str, str], ...]:
    """`apt-config dump` -> the settings to carry over, in their order."""
    found = []
    for line in text.splitlines():
        match = _DUMPED.match(line.strip())
        if match and match[2] and _CARRIED.fullmatch(match[1]):
            found.append((match[1], match[2]))
    return tuple(found)


def render_apt_conf(pairs: Iterable[tuple[str, str]], *, with_ca: bool) -> str:
    """The text of an apt.conf for the build."""
    lines = [f'{key} "{value}";' for key, value in pairs if '"' not in value]
    if with_ca:
        lines.append(f'Acquire::https::CaInfo "{CA_FILE}";')
    return "".join(line + "\n" for line in lines)


def _proxy_values(apt_conf: str) -> list[str]:
    return [value for key, value in parse_apt_config(apt_conf) if "::proxy" in key.lower()]


def _is_loopback(value: str) -> bool:
    try:
        host = urlsplit(value if "//" in value else f"//{value}").hostname or ""
    except ValueError:
        return False
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _ca_bundle(machine: Machine) -> str:
    """The certificates this machine trusts, as PEM; "" where no bundle was found."""
    named = machine.env.get("SSL_CERT_FILE")
    for path in (named, *_BUNDLES):
        text = machine.read(path).text if path else None
        if text and "BEGIN CERTIFICATE" in text:
            break
    else:
        text = ""
    if machine.system[0] == "Darwin":
        # What an administrator installed stands in the keychain alone.
        argv = ["security", "find-certificate", "-a", "-p", _MAC_KEYCHAIN]
        asked = machine.run(argv, deadline_s=_ASK_S)
        own = answered(asked, "which certificates an administrator has installed")
        text = f"{text}\n{own.stdout}" if own.ok else text
    return _certificates(text)


def _certificates(text: str) -> str:
    """Only the certificates: a bundle may hold comments, and a careless one a private key."""
    blocks = re.findall(
        r"-----BEGIN (?:TRUSTED )?CERTIFICATE-----.*?-----END (?:TRUSTED )?CERTIFICATE-----",
        text.replace("\r\n", "\n"),
        re.DOTALL,
    )
    return "".join(f"{block}\n" for block in dict.fromkeys(blocks))
