"""Conda's packages chosen and laid out, in a process that has py-rattler beside dsHPC's own packages.

stdin: one JSON object (`main`). stdout: a line "= COUNT BYTES" of what was chosen, "+ NAME BYTES" for each
package as it is fetched, and at last one JSON object: {"python": "3.12.7"}, or {"fault": ..., "said": ...}.
No code of a package is run: its link scripts are left out, and the paths in it are those that it has in the
end.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from dshpc_setup.documents import foreign

_SOLVE_S = 600.0
# Of py-rattler's exceptions, what each comes down to; another one is a fault of its own
_FAULTS = {
    "InvalidMatchSpecError": "spec",
    "PackageNameMatcherParseError": "spec",
    "InvalidChannelError": "channel",
    "InvalidUrlError": "channel",
    "SolverError": "conflict",
    "GatewayError": "network",
    "FetchRepoDataError": "network",
    "TimeoutError": "slow",
}


def main(tool: str) -> NoReturn:
    sys.path.append(tool)
    asked = foreign.value(sys.stdin.read())
    try:
        found = {"python": asyncio.run(_made(asked))}
    except Exception as error:  # noqa: BLE001  # py-rattler's are told by their names
        name = type(error).__name__
        found = {"fault": _FAULTS.get(name, "install"), "said": f"{error}" or name}
    _line(json.dumps(found))
    # py-rattler's threads outlive it, and crash one interpreter in twenty that takes itself apart
    os._exit(1 if "fault" in found else 0)


async def _made(asked: dict[str, Any]) -> str | None:
    """The version of Python that was laid out, None without one."""
    from rattler import Channel, Gateway, MatchSpec, Subdir, install, solve
    from rattler.config import Config
    from rattler.networking import Client

    # A site's mirrors and logins, as pixi and rattler are told them
    config = Config.load_from_default_locations("rattler")
    # What jobs write in an environment must not reach the packages that are kept for others
    config.set("allow-hard-links", "false")
    config.set("allow-symbolic-links", "false")
    client = Client.from_config(config)
    cache = Path(asked["cache"])
    gateway = Gateway.from_config(config, cache_dir=cache / "repodata", client=client)
    subdirs = [Subdir(asked["subdir"]), Subdir("noarch")]
    specs = [MatchSpec(each) for each in asked["packages"]]
    records = await asyncio.wait_for(
        solve(
            [Channel(each) for each in asked["channels"]],
            specs,
            gateway=gateway,
            platforms=subdirs,
            virtual_packages=_virtual(asked),
        ),
        _SOLVE_S,
    )
    sizes = {record.name.normalized: record.size or 0 for record in records}
    _line(f"= {len(records)} {sum(sizes.values())}")
    await install(
        records,
        asked["tree"],
        cache_dir=cache / "packages",
        installed_packages=[],
        platform=subdirs[0],
        execute_link_scripts=False,
        client=client,
        reporter=_Shown(sizes),
        alternative_target_prefix=asked["final"],
        config=config,
    )
    return next((str(each.version) for each in records if each.name.normalized == "python"), None)


def _virtual(asked: dict[str, Any]) -> list[Any]:
    """What the image and its node are. The driver's CUDA is this machine's, where nothing else was said
    (CONDA_OVERRIDE_CUDA)."""
    from rattler import GenericVirtualPackage, PackageName, Version, VirtualPackage
    from rattler.package import BuildString
    from rattler.virtual_package import Override, VirtualPackageOverrides

    overrides = VirtualPackageOverrides(cuda=Override.default_env_var())
    seen = [each.into_generic() for each in VirtualPackage.detect(overrides)]
    cuda = [each for each in seen if each.name.normalized.startswith("__cuda")]
    told = [
        GenericVirtualPackage(PackageName(name), Version(version), BuildString(build))
        for name, version, build in asked["virtual"]
    ]
    return [*told, *cuda]


class _Shown:
    """Each package as it is fetched; py-rattler calls what is here of its reporter's methods."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes, self._names = sizes, list[str]()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_: 0

    def on_populate_cache_start(self, _operation: int, name: str) -> int:
        self._names.append(name)
        return len(self._names) - 1

    def on_download_start(self, entry: int) -> int:
        name = self._names[entry]
        _line(f"+ {name} {self._sizes.get(name, 0)}")
        return entry


def _line(text: str) -> None:
    os.write(1, f"{text}\n".encode(errors="replace"))
