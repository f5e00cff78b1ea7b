"""The folder that the builder is given: Dockerfile, the container's files, wheels, and the site's.

With BuildKit the site's files are secrets and lie beside it, in `build-secrets`; the old builder
wants them in it, in `site`, and the Dockerfile leaves them behind in an earlier stage.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dshpc_setup import gpu_vendors, resources
from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.environment.layer import ARCHIVE, Layer
from dshpc_setup.errors import DshpcError
from dshpc_setup.files.anchored import anchored, new_folder
from dshpc_setup.image import wheels

_TEMPLATE = "Dockerfile.j2"
PACKAGES = "gpu-packages"
SMALL = "dpkg-small.cfg"
_CUDA_FILE = "cuda-packages"
CUDA_PACKAGES = (
    *("libcudart12", "libcublas12", "libcublaslt12", "libcufft11", "libcurand10", "libcusolver11"),
    *("libcusparse12", "libnvrtc12"),
)
"""With `cuda_runtime: yes`: the libraries that a program is linked to. The driver's own (libcuda,
libnvidia-ml) come from the host with the GPU; a second copy in the image would stand in their way."""
LAYER = "environment"  # in the context, where methods need packages


@dataclass(frozen=True)
class Context:
    """`digest` covers all that ends up in the image, not which builder is used, nor the site."""

    folder: Path
    digest: str
    buildkit: bool
    site: SiteFiles = field(default_factory=SiteFiles, repr=False)
    renewed: str = ""  # when its packages were last asked to be those of the day

    @property
    def secrets(self) -> dict[str, Path]:
        """Secret id -> file, as the Dockerfile for BuildKit asks for them."""
        folder = self.secrets_folder
        return {"ca": folder / "ca.pem", "apt": folder / "apt.conf"} if self.buildkit else {}

    @property
    def secrets_folder(self) -> Path:
        """Where the site's files lie for BuildKit: beside the context, never in it."""
        return _beside(self.folder)


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-secrets")


def write_context(
    folder: Path, *, buildkit: bool, site: SiteFiles, layer: Layer | None = None
) -> Context:
    """Write the context anew and put it in the place of the old one in one step.

    `layer`: what methods need, where something is declared. Raises DshpcError where the folder
    cannot be written; the old one is then still whole.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            anchored(folder.parent) as above,
            new_folder(f".{folder.name}.", above) as (name, new),
        ):
            _fill(new, buildkit=buildkit, layer=layer)
            digest = tree_digest(new)  # before the site's files are in it
            placed = above / folder.name
            _write_site(new / "site" if not buildkit else None, _beside(placed), site)
            _swap(above / name, placed)
    except OSError as error:
        raise DshpcError(
            f"The build folder {folder} could not be written.",
            str(error),
            ("Free space there or correct its owner, and run again.",),
        ) from None
    return Context(folder, digest, buildkit, site)


def dockerfile(*, buildkit: bool, layer: Layer | None = None) -> str:
    """The Dockerfile for one of the two builders."""
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )
    text = (resources.container() / _TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(text).render(buildkit=buildkit, layer=layer)


def _fill(new: Path, *, buildkit: bool, layer: Layer | None) -> None:
    shutil.copytree(
        resources.container(),
        new,
        dirs_exist_ok=True,
        symlinks=True,
        ignore=shutil.ignore_patterns(_TEMPLATE, "__pycache__", "*.pyc"),
    )
    new.chmod(0o700)
    for path in _files(new):
        # git keeps no more than this of a mode, and a wheel not even that
        if not path.is_symlink():
            path.chmod(0o755 if _is_script(path) else 0o644)
    text = dockerfile(buildkit=buildkit, layer=layer)
    (new / "Dockerfile").write_text(text, encoding="utf-8")
    if layer is not None:
        layer.write(new / LAYER)
    (new / PACKAGES).write_text(_packages(), encoding="utf-8")
    (new / _CUDA_FILE).write_text("\n".join(CUDA_PACKAGES) + "\n", encoding="utf-8")
    wheels.write(new / "wheels")


def gpu_packages() -> dict[str, tuple[str, ...]]:
    """GPU_TYPE -> the packages of Debian that the image takes for it, where there are such."""
    vendors = gpu_vendors.all_of_them()
    every = dict.fromkeys(package for each in vendors for package in each.image.packages)
    return {each.name: each.image.packages for each in vendors} | {"none": (), "all": (*every,)}


def _packages() -> str:
    """For install.sh: a line for each GPU_TYPE."""
    return "".join(f"{' '.join((name, *each))}\n" for name, each in gpu_packages().items())


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            yield path


def tree_digest(folder: Path) -> str:
    """Over paths, modes and contents; the Dockerfile counts as its template.

    So that the image is not built anew because another builder was found. The archive of locked
    packages may be gigabytes: the hashes in the file beside it stand for it.
    """
    total = hashlib.sha256()
    for path in _files(folder):
        if path == folder / LAYER / ARCHIVE:
            continue
        if path.is_symlink():
            kind, content = "link", str(path.readlink()).encode()
        else:
            kind, content = f"{path.stat().st_mode & 0o777:o}", path.read_bytes()
        if path == folder / "Dockerfile":
            content = (resources.container() / _TEMPLATE).read_bytes()
        name = path.relative_to(folder).as_posix()
        total.update(f"{name}\0{kind}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def _write_site(inside: Path | None, beside: Path, site: SiteFiles) -> None:
    """The site's files, 0600, in the context or beside it; never both."""
    if inside is not None:
        shutil.rmtree(beside, ignore_errors=True)
    folder = inside or beside
    folder.mkdir(mode=0o700, exist_ok=True)
    with anchored(folder) as at:
        for name, text in (("ca.pem", site.ca_pem), ("apt.conf", site.apt_conf)):
            temporary = at / f".{name}.new"
            temporary.unlink(missing_ok=True)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            temporary.rename(at / name)


def _swap(new: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
