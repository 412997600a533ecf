"""What came of a campaign, or of several: ``python -m tests.chaos.report FILE …`` adds their files up."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from statecore.runtime.faults import FaultPoint

# Of 50 rounds, 30 must have met an epoch in flight.
_IN_FLIGHT = 30 / 50


class Round(msgspec.Struct, frozen=True):
    """What came of a strike."""

    victim: str
    how: str
    point: FaultPoint | None
    in_flight: bool
    seconds: float


class Report(msgspec.Struct):
    """What came of a campaign; ``--report`` writes it.

    Attributes:
        seed: What the campaign followed from.
        catalog: Its database.
        left_out: Strikes that were impossible, and why.
        rounds: What came of each strike.
        lost: Rows that the sinks lacked at the end; None when they were not counted.
        doubled: Rows that the sinks had too many.
        differences: From an undisturbed run, for people.
        lineages: How many there were at the end.
        epoch: The newest.
        generation: The newest.

    """

    seed: int
    catalog: str = ""
    left_out: list[str] = []
    rounds: list[Round] = []
    lost: int | None = None
    doubled: int | None = None
    differences: list[str] = []
    lineages: int = 0
    epoch: int | None = None
    generation: int = 0

    @property
    def in_flight(self) -> int:
        """How many strikes met an epoch in flight."""
        return sum(round.in_flight for round in self.rounds)

    def demand_flights(self) -> None:
        """Add a difference when too few strikes met an epoch in flight: such a campaign proves little."""
        demanded = len(self.rounds) * _IN_FLIGHT
        if self.in_flight < demanded:
            self.differences.append(f"{self.in_flight} strikes met an epoch in flight; {demanded:g} are demanded")


def read(file: Path) -> Report:
    """Return the report in a file."""
    return msgspec.json.decode(file.read_bytes(), type=Report)


def show(reports: Sequence[Report], console: Console) -> None:
    """Print reports, added up."""
    rounds = [each for report in reports for each in report.rounds]
    kinds, met = Counter((each.victim, each.how) for each in rounds), Counter[tuple[str, str]]()
    met.update((each.victim, each.how) for each in rounds if each.in_flight)
    strikes = Table("victim", "strike", "rounds", "in flight")
    for kind, number in sorted(kinds.items()):
        strikes.add_row(*kind, str(number), str(met[kind]))
    strikes.add_section()
    strikes.add_row("all", "", str(len(rounds)), str(met.total()))
    hits = Counter(each.point for each in rounds)
    points = Table("fault point", "hits")
    for point in FaultPoint:
        points.add_row(point, str(hits[point]))
    console.print(strikes, *([points] if hits.keys() - {None} else []), sep="\n")
    for report in reports:
        console.print(
            f"seed {report.seed}, catalog in {report.catalog}: {len(report.rounds)} rounds, "
            f"{report.lineages} lineages, generation {report.generation}, epoch {report.epoch}"
        )
        for what in report.left_out:
            console.print(f"[yellow]left out: {what}[/]", highlight=False)
        for difference in report.differences:
            console.print(f"[red]{difference}[/]", highlight=False)
    counted = [report for report in reports if report.lost is not None and report.doubled is not None]
    lost, doubled = sum(report.lost or 0 for report in counted), sum(report.doubled or 0 for report in counted)
    uncounted = f"; not counted in {len(reports) - len(counted)} of {len(reports)}" if counted != reports else ""
    console.print(f"rows lost: {lost}, rows doubled: {doubled}{uncounted}")


def main() -> None:
    """Add reports up; end with 1 if one has a difference."""
    reports = [read(Path(name)) for name in sys.argv[1:]]
    show(reports, Console(soft_wrap=True))
    sys.exit(any(report.differences for report in reports))


if __name__ == "__main__":
    main()
