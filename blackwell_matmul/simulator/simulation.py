"""One launch, run cluster by cluster: the engine, the listeners, and the checks at a CTA's exit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blackwell_matmul.simulator.engine import Agent, Engine
from blackwell_matmul.simulator.findings import nobody
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.lowering.lower import Lowered, Main
from blackwell_matmul.simulator.machine.cta import Cluster, Cta
from blackwell_matmul.simulator.machine.grants import Grants
from blackwell_matmul.simulator.machine.grid import Grid, Position
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.order.announcements import Announcements
from blackwell_matmul.simulator.order.deadlock import deadlock
from blackwell_matmul.simulator.trace.tracer import Tracer


@dataclass(eq=False)
class Simulation:
    """A launch. checks: makes listeners of the order for each run. listeners: of all runs. tracer: of its CTA's run."""

    lowered: Lowered
    grid: Grid
    policy: str
    seed: int
    checks: Callable[[], Sequence[Listener]]
    listeners: tuple[Listener, ...] = ()
    tracer: Tracer | None = None

    def run(
        self,
        positions: list[Position],
        grants: Grants | None = None,
        log: Listener | None = None,
        main: Main | None = None,
    ) -> list[Cta]:
        """Run these CTAs together until all have returned or none can continue; return them.

        grants: clusters that they may take over. log: a listener; the CTAs then stay open. main: program of their
        warps.
        """
        tracer = self.tracer if self.tracer is not None and self.tracer.position in positions else None
        announced = Announcements()
        extra = [each for each in (announced, tracer, log) if each is not None]
        engine = Engine(self.policy, self.seed, (*self.checks(), *self.listeners, *extra))
        self.grid.findings.told = engine.tell.found
        clusters = self.clusters(positions, engine, grants)
        ctas = [cta for cluster in clusters for cta in cluster.ctas]
        stuck = engine.run([warp for cta in ctas for warp in cta.warps], main or self.lowered.main)
        for cluster in clusters:
            self._end(engine, cluster, [agent for agent in stuck if agent.warp.cta.cluster is cluster], announced)
        engine.tell.closed()
        engine.close()
        self.grid.findings.told = nobody
        if log is None:
            for cta in ctas:
                cta.close()
        return ctas

    def clusters(self, positions: list[Position], engine: Engine, grants: Grants | None) -> list[Cluster]:
        """Return the clusters of CTAs at these positions, in launch order (PTX ISA, %cluster_ctarank: x fastest)."""
        found: dict[Position, Cluster] = {}
        for position in positions:
            x, y, z = (at // extent for at, extent in zip(position, self.grid.cluster, strict=True))
            cluster = found.setdefault((x, y, z), Cluster(self.grid.cluster, grants=grants or Grants()))
            engine.tell.started(Cta(self.grid, position, cluster, engine))
        return list(found.values())

    def _end(self, engine: Engine, cluster: Cluster, stuck: list[Agent], announced: Announcements) -> None:
        """End a cluster whose warps have returned, or report the warps that wait forever."""
        if stuck:
            left = [op for cta in cluster.ctas for op in engine.in_flight(cta) if not op.done]
            self.grid.findings.add(deadlock(self.lowered.program, cluster, stuck, left, announced))
            for cta in cluster.ctas:
                engine.abandon(cta)
            return
        for cta in cluster.ctas:
            if not cta.stopped:
                _exit(engine, cta)


def _exit(engine: Engine, cta: Cta) -> None:
    """End a CTA and its shared memory; pending reads of that memory are lost."""
    engine.tell.exits(cta)
    for op in list(engine.in_flight(cta)):
        if not op.done and not op.source_free:
            _lose([region for region in op.reads if region.storage.space == "shared"])
        engine.finish(op)
        engine.settle(op)
    engine.tell.exited(cta)


def _lose(regions: list[Region]) -> None:
    """Fill the regions' storages with poison."""
    for region in regions:
        storage = region.storage
        storage.forget(tuple([(0, extent) for extent in storage.shape]))
        storage.write(storage.data, storage.item.poison)
