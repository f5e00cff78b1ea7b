"""Which of the caller's streams a command inside gets: nothing of it may be taken without need.

A Docker client that is given stdin reads it at once. `while read id; do dshpc squeue -j $id; done`
would end after one round, and commands pasted into a terminal would be eaten by the first of them:
so only a command that itself reads stdin gets it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost as much as all of the rest
if TYPE_CHECKING:
    from dshpc_setup.slurm_releases.model import Options

NONE = "none"  # /dev/null
DIRECT = "direct"  # the Docker client reads ours
PUMP = "pump"  # a terminal, read by us and handed on through a pipe
TTY = "tty"  # a terminal inside, joined to ours

_ALWAYS = frozenset(("exec", "shell", "srun", "salloc", "sattach", "sacctmgr", "scrontab"))

MOST_OF_SCRIPT = 1 << 16  # its #SBATCH lines stand at its beginning


def mode(command: str, arguments: list[str], terminals: tuple[bool, bool, bool]) -> str:
    """How stdin is handed on; `terminals` says which of stdin, stdout and stderr is a terminal.

    A terminal inside joins stdout and stderr, so it is made only where all three are terminals.
    """
    if not _reads_stdin(command, arguments):
        return NONE
    if all(terminals):
        return TTY
    return PUMP if terminals[0] else DIRECT


def _reads_stdin(command: str, arguments: list[str]) -> bool:
    if command in _ALWAYS:
        return True
    if command == "sbatch":
        return not sbatch_has_script(arguments)
    if command == "scancel":  # asks for each job
        return any(_is_flag(text, "i", "interactive") for text in arguments)
    if command == "scontrol":  # without a command it prompts for them
        return all(text.startswith("-") for text in arguments)
    return False


def _is_flag(text: str, letter: str, name: str) -> bool:
    if text.startswith("--"):
        return len(text) > 4 and f"--{name}".startswith(text)
    return text.startswith("-") and letter in text


def sbatch_has_script(arguments: list[str]) -> bool:
    """Whether the script is a file or `--wrap`; otherwise sbatch reads it from stdin."""
    rest = iter(arguments)
    for text in rest:
        if text == "--":
            return next(rest, None) is not None
        if text.startswith("--"):
            name, equals, _ = text[2:].partition("=")
            if len(name) > 2 and "wrap".startswith(name):  # getopt takes unambiguous beginnings
                return True
            if not equals and not is_long_flag(name):
                next(rest, None)
        elif text.startswith("-") and text != "-":
            if short_takes_next(text[1:], options().sbatch_short):
                next(rest, None)
        else:
            return True
    return False


def options() -> Options:
    """Those of the image's Slurm; imports are counted: most commands need none."""
    from dshpc_setup.slurm_releases import SHIPPED

    return SHIPPED.options


def is_long_flag(name: str) -> bool:
    """Whether sbatch takes no word behind this option, or a beginning of it."""
    return any(flag.startswith(name) for flag in options().sbatch)


def short_takes_next(letters: str, flags: str) -> bool:
    """Whether the word behind these short options (without the '-') belongs to the last of them."""
    for position, letter in enumerate(letters):
        if letter == "k":  # -k, -koff
            return False
        if letter not in flags:
            return position == len(letters) - 1
    return False
