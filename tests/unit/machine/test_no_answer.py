"""Who gives no answer in time is slow: nowhere is that taken for a no, a none or a zero."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import probes
from dshpc_setup.checkup import kernel
from dshpc_setup.cluster import stopping, verify
from dshpc_setup.container import trial
from dshpc_setup.container.config import Candidate
from dshpc_setup.engine import images, packages, privilege, refusals, site, start_report
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Platform
from dshpc_setup.image import debootstrap, standing
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.longer_deadlines import LEAST_S, patient
from dshpc_setup.machine.no_answer import in_words
from dshpc_setup.probes import compose, plugins
from tests.unit.engine.fake import Answer, FakeMachine, Listener
from tests.unit.slow import PLUGIN, SlowMachine

APT = packages.MANAGERS[0]


def silent(**given: Any) -> FakeMachine:
    """A machine on which every program is there and none answers."""
    programs = {"docker", "docker-compose", "sudo", "apt-config", "journalctl", "sleep"}
    return FakeMachine(programs=programs, commands={"": Answer(state="timeout")}, **given)


ASKED: dict[str, Callable[[FakeMachine], object]] = {
    "package lists": lambda on: packages.available(on, APT, "docker.io"),
    "compose": lambda on: compose.find_compose(on, 5.0),
    "podman's stand-in": refusals.podman_shim,
    "docker desktop's client": refusals.desktop_client,
    "context": images.context_name,
    "client's version": images.client_version,
    "image": lambda on: images.inspect(on, "debian"),
    "apt's settings": site.apt_settings,
    "controller": lambda on: verify.controller_answers(on, "c"),
    "nodes": lambda on: verify.ask_cluster(on, "c"),
    "start report": lambda on: start_report.ask(on, "c"),
    "first job": lambda on: verify.run_first_job(on, "c", gpu=False),
    "readiness": lambda on: verify.wait_ready(on, "c", 5.0),
}


@pytest.mark.parametrize("asked", ASKED)
def test_silence_is_told_as_such(asked: str) -> None:
    with pytest.raises(DshpcError) as caught:
        ASKED[asked](silent())
    told = caught.value
    assert told.exit_code == Exit.INCOMPLETE
    assert "within" in f"{told.brief} {told.details}" or "in time" in told.brief
    assert "not installed" not in f"{told.brief} {told.details}"


def test_sudo_that_is_silent_is_no_missing_right() -> None:
    with pytest.raises(DshpcError, match="sudo -n true did not answer within"):
        privilege.can_be_root(silent(uid=1000), interactive=False)


def test_a_user_whom_only_a_silent_directory_knows_is_given_no_name() -> None:
    with pytest.raises(DshpcError, match="getent passwd 4242 did not answer"):
        privilege.caller(silent(uid=4242))
    known = silent(uid=1000, files={"/etc/passwd": "ada:x:1000:1001::/home/ada:/bin/sh\n"})
    assert privilege.caller(known).name == "ada"  # the file is evidence as well


def test_podmans_stand_in_shows_in_its_own_text() -> None:
    on = silent(files={"/usr/bin/docker": '#!/bin/sh\nexec /usr/bin/podman "$@"\n'})
    assert refusals.podman_shim(on)


def test_jobs_that_nobody_could_count_may_run() -> None:
    asked = Listener(answer=False)
    assert stopping.running_jobs(silent(), "c") is None
    with pytest.raises(DshpcError, match="jobs may run"):
        stopping.may_stop(silent(), "c", asked, agreed=False, what="stopped", command="dshpc down")
    assert "squeue gave no answer" in asked.questions[0]


def test_a_folder_whose_room_nobody_tells_is_said_to_be_that() -> None:
    assert "df -Pk /var/tmp did not answer" in (debootstrap._unfit(silent(), "/var/tmp") or "")


def test_a_silent_slurmd_has_refused_no_configuration() -> None:
    error = trial.parse_error(silent(), Candidate({}, {}, {}), "/x", "n")
    assert error is not None
    assert error.exit_code == Exit.INCOMPLETE
    assert "slurmd -G" in error.brief


def test_a_silent_journal_is_no_forbidden_one() -> None:
    on = silent()
    on.commands = {"dmesg": Answer(code=1, stderr="Operation not permitted"), **on.commands}
    assert kernel.read_log(on, Platform("linux")).state == "timeout"


def test_an_image_that_nobody_told_of_is_not_missing(tmp_path: Path) -> None:
    class Folder:
        def runtime(self) -> dict[str, str]:
            return {"container": "c"}

    with pytest.raises(DshpcError, match="did not answer"):
        standing._in_image(silent(), Folder())  # type: ignore[arg-type]


def test_a_first_job_that_nobody_is_before_gets_more_time() -> None:
    on = FakeMachine(
        commands={
            "docker exec c squeue": Answer(""),
            "docker exec c srun --job-name=dshpc-proof --immediate=10": Answer(
                code=1, stderr="srun: error: Unable to allocate resources: Resources busy"
            ),
            "docker exec c srun --job-name=dshpc-proof --immediate=60": Answer(""),
        }
    )
    assert verify.run_first_job(on, "c", gpu=False) == "srun passed"


# --- the time that questions have


class Deadlines(FakeMachine):
    def run(self, argv: Any, *, deadline_s: float, **more: Any) -> CommandResult:
        self.now = deadline_s
        return CommandResult(tuple(argv), "present", 0, "", "", 1.0)


def test_a_patient_machine_gives_questions_time_and_leaves_work_its_own() -> None:
    on = Deadlines()
    seen = patient(on)
    seen.run(["docker", "version"], deadline_s=5)
    assert on.now == LEAST_S
    seen.run(["docker", "pull", "x"], deadline_s=25, on_line=print)
    assert on.now == 25
    seen.run(["docker", "build"], deadline_s=3600)
    assert on.now == 3600
    assert patient(seen) is seen
    assert seen.uid == 0


def test_an_answer_that_did_not_come_is_waited_for_once_more_and_longer() -> None:
    said: list[str] = []
    slow = SlowMachine(delays={"buildx": 20.0})
    slow._install(())
    slow.files.pop("/var/lib/dpkg/status")  # else the database answers at once
    facts = probes.gather_surely(slow, said.append)
    assert facts.engine.buildx
    assert facts.late() == ()
    assert "buildx" in said[0]
    assert len(slow.lines("buildx version")) == 2
    quick = SlowMachine(installed=True)
    assert probes.gather_surely(quick, said.append).late() == ()
    assert len(said) == 1


def test_the_words_name_the_program_and_the_time_that_it_had() -> None:
    inside = CommandResult(
        ("docker", "exec", "c", "dshpc-node", "status"), "timeout", None, "", "", 30_000.0
    )
    assert in_words(inside) == "dshpc-node status in c did not answer within 30 s"
    other = CommandResult(("docker", "compose", "version", "--short"), "timeout", None, "", "", 5e3)
    assert in_words(other) == "docker compose version did not answer within 5 s"
    script = ("docker", "exec", "c", "sh", "-c", "{ sinfo; } 2>&1\n" * 9)
    whole = in_words(CommandResult(script, "timeout", None, "", "", 4e3))
    assert whole == "sh -c in c did not answer within 4 s"


# --- what else tells of a plugin


def slow_docker(**delays: float) -> SlowMachine:
    on = SlowMachine(delays=delays)
    on._install(())
    return on


def test_the_package_database_tells_of_a_plugin_that_is_silent() -> None:
    found, evidence = compose.plugin(slow_docker(compose=20.0), 5.0)
    assert found is not None
    assert (found.version, found.argv) == ("2.26.1-4", ("docker", "compose"))
    assert (evidence.state, evidence.source) == ("present", "/var/lib/dpkg/status")
    assert "did not answer within 5 s" in (evidence.detail or "")
    assert PLUGIN in (evidence.detail or "")


def test_a_plugin_of_no_package_is_there_and_its_version_is_not_known() -> None:
    on = slow_docker(compose=20.0)
    on.env = {"HOME": "/home/ada"}
    on.files["/home/ada/.docker/cli-plugins/docker-compose"] = ""  # wins over the package's
    found, evidence = compose.plugin(on, 5.0)
    assert found is None
    assert evidence.state == "timeout"
    assert "/home/ada/.docker/cli-plugins/docker-compose is there" in (evidence.detail or "")


def test_with_time_the_client_itself_is_asked_for_its_plugins() -> None:
    on = slow_docker(version=1000.0)
    found, evidence = compose.plugin(on, 30.0)
    assert found is not None
    assert found.version == "2.26.1-4"
    assert evidence.source.startswith("docker info")


def test_silence_without_any_file_is_a_timeout_and_no_absence() -> None:
    on = slow_docker(buildx=20.0)
    on.files = {}
    version, evidence = compose.buildx(on, 5.0)
    assert (version, evidence.state) == (None, "timeout")


DPKG = """\
Package: docker-compose
Status: deinstall ok config-files
Version: 1.29.2-3

Package: docker-compose-v2
Status: install ok installed
Version: 1:2.27.1-0ubuntu1
"""


def test_databases_of_packages() -> None:
    assert plugins.parse_dpkg(DPKG, "docker-compose") is None  # removed
    assert plugins.parse_dpkg(DPKG, "docker-compose-v2") == "2.27.1-0ubuntu1"
    assert plugins.parse_dpkg("", "docker-compose") is None
    apk = "P:musl\nV:1.2.5-r0\n\nC:Q1\nP:docker-cli-compose\nV:2.31.0-r1\nA:x86_64\n"
    assert plugins.parse_apk(apk, "docker-cli-compose") == "2.31.0-r1"
    assert plugins.parse_apk(apk, "docker-cli-buildx") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"Plugins": 5}', '{"Plugins": [1]}', "null"])
def test_a_client_that_tells_of_no_plugins(text: str) -> None:
    done = CommandResult(plugins.INFO, "present", 0, text, "", 1.0)
    assert plugins.told_by_client(done, "compose") is None
