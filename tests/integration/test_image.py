"""The base image and the build, on the real engine and through real proxies."""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dshpc_setup.engine.images import debian_arch
from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.image import builtin_layers, debootstrap, own_base, wheels
from dshpc_setup.image.base import BaseImage, ensure_base
from dshpc_setup.image.build import ImageResult, build, build_args, compose_build
from dshpc_setup.image.context import Context, write_context
from dshpc_setup.image.mirror import Mirror, parse_deb822
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Silent
from tests.integration.cluster import Cluster
from tests.integration.conftest import docker
from tests.integration.relay import bridge_address, own_certificate, serve

pytestmark = pytest.mark.engines("docker", why="about builds by Docker")

RUN = f"dshpc-test-image-{os.getpid()}"


@dataclass(frozen=True)
class Kit:
    """What every build here needs."""

    machine: LocalMachine
    facts: HostFacts
    base: BaseImage
    site: SiteFiles
    mirror: str

    def build(self, context: Context, tag: str, settings: Settings | None = None) -> ImageResult:
        facts = self.facts
        if context.buildkit:
            facts = replace(facts, engine=replace(facts.engine, buildx="0"))
        return build(
            self.machine, facts, settings or Settings(), self.base, context, tag, "none", Silent()
        )


@pytest.fixture(scope="module")
def kit(
    local_machine: LocalMachine, image_facts: HostFacts, base_image: BaseImage, site: SiteFiles
) -> Kit:
    sources = docker("run", "--rm", base_image.ref, "cat", "/etc/apt/sources.list.d/debian.sources")
    return Kit(
        local_machine, image_facts, base_image, site, parse_deb822(sources)[0].uri.rstrip("/")
    )


@pytest.fixture
def tag() -> Iterator[str]:
    name = f"{RUN}:{secrets.token_hex(4)}"
    yield name
    subprocess.run(["docker", "rmi", "-f", name], capture_output=True, timeout=180, check=False)


# --- the base image


@pytest.fixture
def before(kit: Kit) -> list[str]:
    """What another run on this machine has left, or is making: no leftover of the test's."""
    return leftovers()


def leftovers() -> list[str]:
    mounted = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if line]
    folders = [
        str(path) for place in ("/var/tmp", "/tmp") for path in Path(place).glob("dshpc-base.*")
    ]
    return [*folders, *(line for line in mounted if "dshpc-base." in line)]


def recipe(kit: Kit) -> debootstrap.Recipe:
    return debootstrap.recipe(
        kit.machine,
        kit.facts,
        Mirror(kit.mirror),
        kit.site,
        Silent(answer=True),
        interactive=False,
    )


def test_a_base_that_is_there_is_found_at_once(kit: Kit) -> None:
    again = ensure_base(kit.machine, kit.facts, Settings(), Silent())
    assert (again.image_id, again.origin) == (kit.base.image_id, "local")


@contextmanager
def made_base(kit: Kit, maker: str) -> Iterator[Path]:
    if maker == "debootstrap":
        with debootstrap.archive(kit.machine, recipe(kit), Silent(), interactive=False) as made:
            yield made
        return
    source = builtin_layers.archive(kit.machine, kit.facts, Settings(apt_mirror=kit.mirror))
    ids = own_base.find_ids(kit.machine, debian_arch(kit.machine.system[2]))
    assert ids is not None, "these tests are root's"
    with own_base.archive(kit.machine, ids, source, Silent()) as made:
        yield made


@pytest.mark.parametrize("maker", ["own", "debootstrap"])
def test_the_base_is_made_from_packages(
    kit: Kit,
    tag: str,
    before: list[str],
    maker: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with made_base(kit, maker) as archive:
        docker("import", str(archive), tag)
        with tarfile.open(archive) as tar:
            members = {member.name: member for member in tar.getmembers()}
    assert set(leftovers()) <= set(before)
    assert [
        path.name
        for path in tmp_path.glob("dshpc/*")
        if path.name not in ("debs", "images", "base.lock")
    ] == []
    assert list(tmp_path.glob("dshpc/images/*")) == []
    assert not any(name.startswith(("./var/cache/apt/archives/", "./proc/")) and "." in name[2:]
                   and members[name].isfile() for name in members)  # fmt: skip
    assert not [name for name in members if name.startswith("./usr/share/man/")]
    assert "./usr/share/doc/apt/copyright" in members
    assert sum(member.size for member in members.values()) < 130 * 1024 * 1024
    script = ". /etc/os-release; echo $VERSION_CODENAME; cat /etc/apt/sources.list.d/*; ls /dev"
    text = docker("run", "--rm", tag, "sh", "-c", script)
    assert text.startswith("trixie\n")
    assert "Signed-By:" in text
    assert "Suites: trixie" in text


def test_an_archive_whose_signature_is_not_known_is_refused(
    kit: Kit, tmp_path: Path, before: list[str]
) -> None:
    empty = tmp_path / "empty.gpg"
    empty.touch()
    plan = replace(recipe(kit), keyring=str(empty))
    with (
        pytest.raises(DshpcError) as caught,
        debootstrap.archive(kit.machine, plan, Silent(), interactive=False),
    ):
        pass
    assert "signature could not be verified" in caught.value.brief, caught.value.details
    assert set(leftovers()) <= set(before)


_INTERRUPTED = """
import sys
from dshpc_setup.image import debootstrap
from dshpc_setup.image.mirror import Mirror
from dshpc_setup.engine.site import gather_site
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.terminal.reporter import Silent

class Telling(Silent):
    def progress(self, text):
        print(text, flush=True)

machine = LocalMachine()
plan = debootstrap.Recipe(sys.argv[1], sys.argv[2], Mirror(sys.argv[3]), gather_site(machine))
with debootstrap.archive(machine, plan, Telling(), interactive=False):
    pass
"""


def test_ctrl_c_leaves_nothing(kit: Kit, before: list[str]) -> None:
    plan = recipe(kit)
    with subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, plan.arch, plan.keyring, kit.mirror],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as child:
        assert child.stdout is not None
        lines = iter(child.stdout.readline, "")
        # far enough that /proc is mounted in the new root
        next(line for line in lines if "unpacking" in line)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=120)
    assert "KeyboardInterrupt" in errors
    assert set(leftovers()) <= set(before)


# --- the image


@dataclass(frozen=True)
class Planted:
    """A site with a certificate and passwords that can be recognized anywhere."""

    site: SiteFiles
    markers: tuple[bytes, ...]


def planted(kit: Kit, certificate: str, proxies: Callable[[str], dict[str, str]]) -> Planted:
    password, apt_password = secrets.token_hex(12), secrets.token_hex(12)
    apt_conf = f'{kit.site.apt_conf}Acquire::http::Proxy::unused.invalid "http://u:{apt_password}@192.0.2.1:9";\n'
    lines = certificate.strip().splitlines()
    return Planted(
        SiteFiles(kit.site.ca_pem + certificate, apt_conf, proxies(password)),
        (
            lines[len(lines) // 2].encode(),
            password.encode(),
            apt_password.encode(),
            base64.b64encode(f"user:{password}".encode()),
        ),
    )


def assert_without(tag: str, markers: tuple[bytes, ...], folder: Path) -> None:
    """No marker in any layer, name, history or configuration of the image; no key either."""
    told = docker("history", "--no-trunc", tag) + docker("inspect", tag)
    saved = folder / "saved.tar"
    docker("save", "--output", str(saved), tag)
    layers = 0
    with tarfile.open(saved) as image:
        for member in image.getmembers():
            content = image.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            data = content.read()
            assert not [marker for marker in markers if marker in data], member.name
            if not data.startswith(b"{") and not data.startswith(b"["):
                layers += _search_layer(folder, data, markers)
    assert layers > 5000, "the layers of the image were not found"
    assert not [marker for marker in markers if marker.decode() in told]


def _search_layer(folder: Path, data: bytes, markers: tuple[bytes, ...]) -> int:
    """How many files a layer holds; 0 for what is no layer. It may be compressed."""
    path = folder / "layer"
    path.write_bytes(data)
    if not tarfile.is_tarfile(path):
        return 0
    count = 0
    with tarfile.open(path) as layer:
        for member in layer:
            count += 1
            assert not member.name.endswith(("munge.key", "slurm.key")), member.name
            assert "ssh_host_" not in member.name, member.name  # of openssh-server
            assert "dshpc-site" not in member.name
            content = layer.extractfile(member) if member.isfile() else None
            text = content.read() if content is not None else b""
            assert not [marker for marker in markers if marker in text], member.name
    return count


def test_the_old_builder_through_a_proxy_with_a_password(
    kit: Kit, tag: str, tmp_path: Path
) -> None:
    address = bridge_address()
    certificate, _ = own_certificate(tmp_path, address, "planted")
    mirror = kit.mirror.replace("https://", "http://")
    password = secrets.token_hex(12)
    with serve(address, login=f"user:{password}") as relay:
        url = f"http://user:{password}@{address}:{relay.port}"
        plant = planted(
            kit,
            certificate.read_text(),
            lambda _: {"HTTP_PROXY": url, "HTTPS_PROXY": url},
        )
        markers = (*plant.markers, password.encode(),
                   base64.b64encode(f"user:{password}".encode()))  # fmt: skip
        context = write_context(tmp_path / "own/build", buildkit=False, site=plant.site)
        settings = Settings(apt_mirror=mirror)
        result = kit.build(context, tag, settings)
        assert result.built
        # All traffic of the build went through it: packages alone, no Python index, no registry.
        assert relay.requests > 30
        assert relay.hosts == {urlsplit(mirror).hostname}
        assert relay.refused == 0
    assert_without(tag, markers, tmp_path)
    assert docker("ps", "-aq", "--filter", f"ancestor={tag}") == ""
    # Debian's security suite is asked for beside the mirror's own: its Slurm has fewer known holes
    version = docker("run", "--rm", "--entrypoint", "dpkg-query", tag, "-Wf${Version}", "slurmctld")
    assert "+deb13u" in version

    # The same again is not built, and another builder's context is the same.
    assert not kit.build(context, tag, settings).built
    other = write_context(tmp_path / "other/build", buildkit=True, site=kit.site)
    assert not kit.build(other, tag, settings).built

    # A build that fails leaves the tag where it is.
    with pytest.raises(DshpcError) as caught:
        kit.build(context, tag, Settings(apt_mirror=f"http://{address}:9/debian"))
    assert "could not be reached" in caught.value.brief, caught.value.details
    assert json.loads(docker("image", "inspect", tag))[0]["Id"] == result.id
    check_wheels(tag, tmp_path)


def test_buildkit_from_a_mirror_with_a_certificate_of_its_own(
    kit: Kit,
    tag: str,
    tmp_path: Path,
    v2_plugins: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", v2_plugins["DOCKER_CONFIG"])
    address = bridge_address()
    pair = own_certificate(tmp_path, address, "site CA")
    parts = urlsplit(kit.mirror)
    with serve(address, upstream=f"{parts.scheme}://{parts.netloc}", certificate=pair) as relay:
        plant = planted(
            kit,
            pair[0].read_text(),
            lambda password: {
                "HTTP_PROXY": f"http://user:{password}@192.0.2.1:9",
                "NO_PROXY": address,
            },
        )
        settings = Settings(apt_mirror=f"https://{address}:{relay.port}{parts.path}")
        context = write_context(tmp_path / "own/build", buildkit=True, site=plant.site)
        result = kit.build(context, tag, settings)
        assert result.built
        assert relay.requests > 30

        # `docker compose build` with what the compose file holds makes the same image.
        args = build_args(kit.machine, kit.facts, settings, kit.base, "none")
        found = compose_build(context, kit.base, args, tmp_path)
        compose = {
            "services": {"slurm": {"image": f"{tag}c", "build": found["build"]}},
            "secrets": found["secrets"],
        }
        (tmp_path / "docker-compose.yml").write_text(json.dumps(compose))
        subprocess.run(
            ["docker", "compose", "--project-directory", str(tmp_path), "build"],
            check=True,
            capture_output=True,
            timeout=600,
            env={**os.environ, **plant.site.proxy_env()},
        )
        try:
            assert not kit.build(context, f"{tag}c", settings).built
        finally:
            docker("rmi", "-f", f"{tag}c")

        # Without the site's certificate the mirror is not trusted, and that is what is said.
        bare = write_context(tmp_path / "bare/build", buildkit=True, site=kit.site)
        docker("rmi", "-f", tag)
        with pytest.raises(DshpcError) as caught:
            kit.build(bare, tag, replace(settings, apt_mirror=f"{settings.apt_mirror}/."))
        assert "certificate" in caught.value.brief, caught.value.details

    context = write_context(tmp_path / "own/build", buildkit=True, site=plant.site)
    assert kit.build(context, tag, settings).built  # from the cache: the mirror is gone
    assert_without(tag, plant.markers, tmp_path)


_BUILDING = """
import json, sys
from pathlib import Path
from dshpc_setup.engine.images import docker
from dshpc_setup.image.build import command
from dshpc_setup.image.context import Context
from dshpc_setup.engine.build_failures import Progress
from dshpc_setup.machine.local import LocalMachine

machine = LocalMachine()
context = Context(Path(sys.argv[1]), "", buildkit=False)
argv, env = command(machine, "classic", context, sys.argv[2], json.loads(sys.argv[3]))
machine.run(argv, deadline_s=300, env=env, on_line=lambda line: print(line, flush=True))
"""


def test_ctrl_c_ends_the_build(kit: Kit, tag: str, tmp_path: Path) -> None:
    with socket.create_server((bridge_address(), 0)) as silent:  # takes calls and says nothing
        port = silent.getsockname()[1]
        context = write_context(tmp_path / "own/build", buildkit=False, site=kit.site)
        args = {
            "BASE_IMAGE": kit.base.ref,
            "GPU_TYPE": "none",
            "CUDA_RUNTIME": "no",
            "APT_MIRROR": f"http://{bridge_address()}:{port}/debian",
        }
        argv = [sys.executable, "-c", _BUILDING, str(context.folder), tag, json.dumps(args)]
        with subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        ) as child:
            assert child.stdout is not None
            lines = iter(child.stdout.readline, "")
            ran = list(_until(lines, "Running in ", after="install.sh packages"))
            container = ran[-1].split()[-1]
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=60)
    assert child.returncode != 0
    until = time.monotonic() + 60
    while docker("ps", "-aq", "--filter", f"id={container}") and time.monotonic() < until:
        time.sleep(0.2)
    assert docker("ps", "-aq", "--filter", f"id={container}") == ""
    assert docker("images", "-q", tag) == ""


def _until(lines: Iterator[str], what: str, *, after: str) -> Iterator[str]:
    """The lines up to the first holding `what` that follows one holding `after`."""
    seen = False
    for line in lines:
        yield line
        seen = seen or after in line
        if seen and what in line:
            return
    pytest.fail(f"{what!r} did not appear after {after!r}")


_RENDER = """
import jinja2, markupsafe, pynvml, sys
assert sys.version_info[:2] == (3, 13), sys.version
assert jinja2.__file__.startswith("/tmp/lib/"), jinja2.__file__
assert "markupsafe._speedups" not in sys.modules
from dshpc_setup import resources
assert (resources.container() / "Dockerfile.j2").is_file()
print(jinja2.Environment(autoescape=True).from_string("<b>{{ x }}</b>").render(x="<&>"))
"""


def check_wheels(image: str, tmp_path: Path) -> None:
    """The wheels unpack, import and render with the Python of trixie, with nothing else there."""
    folder = tmp_path / "wheels"
    wheels.write(folder)
    text = docker(
        "run", "--rm", "--network", "none", "--volume", f"{folder}:/wheels:ro",
        "--entrypoint", "sh", image, "-euc",
        'for w in /wheels/*; do python3 -m zipfile -e "$w" /tmp/lib; done; '
        'PYTHONPATH=/tmp/lib PYTHONDONTWRITEBYTECODE=1 python3 -c "$0"', _RENDER,
    )  # fmt: skip
    assert text == "<b>&lt;&amp;&gt;</b>\n"


# --- the image of a cluster


def test_renew_builds_from_the_packages_of_today(fresh: Cluster) -> None:
    """Its first layer, which has the packages, is made anew once; later runs keep to what was made."""

    def layers() -> list[str]:
        (image,) = set(docker("images", "-q", fresh.container).split())
        found = json.loads(docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", image))
        assert isinstance(found, list)
        return found

    fresh.configure("--no-start").good()
    before = layers()
    fresh.configure("--renew", "--no-start").good()
    renewed = layers()
    assert renewed[0] not in before, "the packages were installed again"
    fresh.configure("--no-start").good()
    assert layers() == renewed


def test_a_file_is_dockers_image_and_stays_it(
    standard: Cluster, fresh: Cluster, tmp_path: Path
) -> None:
    """As `dshpc node add` carries it: it is neither built nor made anew by a later run."""
    file = tmp_path / "image.tar.gz"
    standard.dshpc("image", "save", str(file)).good()
    fresh.configure("--image-file", str(file), "--simulate", "h100:1").good()
    assert "build:" not in (fresh.folder / "docker-compose.yml").read_text()
    assert fresh.said("srun", "--gres=gpu:1", "hostname") == fresh.prefix
    began = fresh.started_at
    fresh.configure().good()
    assert fresh.started_at == began
