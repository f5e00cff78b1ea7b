"""The shapes of what may stay in a text though it is no word: times, versions, PCI addresses, sizes.

Each is one that a program writes and a reader of a report needs; the comment says what for. What is
matched by none of them is taken apart into words and numbers, each of which is judged by itself.
"""

from __future__ import annotations

import re

HEX = "[0-9A-Fa-f]"
_START = r"(?<![^\W_])"
_END = r"(?![^\W_])"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_CLOCK = r"\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)"
_UNIT = (
    r"(?:[kKMGTP]i?[Bb]|gb|[KMGTkmg]|B|bytes?|[kMG]?Hz|m?[WVs]|us|ns|%|C|GT/s|[GM]b/s|GB/s|MB/s|J"
    r"|seconds?|minutes?|hours?|days?|min|pages|MT/s|RPM|rpm|Tb/s|lines|characters|bits?)"
)
PRODUCTS = (
    # Names of GPUs: Slurm's type, the architecture and the driver's branch hang on them
    r"\A(?:Xavier|Thor)(?=\Z|, no memory| \(nvgpu)|"
    r"(?:(?:RTX|GTX|RX|GT|Quadro|Max|Flex|Arc|Pro|PRO|HD|UHD|Iris|Radeon|GeForce|Titan|TITAN|Tesla|Xe)"
    r"[ -]){1,3}(?:Pro |PRO |Graphics |Xe )?\d{3,4}[A-Z]{0,3}"
    r"|Ada Generation|(?:RTX|SFF) (?:\d{4} )?Ada|GPU (?:Max|Flex)(?: \d{3,4})?|Grace Hopper|GH Superchip"
    r"|(?i:(?:tesla|quadro|grid|nvidia|rtx|instinct|radeon|geforce|jetson|xeon|epyc|ryzen|xe|uhd|pro)"
    r"[ _-](?:volta|ampere|hopper|blackwell|max|ada|xavier|thor|nano|vega|nova|iris|gold|platinum|titan))"
    r"|\b(?i:nvidia|amd)[ _-]?(?i:titan|thor|xavier|vega|blackwell|grace)"
    r"|TITAN (?:RTX|V|X|Xp)|AGX Xavier|Vega \d\d|Jetson (?:AGX )?(?:Xavier|Thor|Nano|Orin)(?: Nano| NX)?"
)
_MODELS = (
    # One token: "H100", "A100X", "MI300X", "gfx942", "sm_90" is two
    r"(?i:(?:[abhlmtv]\d{1,3}|[aktvmwp][1-9]\d00|p\d{1,3}|k\d{2,3}|rtx\d{4}|gtx\d{3,4}|gb?\d{2,3}|gh\d{3}"
    r"|mi\d{2,3}|gfx\d{3,4}[a-f]?|rx\d{4}|xe\d?|sm\d{2,3}|sxm\d|cc\d|hbm\d|gddr\d|nv\d{1,2}|ad\d{3}|ga\d{3}"
    r"|gv\d{3}|tu\d{3}|gp\d{3}|gm\d{3}|gk\d{3}|navi\d\d|dg\d|zen\d|ml\d|g\d{5}|\d{1,3}[abcq])"
    r"[a-z]{0,3})"
)
_STEMS = (
    # What the kernel, Slurm and the drivers count: "nvidia0", "renderD128", "cpu3"
    r"(?i:gpu|igpu|dgpu|card|cpu|core|socket|eth|dev|pci|numa|bus|mig|renderd|controld|nvidia|cap|gi|ci|node|accel"
    r"|kfd|hwmon|temp|fan|power|in|curr|freq|energy|engine|gt|tile|irq|nic|mlx|ib|mem|memory|xcp|partition"
    r"|partitions|tmpfs|loop|vgpu|vf|pf|link|nvlink|nvswitch|port|level|index|stack|step|task|tier|soc"
    r"|sxid|xid|l|v|x|py|python|cp|ext|lib|lib64|deb|el|fc|rc|p|c|u|r|rev|api|utf|ipv|tcp|sha|md|tegra"
    r"|aarch|armv|amd|arm|x86|ppc|riscv|zone|range|state|pool|bank|dimm|channel|slot|event|queue"
    r"|ring|vcn|jpeg|sdma|gfx|vce|uvd|dce|mmhub|gfxhub|dp|hdmi|count|max|min|simd|version|cache|ptp"
    r"|oam|sku|drm|fb|i2c|ttys|tty|sd[a-z]|nvme\d{1,2}n|vd[a-z]|sleep|epoch|vm|gsp|rm|ttl|n|t|s|m|d|h|w)\d{1,3}"
)
MODEL = re.compile(rf"(?:{_MODELS}|{_STEMS})")
OF_KERNEL = re.compile(
    r"0[xX][0-9A-Fa-f]+|[0-9A-Fa-f]{1,8}|[A-Za-z]{1,3}\\d{1,5}[A-Za-z]{0,3}|\\d{3,5}[A-Za-z]{1,2}"
)
"""Where a kernel or a driver counts and names: masks, ids of devices, models of processors."""
ROUND = re.compile(rf"\d{{1,15}}(?:\.\d{{1,6}})?{_UNIT}")

SHAPES = (
    # How files of YAML and JSON write a sign
    r"(?P<escape>\\[\"\\/nrtbf0])",
    # Digits that we made, or that name nothing; the handler looks
    rf"(?P<uuid>(?:{_START}pod|(?<!{HEX}))(?:(?:GPU|MIG)-)*{HEX}{{8}}(?P<dash>[-_]?){HEX}{{4}}(?P=dash){HEX}{{4}}(?P=dash){HEX}{{4}}"
    rf"(?P=dash){HEX}{{12}}{_END})",
    rf"(?P<part>{_START}(?:(?:GPU|MIG)-)+{HEX}{{4,8}}(?:-{HEX}{{1,12}}){{0,4}}{_END})",
    rf"(?P<engine>{_START}[A-Z2-7]{{4}}(?::[A-Z2-7]{{4}}){{2,11}}{_END})",
    rf"(?P<mac>{_START}{HEX}{{2}}(?:(?P<mark>[:-]){HEX}{{2}})(?:(?P=mark){HEX}{{2}}){{3,18}}{_END})",
    rf"(?P<guid>{_START}{HEX}{{4}}(?::{HEX}{{4}}){{3}}{_END})",
    r"(?P<ipv6>2001:db8:d5::[0-9a-f]{1,6}(?![\w:])|(?<![\w:])::1?(?![\w:]))",
    # Numbers of five parts and more are of firmware, those of four may be addresses
    rf"(?P<dotted>{_START}v?\d{{1,10}}(?:\.\d{{1,12}}){{1,7}}(?:[a-z]{{1,2}}\d{{0,2}})?"
    rf"(?:(?<=\.\d)-\d{{1,4}}|(?<=\.\d\d)-\d{{1,4}})?(?P<debian>\+deb\d{{1,2}}u\d{{1,3}})?(?![^\W_]|\.\d))",
    # When something happened, for its order
    rf"(?P<time>{_START}(?P<year>\d{{4}})-\d\d-\d\d(?:[T _]{_CLOCK}{_ZONE}?)?{_END}"
    rf"|{_START}{_CLOCK}{_ZONE}?{_END}"
    rf"|{_START}(?:{_DAY},? )?{_MONTH} {{1,2}}\d{{1,2}}(?:,? {_CLOCK})?(?: UTC)?(?:,? 20\d\d)?{_END}"
    rf"|{_START}\d-\d\d:\d\d:\d\d{_END})",
    # Which card it is about: machine and rules speak of the same one
    rf"(?P<pci>{_START}(?:pci)?(?:{HEX}{{4}}|{HEX}{{8}}):{HEX}{{2}}(?::{HEX}{{2}}(?:\.[0-7])?)?{_END}"
    rf"|{_START}{HEX}{{2}}:{HEX}{{2}}\.[0-7]{_END}|{_START}{HEX}{{4}}:{HEX}{{4}}(?![^\W_]|:)"
    rf"|\bpci:v{HEX}{{8}}d{HEX}{{8}}sv{HEX}{{8}}sd{HEX}{{8}}bc{HEX}{{2}}sc{HEX}{{2}}i{HEX}{{2}}{_END})",
    rf"(?P<product>{_START}(?:{PRODUCTS}){_END})",
    # The settings file's and Slurm's own: how long, how much
    rf"(?P<sized>{_START}\d{{1,15}}(?:\.\d{{1,9}})?(?:{_UNIT}{_END}|%)"
    # Not "01714402217 J. Doe": a telephone's or a patient's number before somebody's initial
    rf"|{_START}(?!0\d|\d{{6,15}}[ \t][A-Za-z]{_END})\d{{1,15}}(?:\.\d{{1,9}})?"
    rf"(?=[ \t](?:of[ \t]\d{{1,9}}[ \t])?{_UNIT}{_END}|[ \t]?%))",
    # Ids of vendors and devices, error codes; the kernel's 64 bits of what root may do
    rf"(?P<code>{_START}0[xX]{HEX}{{1,8}}{_END}|(?<=CapBnd:\t){HEX}{{16}}{_END})",
)
