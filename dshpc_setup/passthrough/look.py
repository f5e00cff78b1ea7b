"""The look from inside: the script that a test container runs, and what it says.

It needs /bin/sh alone. A driver's library is loaded by the loader itself (LD_PRELOAD of a shell that
ends at once), so no compiler, Python or CUDA is wanted of the image.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from dshpc_setup import gpu_vendors

NodeState = Literal["open", "denied", "absent", "error"]

# Arguments: device nodes, "--", libraries. Every line begins with a word that says what it is; the
# shell's own words are put on one line, in English. `set -f`: they are no patterns of file names.
_SCRIPT = r"""
export LC_ALL=C
say() { printf '%s\n' "$*"; }
say user "$(id -u 2>/dev/null)" "$(id -G 2>/dev/null)"
for loader in /lib/ld-musl-*; do [ -e "$loader" ] && say musl "$loader"; done
for node in @nodes@; do [ -c "$node" ] && say visible "$node"; done
set -f
tried() {
  case $1 in
  /dev/nvidia-caps/*) : < "$1" ;; # MIG's capability nodes are for reading only
  *) : <> "$1" ;;
  esac
}
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  node=$1; shift
  if [ ! -e "$node" ]; then say absent "$node"; continue; fi
  if [ ! -c "$node" ]; then say closed "$node" - it is no device node; continue; fi
  number=$(stat -L -c '%t:%T' "$node" 2>/dev/null)
  [ -n "$number" ] && number=$((0x${number%%:*})):$((0x${number##*:}))
  pci=$(readlink -f "/sys/dev/char/$number/device" 2>/dev/null)
  if words=$( (tried "$node") 2>&1 ); then
    say open "$node" "${number:--}" "${pci##*/}"
  else
    say closed "$node" "${number:--}" $words
  fi
done
shift
for library in "$@"; do
  words=$(LD_PRELOAD=$library /bin/sh -c : 2>&1)
  case $?:$words in
  0:*"cannot be preloaded"* | [1-9]*) say unloaded "$library" $words; continue ;;
  esac
  found=$(LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD=$library /bin/sh -c : 2>/dev/null |
    while read -r name arrow path rest; do
      case $name in
      "$library") say "$path"; break ;;
      */"$library") say "$name"; break ;;
      esac
    done)
  if [ -n "$found" ]; then # a program without a loader ignores all of this
    say loaded "$library" "$(readlink -f "$found" 2>/dev/null || say "$found")"
  fi
done
for tool in nvidia-smi /usr/lib/wsl/lib/nvidia-smi; do
  command -v "$tool" >/dev/null 2>&1 || continue
  listing=$("$tool" -L 2>&1)
  say listing "$?"
  say "$listing" | while IFS= read -r line; do say says "$line"; done
  break
done
say end
exit 0
"""
_NODES = dict.fromkeys(each.nodes.glob for each in gpu_vendors.all_of_them() if each.nodes.glob)
SCRIPT = _SCRIPT.replace("@nodes@", " ".join(_NODES))


@dataclass(frozen=True)
class SeenNode:
    """A device node as the job's user meets it; `number` is "195:0", `pci` an address."""

    state: NodeState
    number: str | None = None
    pci: str | None = None
    words: str = ""  # why it does not open


@dataclass(frozen=True)
class SeenLibrary:
    """What the loader does with a library; `path` is the file behind all links."""

    loads: bool
    path: str | None = None
    words: str = ""

    @property
    def version(self) -> str | None:
        """Of "libcuda.so.550.163.01": the driver it belongs to; None where its name does not say."""
        found = re.search(r"\.so\.(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)$", self.path or "", re.ASCII)
        return found[1] if found else None


@dataclass(frozen=True)
class Seen:
    """All that the script said."""

    nodes: Mapping[str, SeenNode] = field(default_factory=dict)
    visible: tuple[str, ...] = ()  # every GPU node that is there, asked for or not
    libraries: Mapping[str, SeenLibrary] = field(default_factory=dict)  # those that could be tried
    uuids: tuple[str, ...] = ()  # as nvidia-smi lists them, cards before their MIG instances
    listing: str | None = None  # nvidia-smi's own words; None where there is no nvidia-smi
    listing_code: int | None = None
    musl: bool = False  # an image of another C library than the vendors' drivers are made for
    user: str = ""
    ended: bool = False  # the script came to its end


def parse(text: str) -> Seen:
    """What the script printed; lines of no meaning are passed over."""
    said = tuple(_lines(text))
    listing = _rest_of(said, "says")
    codes = [int(rest) for rest in _rest_of(said, "listing") if _is_code(rest)]
    return Seen(
        nodes=dict(_nodes(said)),
        visible=tuple(filter(None, _rest_of(said, "visible"))),
        libraries=dict(_libraries(said)),
        uuids=tuple(dict.fromkeys(re.findall(r"\(UUID: ([^)\s]+)\)", "\n".join(listing)))),
        listing="\n".join(listing) if codes else None,
        listing_code=codes[0] if codes else None,
        musl=bool(_rest_of(said, "musl")),
        user=" ".join(_rest_of(said, "user")).strip(),
        ended=bool(_rest_of(said, "end")),
    )


_Line = tuple[str, str]


def _lines(text: str) -> Iterator[_Line]:
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        yield word, rest


def _rest_of(lines: Iterable[_Line], wanted: str) -> list[str]:
    return [rest for word, rest in lines if word == wanted]


def _is_code(text: str) -> bool:
    return re.fullmatch(r"\d{1,3}", text.strip(), re.ASCII) is not None


def _nodes(lines: Iterable[_Line]) -> Iterator[tuple[str, SeenNode]]:
    for word, rest in lines:
        name, _, more = rest.partition(" ")
        if word in ("absent", "open", "closed") and name:
            yield name, _node(word, more)


def _node(word: str, more: str) -> SeenNode:
    if word == "absent":
        return SeenNode("absent")
    first, _, rest = more.partition(" ")
    number = first if re.fullmatch(r"\d+:\d+", first, re.ASCII) else None
    rest = rest.strip()
    if word == "open":
        is_address = re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", rest)
        return SeenNode("open", number, rest if is_address else None)
    words = rest.rsplit(": ", 1)[-1]  # before it the shell names itself, a line and the node
    denied = re.search(r"permission denied|not permitted", words, re.IGNORECASE)
    return SeenNode("denied" if denied else "error", number, words=words)


def _libraries(lines: Iterable[_Line]) -> Iterator[tuple[str, SeenLibrary]]:
    for word, rest in lines:
        name, _, more = rest.partition(" ")
        more = more.strip()
        if word == "loaded" and name:
            yield name, SeenLibrary(True, more or None)
        elif word == "unloaded" and name:
            yield name, SeenLibrary(False, words=more)
