"""The forms of what is scrubbed, as one pattern: each place in a text is replaced once, by one rule.

The names of the groups are those of the rules in rules.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dshpc_setup.record import words

HEX = "0-9A-Fa-f"
UUID = rf"[{HEX}]{{8}}(?:-[{HEX}]{{4}}){{3}}-[{HEX}]{{12}}"
UUIDS = re.compile(rf"(?:(?:GPU|MIG)-)*{UUID}")
ADDRESS = re.compile(rf"[0-9.]+|\[?[{HEX}:.]*:[{HEX}:.%]*\]?")
ID = rf"0[xX][{HEX}]{{8,16}}|[{HEX}]{{15,16}}"
NUMBER = re.compile(rf"(?<![0-9A-Za-z_])(?:0[xX])?[{HEX}]{{8,20}}(?![0-9A-Za-z_])")
KNOWN_HOME = re.compile(r"/(?:(?:var/|export/|data/)?home|Users)/[^/]+")
_PATTERNS = (
    r"(?P<key_block>-----BEGIN [^-\n]{0,40}PRIVATE KEY-----[\s\S]{0,20000}?"
    r"-----END [^-\n]{0,40}-----"
    # Cut at its end, or at its beginning, as the last lines of a log are.
    r"|-----BEGIN [^-\n]{0,40}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]{0,20000}"
    r"|(?:(?<![^\s\\\"'])[A-Za-z0-9+/=]{16,100}\s{1,9}){1,300}-----END [^-\n]{0,40}PRIVATE KEY-----)",
    r"(?P<url>[A-Za-z][A-Za-z0-9+.-]{0,15}://)(?P<login>[^\s/\"'<>]{1,512}@)?"
    rf"(?P<at>\[[{HEX}:.%]{{2,60}}\]|[A-Za-z0-9][A-Za-z0-9_.-]{{0,253}})?",
    r"(?P<xml><[\w:.-]{0,40}(?i:serial|unique_id|asset_tag|process_name|vm_name|vm_id"
    r"|fabric_guid|hive_id|\bpdi\b)[\w:.-]{0,40}>)"
    r"(?P<inner>[^<\n]{1,4096})(?=</)",
    r"(?P<process>\bProcess ID[ \t]*:[ \t]*\d{1,10}\s{1,80}Type[ \t]*:[^\n]{0,80}\n"
    r"[ \t]*Name[ \t]*:[ \t]*)[^\n]{1,4096}",
    rf"(?P<key>(?<![0-9A-Za-z]){words.SERIAL_KEYS}[\"']?(?:[ \t]*[:=][ \t]*|[ \t]{{1,60}})[\"']?)"
    r"(?P<named>[^\s\"',;<>(){}\[\]]{4,128})",
    rf"(?P<whole>\"{words.WHOLE_KEYS}\"[ \t]{{0,60}}:[ \t]{{0,60}}\")[^\"\n]{{1,4096}}",
    rf"(?P<hosted>(?<![0-9A-Za-z]){words.HOST_KEYS}[\"']?[ \t]{{0,60}}[:=][ \t]{{0,60}}[\"']?)"
    r"(?P<called>[A-Za-z0-9][\w.-]{0,253})",
    r"(?P<nodes>(?<![0-9A-Za-z])Nodes=)(?P<among>[A-Za-z][\w.-]{0,253})",
    rf"(?P<secret>(?:{words.SECRET_KEYS}\\?[\"']?[ \t]*[:=][ \t]*\\?[\"']?"
    rf"|{words.SECRET_PLACES})(?i:(?:bearer|basic|digest|negotiate|token) )?)"
    r"(?P<word>(?<=\")[^\"\\\n]{3,2048}(?=\")|(?<=')[^'\\\n]{3,2048}(?=')"
    r"|(?:[^\s\"'&,;<>]|[&,;](?![\w.-]{1,40}=)(?=[^\s\"'])){2,2047}[^\s\"'&,;<>\\])",
    rf"(?P<account>(?<![0-9A-Za-z]){words.ACCOUNT_KEYS}=[\"']?)(?P<member>[A-Za-z_][\w.-]{{0,63}})"
    r"(?:\((?P<which>\d{1,10})\))?",
    rf"(?P<job>(?<![0-9A-Za-z])(?:{words.JOB_KEYS}[\"']?[:=][ \t]?[\"']?|--job-name ))"
    r"(?P<titled>[^\s\"',;]{1,256})",
    rf"(?P<task>{words.TASKS})(?P<program>[^\s,()<]{{1,256}})",
    rf"(?P<token>(?<![0-9A-Za-z])(?:{words.TOKENS}))",
    r"(?P<person>[A-Za-z0-9_.+-]{1,64})@(?!sha256:)"
    r"(?P<place>[A-Za-z0-9](?:[A-Za-z0-9.,-]{0,253}[A-Za-z0-9])?)",
    rf"(?P<uuid>(?:(?<=pod)|(?<![{HEX}]))[{HEX}]{{8}}(?P<dash>[-_])[{HEX}]{{4}}(?P=dash)"
    rf"[{HEX}]{{4}}(?P=dash)[{HEX}]{{4}}(?P=dash)[{HEX}]{{12}}(?![{HEX}]))",
    rf"(?P<gpu_id>(?<=GPU-)[{HEX}]{{16}}(?![{HEX}-]))",
    rf"(?P<part>(?:(?<=GPU-)|(?<=MIG-))[{HEX}]{{4,8}}(?:-[{HEX}]{{1,12}}){{0,4}}(?![0-9A-Za-z]))",
    rf"(?P<wwn>(?:(?<=wwn-)0x|(?<=naa\.)|(?<=eui\.))[{HEX}]{{16,32}}(?![0-9A-Za-z]))",
    None,  # here stands what was learned
    r"(?P<engine>(?<![0-9A-Z:])[A-Z2-7]{4}(?::[A-Z2-7]{4}){11}(?![0-9A-Z:]))",
    rf"(?P<mac>(?<![0-9A-Za-z:])[{HEX}]{{2}}(?P<mark>[:-])[{HEX}]{{2}}(?:(?P=mark)[{HEX}]{{2}})"
    r"{4,18}(?![0-9A-Za-z:]))",
    rf"(?P<guid>(?<![\w:.])[{HEX}]{{4}}(?::[{HEX}]{{4}}){{3}}(?![\w:.]))",
    rf"(?P<ipv6>(?<![\w:.])(?=[{HEX}]{{0,4}}:[{HEX}]{{0,4}}:)[{HEX}:]{{2,39}}"
    r"(?:(?:\.\d{1,3}){3})?(?![\w:]))",
    r"(?P<ipv4>(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w+~]|\.\d|-[A-Za-z]))",
    rf"(?P<long>(?<![0-9A-Za-z])(?:[{HEX}]{{64}}|[{HEX}]{{32}})(?![0-9A-Za-z]))",
    rf"(?P<number>(?<![0-9A-Za-z_])(?:0[xX])?[{HEX}]{{10,20}}(?![0-9A-Za-z_]))",
    r"(?P<home>(?:/(?:var/|export/|data/)?home/|[/\\]Users[/\\]{1,2}))"
    # One of Windows may have blanks in it: then the rest of the path says where it ends.
    r"(?P<owner>(?:(?<=Users.)|(?<=Users\\\\))[^/\\\n\"':,;<>|]{1,64}(?=[/\\])"
    r"|[^/\\\s\"':,;<>|]{1,64})",
    r"(?P<uid>(?:(?<=/run/user/)|(?<=user-)|(?<=uid_)"
    r"|(?i:(?<=[ug]id=)|(?<=[ug]id )|(?<=[ug]id:)|(?<=[ug]id: )))\d{1,10}"
    r"(?![0-9A-Za-z]))",
    r"(?P<container>(?:(?<=/lxc/)|(?<=lxc\.payload\.)|(?<=/ecs/))[^/\s]{1,64}"
    r"|(?<=/machine-)[^/\s]{1,128}(?=\.scope))",
)


def compiled(
    homes: Iterable[str], domains: Iterable[str], learned: Iterable[str]
) -> re.Pattern[str]:
    """All rules, with what was learned to be a secret wherever it stands."""
    known = "|".join(_learned(homes, tuple(domains), learned))
    rules = (known if rule is None else rule for rule in _PATTERNS)
    return re.compile("|".join(filter(None, rules)))


def _learned(
    homes: Iterable[str], domains: tuple[str, ...], learned: Iterable[str]
) -> Iterable[str]:
    def any_of(texts: Iterable[str]) -> str:
        return "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))

    if paths := any_of(homes):
        yield rf"(?P<own_home>{paths})(?![^/\s\"':,;<>])"
    if domains:
        # One label alone ("corp") is a domain only behind a host's name.
        several = any_of(name for name in domains if "." in name) or "(?!)"
        single = any_of(name for name in domains if "." not in name) or "(?!)"
        yield (
            r"(?P<domain>(?<![0-9A-Za-z.-])(?i:(?:[0-9a-z_-]{1,63}\.){0,6}"
            rf"(?:{several}|(?<=\.)(?:{single})))(?![0-9A-Za-z-]|\.[0-9A-Za-z]))"
        )
    if whole := any_of(learned):
        yield rf"(?P<learned>(?<![0-9A-Za-z])(?i:{whole})(?![0-9A-Za-z]))"
