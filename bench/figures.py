"""The figures of a run, and what stands in the way of those that are missing."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.plan import Contender, Part


@dataclass
class Figure:
    """One workload of one contender, over all rounds."""

    contender: str
    work: str
    unit: str
    settings: dict[str, Any]
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def as_json(self) -> dict[str, Any]:
        return {
            "contender": self.contender,
            "work": self.work,
            "unit": self.unit,
            "settings": self.settings,
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "values": self.values,
        }


class Figures:
    def __init__(self) -> None:
        self._figures: dict[tuple[str, str], Figure] = {}
        self.missing: dict[tuple[str, str], str] = {}

    def add(self, contender: Contender, row: dict[str, Any]) -> None:
        place = (contender.name, row["work"])
        figure = self._figures.get(place)
        if figure is None:
            figure = Figure(contender.name, row["work"], row["unit"], row["settings"])
            self._figures[place] = figure
        figure.values.append(row["value"])

    def miss(self, contender: Contender, part: Part, why: str) -> None:
        self.missing.setdefault((contender.name, part.name), why)

    def median(self, contender: Contender, work: str) -> float | None:
        figure = self._figures.get((contender.name, work))
        return figure.median if figure else None

    def __iter__(self) -> Iterator[Figure]:
        """By workload, then by contender in the order of the plan."""
        return iter(sorted(self._figures.values(), key=lambda figure: figure.work))
