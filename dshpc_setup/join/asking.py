"""The machine that joins asks the service: a connection for each question, pinned to the certificate."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.join import certificate, firewall, messages
from dshpc_setup.join.messages import Answer, Ask, Question, Refused
from dshpc_setup.join.token import Token
from dshpc_setup.machine import addresses

_CONNECT_S = 6.0
_TALK_S = 60.0
_T = TypeVar("_T")
_AGAIN = Fix("Have a new token made, on the controller's machine", "dshpc node token")


@dataclass(frozen=True)
class Asking:
    """`node`: how this machine is to be called."""

    token: Token
    node: str

    def ask(self, ask: Ask, value: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """The answer's value; DshpcError where there is none."""
        question = Question(
            messages.PROTOCOL, ask, self.token.id, self.token.secret, self.node, value or {}
        )
        line = messages.to_line(question, messages.QUESTION)
        try:
            answer = messages.from_line(Answer, self._line(line), messages.ANSWER)
        except ValueError as error:
            raise _not_understood(error) from None
        if answer.refused is not None:
            raise refusal(answer.refused, self)
        return answer.value or {}

    def asked(self, kind: type[_T], ask: Ask, value: Mapping[str, Any] | None = None) -> _T:
        """The answer as that type; DshpcError also where it is none."""
        try:
            return messages.of_mapping(kind, self.ask(ask, value))
        except ValueError as error:
            raise _not_understood(error) from None

    def _line(self, line: bytes) -> bytes:
        token = self.token
        try:
            plain = socket.create_connection((token.address, token.port), timeout=_CONNECT_S)
        except OSError as error:
            raise self._unreached(error) from None
        try:
            with plain, certificate.for_client().wrap_socket(plain) as safe:
                found = safe.getpeercert(binary_form=True)
                if found is None or certificate.pin_of(found) != token.pin:
                    raise self._another()
                safe.settimeout(_TALK_S)
                safe.sendall(line)
                return messages.receive(safe, _TALK_S)
        except ssl.SSLError as error:
            raise self._another(str(error)) from None
        except OSError as error:
            raise DshpcError(
                f"The join service at {self._where} closed the connection.",
                error.strerror or str(error),
                ("Run this again.", _AGAIN),
                Exit.INCOMPLETE,
            ) from None

    @property
    def _where(self) -> str:
        return f"{self.token.address}:{self.token.port}"

    def _unreached(self, error: OSError) -> DshpcError:
        number = errno.ETIMEDOUT if isinstance(error, TimeoutError) else error.errno or 0
        if number == errno.ECONNREFUSED:
            return DshpcError(
                f"No join service listens at {self._where}.",
                "It listens only while a token is valid: this one has expired, was used or was "
                "revoked, or the controller's machine was restarted.",
                (_AGAIN,),
            )
        own = _own(self.token.address)
        if own is None:
            return DshpcError(
                f"This machine cannot reach {self._where}.",
                os.strerror(number),
                (
                    Fix("See which networks this machine is in", "ip -4 route", step="look"),
                    "Bring both machines into one network, or let the cluster listen at an address that this "
                    "one reaches (listen).",
                ),
                Exit.INCOMPLETE,
            )
        return DshpcError(
            f"The controller's machine does not answer at {self._where}.",
            f"{os.strerror(number)}. A firewall there, or between, keeps {own} from it.",
            (
                Fix(
                    "Check that it can be reached",
                    f"ping -c 3 {self.token.address}",
                    step="look",
                ),
                *firewall.let_in(
                    None, own, self.token.port, self.token.port, "on the controller's machine"
                ),
            ),
            Exit.INCOMPLETE,
        )

    def _another(self, said: str = "") -> DshpcError:
        return DshpcError(
            f"What answers at {self._where} is not the cluster that issued the token.",
            f"It has another certificate. {said}".strip(),
            (
                "Another machine may have that address now, or somebody listens in. Nothing was sent.",
                _AGAIN,
            ),
        )


def _not_understood(error: ValueError) -> DshpcError:
    return DshpcError(
        "What answers at the controller's machine is no join service of this version.",
        str(error),
        (_AGAIN,),
    )


def _own(address: str) -> str | None:
    try:
        return addresses.towards(address)
    except OSError:
        return None


def refusal(refused: Refused, asked: Asking) -> DshpcError:
    """In words, by its code."""
    token_words = {
        "unknown": "The cluster knows no such token.",
        "expired": "The token has expired.",
        "revoked": "The token was revoked.",
        "used": "The token was used by another machine already, and is good for one.",
    }
    if (brief := token_words.get(refused.code)) is not None:
        return DshpcError(brief, "Nothing was changed.", (_AGAIN,))
    if refused.code == "busy":
        return DshpcError(
            "The join service was asked with wrong tokens, and answers no one for a minute.",
            "",
            ("Run this again in a minute.",),
            Exit.INCOMPLETE,
        )
    if refused.code == "protocol":
        return DshpcError(
            "The controller's machine has another version of dsHPC setup.",
            f"It has {refused.details}.",
            ("Take the same version on both, then run this again.",),
        )
    if refused.code == "name":
        return DshpcError(
            f"The cluster has a node {asked.node} already, at {refused.details}.",
            "Two machines of one name would take each other's jobs.",
            (
                Fix(
                    "Join under another name", "configure-environment --join TOKEN --node-name NAME"
                ),
            ),
        )
    if refused.code == "nat":
        return DshpcError(
            "There is address translation (NAT) between this machine and the controller's.",
            f"The controller sees {refused.details}, which is no address of this machine's. Slurm calls a "
            "node back at the address that it sees.",
            ("Put both into one network, or join them by a VPN such as WireGuard.",),
        )
    if refused.code == "slurm":
        return DshpcError(
            "Slurm in this machine's image is newer than the controller's.",
            f"Slurm's versions: {refused.details}. slurmctld takes no newer slurmd.",
            (Fix("Renew the controller's first, there", "configure-environment --renew"),),
        )
    if refused.code == "slurm-old":
        return DshpcError(
            "Slurm in this machine's image is too old for the controller's.",
            f"Slurm's versions: {refused.details}. slurmctld takes a slurmd of the three releases before it.",
            (Fix("Renew the image here", "configure-environment --renew --join TOKEN"),),
        )
    if refused.code == "slurm-user":
        return DshpcError(
            "Slurm's user has another user ID in this machine's image.",
            f"On the controller it is {refused.details}.",
            ("Make the image here with the controller's base image.",),
        )
    return DshpcError("The controller refused this.", refused.details, (_AGAIN,))
