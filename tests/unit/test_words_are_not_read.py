"""Nothing reads a sentence of ours: no field that holds words is compared, searched or cut up.

For what no recorded machine reaches (tests/unit/test_words_decide_nothing.py). Each place that may is named
with why: another program's text, mostly. By names alone, so that a field of words needs one of these names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "dshpc_setup"
WORDS = frozenset(
    "detail details reason says cause title brief why meaning what words note notes message sentence "
    "resolution said done".split()
)
CUTS = frozenset(
    "startswith endswith partition rpartition split rsplit removeprefix removesuffix replace "
    "index find count".split()
)
SEARCHES = frozenset("match search fullmatch findall finditer sub split".split())
# Where words are laid out for a terminal or cleaned, and nothing is decided
SHOWN_ONLY = ("terminal/", "cli/", "record/", "bundle/")
_LAID_OUT = "its white space alone: one line"
_NO_WORDS = "a name, which is no sentence: what a disk is for"
_ENGINE = "the engine's words, or the kernel's of its socket"
_SLURM = "Slurm's words, or a person's, or codes of ours (dshpc:NAME) that stand among them"
_OTHERS = "another program's words"
ALLOWED: dict[str, str] = {
    "jobs/pending_reasons.py: _LIMIT.match(job.reason)": "Slurm's own code of why a job waits",
    "cluster/destroy.py: error.details.split()": _LAID_OUT,
    "container/daemons.py: found.reason == HELD": _SLURM,
    "slurm/nodes.py: self.why == STOPPED": _SLURM,
    "slurm/nodes.py: self.why.startswith(FORMER_KEY)": _SLURM,
    "container/end_jobs.py: '.batch]' in table[pid].title": "the name of a process, as slurmstepd sets it",
    "diagnose/engine.py: item.what == 'engine'": _NO_WORDS,
    "diagnose/engine_state.py: 'refused' in (engine.detail or '').lower()": _ENGINE,
    "diagnose/host.py: item.what == what": _NO_WORDS,
    "engine/refusals.py: 'client version' in (engine.detail or '')": _ENGINE,
    r"facts/__init__.py: re.search('\\bdenied by plugin ([^\\s:]{1,80})', self.engine.detail or '')": _ENGINE,
    "jobs/follow.py: job.reason != word": _SLURM,
    "jobs/follow.py: job.reason not in ('', 'None')": _SLURM,
    "jobs/queries.py: 'dshpc ' in (each.reason or '')": "spares an import where no command is named",
    "passthrough/judge_driver.py: "
    "'cannot be preloaded (cannot open shared object file)' in found.words": _OTHERS,
    r"passthrough/rules.py: re.findall('[\\w.-]+/[\\w.-]+=[^\\s,:]+(?::\\d+)?', "
    "refusal.said.get('names', ''))": _OTHERS,
    "passthrough/rules.py: refusal.said.get('file', '') in wanted": _OTHERS,
    "pasted/__init__.py: re.search(sign.words, flat, re.IGNORECASE)": _OTHERS,
    "repair/node.py: out.reason == _BEFORE_RECONFIGURE": _SLURM,
    "slurm/nodes.py: self.why.startswith('dshpc:')": _SLURM,
    "slurm/nodes.py: slurm_releases.node_reason('program_failed').match(self.why)": _SLURM,
    "slurm/nodes.py: slurm_releases.node_reason(*reasons).match(self.why)": _SLURM,
    "slurm/nodes.py: slurm_releases.node_reason('kill_failed', 'program_failed').match(self.why)": _SLURM,
    "slurm/nodes.py: known.search(self.reason)": _SLURM,
    "slurm/blocked_jobs.py: slurm_releases.passing_reason().fullmatch(job.reason)": _SLURM,
    r"""workflows/document.py: "'\\t'" in error.said""": "the YAML library's words",
}


def of_words(node: ast.expr) -> bool:
    """An attribute with such a name, also behind `or ""` and a call of its own."""
    if isinstance(node, ast.BoolOp):
        return any(map(of_words, node.values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return of_words(node.func.value)
    return isinstance(node, ast.Attribute) and node.attr in WORDS


def reads(tree: ast.AST) -> Iterator[ast.expr]:
    """Expressions that read a field of words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            identity = all(isinstance(each, ast.Is | ast.IsNot) for each in node.ops)
            if not identity and any(map(of_words, (node.left, *node.comparators))):
                yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if (name in CUTS and of_words(node.func.value)) or (
                name in SEARCHES and any(map(of_words, node.args))
            ):
                yield node
        elif isinstance(node, ast.Subscript) and of_words(node.slice):
            yield node


def found() -> list[tuple[str, str]]:
    """("repair/node.py", "out.reason == CODE"): file and expression."""
    places = []
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE).as_posix()
        if not path.startswith(SHOWN_ONLY):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            places += [(path, ast.unparse(each)) for each in reads(tree)]
    return places


def test_no_field_of_words_is_read() -> None:
    places = {f"{path}: {text}" for path, text in found()}
    assert sorted(places - ALLOWED.keys()) == [], "read a code in its place, or say why"
    assert sorted(ALLOWED.keys() - places) == [], "allowed, and not there any more"


def test_a_read_is_seen() -> None:
    for text in (
        'error.brief.startswith("x")',
        'if (gpus.detail or "").lower() == "x": pass',
        '"x" in found.reason',
        're.search("x", step.why)',
        'table[item.what.partition(" ")[0]]',
    ):
        assert list(reads(ast.parse(text))), text
    assert not list(reads(ast.parse("error.brief is None or error.code == 2")))
