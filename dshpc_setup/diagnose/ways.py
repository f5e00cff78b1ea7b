"""The ways by which containers could get the GPUs: as a test-run left them, else as the facts tell."""

from __future__ import annotations

from dshpc_setup import gpu_vendors, remedies
from dshpc_setup.diagnose.model import CheckInput
from dshpc_setup.facts import CdiSpec, Engine, HostFacts, Toolkit
from dshpc_setup.passthrough import Attempt, Cause, Passthrough, findings, proof_key, still_holds
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.versions import at_least

_TOOLKIT = gpu_vendors.of("nvidia").toolkit_label
_HOOKLESS_SINCE = "1.18"  # of the toolkit: its runtime makes a CDI specification of its own
_REQUEST_BY_CDI_SINCE = (
    "29.2"  # Docker: --gpus asks for a CDI device first where there is nvidia-cdi-hook
)

_LIKELY = frozenset(
    {
        findings.NOT_RESTARTED,
        findings.RUNTIME_NOT_REGISTERED,
        findings.ROOTLESS,
        findings.NO_CGROUPS,
        findings.STALE_CDI_SPEC,
        findings.CDI_SPEC_UNREADABLE,
        findings.TOOLKIT_MODE,
        findings.TOOLKIT_BROKEN,
    }
)
"""Somebody's to fix even where another way is left; and untested, so that they are no errors yet."""

_FIXED_BY_CDI = frozenset({findings.ROOTLESS})
"""Those of which CDI is the remedy: nothing is left to fix where the engine has the GPUs by it."""


def is_likely(identity: str, facts: HostFacts, found: Passthrough) -> bool:
    """Whether the facts alone make this a warning: to be fixed, and not sure before a test-run.

    `found` is what a test-run of these facts would show.
    """
    if identity in _FIXED_BY_CDI and found.works and found.handover.mechanism == "cdi":
        return False
    return identity in _LIKELY or (identity == findings.NO_TOOLKIT and _is_registered(facts))


def _is_registered(facts: HostFacts) -> bool:
    return "nvidia" in facts.engine.runtimes


def why_none(known: CheckInput) -> str | None:
    """Why there is nothing to hand over, or to ask about; None where there is."""
    if known.facts.gpus.simulated:
        return "the GPUs are simulated"
    if known.plan is None:
        return "the settings name a GPU that is not there"
    if not known.plan.gres:
        return known.plan.left_out[0].rstrip(".") if known.plan.left_out else "there is no GPU"
    return None


def tested(known: CheckInput) -> Passthrough | None:
    """The outcome of the test-run; None where none was made of this machine as it is now."""
    if known.proof is None or known.plan is None or why_none(known) is not None:
        return None
    key = proof_key(known.facts, known.plan, known.whole)
    same = known.proof.key == key and still_holds(
        known.proof, known.facts, known.plan, known.driver_files
    )
    return known.proof if same else None


def foreseen(known: CheckInput) -> Passthrough | None:
    """What a test-run would come to as far as the facts tell; None where there is nothing to test.

    A way that may work is `untested`; `handover` is that of the first such one.
    """
    if known.plan is None or why_none(known) is not None:
        return None
    # Where the test-run's outcome is known, or there is no GPU, nothing is to be foreseen
    from dshpc_setup.passthrough.candidates import candidates

    rows = tuple(
        _foreseen(row, known.facts)
        for row in candidates(known.facts, known.plan, known.whole, known.driver_files)
    )
    left = next((row.handover for row in rows if row.state == "untested" and row.handover), None)
    return Passthrough(left or Handover("none"), "", rows)


def _foreseen(row: Attempt, facts: HostFacts) -> Attempt:
    """The row, failed where the facts tell that a container would be refused."""
    handover = row.handover
    if row.state != "untested" or handover is None:
        return row
    if row.mechanism == "cdi":
        cause = _old_spec(facts, handover.ids)
    elif row.mechanism == "device-request" and handover.driver != "amd":
        cause = _by_request(facts)
    elif row.mechanism == "runtime" and handover.driver == "nvidia":
        cause = _removed(facts) or _device_rules(facts, hook_alone=False)
    else:
        cause = None
    return row if cause is None else row.failed(cause)


def _old_spec(facts: HostFacts, names: tuple[str, ...]) -> Cause | None:
    """A CDI specification of another driver than the loaded one, or of other MIG instances."""
    driver = facts.gpus.driver_version
    if facts.platform.kind == "wsl2" or not any(name.startswith("nvidia.") for name in names):
        return None
    for spec in facts.engine.cdi_specs:
        if spec.kind == "nvidia.com/gpu" and driver and spec.driver_version not in (None, driver):
            says = (
                f"the CDI specification {spec.path} is out of date: "
                f"it is of driver {spec.driver_version}, and this machine's is {driver}"
            )
            return Cause(findings.STALE_CDI_SPEC, says, remedies.generate_cdi(facts))
        if gone := _gone_instances(facts, spec):
            says = f"the CDI specification {spec.path} is out of date: it names {gone}, which is no more"
            return Cause(findings.STALE_CDI_SPEC, says, remedies.generate_cdi(facts))
    return None


def _gone_instances(facts: HostFacts, spec: CdiSpec) -> str | None:
    """A MIG instance that the specification names and no GPU has: they were made anew since."""
    here = {part.uuid for gpu in facts.gpus.devices for part in gpu.mig}
    names = (device.name.partition("=")[2] for device in spec.devices)
    return next((name for name in names if name.startswith("MIG-") and name not in here), None)


def _by_request(facts: HostFacts) -> Cause | None:
    """What --gpus of NVIDIA comes to: the engine calls the toolkit's hook, which it found at its start."""
    engine = facts.engine
    if engine.kind == "snap":
        says = "Docker is a snap, which does not see the toolkit of this machine"
        return Cause(findings.SNAP, says, remedies.replace_snap(facts))
    if engine.kind != "engine":
        return None
    told = nvidia_toolkit(engine)
    if told is None or (told.cdi_hook and at_least(engine.server_version, _REQUEST_BY_CDI_SINCE)):
        return None
    if _is_registered(facts):  # it was found once: what is newer is an update
        return _removed(facts) or _hook(facts, told)
    fix = remedies.install_toolkit(facts)
    if told.state == "absent":
        return Cause(findings.NO_TOOLKIT, f"the {_TOOLKIT} is not installed", fix)
    if told.state == "present" and told.hook is None:
        says = f"of the {_TOOLKIT} the hook that --gpus needs is missing: only its base is here"
        return Cause(findings.NO_TOOLKIT, says, fix)
    if told.hook in engine.newer:
        return Cause(
            findings.NOT_RESTARTED,
            f"{told.hook} was installed or changed after Docker started, which looks for it only then",
            remedies.restart_docker(facts),
        )
    return _hook(facts, told)


def _removed(facts: HostFacts) -> Cause | None:
    """A toolkit that the engine was told of, and that is in none of its usual folders any more."""
    told = nvidia_toolkit(facts.engine)
    seen_from_here = facts.engine.kind == "engine" and not facts.platform.in_container
    if not seen_from_here or told is None or told.state != "absent":
        return None
    says = (
        f"the runtime nvidia is registered, and the {_TOOLKIT}, whose program it is, is not "
        "there: it was removed"
    )
    return Cause(findings.NO_TOOLKIT, says, remedies.install_toolkit(facts))


def _hook(facts: HostFacts, told: Toolkit) -> Cause | None:
    if told.mode in ("cdi", "csv", "jit-cdi"):
        says = f"the toolkit's mode is {told.mode!r}, in which its hook refuses --gpus"
        return Cause(findings.TOOLKIT_MODE, says, remedies.toolkit_mode(facts))
    return _device_rules(facts, hook_alone=True)


def _device_rules(facts: HostFacts, *, hook_alone: bool) -> Cause | None:
    """Whether NVIDIA's hook may set the device rules that the container needs."""
    told = nvidia_toolkit(facts.engine)
    if told is None or told.state != "present":
        return None
    if not hook_alone and at_least(told.version, _HOOKLESS_SINCE):
        return None
    if facts.engine.rootless and not told.no_cgroups:
        says = "NVIDIA's hook may not set device rules: the engine does not run as root"
        return Cause(findings.ROOTLESS, says, remedies.rootless_gpus(facts))
    if told.no_cgroups and not facts.engine.rootless:
        says = (
            "the toolkit's no-cgroups is set, which leaves the GPU's device nodes closed where the "
            "engine runs as root"
        )
        return Cause(findings.NO_CGROUPS, says, remedies.cgroups_on(facts))
    return None


def nvidia_toolkit(engine: Engine) -> Toolkit | None:
    """What is known of NVIDIA's toolkit; None where it was not looked for."""
    return next((item for item in engine.toolkits if item.vendor == "nvidia"), None)
