"""Repairs of the engine, and of what the vendors' toolkits write for it. Pure.

Sources: `nvidia-ctk runtime configure` and `amd-ctk runtime configure` in the vendors' toolkits (the
latter sets `features` of daemon.json to cdi alone); nvidia-cdi-refresh from 1.18 on.
"""

from __future__ import annotations

from dshpc_setup import gpu_vendors, remedies
from dshpc_setup.diagnose import CheckInput
from dshpc_setup.remedies.of_vendors import FIRST
from dshpc_setup.remedies.toolkit import old_specs
from dshpc_setup.repair.model import Argv, Host, Kind, Made, Refusal, Repair
from dshpc_setup.versions import at_least

DAEMON_JSON = "/etc/docker/daemon.json"


# The engine and what it needs of the vendor


def load_uvm(known: CheckInput, _: Host, __: str) -> Made:
    if known.facts.platform.kind != "linux":
        return Refusal("Its driver is that of Windows.")
    argv = ("nvidia-modprobe", "-u", "-c=0")
    return (Repair("load-uvm", "Load nvidia_uvm and make its device node", (argv,), root=True),)


def start_engine(known: CheckInput, here: Host, _: str) -> Made:
    engine, platform = known.facts.engine, known.facts.platform
    if engine.state == "present":
        return Refusal("The engine answers.")
    if engine.state != "absent" or elsewhere(known, here) or not here.engine_installed:
        return Refusal("It is not only stopped.")
    if platform.kind not in ("linux", "wsl2"):
        return Refusal("An application starts it.")
    commands: dict[str, tuple[Argv, ...]] = {
        "systemd": (("systemctl", "enable", "--now", "docker"),),
        "openrc": (("rc-update", "add", "docker", "default"), ("rc-service", "docker", "start")),
        "snap": (("snap", "start", "--enable", "docker"),),
        "direct": (("dockerd",),),
    }
    how = commands[here.starter]
    return (Repair("start-engine", "Start Docker", how, root=True),)


def register(known: CheckInput, here: Host, vendor: str) -> Made:
    why = _no_tool(known, vendor) or _not_to_configure(known, here)
    if why:
        return Refusal(why)
    ctk = _toolkit(vendor).ctk
    if _toolkit(vendor).drops_features and here.other_features:
        return Refusal(
            f"{ctk} would take out what else stands under features in {DAEMON_JSON}: "
            f"{', '.join(here.other_features)}."
        )
    argv = (ctk, "runtime", "configure", "--runtime=docker")
    return _configured(
        known, here, "register-runtime", f"Register the runtime {vendor} with Docker", argv, vendor
    )


def enable_cdi(known: CheckInput, here: Host, _: str) -> Made:
    why = _no_tool(known, FIRST) or _not_to_configure(known, here)
    if why:
        return Refusal(why)
    argv = (_toolkit(FIRST).ctk, "runtime", "configure", "--runtime=docker", "--cdi.enabled")
    return _configured(known, here, "enable-cdi", "Switch CDI on in Docker", argv)


def _configured(
    known: CheckInput, here: Host, kind: Kind, does: str, argv: Argv, vendor: str = ""
) -> Made:
    if not known.facts.engine.rootless:
        return (Repair(kind, does, (argv,), vendor, root=True, changes=(DAEMON_JSON,)),)
    if vendor and not _toolkit(vendor).rootless:
        return Refusal(f"{_toolkit(vendor).ctk} configures only an engine that runs as root.")
    own = f"{here.home}/.config/docker/daemon.json"
    return (Repair(kind, does, ((*argv, f"--config={own}"),), vendor, changes=(own,)),)


def _not_to_configure(known: CheckInput, here: Host) -> str:
    """Why daemon.json is not to be changed; "" where it may."""
    engine = known.facts.engine
    if engine.state != "present" or engine.kind != "engine" or elsewhere(known, here):
        return "This engine is not configured by /etc/docker/daemon.json of this machine."
    if remedies.family(known.facts.platform) == "nixos":
        return "On NixOS that belongs into configuration.nix."
    return _own_engine(here) if engine.rootless else ""


def elsewhere(known: CheckInput, here: Host) -> bool:
    """Whether the engine is chosen by name, and is not this user's own, rootless one."""
    own = (f"unix:///run/user/{here.uid}/", *([f"unix://{here.home}/"] if here.home else []))
    rootless = known.facts.engine.rootless and (known.endpoint or "").startswith(own)
    return known.endpoint is not None and not rootless


def _own_engine(here: Host) -> str:
    if here.uid == 0 or not here.home:
        return "A rootless engine is its user's: run this as that user, without sudo."
    return ""


def _no_tool(known: CheckInput, vendor: str) -> str:
    installed = remedies.toolkit(known.facts, vendor)
    if installed is None:
        return f"The container toolkit of {gpu_vendors.label(vendor)} is not installed."
    return "" if installed.ctk else f"The toolkit's program {_toolkit(vendor).ctk} is not there."


def _toolkit(vendor: str) -> gpu_vendors.Toolkit:
    found = gpu_vendors.of(vendor).toolkit
    if found is None:
        raise LookupError(f"{vendor} has no container toolkit")
    return found


def write_cdi(known: CheckInput, here: Host, vendor: str) -> Made:
    facts = known.facts
    if facts.engine.kind in ("desktop", "remote", "snap") or elsewhere(known, here):
        return Refusal("This engine does not read the CDI specifications of this machine.")
    systemd = here.starter == "systemd"
    does = f"Write {gpu_vendors.label(vendor)}'s CDI specification"
    tool = _toolkit(vendor)
    if remedies.family(facts.platform) == "nixos" and tool.nixos_unit:
        argv: Argv = ("systemctl", "restart", tool.nixos_unit)
        return (
            (Repair("write-cdi", does, (argv,), vendor, root=True),)
            if systemd
            else Refusal("No systemd.")
        )
    if why := _no_tool(known, vendor):
        return Refusal(why)
    old = tuple(path for path in old_specs(facts, vendor) if path.startswith("/"))
    installed = remedies.toolkit(facts, vendor)
    refreshes = (
        tool.refreshes_since and installed and at_least(installed.version, tool.refreshes_since)
    )
    if not old and refreshes and systemd and facts.platform.kind == "linux":
        does = f"{does}, now and after every driver update"
        argv = ("systemctl", "enable", "--now", *tool.refresh_units)
        return (Repair("write-cdi", does, (argv,), vendor, root=True),)
    paths = old or (tool.spec_path,)
    return tuple(
        Repair(
            "write-cdi",
            f"{does} again" if old else does,
            ((tool.ctk, "cdi", "generate", f"--output={path}"),),
            path,
            root=True,
            changes=(path,),
        )
        for path in paths
    )


def restart_engine(known: CheckInput, here: Host, _: str) -> Made:
    engine, platform = known.facts.engine, known.facts.platform
    if elsewhere(known, here) or engine.kind not in ("engine", "snap") or platform.kind == "macos":
        return Refusal("This engine is restarted where it runs.")
    if engine.rootless:
        if why := _own_engine(here):
            return Refusal(why)
        if here.starter != "systemd":
            return Refusal("There is no systemd that could restart it.")
        own: Argv = ("systemctl", "--user", "restart", "docker")
        return (Repair("restart-engine", "Restart Docker", (own,), stops="containers"),)
    commands: dict[str, Argv] = {
        "systemd": ("systemctl", "restart", "docker"),
        "openrc": ("rc-service", "docker", "restart"),
        "snap": ("snap", "restart", "docker"),
    }
    argv = commands.get(here.starter)
    if argv is None and platform.kind == "wsl2":
        argv = ("service", "docker", "restart")
    if argv is None:
        return Refusal("There is no init system that could restart it.")
    return (Repair("restart-engine", "Restart Docker", (argv,), root=True, stops="containers"),)
