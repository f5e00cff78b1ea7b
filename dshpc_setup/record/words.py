"""What a secret looks like, and what only looks like one."""

from __future__ import annotations

import ipaddress
import re

SERIAL_KEYS = (
    r"(?i:(?:(?:chassis|board|baseboard|asic|product|gpu|module|system)[ _-]?)?"
    r"serial(?:[ _-]?(?:number|num|no))?|unique[ _-]?id|asset[ _-]?tag|fru[ _-]?id"
    r"|machine[ _-]?id|boot[ _-]?id|hive[ _-]?id|(?:node|port|sys[_ -]?image|fabric)[ _-]?guid|pdi"
    r"|s/n|service[ _-]?tag)"
)
SECRET_KEYS = (
    r"(?i:\b\w{0,40}(?:password|passwd|passphrase|secret|token|credentials?|cookie|signature"
    r"|(?:api|access|account|deploy|encryption|private|secret|shared|signing|storage)[_-]?key)"
    r"(?![0-9A-Za-z])"
    r"|\b(?:\w{0,40}_)?(?:authorization|auth|pass)(?![0-9A-Za-z])"
    r"|\bpwd(?=[\"']?[ \t]{0,9}[:=][ \t]{0,9}[\"']?[^/\s\"'])|\b\w{1,40}(?-i:[a-z]Pass)(?![0-9A-Za-z]))"
)
SECRET_PLACES = (
    r"[?&](?i:sig|key|code|session|sid)=|(?i:\bbearer )(?=[^\s\"']{12})"
    r"|(?<!\S)--(?i:[\w-]{0,40}(?:password|passphrase|pass|secret|token|api-key))[ \t]{1,9}[\"']?(?!-)"
    # mysql -pX; of netrc and of ldap.conf, which have no sign between
    r"|(?<!\S)-p(?=[^\s-][^\s]{0,200}[^A-Za-z\s-])"
    r"|\b(?:mysql\w{0,10}|mariadb|sshpass)\b[^\n]{0,200}?[ \t]-p(?=[^\s-])"
    r"|(?m:\b(?i:bindpw|password|passphrase|account)[ \t]{1,9}(?=\S{3,256}$))"
    r"|\blogin[ \t]{1,9}\S{1,64}[ \t]{1,9}password[ \t]{1,9}|\bbindpw[ \t]{1,9}"
    r"|\blogin\b[^\n]{0,200}?[ \t]-p[ \t]{0,9}[\"']?(?!-)"
    r"|\bcurl\b[^\n]{0,200}?[ \t](?:-u|--user)[ \t=]{0,9}[\"']?[^\s:\"']{1,64}:"
)
"""Where a secret follows without a key and a colon: in a query, behind an option."""

ACCOUNT_KEYS = r"(?:User(?:Id|Name)?|USER|LOGNAME|user(?:_?name)?|GroupId|Account)"
ACCOUNTS = r"(?i:user|user_?name|login)"
JOB_KEYS = r"(?i:job[_-]?name)"
TASKS = r"\bKilled process \d{1,10} \(|\btask=|\bpid='?[\w<>]{1,12}'?, name=|\b[Cc]omm[:=] ?"
"""What stands before the name of a program in the kernel's log."""
TOKENS = (
    r"gh[oprsu]_\w{16,255}|github_pat_\w{16,255}|glpat-[\w-]{16,255}|hf_\w{16,255}|sk-[\w-]{16,255}"
    r"|AIza[\w-]{35}|dckr_pat_[\w-]{16,255}|npm_\w{36}|pypi-AgE[\w-]{16,255}"
    r"|xox[abeprs]-[\w-]{10,255}|(?:AKIA|ASIA)[0-9A-Z]{16}|nvapi-[\w-]{16,255}"
    r"|eyJ[\w-]{8,2048}\.[\w-]{8,4096}\.[\w-]{0,1024}|[rs]k_(?:live|test)_\w{16,255}"
    r"|whsec_\w{16,255}|SG\.[\w-]{16,64}\.[\w-]{16,128}|ya29\.[\w-]{16,2048}|dop_v1_\w{32,128}"
    r"|(?<=hooks\.slack\.com/services/)[\w/]{16,255}"
)
WHOLE_KEYS = r"(?i:process_?name|proc_name|vm_name|vm_id|cmdline|command_line)"
HOST_KEYS = (
    r"(?i:host[ _-]?name|node[ _-]?name|fqdn|node[ _-]?host[ _-]?name|node[ _-]?addr"
    r"|(?:slurmctld|control|batch|submit|storage|accountingstorage|dbd)_?(?:host|machine|addr)"
    r"|backup(?:controller|addr)|(?:req_?|exc_?)?node_?list)"
)
NO_HOSTS = frozenset("all any default n/a none null unknown".split())
"""What Slurm writes in place of a name of a node."""

LOCAL_HOSTS = frozenset(
    "localhost localhost.localdomain localhost4 localhost6 ip6-localhost ip6-loopback "
    "ip6-localnet ip6-mcastprefix ip6-allnodes ip6-allrouters broadcasthost "
    "host.docker.internal gateway.docker.internal kubernetes.docker.internal".split()
)
COMPANIONS = frozenset(
    "docker git root user docker-desktop lima-rancher-desktop orbstack colima dshpc slurm munge".split()
)
"""Names of hosts and users that programs give, the same on every machine."""

DOMAINS = frozenset("local localdomain lan home internal".split())

CONTEXTS = frozenset(
    "default desktop-linux rootless colima orbstack rancher-desktop podman lima".split()
)

_PUBLIC = tuple(
    "docker.io docker.com debian.org ubuntu.com canonical.com launchpad.net fedoraproject.org "
    "redhat.com centos.org rockylinux.org almalinux.org oracle.com suse.com opensuse.org "
    "archlinux.org gentoo.org nixos.org alpinelinux.org amazon.com kernel.org nvidia.com nvidia.cn "
    "amd.com intel.com microsoft.com aka.ms github.com github.io githubusercontent.com python.org "
    "pypi.org opencontainers.org linuxfoundation.org freedesktop.org raspbian.org kali.org "
    "linuxmint.com pop-os.com system76.com flatcar.org kubernetes.io k8s.io".split()
)

# Names so common that they tell nothing, and that stand for other things in nearly every text.
_COMMON = frozenset(
    (
        "aarch64 about absent active admin administrator alma almalinux alpine amazon amd amdgpu "
        "apparmor apple arch archlinux arm64 aws azure backup base bin bionic bookworm bridge build "
        "builder builds buildx builtin bullseye bus cache card cdi centos cgroupfs cloud cluster "
        "colima community completed compose compute computer config console container containerd core "
        "cpu cuda daemon data debian default denied desktop dev device devices disabled display "
        "docker docker-desktop domain dri driver drivers ec2-user enabled engine enterprise error "
        "example exclusive fabric failed false fedora file focal games gcp generic gke google gpu "
        "gpus group guest hardened head home host i915 inactive info intel internal internet ip "
        "ipvlan jammy jovyan json-file kali kernel kfd kvm lan laptop lib libvirt libvirt-qemu linux "
        "linuxbrew linuxkit linuxmint local localdomain localhost login logs lowlatency lts mac "
        "machine macos macvlan mail main manager master media memory mesa metal microsoft mint mobile "
        "model module modules name net network nixos noble nobody node none nouveau null nvidia "
        "nvidia-persistenced oem opc openrc opensuse operator oracle overlay overlay2 owner parrot "
        "path pci pcie podman power present proc processor product production prohibited proxy public "
        "python python3 qemu radeon rancher raspi realtime registry remote render rhel rocky rocm "
        "root rt run runc runner seccomp self serial server service shared sid slackware slurm snap "
        "socket standard state storage store success supported suse sys system systemd temp test "
        "tester testing timeout tmp trixie true ubuntu uek unknown unsupported user users usr vagrant "
        "var vbox vendor version video virtual vm vmware void volume windows work worker workstation "
        "wsl x86_64 xen xenon xpu zen zone "
        # Of Slurm and of what is run in it
        "accounting alloc allocated array bash batch cgroup cgroups command controller debug defq "
        "down drain drained draining dshpc exit exited fail gres healthy hold idle interactive job "
        "jobs jupyter launch mixed munge nodes normal notebook partition partitions pending prolog "
        "ready reason requeue resume running sbatch scontrol script shell short sinfo sleep slurmctld "
        "slurmd srun start started starting stop stopped task tasks train training unhealthy wrap "
        # Hosts by what they do
        "api apt archive auth dns docs download downloads ftp git gitlab imap jira ldap mirrors "
        "nas nfs ntp npm pip pypi repo repos smtp sso vpn wiki www "
        # What a report says of files and containers
        "absent completing created custom dead edited enforced good invalid missing ours paused "
        "planned removing rendered restarting silent unreadable untested works"
    ).split()
)
# People and hosts are called so as well, but mostly it is what a chip, a card or a kernel is called.
_PRODUCTS = frozenset(
    (
        "ada ampere arc atom battlemage blackwell blade celeron cezanne edition embedded emerald epyc "
        "fermi flex geforce generation genoa gold grace grid hopper instinct iris jetson kepler "
        "lovelace max maxwell milan mobility nano navi orin pascal pentium phoenix platinum plus "
        "polaris pro quadro raphael ray rome ryzen sapphire silver spark super tegra tensor tesla "
        "thor threadripper titan turbo turin turing uhd ultra vega volta xavier xeon"
    ).split()
)
_MODEL = re.compile(
    r"(?:gpu|card|node|cpu|core|socket|eth|dev|pci|numa|bus|mig|renderd|controld|nvidia|host|vm|user)"
    r"\d?|(?:a|b|h|k|l|m|p|t|v|gb|gh|gt|mi|rtx|gtx|gfx|rx|arc|w)\d{1,4}[a-z]{0,3}|\d{1,5}"
)


def is_common(name: str) -> bool:
    """Whether so many are called so that it tells nothing, even where it is a name for sure."""
    return name.lower() in _COMMON or name.lower() in COMPANIONS


def is_telling(name: str) -> bool:
    """Whether a host's or a user's name is that and nothing else wherever it stands."""
    name = name.lower()
    return (
        len(name) >= 3
        and name not in _COMMON
        and name not in _PRODUCTS
        and name not in LOCAL_HOSTS
        and not _MODEL.fullmatch(name)
    )


def is_public(host: str) -> bool:
    """Whether everybody's machines know that host: a distribution's, a vendor's."""
    host = host.lower()
    return any(host == name or host.endswith(f".{name}") for name in _PUBLIC)


def is_findable(secret: str) -> bool:
    """Whether a password is one wherever it stands: not a word, a number or a variable's name."""
    kinds = (str.isdigit, str.isupper, str.islower)
    mixed = sum(any(kind(char) for char in secret) for kind in kinds) >= 2
    return len(secret) >= 8 and mixed and not secret.startswith(("/", "$", "removed-"))


def is_value(text: str) -> bool:
    """Whether something that stands for a serial number is one: not "N/A", not all zeros."""
    return (
        len(text) >= 4
        and any(char.isdigit() for char in text)
        and len(set(text.lower().removeprefix("0x"))) > 1
    )


def kept_ipv4(text: str) -> bool:
    """What has the form of an address and is none, or is everybody's own."""
    parts = text.split(".")
    if any(len(part) > 1 and part[0] == "0" for part in parts) or any(int(p) > 255 for p in parts):
        return True
    return parts[0] in ("0", "127") or text == "255.255.255.255"


def ipv6_of(text: str) -> ipaddress.IPv6Address | None:
    """The address, if it is one that tells something."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return None if address.is_loopback or address.is_unspecified else address
