from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.errors import DshpcError
from dshpc_setup.image import wheels
from dshpc_setup.image.context import dockerfile, write_context

SITE = SiteFiles("CERTIFICATE-S3CR3T", "APT-S3CR3T", {"HTTP_PROXY": "http://u:PW-S3CR3T@p:1"})


def contents(folder: Path) -> str:
    return "".join(
        path.read_text(encoding="utf-8", errors="replace")
        for path in folder.rglob("*")
        if path.is_file()
    )


def test_with_buildkit_no_secret_is_in_the_context(tmp_path: Path) -> None:
    made = write_context(tmp_path / "own/build", buildkit=True, site=SITE)
    assert "S3CR3T" not in contents(made.folder)
    assert {name: path.read_text() for name, path in made.secrets.items()} == {
        "ca": "CERTIFICATE-S3CR3T",
        "apt": "APT-S3CR3T",
    }
    assert made.secrets_folder == tmp_path / "own/build-secrets"
    assert made.secrets_folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in made.secrets.values())
    assert "type=secret" in dockerfile(buildkit=True)
    assert "S3CR3T" not in repr(made)


def test_the_old_builder_gets_them_in_site(tmp_path: Path) -> None:
    write_context(tmp_path / "build", buildkit=True, site=SITE)
    made = write_context(tmp_path / "build", buildkit=False, site=SITE)
    assert made.secrets == {}
    assert not made.secrets_folder.exists()
    assert (made.folder / "site/ca.pem").stat().st_mode & 0o777 == 0o600
    assert "--mount" not in dockerfile(buildkit=False)
    # a password in a proxy's address goes by the environment, never by a file of the context
    assert "PW-S3CR3T" not in contents(made.folder)


def test_digest_depends_on_the_content_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_context(tmp_path / "a/build", buildkit=True, site=SITE)
    second = write_context(tmp_path / "b/build", buildkit=False, site=SiteFiles())
    assert first.digest == second.digest  # neither the builder nor the site
    monkeypatch.setattr(wheels, "CARRIED", ("Jinja2",))
    assert write_context(tmp_path / "c/build", buildkit=True, site=SITE).digest != first.digest


def test_the_old_folder_is_replaced_whole(tmp_path: Path) -> None:
    made = write_context(tmp_path / "build", buildkit=True, site=SITE)
    (made.folder / "stray").write_text("x")
    write_context(tmp_path / "build", buildkit=True, site=SITE)
    assert not (made.folder / "stray").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["build", "build-secrets"]


def test_a_failure_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_context(tmp_path / "build", buildkit=True, site=SITE)

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(wheels, "write", full)
    with pytest.raises(DshpcError) as caught:
        write_context(tmp_path / "build", buildkit=True, site=SITE)
    assert "No space left" in caught.value.details
    assert (made.folder / "Dockerfile").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["build", "build-secrets"]
