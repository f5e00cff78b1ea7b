"""What can go wrong with an archive of Debian's packages: codes, and at last the words for them."""

from __future__ import annotations

from typing import Literal

from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.machine.web import Trouble

Fault = (
    Trouble
    | Literal[
        "mirror",  # its address is none that can be used
        "unsigned",  # InRelease is not a signed text
        "unknown-key",  # no signature is by a key of Debian's
        "bad-signature",  # one does not fit the text
        "expired-key",
        "no-verifier",  # neither gpgv nor the library is there
        "suite",  # InRelease is of another suite
        "expired",  # Valid-Until is over
        "future",  # its date is yet to come
        "no-index",  # InRelease names no list of packages for this processor
        "index",  # the list of packages is no such list
        "missing",  # there is no such package
        "pinned",  # there is one, in another version than a lock says
        "deb",  # a package is no package
        "no-zstd",
        "unpack",
        "no-room",
        "noexec",  # no program can be started from its folder
        "configure",  # dpkg, or a script of a package
        "refused",  # the kernel refused the namespaces
        "deadline",
    ]
)


class DebianError(Exception):
    """A code, and what tells more: an address, a key, a package, the words of a program."""

    def __init__(self, fault: Fault, what: str = "") -> None:
        super().__init__(fault, what)
        self.fault, self.what = fault, what


_AGAIN = "Run this again."
_OTHER = "Try another mirror: --apt-mirror URL."
_NETWORK = (
    "Check the network, the proxy settings (http_proxy, https_proxy) and the mirror's address."
)
_ROOM = Fix("See what is full", "df -h", step="look")
_CLOCK = Fix("See what time this machine has", "date -u", step="look")

_WORDS: dict[Fault, tuple[str, tuple[str | Fix, ...]]] = {
    "unreachable": ("The package mirror could not be reached.", (_NETWORK, _OTHER)),
    "certificate": (
        "The package mirror's certificate is not trusted.",
        (
            "Name the file with the certificates of this site: SSL_CERT_FILE=FILE.",
            "Or use an address that begins with http://: Debian's packages are signed.",
        ),
    ),
    "proxy": ("The proxy did not let the request pass.", (_NETWORK,)),
    "silent": ("The package mirror did not answer in time.", (_AGAIN, _OTHER)),
    "status": ("The package mirror does not have a file.", (_NETWORK, _OTHER)),
    "truncated": ("A file of the package mirror ended early, twice.", (_AGAIN, _OTHER)),
    "hash": (
        "A file of the package mirror is not the one that Debian signed.",
        ("Run this again in some minutes: the mirror may be changing just now.", _OTHER),
    ),
    "write": ("A file of the package mirror could not be kept.", (_ROOM,)),
    "mirror": (
        "The package mirror is not a plain http:// or https:// address.",
        ("Give an address such as http://deb.debian.org/debian, without a password in it.",),
    ),
    "unsigned": ("The package mirror's InRelease is not a signed text.", (_NETWORK, _OTHER)),
    "unknown-key": (
        "The package archive is signed by no key of Debian's that is known here.",
        (_OTHER, "Update dshpc: it carries Debian's keys."),
    ),
    "bad-signature": ("The package archive's signature is wrong.", (_AGAIN, _OTHER)),
    "expired-key": (
        "The key that signed the package archive has expired.",
        (_CLOCK, "Update dshpc: it carries Debian's keys."),
    ),
    "no-verifier": (
        "The package archive's signature cannot be verified here.",
        (
            Fix("Install gpgv", "sudo apt-get install gpgv"),
            Fix("Or the library", "pip install pysequoia", step="alternative"),
        ),
    ),
    "suite": ("The package mirror's InRelease is of another suite.", (_OTHER,)),
    "expired": ("The package mirror is out of date: its InRelease has expired.", (_CLOCK, _OTHER)),
    "future": ("The package mirror's InRelease is of a time yet to come.", (_CLOCK,)),
    "no-index": ("The package mirror has no packages for this processor.", (_OTHER,)),
    "index": ("The package mirror's list of packages cannot be read.", (_AGAIN, _OTHER)),
    "missing": ("A package is not in the archive.", ("Check its name.", _OTHER)),
    "pinned": (
        "A package is locked in a version that the archive does not have any more.",
        (Fix("Lock again", "dshpc env lock"),),
    ),
    "deb": ("A package cannot be read.", (_AGAIN,)),
    "no-zstd": (
        "A package is packed with zstd, and there is no program to unpack it.",
        (Fix("Install zstd", "sudo apt-get install zstd"),),
    ),
    "unpack": ("A package could not be unpacked.", (_AGAIN,)),
    "no-room": ("There is no room for the root filesystem.", (_ROOM,)),
    "noexec": (
        "No program can be started from there: its file system is mounted with the option noexec.",
        ("Choose a folder on another file system: XDG_CACHE_HOME=DIR.",),
    ),
    "configure": ("A package could not be set up.", ("See the lines above for what it met.",)),
    "refused": (
        "The kernel refused the namespaces in which packages are set up.",
        (Fix("See what this user may do", "dshpc doctor", step="look"),),
    ),
    "deadline": ("The root filesystem was not made in time.", (_AGAIN, _OTHER)),
}


def in_words(error: DebianError) -> DshpcError:
    """For people. What is told of a file's address holds no password: a mirror's has none."""
    brief, steps = _WORDS[error.fault]
    return DshpcError(brief, error.what, steps)
