"""Faults to plant: at least one in each room, each with the unit tests that must catch it.

Each is a slip that somebody could make, and that neither ruff nor mypy would see.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`old` stands once in `file`, and `new` is planted in its stead; `tests` are arguments of pytest."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _fault(what: str, file: str, old: str, new: str, *tests: str) -> Fault:
    return Fault(what, file, old, new, tuple(f"tests/unit/{test}" for test in tests))


FAULTS = (
    _fault(
        "a secret in dshpc.yaml is in the report",
        "dshpc_setup/bundle/scrubbed.py",
        "scrubber.text(_config(name, text))",
        "scrubber.text(text)",
        "bundle/test_secrets.py",
    ),
    _fault(
        "what follows an archive's end is passed over",
        "dshpc_setup/bundle/archive.py",
        'engine.unused_data.strip(b"\\0")',
        'not engine.unused_data.strip(b"\\0")',
        "bundle/test_archive.py::test_what_is_damaged_is_told",
    ),
    _fault(
        "a disk whose reserve is used has less than nothing free",
        "dshpc_setup/checkup/disks.py",
        "max(0, int(row[3]))",
        "int(row[3])",
        "checkup/test_disks.py",
    ),
    _fault(
        "an option given twice is taken by the quick reader",
        "dshpc_setup/cli/plain_line.py",
        "return not given_before",
        "return True",
        "cli/test_plain_line.py",
        "cli/test_submission.py",
    ),
    _fault(
        "the last task of an array may be what MaxArraySize leaves out",
        "dshpc_setup/cluster/queue_room.py",
        "queue.last_task >= tasks",
        "queue.last_task > tasks",
        "cluster/test_queue_room.py",
    ),
    _fault(
        "the memory that a job asks for is rounded down",
        "dshpc_setup/cluster/pending.py",
        "return -int(-float(number) * factor // 1)",
        "return int(float(number) * factor // 1)",
        "cluster/test_pending.py",
    ),
    _fault(
        "a stanza that was edited by hand is taken for ours",
        "dshpc_setup/compose_patch/markers.py",
        'if marker["digest"] != _digest(body):',
        'if not marker["digest"]:',
        "compose_patch/test_patch.py",
    ),
    _fault(
        "a GPU of somebody else's stanza does not count where it agrees",
        "dshpc_setup/compose_patch/patch.py",
        "elif item.claim not in agreeing:",
        "elif item.claim in agreeing:",
        "compose_patch/test_patch.py",
    ),
    _fault(
        "a node may have more CPUs than the machine",
        "dshpc_setup/container/fits.py",
        "here is not None and cpus > here:",
        "here is not None and cpus > 2 * here:",
        "container/test_fits.py",
    ),
    _fault(
        "a gres.conf for another node is taken for ours",
        "dshpc_setup/container/fits.py",
        "if not lines or any(slurm_conf.applies(entry, node) for entry in lines):",
        "if not lines or any(True for entry in lines):",
        "container/test_fits.py",
    ),
    _fault(
        "a check runs although what it needs was skipped",
        "dshpc_setup/diagnose/__init__.py",
        'if before.state not in ("ok", "warn"):',
        'if before.state not in ("ok", "warn", "skipped"):',
        "diagnose/test_graph.py",
        "diagnose/test_checks.py",
    ),
    _fault(
        "a broken check is a healthy machine's exit code",
        "dshpc_setup/diagnose/__init__.py",
        'if "crashed" in states:',
        'if "crashed" in states and strict:',
        "diagnose/test_checks.py",
        "diagnose/test_graph.py",
    ),
    _fault(
        "a refused job is said before those that wait for ever",
        "dshpc_setup/diagnose/slurm_queue.py",
        '    if jobs:\n        cause = "Queued jobs ask',
        '    if jobs and not refused:\n        cause = "Queued jobs ask',
        "diagnose/test_slurm.py",
    ),
    _fault(
        "a user's name is looked up by the number of the group",
        "dshpc_setup/engine/privilege.py",
        "if fields[2].isdecimal() and int(fields[2]) == uid:",
        "if fields[3].isdecimal() and int(fields[3]) == uid:",
        "engine/test_privilege.py",
    ),
    _fault(
        "the name of an archive in capital letters is a package",
        "dshpc_setup/environment/requirement.py",
        "    if name.lower().endswith(_ARCHIVES):",
        "    if name.endswith(_ARCHIVES):",
        "environment/test_requirement.py",
    ),
    _fault(
        "an image that is not ours is removed",
        "dshpc_setup/image/replaced.py",
        "if found is None or found.names or LABEL not in found.labels:",
        "if found is None or found.names:",
        "image/test_replaced.py",
    ),
    _fault(
        "a job whose node was lost goes on",
        "dshpc_setup/jobs/states.py",
        '"COMPLETED FAILED CANCELLED TIMEOUT OUT_OF_MEMORY NODE_FAIL BOOT_FAIL',
        '"COMPLETED FAILED CANCELLED TIMEOUT OUT_OF_MEMORY BOOT_FAIL',
        "jobs/test_states.py",
    ),
    _fault(
        "a GPU is free while its job still ends",
        "dshpc_setup/jobs/room.py",
        "RUNNING,SUSPENDED,STOPPED,COMPLETING,CONFIGURING",
        "RUNNING,SUSPENDED,STOPPED,CONFIGURING",
        "jobs/test_room.py",
    ),
    _fault(
        "a GPU whose job has no end becomes free at once",
        "dshpc_setup/jobs/room.py",
        'float("inf") if end is None else end for end in ends',
        "0.0 if end is None else end for end in ends",
        "jobs/test_room.py",
    ),
    _fault(
        "a recorded file without a newline at its end gets one",
        "dshpc_setup/machine/tree.py",
        '        if entry.lines and entry.lines[-1] == "\\n":\n            entry.lines.pop()\n',
        "",
        "machine/test_tree.py",
    ),
    _fault(
        "a question that fails has answered",
        "dshpc_setup/machine/apart.py",
        'found[name] = Ended("error", tuple(items), in_words(error), _since(started))',
        'found[name] = Ended("present", tuple(items), None, _since(started))',
        "machine/test_recorded.py",
        "machine/test_overlay.py",
        "machine/test_layers.py",
        "probes/test_gather.py",
    ),
    _fault(
        "a step does not wait for the one before it",
        "dshpc_setup/mend/plan.py",
        "if other.kind != item.kind and set(other.mends) & set(item.mends)",
        "if other.kind == item.kind and set(other.mends) & set(item.mends)",
        "mend/test_plan.py",
    ),
    _fault(
        "under sudo the lock is root's",
        "dshpc_setup/mend/lock.py",
        "return who if who.via_sudo else None",
        "return None if who.via_sudo else who",
        "mend/test_lock.py",
    ),
    _fault(
        "a part of a minute is none",
        "dshpc_setup/methods/times.py",
        "-(-seconds // 60)",
        "seconds // 60",
        "methods/test_times.py",
    ),
    _fault(
        "a CDI specification of another driver is fresh",
        "dshpc_setup/passthrough/stale.py",
        "spec.driver_version != driver:",
        "spec.driver_version > driver:",
        "passthrough",
        "diagnose/test_passthrough.py",
    ),
    _fault(
        "Slurm's own line tells more than the rule of the refusal",
        "dshpc_setup/pasted/__init__.py",
        "        *_by_signs(FIRST, flat),\n",
        "",
        "pasted/test_messages.py",
        "pasted/test_pasted.py",
    ),
    _fault(
        "jobs get the CPUs of the largest limit",
        "dshpc_setup/plan/node.py",
        "    return min(known)\n",
        "    return max(known)\n",
        "plan/test_node.py",
    ),
    _fault(
        "the setting gpu = amd takes all but AMD's",
        "dshpc_setup/plan/devices.py",
        "if device.vendor == settings.gpu]",
        "if device.vendor != settings.gpu]",
        "plan/test_devices.py",
    ),
    _fault(
        "the vendor's name means a MIG instance before a whole card",
        "dshpc_setup/plan/names.py",
        "(kind not in whole, -counts",
        "(kind in whole, -counts",
        "plan/test_names.py",
    ),
    _fault(
        "of several quotas the largest is in force",
        "dshpc_setup/probes/cgroup.py",
        "min(quotas, key",
        "max(quotas, key",
        "probes/test_cpu.py",
        "machine/test_machines.py",
    ),
    _fault(
        "CPU 3 and CPU 5 are 3-5",
        "dshpc_setup/probes/ranges.py",
        "if spans and number == spans[-1][1] + 1:",
        "if spans and number <= spans[-1][1] + 2:",
        "probes/test_parsers.py",
        "probes/test_cpu.py",
    ),
    _fault(
        "the list of users is recorded",
        "dshpc_setup/record/places.py",
        'r"/etc/(?:hostname|hosts|passwd|group|',
        'r"/etc/(?:hostname|hosts|group|',
        "test_record.py",
        "machine/test_recording.py",
    ),
    _fault(
        "a user's number in a log is kept",
        "dshpc_setup/record/rules.py",
        "_FIRST_UID = 1000",
        "_FIRST_UID = 100000",
        "test_scrub.py",
    ),
    _fault(
        "a rootless engine is restarted by root",
        "dshpc_setup/remedies/engine.py",
        '        command = "systemctl --user restart docker"\n',
        '        command = "sudo systemctl restart docker"\n',
        "test_remedies.py",
        "diagnose/test_engine.py",
    ),
    _fault(
        "a setting that is the same is told as changed",
        "dshpc_setup/settings/applied.py",
        "if before != here:",
        "if before == here:",
        "test_applied.py",
    ),
    _fault(
        "a wrong setting's own step is forgotten",
        "dshpc_setup/settings/wrong.py",
        "        if self.steps:\n            return self.steps[0]\n",
        "",
        "test_settings.py",
        "test_settings_file.py",
        "diagnose/test_files.py",
        "plan/test_extra.py",
    ),
    _fault(
        "a job starts before the last of those it needs",
        "dshpc_setup/workflows/graph.py",
        "            if not waits[each]:\n",
        "            if len(waits[each]) <= 1 and each not in ready:\n",
        "workflows/test_graph.py",
    ),
    # The modules beside the rooms
    _fault(
        "a file that is marked as the user's own is written over",
        "dshpc_setup/apply.py",
        'if owner == "custom":',
        'if owner == "custom" and old is None:',
        "test_apply.py",
    ),
    _fault(
        "the mark counts in capital letters alone",
        "dshpc_setup/ownership.py",
        "re.M | re.I)",
        "re.M)",
        "test_ownership.py",
    ),
    _fault(
        "what was written meanwhile is written over",
        "dshpc_setup/swap.py",
        "        raise changed_meanwhile(path)\n    sync_folder",
        "    sync_folder",
        "test_swap.py",
    ),
    _fault(
        "on a file system without locks nothing can be locked",
        "dshpc_setup/locks.py",
        "such as ENOLCK of a network's file system\n            return True",
        "such as ENOLCK of a network's file system\n            return False",
        "test_locks.py",
    ),
    _fault(
        "nodes of a cluster that is not ready can be used",
        "dshpc_setup/verify.py",
        "for node in self.nodes) if self.ready else ()",
        "for node in self.nodes) if self.nodes else ()",
        "test_verify.py",
    ),
    # The templates, by the golden files
    _fault(
        "an idle terminal keeps its GPU",
        "templates/slurm.conf.j2",
        "InactiveLimit=120",
        "InactiveLimit=0",
        "machine/test_rendered.py",
    ),
    _fault(
        "a GPU of two files has one",
        "templates/gres.conf.j2",
        "if line.files | length > 1",
        "if line.files | length > 9",
        "machine/test_rendered.py",
    ),
    _fault(
        "a job that names GPUs gets no CPUs for them",
        "templates/job_submit.lua.j2",
        "   share_cpus(job)\n",
        "",
        "machine/test_rendered.py",
    ),
)
