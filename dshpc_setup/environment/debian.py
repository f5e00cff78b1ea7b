"""What Debian offers under which version, asked in a container of the base image."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from dshpc_setup import resources
from dshpc_setup.engine.build_failures import reason, redacted, tail
from dshpc_setup.engine.images import docker
from dshpc_setup.engine.site import CA_FILE, SiteFiles
from dshpc_setup.environment.model import DebianPackage, Declaration
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import Machine

R = "r-base-core"
_ASK_S = 600.0
_END = "dshpc-end-of-file"
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_SAID = re.compile(r"^dshpc-version (\S+) (\S+)$", re.MULTILINE)


def lock(
    machine: Machine, base: str, mirror: str, site: SiteFiles, declared: Declaration
) -> tuple[DebianPackage, ...]:
    """Each declared package with its version; raises DshpcError for what Debian has not."""
    names = names_of(declared)
    return chosen(declared, versions(machine, base, mirror, site, names) if names else {})


def names_of(declared: Declaration) -> set[str]:
    """All names under which Debian may have what is declared."""
    names = {*declared.apt, *(each for name in declared.r for each in r_names(name))}
    return names | {R} if declared.r else names


def r_names(package: str) -> tuple[str, str]:
    """What Debian may call an R package: of CRAN, or of Bioconductor."""
    return f"r-cran-{package.lower()}", f"r-bioc-{package.lower()}"


def versions(
    machine: Machine, base: str, mirror: str, site: SiteFiles, names: Iterable[str]
) -> dict[str, str]:
    """Name -> version of what the mirror offers; a name that it lacks is left out."""
    call = argv(docker(machine), base, mirror, site, names)
    env = {"LC_ALL": "C", **site.proxy_env()}
    done = machine.run(call, deadline_s=_ASK_S, env=env, stdin=script(site))
    if done.ok:
        return dict(_SAID.findall(done.stdout))
    text = redacted(tail(done.text), site.secrets)
    if done.state == "timeout":
        brief = "The package mirror of Debian did not answer in time"
        steps = ("Check the network, or name another: --apt-mirror.",)
        raise DshpcError(f"{brief}.", text, steps, Exit.INCOMPLETE)
    why = reason(done.text)
    raise DshpcError(f"Debian's packages could not be asked for: {why.brief}.", text, why.steps)


def argv(client: str, base: str, mirror: str, site: SiteFiles, names: Iterable[str]) -> list[str]:
    """The call; what the site needs comes by the environment and by stdin, never as a word."""
    words = sorted(names)
    if not all(map(_NAME.fullmatch, words)):
        raise ValueError(words)
    environment = [word for key in site.proxy_env() for word in ("--env", key)]
    return [
        *(client, "run", "--rm", "--interactive", "--name", f"dshpc-env-{os.getpid()}"),
        *("--network", "host" if site.uses_loopback() else "bridge"),
        *environment,
        *("--env", f"APT_MIRROR={mirror}", base, "sh", "-s", "--", "versions", *words),
    ]


def script(site: SiteFiles) -> str:
    """install.sh, with the site's files laid down before it."""
    folder = CA_FILE.rpartition("/")[0]
    files = (("ca.pem", site.ca_pem), ("apt.conf", site.apt_conf))
    laid = [f"cat >{folder}/{name} <<'{_END}'\n{text}\n{_END}\n" for name, text in files]
    own = (resources.container() / "install.sh").read_text(encoding="utf-8")
    return f"umask 077; mkdir -p {folder}\n{''.join(laid)}umask 022\n{own}"


def chosen(declared: Declaration, there: Mapping[str, str]) -> tuple[DebianPackage, ...]:
    """Each declared package with its version, of what there is; DshpcError for what is not."""
    return tuple(_chosen(declared, there))


def _chosen(declared: Declaration, there: Mapping[str, str]) -> Iterator[DebianPackage]:
    missing = [name for name in declared.apt if name not in there]
    r_missing = [x for x in declared.r if not any(each in there for each in r_names(x))]
    if missing or r_missing:
        lines = [f"{name}: Debian trixie has no package of that name." for name in missing]
        lines += [
            f"{name}: Debian has neither {' nor '.join(r_names(name))}." for name in r_missing
        ]
        steps = ["Correct the names, or take them out: dshpc env remove"]
        if r_missing:
            steps.append("R packages that Debian does not have cannot be installed here yet.")
        raise DshpcError("Some packages are not in Debian.", "\n".join(lines), tuple(steps))
    for name in sorted(declared.apt):
        yield DebianPackage(name, there[name], "apt")
    if declared.r:
        r = {next(each for each in r_names(name) if each in there) for name in declared.r}
        for name in sorted({R, *r} - set(declared.apt)):
            yield DebianPackage(name, there[name], "r")
