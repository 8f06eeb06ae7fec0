"""Distribution of a launch's work over its places: an SM, or the SMs of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from blackwell_matmul.simulator.timing.model.loads import ClusterLoad


@dataclass(frozen=True)
class Spread:
    """Loads of each place, one place for each cluster that runs at the same time. Loads represent the work of a
    place."""

    of_places: Sequence[ClusterLoad]

    @classmethod
    def over(cls, side: int, shares: Sequence[ClusterLoad]) -> Spread:
        """Return a spread in which a place gets every n-th cluster in launch order, as if all clusters took the same
        time."""
        return cls([sum(shares[at::side], ClusterLoad(0, 0)) for at in range(side)])

    @cached_property
    def most_at(self) -> int:
        return max(range(len(self.of_places)), key=lambda at: self.of_places[at].count_bytes)

    @cached_property
    def least_at(self) -> int:
        return min(range(len(self.of_places)), key=lambda at: self.of_places[at].count_bytes)

    @property
    def most(self) -> ClusterLoad:
        return self.of_places[self.most_at]

    @cached_property
    def full(self) -> float:
        """Return the work of all places, as a fraction of the work if each place had as much as the busiest one."""
        every = sum(share.count_bytes for share in self.of_places)
        return every / (len(self.of_places) * self.most.count_bytes)

    @cached_property
    def fewer(self) -> list[tuple[float, float]]:
        """(part, factor): once this part of the most work is done, one in `factor` places has work left."""
        ends = Counter(share.count_bytes for share in self.of_places)
        found, working = [], len(self.of_places)
        for count_bytes, places in sorted(ends.items())[:-1]:
            working -= places
            found.append((count_bytes / self.most.count_bytes, len(self.of_places) / working))
        return found
