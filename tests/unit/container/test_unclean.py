from __future__ import annotations

from pathlib import Path

from dshpc_setup.container import unclean
from dshpc_setup.slurm.places import Places

NOW = 1_700_000_000


def test_ends_of_the_last_day_are_told_and_a_long_log_is_cut(tmp_path: Path) -> None:
    places = Places(str(tmp_path))
    assert unclean.found_at(places, NOW) == []
    log = Path(f"{places.state}/slurmctld.unclean")
    log.parent.mkdir(parents=True)
    log.write_text(f"{NOW - 90_000}\n{NOW - 5}\nhalf a line\n{NOW}\n")
    assert unclean.found_at(places, NOW) == [NOW - 5, NOW]
    log.write_text("1600000000\n" * 10_000)
    unclean.trim(places)
    assert log.read_text() == ""
