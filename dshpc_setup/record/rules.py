"""What each form of a secret becomes: the text around it, and what parsers read of it, stay."""

from __future__ import annotations

import re
from collections.abc import Callable

from dshpc_setup.record import disguised, patterns, words
from dshpc_setup.record.known import Secrets

_FIRST_UID = 1000
_OPTION = re.compile(
    r"(?P<how>[ \t](?:-p|-u|--user)[ \t=]{0,9}[\"']?)(?:(?P<who>[^\s:\"']{1,64}):)?$"
)
_CALLER = re.compile(r"[ \t](?:-u|--user(?:name)?)[ \t=]{1,9}[\"']?([A-Za-z_][\w.-]{0,63})")
LEAST_ID = 1 << 32


class Rules:
    """The rules of patterns.py, each by the name of its group there."""

    def __init__(self, known: Secrets) -> None:
        self.known = known

    def text(self, text: str) -> str:
        """The text with everything replaced."""
        return self.known.pattern().sub(self._replaced, disguised.replaced(text, self._undisguised))

    def _undisguised(self, told: str, read: str) -> str | None:
        """What stands for an encoded text; None where that holds no secret."""
        if self.text(read) != read:
            return self.known.name("secret", told)
        return None

    def host(self, name: str) -> str:
        """Of a name that is surely a host's: "gpu01", "gpu01.cluster.example"."""
        plain = name.strip().rstrip(".").lower()
        if plain in words.LOCAL_HOSTS or words.is_public(plain) or not plain:
            return name
        if patterns.ADDRESS.fullmatch(plain):
            return self.text(name)
        if plain in words.COMPANIONS or plain in words.NO_HOSTS or plain in self.known.kept:
            return name
        self.known.learn_host(plain)
        short, _, domain = plain.partition(".")
        made = self.known.name("host", short)
        told = f"{made}.{self.known.name('domain', domain)}" if domain else made
        return name.replace(name.strip().rstrip("."), told)

    def serial(self, text: str, key: str) -> str:
        """What stands where a serial number does: a number of 32 bits and more, or any text."""
        bare = text.strip()
        if not words.is_value(bare) or patterns.UUIDS.fullmatch(bare):
            return self.text(text)
        number = _hex(bare) if re.fullmatch(patterns.ID, bare) else None
        if bare.isdecimal() and (
            len(bare) > 14 or "unique" in key.lower() or int(bare) in self.known.ids
        ):
            number = int(bare)
        if number is not None and number >= LEAST_ID:
            self.known.ids.add(number)
            return patterns.NUMBER.sub(self._number, text)
        if len(bare) >= (7 if bare.isdecimal() else 5):
            self.known.learn(bare, "serial")
        return text.replace(bare, self.known.name("serial", bare))

    def user_number(self, text: str) -> str:
        """Those of the system tell nothing, nor does the first of its users."""
        return text if int(text) <= _FIRST_UID else self.known.name("uid", text)

    def _replaced(self, found: re.Match[str]) -> str:
        groups = found.groupdict()
        for name, replace in _REPLACE.items():
            if groups.get(name) is not None:
                return replace(self, found)
        return found[0]

    def _url(self, found: re.Match[str]) -> str:
        login = found["login"]
        who = ""
        if login:
            user, colon, password = login[:-1].partition(":")
            self.known.learn(user, "user")
            self.known.learn(password, "secret")
            who = self.known.name("user", user) if user else ""
            who += f":{self.known.name('secret', login)}@" if colon else "@"
        return f"{found['url']}{who}{self._place(found['at'] or '')}"

    def _place(self, text: str) -> str:
        """The host of a URL; what is no name of one is left as it is."""
        if not text:
            return ""
        if text.startswith("["):
            return self.text(text)
        name = text.rstrip(".")
        behind = text[len(name) :]
        if "." in name or any(char.isdigit() for char in name):
            self.known.learn_host(name)
        return f"{self.host(name)}{behind}"

    def _xml(self, found: re.Match[str]) -> str:
        inner = found["inner"]
        if re.search(r"(?i)process_name|vm_", found["xml"]):
            return f"{found['xml']}process"
        return f"{found['xml']}{self.serial(inner, found['xml'])}"

    def _process(self, found: re.Match[str]) -> str:
        return f"{found['process']}process"

    def _key(self, found: re.Match[str]) -> str:
        return f"{found['key']}{self.serial(found['named'], found['key'])}"

    def _whole(self, found: re.Match[str]) -> str:
        return f"{found['whole']}process"

    def _hosted(self, found: re.Match[str]) -> str:
        return f"{found['hosted']}{self.host(found['called'])}"

    def _wwn(self, found: re.Match[str]) -> str:
        return self.known.name("serial", found[0])

    def _secret(self, found: re.Match[str]) -> str:
        if caller := _CALLER.search(found["secret"]):
            self.user(caller[1])
        return f"{self._before(found['secret'])}{self.secret(found['word'])}"

    def _before(self, text: str) -> str:
        """Of a command line up to its password, which may hold names as well."""
        option = _OPTION.search(text)
        if option is None or not text.startswith(("login", "curl")):
            return text
        who = option["who"]
        return (
            self.text(text[: option.start()])
            + option["how"]
            + (f"{self.user(who)}:" if who else "")
        )

    def secret(self, text: str) -> str:
        """Of what is surely a password or a token, or the login that a header has in base64."""
        login = disguised.from_base64(text)
        if login is not None and ":" in login:
            user, _, password = login.partition(":")
            self.known.learn(user, "user")
            self.known.learn(password, "secret")
        self.known.learn(text, "secret")
        return self.known.name("secret", text)

    def _account(self, found: re.Match[str]) -> str:
        number = f"({self.user_number(found['which'])})" if found["which"] else ""
        return f"{found['account']}{self.user(found['member'])}{number}"

    def user(self, name: str) -> str:
        """Of a name that is surely a user's."""
        if words.is_common(name):
            return name
        self.known.learn(name, "user")
        return self.known.name("user", name)

    def _job(self, found: re.Match[str]) -> str:
        return f"{found['job']}{self.job(found['titled'])}"

    def job(self, name: str) -> str:
        """Of a name that is surely a job's."""
        if words.is_common(name):
            return name
        self.known.learn(name, "job")
        return self.known.name("job", name)

    def _task(self, found: re.Match[str]) -> str:
        return f"{found['task']}process"

    def _nodes(self, found: re.Match[str]) -> str:
        return f"{found['nodes']}{self.host(found['among'])}"

    def _token(self, found: re.Match[str]) -> str:
        self.known.learn(found[0], "secret")
        return self.known.name("secret", found[0])

    def _key_block(self, _found: re.Match[str]) -> str:
        return "(a private key was here)"

    def _person(self, found: re.Match[str]) -> str:
        person, place = found["person"], found["place"]
        if re.match(r"\d{4}-\d\d-\d\dT", place):  # who and when, in Slurm's reasons
            return f"{self.user(person)}@{place}"
        if place.endswith((".service", ".slice", ".scope", ".socket", ".mount", ".target")):
            number, dot, unit = place.partition(".")
            told = self.user_number(number) if number.isdecimal() else self.text(number)
            return f"{person}@{told}{dot}{unit}"
        if words.is_public(place) or re.fullmatch(rf"[{patterns.HEX},]+", place):
            return found[0]  # and a node of the device tree: gpu@17000000
        self.known.learn(person, "user")
        who = person if person in words.COMPANIONS else self.known.name("user", person)
        return f"{who}@{self._place(place)}"

    def _uuid(self, found: re.Match[str]) -> str:
        return self._in_form_of_uuid(found[0])

    def _in_form_of_uuid(self, text: str) -> str:
        plain = re.sub(r"[-_]", "", text).lower()
        if len(set(plain)) == 1:
            return text
        self.known.uuids[plain] = None
        made = iter(self.known.name("uuid", plain))
        upper = text.upper() == text and text.lower() != text
        filled = "".join(char if char in "-_" else next(made) for char in text)
        return filled.upper() if upper else filled

    def _gpu_id(self, found: re.Match[str]) -> str:
        self.known.ids.add(int(found[0], 16))
        return self._number(found)

    def _part(self, found: re.Match[str]) -> str:
        """A UUID cut short, as CUDA_VISIBLE_DEVICES takes it."""
        plain = found[0].replace("-", "").lower()
        whole = next((each for each in self.known.uuids if each.startswith(plain)), None)
        if whole is None:
            return self.known.name("serial", found[0])
        made = iter(self.known.name("uuid", whole))
        return "".join(char if char == "-" else next(made) for char in found[0])

    def _own_home(self, found: re.Match[str]) -> str:
        return f"/home/{self.known.name('user', self.known.homes[found[0]])}"

    def _domain(self, found: re.Match[str]) -> str:
        if found[0].lower() in self.known.domains:
            return self.known.name("domain", found[0].lower())
        return self.host(found[0])

    def _known(self, found: re.Match[str]) -> str:
        text = found[0]
        for original in (text, text.lower()):
            if original in self.known.learned:
                return self.known.name(self.known.learned[original], original)
        # Another spelling than the learned one: of a host that is the host, of the others chance.
        return text

    def _engine(self, found: re.Match[str]) -> str:
        return self.known.name("engine", found[0])

    def _mac(self, found: re.Match[str]) -> str:
        text, mark = found[0], found["mark"]
        plain = text.replace(mark, "").lower()
        if len(set(plain)) == 1:
            return text
        made = self.known.name("mac", plain)
        told = mark.join(made[at : at + 2] for at in range(0, len(made), 2))
        return told.upper() if text.upper() == text and text.lower() != text else told

    def _guid(self, found: re.Match[str]) -> str:
        return self.known.name("serial", found[0]) if len(set(found[0])) > 2 else found[0]

    def _ipv6(self, found: re.Match[str]) -> str:
        address = words.ipv6_of(found[0])
        return found[0] if address is None else self.known.name("ipv6", str(address))

    def _ipv4(self, found: re.Match[str]) -> str:
        before = found.string[max(0, found.start() - 24) : found.start()]
        if words.kept_ipv4(found[0]) or self.known.release.startswith(f"{found[0]}-"):
            return found[0]
        if re.search(r"(?i)version\W{0,6}$", before):
            return found[0]
        return self.known.name("ipv4", found[0])

    def _long(self, found: re.Match[str]) -> str:
        if len(set(found[0])) == 1:
            return found[0]
        if len(found[0]) == 32:
            return self._in_form_of_uuid(found[0])
        return self.known.name("engine", found[0])

    def _number(self, found: re.Match[str]) -> str:
        text = found[0]
        if text.isdecimal() and int(text) in self.known.ids:
            return self.known.name("id", text.lstrip("0")).zfill(len(text))
        number = _hex(text)
        if number is None or number not in self.known.ids:
            return text
        made = int(self.known.name("id", str(number)))
        digits = text[2:] if text[:2] in ("0x", "0X") else text
        told = f"{made:0{len(digits)}x}"
        return text[: len(text) - len(digits)] + (told.upper() if digits.isupper() else told)

    def _home(self, found: re.Match[str]) -> str:
        owner = found["owner"]
        if words.is_common(owner):
            return found[0]
        self.known.learn(owner, "user")
        return f"{found['home']}{self.known.name('user', owner)}"

    def _uid(self, found: re.Match[str]) -> str:
        return self.user_number(found[0])

    def _container(self, found: re.Match[str]) -> str:
        return self.host(found[0])


_REPLACE: dict[str, Callable[[Rules, re.Match[str]], str]] = {
    "key_block": Rules._key_block,
    "url": Rules._url,
    "xml": Rules._xml,
    "process": Rules._process,
    "key": Rules._key,
    "whole": Rules._whole,
    "hosted": Rules._hosted,
    "secret": Rules._secret,
    "token": Rules._token,
    "account": Rules._account,
    "job": Rules._job,
    "task": Rules._task,
    "nodes": Rules._nodes,
    "person": Rules._person,
    "uuid": Rules._uuid,
    "gpu_id": Rules._gpu_id,
    "part": Rules._part,
    "own_home": Rules._own_home,
    "domain": Rules._domain,
    "learned": Rules._known,
    "engine": Rules._engine,
    "mac": Rules._mac,
    "guid": Rules._guid,
    "ipv6": Rules._ipv6,
    "ipv4": Rules._ipv4,
    "long": Rules._long,
    "number": Rules._number,
    "wwn": Rules._wwn,
    "home": Rules._home,
    "uid": Rules._uid,
    "container": Rules._container,
}


def _hex(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None
