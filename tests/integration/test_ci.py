"""A cluster on a runner of continuous integration: docs/how-to/ci.md and action.yml, run as the runners do.

The runner is a container without Docker, and its user an ordinary one. Steps are taken from the YAML as it
stands: GitHub's as `bash --noprofile --norc -eo pipefail FILE` each, GitLab's as one script.
"""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from dshpc_setup.image.base import BaseImage
from tests.integration.cluster import PREFIX, ROOT, Outcome
from tests.integration.conftest import docker
from tests.integration.engines import DOCKER
from tests.integration.leftovers import remember
from tests.integration.shown import blocks
from tests.integration.test_launchers import host_apt_settings, site_ca_bundle

HOME = "/home/ci"
REPOSITORY = f"{HOME}/repository"  # what is cloned: with a branch v1
ACTION_PATH = f"{HOME}/runner/_actions/OWNER/REPO/v1"
WORKSPACE = f"{HOME}/runner/project/project"
TEMP = f"{HOME}/runner/_temp it's"  # what a shell would take apart
UNCONFINED = ("seccomp=unconfined", "systempaths=unconfined")
HOSTILE = (
    "h100:2; touch {mark}",
    '"; touch {mark}; "',
    "$(touch {mark})",
    "`touch {mark}`",
    "' ; touch {mark} ; '",
    "h100:2\ntouch {mark}",
)
FILES = {
    "train.py": "import os\nprint('computes on', os.environ['CUDA_VISIBLE_DEVICES'], os.getcwd())\n",
    "job.sh": "#!/bin/sh\n#SBATCH --gres=gpu:h100:2\necho job $CUDA_VISIBLE_DEVICES\n",
}
_ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
_EXPRESSION = re.compile(r"\$\{\{ *([\w.]+) *\}\}")


def documented() -> tuple[dict[str, Any], dict[str, Any]]:
    """The workflow of GitHub's and the file of GitLab's, as the page shows them."""
    texts = [block.text for block in blocks("docs/how-to/ci.md") if block.language == "yaml"]
    github, gitlab = (yaml.safe_load(text) for text in texts)
    return github, gitlab


@dataclass
class Runner:
    """A container in which the steps of a job run as its ordinary user."""

    name: str
    path: list[str] = field(default_factory=list)  # what steps have put before the PATH
    outputs: dict[str, str] = field(default_factory=dict)

    def exec(
        self, *argv: str, env: Mapping[str, str] | None = None, cwd: str = WORKSPACE,
        user: str = "ci", stdin: str = "", deadline_s: float = 400,
    ) -> Outcome:  # fmt: skip
        more = [f"--env={key}={value}" for key, value in (env or {}).items()]
        done = subprocess.run(
            ["docker", "exec", "--interactive", "--user", user, "--workdir", cwd, *more,
             self.name, *argv],
            input=stdin, capture_output=True, text=True, timeout=deadline_s, check=False,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr)

    def put(self, path: str, text: str) -> None:
        self.exec("sh", "-c", 'cat >"$0"', path, cwd="/", stdin=text).good()

    def fresh_job(self) -> None:
        """A new checkout, and an empty folder for what is temporary."""
        self.path, self.outputs = [], {}
        script = 'rm -rf "$@"; mkdir -p "$@"'
        self.exec("sh", "-c", script, "sh", WORKSPACE, TEMP, cwd="/").good()
        for name, text in FILES.items():
            self.put(f"{WORKSPACE}/{name}", text)

    def step(self, text: str, env: Mapping[str, str] | None = None) -> Outcome:
        """One `run` with `shell: bash`, and what it tells the runner by files."""
        names = ("GITHUB_PATH", "GITHUB_ENV", "GITHUB_OUTPUT")
        files = {name: f"{TEMP}/{name}-{uuid.uuid4().hex[:8]}" for name in names}
        for path in files.values():
            self.put(path, "")
        self.put(f"{TEMP}/step.sh", text)
        given = {
            "CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": WORKSPACE,
            "GITHUB_ACTION_PATH": ACTION_PATH, "RUNNER_TEMP": TEMP, "HOME": HOME,
            "PATH": ":".join([*self.path, "/usr/local/bin:/usr/bin:/bin"]),
        }  # fmt: skip
        argv = ("bash", "--noprofile", "--norc", "-eo", "pipefail", f"{TEMP}/step.sh")
        done = self.exec(*argv, env={**given, **files, **(env or {})})
        told = {name: self.exec("cat", path).good().stdout for name, path in files.items()}
        self.path = [*reversed(told["GITHUB_PATH"].splitlines()), *self.path]
        self.outputs |= dict(line.split("=", 1) for line in told["GITHUB_OUTPUT"].splitlines())
        assert told["GITHUB_ENV"] == ""
        return done

    def action(self, given: Mapping[str, Any], **env: str) -> Outcome:
        """`uses: OWNER/REPO@v1` with these inputs; its own step is the only one."""
        assert set(given) <= set(_ACTION["inputs"])
        inputs = {key: str(item["default"]) for key, item in _ACTION["inputs"].items()}
        inputs |= {key: str(value) for key, value in given.items()}
        values = {f"inputs.{key}": value for key, value in inputs.items()}
        (step,) = _ACTION["runs"]["steps"]
        assert step["shell"] == "bash"
        own = {
            name: _EXPRESSION.sub(lambda found: values[found[1]], text)
            for name, text in step["env"].items()
        }
        text = _EXPRESSION.sub(lambda found: values[found[1]], step["run"])  # as GitHub would
        return self.step(text, {**own, **env})

    def destroyed(self) -> None:
        done = self.step("dshpc destroy --yes --stop-jobs")
        assert done.code == 0, done


def started(image: str, options: Sequence[str]) -> str:
    name = f"{PREFIX}ci-{uuid.uuid4().hex[:8]}"
    remember(name)
    passed = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL")
    env = [f"--env={key}={os.environ[key]}" for key in passed if key in os.environ]
    if (bundle := site_ca_bundle()) is not None:
        env += ["--env=SSL_CERT_FILE=/site/ca.crt", f"--volume={bundle}:/site/ca.crt:ro"]
    security = [f"--security-opt={option}" for option in options]
    docker(
        "run", "--detach", "--init", "--name", name, *security, *env, image, "sleep", "3000",
    )  # fmt: skip
    return name


@pytest.fixture(scope="module")
def image(base_image: BaseImage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What the runner's container is made of: git and Python, a user, and the repository to clone."""
    folder = tmp_path_factory.mktemp("ci")
    (folder / "99site").write_text(f"Acquire::Retries 3;\n{host_apt_settings()}")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    there = [
        name for name in listed.stdout.split(b"\0") if name and (ROOT / os.fsdecode(name)).is_file()
    ]
    kept = [name for name in there if not name.startswith((b"tests/", b"seeds/"))]
    subprocess.run(
        ["tar", "-cf", str(folder / "checkout.tar"), "--null", "-T", "-"],
        cwd=ROOT, input=b"\0".join(kept), check=True, timeout=60,
    )  # fmt: skip
    name = started(base_image.ref, ())
    tag = f"{PREFIX}ci-runner"
    try:
        docker("cp", str(folder / "99site"), f"{name}:/etc/apt/apt.conf.d/99site")
        docker("cp", str(folder / "checkout.tar"), f"{name}:/checkout.tar")
        script = f"""
            apt-get -qq update
            apt-get -qq -y --no-install-recommends install git python3-venv >/dev/null
            useradd --create-home --uid 1000 --shell /bin/bash ci
            su ci -c '
                set -e
                mkdir -p {REPOSITORY} {os.path.dirname(ACTION_PATH)}
                cd {REPOSITORY}
                tar -xf /checkout.tar
                git init --quiet --initial-branch v1
                git add --all
                git -c user.name=ci -c user.email=ci@localhost commit --quiet -m v1
                git clone --quiet --branch v1 {REPOSITORY} {ACTION_PATH}
            '
        """
        DOCKER.run("exec", name, "sh", "-euc", script, timeout_s=600).good()
        docker("commit", name, tag)
        yield tag
    finally:
        docker("rm", "--force", name)
        subprocess.run(
            ["docker", "rmi", "--force", tag], capture_output=True, timeout=60, check=False
        )


@pytest.fixture(scope="module")
def permitted(image: str) -> Iterator[Runner]:
    """A runner whose container may have namespaces, as one of GitLab's that its page describes."""
    name = started(image, UNCONFINED)
    try:
        yield Runner(name)
    finally:
        docker("rm", "--force", name)


@pytest.fixture(scope="module")
def denied(image: str) -> Iterator[Runner]:
    """With Docker's own filter of system calls."""
    name = started(image, ())
    try:
        yield Runner(name)
    finally:
        docker("rm", "--force", name)


def test_the_runner_has_no_docker_and_its_user_no_root(permitted: Runner) -> None:
    permitted.fresh_job()
    assert permitted.exec("id", "-u").stdout == "1000\n"
    for program in ("docker", "sudo", "srun", "dshpc"):
        assert permitted.exec("sh", "-c", f"command -v {program}").code != 0


def test_the_workflow_of_github(permitted: Runner) -> None:
    """As the page shows it, and what a step may expect of the programs."""
    runner = permitted
    runner.fresh_job()
    workflow, _ = documented()
    checkout, uses, *steps = workflow["jobs"]["slurm"]["steps"]
    assert checkout["uses"].startswith("actions/checkout@")
    assert uses["uses"] == "OWNER/REPO@v1"
    done = runner.action(uses["with"])
    assert done.code == 0, done
    assert "SIMULATED" in done.stderr
    assert runner.path == [f"{TEMP}/dshpc-ci/bin"]
    assert runner.outputs == {"folder": f"{TEMP}/dshpc-ci"}
    try:
        first, second = (runner.step(step["run"]) for step in steps)
        assert (first.code, first.stdout) == (0, f"computes on 0 {WORKSPACE}\n"), first
        assert (second.code, second.stdout.splitlines()[1:]) == (0, ["job 0,1"]), second
        assert (
            second.stderr == ""
        )  # the log is no file of the container's, though on the same file system
        behave_as_slurms_own(runner)
    finally:
        runner.destroyed()
    left = runner.exec("sh", "-c", "ls -A | sort").stdout.split()
    assert left == sorted([*FILES, "job.log", "jobs", "sub"])


def behave_as_slurms_own(runner: Runner) -> None:
    """Arguments, standard input, streams, exit codes and the working folder are passed on."""
    words = ["two words", "it's", '"', "", "*", "$HOME", "`id`", "--", "back\\slash", "é"]
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    told = runner.step(f"srun printf '<%s>' {quoted}")
    assert told.stdout == "".join(f"<{word}>" for word in words)
    assert runner.step("srun sh -c 'echo no >&2; exit 3'").code == 3
    assert runner.step("printf 'a\\nb\\n' | srun wc -l").stdout.strip() == "2"
    made = runner.step("mkdir sub && cd sub && srun sh -c 'pwd; echo x > made' && cat made")
    assert made.stdout == f"{WORKSPACE}/sub\nx\n"
    assert runner.exec("stat", "-c", "%U", "sub/made").stdout == "ci\n"
    failed = runner.step("srun false | cat; echo not reached")  # pipefail
    assert failed.code == 1
    assert "not reached" not in failed.stdout
    assert runner.step("sinfo -h -o %G").stdout.startswith("gpu:h100:2")
    assert runner.step("dshpc status").code == 0


def test_the_job_of_gitlab(permitted: Runner) -> None:
    """before_script and script are one script of a shell that ends at the first error."""
    runner = permitted
    runner.fresh_job()
    _, file = documented()
    (job,) = file.values()
    env = {**job["variables"], "CI": "true", "CI_PROJECT_DIR": WORKSPACE, "HOME": HOME}
    assert env["DSHPC_REPOSITORY"].startswith("https://")
    env["DSHPC_REPOSITORY"] = f"file://{REPOSITORY}"
    script = "\n".join(["set -eo pipefail", *job["before_script"], *job["script"]])
    try:
        done = runner.exec("bash", "-c", script, env=env)
        assert done.code == 0, done
        assert done.stdout.splitlines()[0::2] == [f"computes on 0 {WORKSPACE}", "job 0,1"]
    finally:
        runner.exec(
            f"{HOME}/dshpc-ci/bin/dshpc", "destroy", "--yes", "--stop-jobs", env={"HOME": HOME}
        )


@pytest.mark.parametrize("name", ["simulate", "engine", "nodes"])
@pytest.mark.parametrize("text", HOSTILE)
def test_an_input_is_never_run(permitted: Runner, name: str, text: str) -> None:
    permitted.fresh_job()
    mark = f"{HOME}/hostile"
    done = permitted.action({name: text.format(mark=mark)})
    assert done.code == 64, done
    assert "What to do:" in done.stderr
    assert permitted.exec("test", "-e", mark).code == 1


def test_several_nodes(permitted: Runner) -> None:
    permitted.fresh_job()
    try:
        done = permitted.action({"nodes": 2, "simulate": "h100:2"})
        assert done.code == 0, done
        told = permitted.step("srun -N2 --gres=gpu:1 printenv SLURMD_NODENAME")
        assert len(set(told.stdout.split())) == 2, told
    finally:
        permitted.destroyed()


def test_where_namespaces_are_forbidden_it_says_so(denied: Runner) -> None:
    denied.fresh_job()
    done = denied.action({"engine": "builtin"})
    assert done.code == 2, done
    shown = next(block.text for block in blocks("docs/how-to/ci.md") if block.language == "text")
    assert shown.strip() in done.stderr
    assert "Run this outside the container, or with another filter of system calls" in done.stderr
    asked = denied.step("dshpc detect --json")
    assert '"why": "no-containers"' in asked.stdout


def test_where_nothing_runs_a_container_both_ways_are_named(denied: Runner) -> None:
    denied.fresh_job()
    done = denied.action({})
    assert done.code == 2, done
    assert "needs root" in done.stderr
    assert "filter of system calls" in done.stderr
