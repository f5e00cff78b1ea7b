"""The files of a report: what was asked, without what identifies people and machines.

One scrubber does all of them, and learns all of them before it writes the first: what one shows to be
a secret is one in the others, and a thing has the same pseudonym everywhere.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from dshpc_setup import __version__
from dshpc_setup.bundle import PROOF_SCHEMA, SETTINGS_SCHEMA, VERSIONS_SCHEMA, configs, contents
from dshpc_setup.bundle.sources import Sources
from dshpc_setup.diagnose import to_json
from dshpc_setup.machine import Machine
from dshpc_setup.observed import stored
from dshpc_setup.observed.model import Observed
from dshpc_setup.passthrough import proof_key
from dshpc_setup.record import scrubbed as of_recording
from dshpc_setup.record import words
from dshpc_setup.record.scrub import Scrubber
from dshpc_setup.settings import Settings

# Folders that are the same on every machine, with all below them; and those that are so alone.
_TREES = ("/dev", "/proc", "/sys", "/run", "/var/run", "/etc", "/usr", "/lib", "/bin", "/config",
          "/var/lib/docker", "/var/lib/dshpc", "/var/lib/nvidia", "/var/log", "/var/spool")  # fmt: skip
_ALONE = frozenset(
    "/ /data /export /home /mnt /net /opt /opt/rocm /projects /root /scratch /srv /tmp /var "
    "/var/lib /var/tmp /work".split()
)
_IMAGE = re.compile(
    r"""(?m)^\s*(?:image|FROM)\s*:?\s+["']?([A-Za-z0-9.-]+\.[A-Za-z0-9.-]+)(?::\d+)?/"""
)
_KILLED = re.compile(r"(?P<job>\S+) \((?P<name>.*)\)")


def files(machine: Machine, sources: Sources) -> dict[str, str]:
    """Name in the report -> text, with everything replaced."""
    scrubber = _scrubber(machine, sources)
    values = _values(scrubber, sources)
    texts = _texts(sources)
    for known in (*values.values(), *texts.values()):
        scrubber.learn(known)
    recording = of_recording.texts(machine, sources.log, scrubber)
    # What is named for sure is called by its pseudonym now that all are known.
    values = _values(scrubber, sources, learning=False)
    _without_comments(values)
    found = {f"machine/{name}": text for name, text in recording.items()}
    found |= {
        name: _plain(_json(_with_ports(scrubber.value(value), value)))
        for name, value in values.items()
    }
    for name, text in texts.items():
        told = scrubber.text(_config(name, text))
        found[name] = contents.cut(_plain(told), end=name.startswith("log/"))
    return found


def _with_ports(scrubbed: Any, value: Any) -> Any:
    """The settings with the numbers of their ports, which would pass for somebody's: a replay reads them."""
    texts = value.get("texts") if isinstance(value, dict) else None
    if isinstance(texts, dict) and "slurm_ports" in texts:
        scrubbed["texts"]["slurm_ports"] = texts["slurm_ports"]
    return scrubbed


def _config(name: str, text: str) -> str:
    """A configuration file without what is not for programs; another text as it is."""
    if name.endswith(".conf"):
        return configs.slurm(text)
    if name.endswith((".yml", ".yaml")):
        return configs.yaml(text, settings=name.endswith("dshpc.yaml"))
    return text


def _without_comments(values: dict[str, Any]) -> None:
    """The same of the files that were observed, and of what the settings bring to slurm.conf."""
    observed = values["observed.json"]
    for file in observed["files"]:
        if file["text"] is not None:
            file["text"] = _config(file["path"], file["text"])
    for inside in (observed["inside"], *(each["inside"] for each in observed["others"])):
        for name in ("slurm_conf", "gres_conf", "cgroup_conf"):
            if inside is not None and inside.get(name) is not None:
                inside[name] = configs.slurm(inside[name])
    texts = values.get("settings/settings.json", {}).get("texts", {})
    if "slurm_conf_extra" in texts:
        texts["slurm_conf_extra"] = configs.slurm(texts["slurm_conf_extra"])


def _plain(text: str) -> str:
    """Without what no encoding has, such as the bytes of a name in none."""
    return text.encode("utf-8", "replace").decode()


def _scrubber(machine: Machine, sources: Sources) -> Scrubber:
    """Knows the names of the cluster, of its users, jobs and folders as well."""
    observed = sources.known.observed
    prefix = sources.settings.prefix if sources.settings is not None else "dshpc"
    others = (observed.container.sharing if observed.container else None) or ()
    hosts = [prefix, *_nodes(observed), *(other.prefix for other in others)]
    scrubber = of_recording.scrubber_of(
        machine,
        more_hosts=hosts,
        kept=[name for name in hosts if not words.is_telling(name)],
    )
    for name, text in sources.variables.items():
        if re.fullmatch(words.SECRET_KEYS, name):
            scrubber.secret(text)
    for path in _folders(sources):
        scrubber.folder(path)
    if sources.folder is not None:
        scrubber.volume(sources.folder.rstrip("/").rpartition("/")[2])
    for name in observed.container.mounts.values() if observed.container else ():
        inner = re.search(r"/volumes/([^/]+)/", name)
        if inner or not name.startswith("/"):
            scrubber.volume(inner[1] if inner else name)
    for text in (*sources.rendered.values(), *_images(sources)):
        for host in _IMAGE.findall(text):
            scrubber.registry(host)
    return scrubber


def _nodes(observed: Observed) -> list[str]:
    names = [node.name for node in observed.cluster.nodes] if observed.cluster else []
    names += [each.name for each in observed.others]
    seen = (observed.inside, *(each.inside for each in observed.others))
    return [*names, *(inside.host_name for inside in seen if inside and inside.host_name)]


def _images(sources: Sources) -> list[str]:
    """As lines of a compose file, in whose form the registries of images are looked for."""
    observed = sources.known.observed
    found = [
        observed.container.image if observed.container else None,
        observed.cluster.image if observed.cluster else None,
        sources.settings.base_image if sources.settings else None,
    ]
    return [f"image: {image}" for image in found if image]


def _folders(sources: Sources) -> Iterable[str]:
    observed = sources.known.observed
    paths = [sources.folder, observed.project, *(disk.path for disk in observed.disks)]
    paths += [each.path for each in observed.lent]
    if observed.cluster is not None:
        paths.append(observed.cluster.project)
    if observed.container is not None:
        for where, source in observed.container.mounts.items():
            paths += [where, source]
        paths += [other.folder for other in observed.container.sharing or ()]
    if sources.settings is not None:
        paths.append(sources.settings.work)
    whole = {path.rstrip("/") for path in paths if path and path.startswith("/")} - _ALONE - {""}
    below = tuple(f"{tree}/" for tree in _TREES)
    own = {path for path in whole if not f"{path}/".startswith(below)}
    return sorted(path for path in own if not _is_plainly_in(path, own))


def _is_plainly_in(path: str, others: set[str]) -> bool:
    """Whether it is "config" or the like in another one, whose pseudonym does for both."""
    parent, _, name = path.rpartition("/")
    return parent in others and words.is_common(name)


def _texts(sources: Sources) -> dict[str, str]:
    found = {f"rendered/{path}": text for path, text in sources.rendered.items()}
    if sources.settings_text is not None:
        found["settings/dshpc.yaml"] = sources.settings_text
    if sources.container_log:
        found["log/container.log"] = "\n".join(sources.container_log) + "\n"
    return found


def _values(scrubber: Scrubber, sources: Sources, *, learning: bool = True) -> dict[str, Any]:
    """The JSON files; `learning`: with what is named for sure still under its own name."""
    known = sources.known
    facts = known.facts
    if not learning and facts.engine.name:
        facts = replace(facts, engine=replace(facts.engine, name=scrubber.host(facts.engine.name)))
    observed = stored.to_json(known.observed)
    found = {
        "facts.json": json.loads(json.dumps(facts.to_json(explain=True))),
        "findings.json": to_json(sources.findings),
        "observed.json": observed if learning else _named(observed, scrubber),
        "versions.json": _versions(sources),
    }
    _learn_people(known.observed, scrubber)
    if sources.settings is not None:
        found["settings/settings.json"] = _settings(sources.settings)
    if known.proof is not None:
        proof = known.proof.to_json()
        if proof["user"] is not None:
            proof["user"] = [scrubber.uid(proof["user"][0]), proof["user"][1]]
        fits = known.plan is not None and known.proof.key == proof_key(
            known.facts, known.plan, known.whole
        )
        found["proof.json"] = {"schema": PROOF_SCHEMA, "fits": fits, "proof": proof}
    return found


def _learn_people(observed: Observed, scrubber: Scrubber) -> None:
    """Users and jobs, wherever they stand."""
    pending = (observed.cluster.pending if observed.cluster else None) or ()
    seen = (observed.inside, *(each.inside for each in observed.others))
    killed = (text for inside in seen if inside for text in inside.out_of_memory)
    scrubber.learn([stuck.user for stuck in pending], "user")
    jobs = [stuck.name for stuck in pending]
    jobs += [found["name"] for found in map(_KILLED.fullmatch, killed) if found]
    scrubber.learn(jobs, "job_name")


def _named(observed: dict[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    """With the names of nodes and jobs replaced where nothing but their place tells them."""
    cluster = observed["cluster"] or {}
    for node in (*cluster.get("nodes", ()), *observed["others"]):
        node["name"] = scrubber.host(node["name"])
    for stuck in cluster.get("pending") or ():
        stuck["name"] = scrubber.job(stuck["name"])
    for inside in (observed["inside"], *(each["inside"] for each in observed["others"])):
        if inside is None:
            continue
        inside["out_of_memory"] = [
            _KILLED.sub(lambda one: f"{one['job']} ({scrubber.job(one['name'])})", text)
            for text in inside["out_of_memory"]
        ]
    return observed


def _settings(settings: Settings) -> dict[str, Any]:
    return {
        "schema": SETTINGS_SCHEMA,
        "texts": dict(settings.texts),
        "sources": {name: asdict(source) for name, source in settings.sources.items()},
    }


def _versions(sources: Sources) -> dict[str, Any]:
    engine, inside = sources.known.facts.engine, sources.known.observed.inside
    compose, daemons = engine.compose, inside.daemons if inside is not None else ()
    return {
        "schema": VERSIONS_SCHEMA,
        "dshpc": __version__,
        "python": platform.python_version(),
        "engine": engine.server_version,
        "compose": None if compose is None else compose.version,
        "slurm": {item.name: item.running_version or item.version for item in daemons},
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
