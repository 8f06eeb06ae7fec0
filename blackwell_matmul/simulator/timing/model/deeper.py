"""Simulated rings with more stages: the same program, whose loads are served earlier.

A ring's j-th load waits for the MMAs that read its stage before. With n more stages it would have the wait of the load
n places before it, and be issued with that load. Here the program issues it as before, but it is served as if issued
then. Bandwidths of the L2 and TMA are unchanged, and so is a CTA's wait for its first loads.
"""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial
from typing import Any

from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.timing.model.sm import Sm
from blackwell_matmul.simulator.timing.model.timed_engine import TimedEngine, base_name
from blackwell_matmul.simulator.timing.model.work import Load, Service

Fill = tuple[str, int]
"""An mbarrier of a stage, and its phase."""


LONG = 100_000.0
"""Cycles in which any load completes."""


class DeeperRings(TimedEngine):
    """A timed engine, of these arguments, with `extra` more stages in each ring. first: each stage's first load was
    issued long before."""

    def __init__(self, *arguments: Any, extra: int, first: bool) -> None:
        super().__init__(*arguments)
        self.first = first
        rings = partial(deque[tuple[Fill, float]], maxlen=extra + 1)
        self.rings: defaultdict[tuple[Warp, str], deque[tuple[Fill, float]]] = defaultdict(rings)

    def _served_once(self, op: AsyncOperation, work: Service, sm: Sm) -> float:
        return max(self.now, super()._served_once(op, work, sm))

    def _comes(self, op: AsyncOperation, work: Service) -> float:
        return self.now - self._sooner(op) if isinstance(work, Load) else self.now

    def _sooner(self, op: AsyncOperation) -> float:
        """Return how many cycles earlier the load is served: the time since the issue of the load `extra` stages
        before."""
        if op.barrier is None:
            return 0.0
        if self.first and not op.barrier.phase:
            return LONG
        fill, ring = (op.barrier.name, op.barrier.phase), self.rings[op.warp, base_name(op.barrier)]
        if not ring or ring[-1][0] != fill:
            ring.append((fill, self.now))
        return self.now - ring[0][1] if len(ring) == ring.maxlen else 0.0
