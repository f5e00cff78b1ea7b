"""What is said of a dashboard for users of other machines. Pure, and without the extra's packages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Others:
    """As the command line has it; all but `proxy_ca` is needed."""

    tls_certificate: str | None = None
    tls_key: str | None = None
    login_header: str | None = None
    login_from: str | None = None
    name: str | None = None
    proxy_ca: str | None = None

    @property
    def is_asked(self) -> bool:
        return any(value is not None for value in vars(self).values())

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(
            f"--{key.replace('_', '-')}"
            for key, value in vars(self).items()
            if value is None and key != "proxy_ca"
        )
