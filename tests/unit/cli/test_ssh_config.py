"""`dshpc ssh-config`: what is wrong with its arguments is told before anything is asked."""

from __future__ import annotations

import pytest

from dshpc_setup.cli import job_request, ssh_config
from dshpc_setup.errors import DshpcError, Exit
from tests.unit.engine.fake import Listener


@pytest.mark.parametrize("linger", ["x", "", "-1"])
def test_a_wrong_linger_is_refused_before_the_question(
    linger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_request, "cluster", lambda _: pytest.fail("the cluster was asked"))
    said = Listener()
    with pytest.raises(DshpcError, match="--linger") as raised:
        ssh_config.write(None, linger, said)
    assert raised.value.exit_code == Exit.USAGE
    with pytest.raises(DshpcError, match="--linger"):
        ssh_config.show(None, linger, None)
    assert said.questions == []


@pytest.mark.parametrize("host", ["", "-oProxyCommand=x", "a b"])
def test_a_host_that_is_none_is_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_request, "cluster", lambda _: pytest.fail("the cluster was asked"))
    with pytest.raises(DshpcError, match="--through"):
        ssh_config.show(None, "15m", host)
