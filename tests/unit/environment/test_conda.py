"""What an environment.yml comes down to, and why one cannot be made; nothing is fetched."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.environment import conda, conda_failures, conda_file
from dshpc_setup.environment.conda_failures import Why
from dshpc_setup.environment.conda_file import ALIAS, Site, Wanted
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import CommandResult
from dshpc_setup.resources import package, share

WHOLE = """
name: theirs
channels: [conda-forge, https://mirror.example/bio/, defaults, nodefaults, /srv/channel]
dependencies:
  - python=3.12
  - numpy >=2,<3
  - nvidia::cuda-nvcc
  - pip:
    - cowsay==6.1
variables: {SCALE: 3, EMPTY: }
prefix: /home/ada/miniforge3/envs/theirs
"""


def read(text: str, here: Site | None = None) -> Wanted:
    return conda_file.read(text.encode(), "/p/environment.yml", here or Site())


def test_a_whole_one() -> None:
    wanted = read(WHOLE)
    assert wanted.channels == (
        f"{ALIAS}/conda-forge", "https://mirror.example/bio", "https://repo.anaconda.com/pkgs/main",
        "https://repo.anaconda.com/pkgs/r", "file:///srv/channel", f"{ALIAS}/nvidia",
    )  # fmt: skip
    assert wanted.packages == ("python=3.12", "numpy >=2,<3", "nvidia::cuda-nvcc")
    assert (wanted.pip, wanted.variables) == (("cowsay==6.1",), (("SCALE", "3"), ("EMPTY", "")))
    assert read("dependencies: [r-base]").channels == (f"{ALIAS}/conda-forge",)


def test_the_one_in_the_documents() -> None:
    page = (share() / "docs/how-to/packages.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert read(text) == Wanted(
        (f"{ALIAS}/conda-forge",),
        ("python=3.12", "gdal"),
        ("cowsay",),
        (("GDAL_NUM_THREADS", "4"),),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "It holds no keys"),
        ("[1, 2", "is not YAML"),
        ("dependencies: numpy", "dependencies: a list is needed"),
        ("dependencies: []", "names no package of conda's"),
        ("dependencies: [{pip: numpy}]", "pip: a list is needed"),
        ("dependencies: [{poetry: [numpy]}]", "is neither a package"),
        ("dependencies: [x, {pip: [-r requirements.txt]}]", "lead to others"),
        ("dependencies: [x, {pip: [-e .]}]", "lead to others"),
        ("dependencies: [x]\nchannels: [./own]", "named from the root"),
        ("dependencies: [x]\nchannels: conda-forge", "channels: a list"),
        ("dependencies: [x]\nplatforms: [linux-64]", "platforms: unknown here"),
        ("dependencies: [x]\nvariables: {A B: c}", "'A B' is no variable"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_it_is_told(text: str, says: str) -> None:
    with pytest.raises(DshpcError) as refused:
        read(text)
    assert says in f"{refused.value.brief} {refused.value.details}"
    assert refused.value.exit_code == Exit.USAGE


def test_a_sites_own_settings_of_conda() -> None:
    files = {
        "/own/rc": "channel_alias: https://mirror.example/conda/\n",
        "/home/ada/.condarc": "channel_alias: https://x\ndefault_channels: [main, https://y/r/]\n",
        "/etc/conda/.condarc": "ssl_verify: /etc/ssl/site.pem\n",
    }
    env = {"HOME": "/home/ada", "CONDARC": "/own/rc"}
    found = conda_file.site(env, files.get)
    mirror = "https://mirror.example/conda"
    assert found == Site(mirror, (f"{mirror}/main", "https://y/r"), "/etc/ssl/site.pem")
    assert (
        conda_file.site({**env, "CONDA_CHANNEL_ALIAS": "https://z/"}, files.get).alias
        == "https://z"
    )
    assert conda_file.site({}, {"/etc/conda/.condarc": "- : ["}.get) == Site()


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"fault": "spec", "said": "invalid version"}, Why.SPEC),
        ({"fault": "conflict", "said": "numpy 3.* does not exist"}, Why.CONFLICT),
        ({"fault": "network", "said": "error sending request: dns error"}, Why.UNREACHABLE),
        ({"fault": "network", "said": "invalid peer certificate: UnknownIssuer"}, Why.CERTIFICATE),
        ({"fault": "network", "said": "404 Not Found for url"}, Why.NO_CHANNEL),
        ({"fault": "network", "said": "status client error (403 Forbidden)"}, Why.LOGIN),
        ({"fault": "network", "said": "whatever it says"}, Why.UNREACHABLE),
        ({"fault": "install", "said": "No space left on device (os error 28)"}, Why.DISK_FULL),
        ({"fault": "install", "said": "hash mismatch of the archive"}, Why.DAMAGED),
        ({"fault": "install", "said": "error sending request for url"}, Why.UNREACHABLE),
        ({}, Why.UNKNOWN),
    ],
)  # fmt: skip
def test_why_it_could_not_be_made(found: Mapping[str, Any], reason: Why) -> None:
    done = CommandResult(("python",), "present", 1, "", "gone", 1.0)
    assert conda_failures.why(done, found) is reason
    told = conda_failures.error(done, found, ["https://conda.anaconda.org/t/secret/x"])
    assert told.steps


def test_no_secret_of_a_channel_is_told() -> None:
    done = CommandResult(("python",), "present", 1, "", "", 1.0)
    said = "error sending request for https://ada:pw@host/x and https://host/t/tk-12/x"
    told = conda_failures.error(
        done,
        {"fault": "network", "said": said},
        ["https://ada:pw@host/x", "https://host/t/tk-12/x"],
    )
    assert "pw" not in told.details
    assert "tk-12" not in told.details


def test_the_last_line_answers() -> None:
    out = "= 3 100\n+ python 7000000\nnonsense {\n" + json.dumps({"python": None}) + "\n"
    assert conda._answer(CommandResult((), "present", 0, out, "", 1.0)) == {"python": None}
    assert conda._answer(CommandResult((), "present", 0, "no answer", "", 1.0)) == {}


def test_py_rattler_is_locked() -> None:
    folder = package() / "environment" / "rattler"
    wanted = (folder / "requirements.in").read_text().split()
    text = Path(folder / "requirements.txt").read_text()
    assert wanted == ["py-rattler"]
    assert text.count("\npy-rattler==") + text.startswith("py-rattler==") == 1
    assert text.count("--hash=sha256:") >= 4
