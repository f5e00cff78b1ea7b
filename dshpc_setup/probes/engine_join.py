"""The engine's answer and this machine's own files together: what is installed, and what is in force."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import Because, CdiSpec, Conclusion, Engine, Toolkit
from dshpc_setup.probes import cdi, engine_files
from dshpc_setup.probes.toolkit import Installed

_MOST_NAMED = 3
_ELSEWHERE = ("desktop", "remote")  # kinds of engines that read none of this machine's files


def join(
    engine: Engine, installed: Installed, specs: Iterable[CdiSpec]
) -> tuple[Engine, tuple[Conclusion, ...]]:
    """The engine with the fields that are of this machine's file system, and what follows."""
    if why := engine_files.outside(engine, installed.daemons, installed.container):
        says = "not known: the engine and its toolkits are outside of this container"
        return engine, (Conclusion("docker.toolkit", says, why),)
    daemon = engine_files.chosen(engine, installed.daemons)
    # One that does not answer, or not by a socket that is known, most likely reads the usual file.
    reads = engine.kind not in (*_ELSEWHERE, "podman")
    settings = daemon or (installed.daemons.get("engine") if reads else None)
    folders = cdi.folders(engine)
    kept, replaced = cdi.in_force(cdi.of_folders(specs, folders), folders)
    found = replace(
        engine,
        toolkits=installed.toolkits,
        cdi_specs=kept,
        registered=settings.runtimes if settings else (),
        log_max_size=settings.log_max_size if settings else None,
        newer=engine_files.newer(daemon, installed.toolkits, installed.changed),
    )
    conclusions = [
        *(_toolkit(each, found) for each in found.toolkits),
        *(_registered(found, settings, daemon) for _ in found.registered[:1] if settings),
        *(_newer(found, daemon, installed) for _ in found.newer[:1] if daemon),
        *(_spec(spec) for spec in found.cdi_specs),
        *(_replaced(path, other) for path, other in replaced.items()),
    ]
    return found, tuple(conclusions)


def _toolkit(it: Toolkit, engine: Engine) -> Conclusion:
    about = f"docker.toolkit {it.vendor}"
    name = f"the {gpu_vendors.of(it.vendor).toolkit_label}"
    if it.state != "present":
        why = Because("/usr/local/bin, /usr/bin and the like", "no program of it is there")
        return Conclusion(about, f"{name} is not installed{_harmless(it, engine)}", (why,))
    version = f" {it.version}" if it.version else ""
    roles = (
        (it.hook, "the hook that --gpus calls"),
        (it.runtime, "the runtime"),
        (it.ctk, "its tool"),
        (it.cdi_hook, "the hook that CDI specifications call"),
    )
    because = [Because(path, says) for path, says in roles if path]
    because += [Because("config.toml", says) for says in _settings(it)]
    late = " after the engine was started" if {it.hook, it.runtime} & {*engine.newer} else ""
    how = "was installed or changed" if late else "is installed"
    return Conclusion(about, f"{name}{version} {how}{late}", tuple(because))


def _harmless(it: Toolkit, engine: Engine) -> str:
    """Why no container misses it, where none does."""
    if engine.kind in _ELSEWHERE:
        return " here, where no container runs"
    known = gpu_vendors.of(it.vendor).toolkit
    if known is not None and not known.needed:
        return ", and not needed: containers can be given the device nodes"
    return ""


def _settings(it: Toolkit) -> Iterator[str]:
    if it.detail:
        yield it.detail
    if it.no_cgroups is not None:
        yield f"no-cgroups = {str(it.no_cgroups).lower()}"
    if it.mode:
        yield f"mode = {it.mode}"
    if it.capabilities:
        yield f"supported-driver-capabilities = {','.join(it.capabilities)}"


def _registered(
    engine: Engine, settings: engine_files.Daemon, answered: engine_files.Daemon | None
) -> Conclusion:
    because = [Because(settings.settings, f"it names {', '.join(engine.registered)}")]
    if answered is not None:
        unknown = unknown_runtimes(engine)
        said = f"it does not list {', '.join(unknown)}" if unknown else "it lists them"
        because.append(Because("docker info, Runtimes", said))
    return Conclusion("docker.registered", ", ".join(engine.registered), tuple(because))


def unknown_runtimes(engine: Engine) -> tuple[str, ...]:
    """Runtimes that daemon.json names and the engine does not know: it has not read the file since."""
    return tuple(name for name in engine.registered if name not in engine.runtimes)


def late_hooks(engine: Engine) -> tuple[str, ...]:
    """Hooks that this engine most likely did not find when it started: it wants a restart.

    Of one that knows the vendor's runtime an update of the toolkit is likelier, and needs none.
    """
    return tuple(
        it.hook
        for it in engine.toolkits
        if it.hook and it.hook in engine.newer and it.vendor not in engine.runtimes
    )


def _newer(engine: Engine, daemon: engine_files.Daemon, installed: Installed) -> Conclusion:
    started = daemon.started or 0.0
    because = [Because(daemon.source, "when the engine was started")]
    because += [
        Because(path, f"changed {_ago(installed.changed[path] - started)} after that")
        for path in engine.newer
    ]
    count = len(engine.newer)
    files = "1 file is" if count == 1 else f"{count} files are"
    return Conclusion("docker.newer", f"{files} newer than the running engine", tuple(because))


def _ago(seconds: float) -> str:
    for length, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} seconds"


def _spec(it: CdiSpec) -> Conclusion:
    form = f" of format {it.version}" if it.version else ""
    because = [Because(it.path, it.detail or f"a CDI specification{form}")]
    if it.driver_version:
        because.append(Because("its libraries", f"they are of driver {it.driver_version}"))
    if it.missing:
        more = len(it.missing) - _MOST_NAMED
        named = ", ".join(it.missing[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        because.append(Because("this machine", f"it has no {named}"))
    return Conclusion(f"docker.cdi {it.path}", cdi.in_words(it), tuple(because))


def _replaced(path: str, other: str) -> Conclusion:
    says = "without effect: a later folder's specification names all of its devices"
    return Conclusion(f"docker.cdi {path}", says, (Because(other, "it counts"),))
