"""Barriers of threads by rounds: bar, bar.warp.sync and barrier.cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blackwell_matmul.emulator.order.agents import WarpAgents
from blackwell_matmul.emulator.order.barriers import Round
from blackwell_matmul.emulator.order.run_state import RunState


class ThreadBarriers:
    """Checks of barriers of threads. rounds: current rounds; of barrier.cluster, the last two."""

    def __init__(self, run: RunState) -> None:
        self.run = run
        self.rounds: dict[Any, Round] = {}

    def joined(self, barrier: Any, warp: Any, mask: int, waits: bool) -> None:
        agents, (_, site) = self.run.warps[warp], self.run.here()
        cluster = barrier.__class__ is tuple and barrier[0] is warp.cta.cluster
        round = self.rounds.setdefault(_key(barrier), Round(warp.cta.cluster, barrier))
        if not (cluster and waits):  # at barrier.cluster, the arrival comes before the wait
            if cluster and site.order.semantics == "relaxed":
                add_relaxed(round.add, agents, mask, 1)
            else:
                round.add(agents.sent(mask))
        if waits and round.over:
            assert round.known is not None
            agents.receive(mask, round.known)
        elif waits:
            round.waiters.append((agents, mask))

    def ended(self, barrier: Any) -> None:
        cluster = barrier.__class__ is tuple and barrier[0].__class__.__name__ == "ClusterState"
        round = self.rounds[_key(barrier)] if cluster else self.rounds.pop(_key(barrier))
        assert round.known is not None
        round.over = True
        for agents, mask in round.waiters:
            if cluster:
                agents.receive(mask, round.known)
            else:
                agents.settle(mask, round.known)
        round.waiters = []
        if cluster:
            self.rounds.pop((id(barrier[0]), barrier[1] - 2), None)

    def forget(self, cluster: Any) -> None:
        self.rounds = {key: each for key, each in self.rounds.items() if each.cluster is not cluster}


def add_relaxed(add: Callable[..., None], agents: WarpAgents, mask: int, level: int) -> None:
    """Add a relaxed arrival to a barrier: a strong edge for accesses that the last fence released, a weak edge for all
    others. level: 0 for cta scope, 1 for cluster scope."""
    for each in agents.parts(mask):
        released = each.released[level]
        if released is not None:
            add(released)
    add(agents.sent(mask), strong=False)


def _key(barrier: Any) -> Any:
    return (id(barrier[0]), barrier[1]) if barrier.__class__ is tuple else id(barrier)
