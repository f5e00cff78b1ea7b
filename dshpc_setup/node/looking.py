"""What this node sees, what is wrong with it, and what jobs use."""

from __future__ import annotations

import os

from dshpc_setup.node.arguments import no_arguments, own_paths, wrong_usage


def observe(rest: list[str]) -> int:
    import gc

    gc.disable()  # short-lived
    import json

    from dshpc_setup.container import observe
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    print(json.dumps(observe.to_json(observe.observe(LocalMachine(), own_paths(), os.environ))))
    return 0


def detect(rest: list[str]) -> int:
    from dshpc_setup.cli import detect

    asked = detect.parsed(rest)
    if asked is None or asked.node is not None:
        raise wrong_usage("dshpc-node detect takes --json, --explain, --only and --deadline.")
    return detect.detect_inside(asked)


def doctor(rest: list[str]) -> int:
    """Without typer, which is not in the image."""
    from dshpc_setup.checkup import examine
    from dshpc_setup.cli import checking
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.node import typed_inside

    if any(word.partition("=")[0] in ("--bundle", "--fix") for word in rest):
        raise wrong_usage(
            "A report is made, and repairs are done, on the host: dshpc doctor --bundle FILE.tar.gz, dshpc "
            "doctor --fix. They ask this container as well."
        )
    if set(rest) - {"-v", "--verbose", "--json"}:
        raise wrong_usage("dshpc-node doctor takes -v, --verbose or --json.")
    asked = checking.DoctorOptions(
        json="--json" in rest, verbose=bool({"-v", "--verbose"} & set(rest))
    )
    checks = checking.checks_of(asked)
    report = checking.report_of(asked, examine(LocalMachine(), None), checks)
    return checking.show(asked, typed_inside.report(report))


def sample_use(rest: list[str]) -> int:
    import gc

    from dshpc_setup.container import use_service
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.settings import of_container
    from dshpc_setup.slurm.paths import Paths

    no_arguments(rest)
    machine = LocalMachine()
    gc.freeze()  # each sample is a fork: what is never looked at again stays shared
    use_service.main(machine, Paths(), of_container(os.environ))
    return 0


def metrics(rest: list[str]) -> int:
    from dshpc_setup.container import metrics_answer
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    metrics_answer.tell(LocalMachine())
    return 0


def use(rest: list[str]) -> int:
    from dshpc_setup.container import use_answer

    if rest not in ([], ["--live"]):
        raise wrong_usage("dshpc-node use takes --live.")
    use_answer.tell(live_only=bool(rest))
    return 0
