"""Search for a missing edge: the candidates are tried in order, the most specific first.

A candidate returns its edge if that edge alone would have ordered the two accesses.
"""

from __future__ import annotations

from collections.abc import Callable

from blackwell_matmul.simulator.order.missing.arrivals import (
    another_cta_signalled,
    arrival_comes_before,
    arrival_tracks_none,
    commit_comes_before,
    commit_tracks_none,
    one_lane_arrived,
    only_others_arrive,
    own_cta_alone_arrived,
    released_too_early,
)
from blackwell_matmul.simulator.order.missing.conflict import Conflict, Missing
from blackwell_matmul.simulator.order.missing.handoffs import (
    goes_on_without,
    nobody_waits,
    reads_before_the_first,
)
from blackwell_matmul.simulator.order.missing.issue_order import copied_after, copied_twice, hardware_alone
from blackwell_matmul.simulator.order.missing.phases import (
    came_too_early,
    count_too_small,
    ran_ahead,
    skips_a_wait,
    stale_wait,
    wrong_phase,
)
from blackwell_matmul.simulator.order.missing.semaphores import never_locks, stored_over, value_too_early
from blackwell_matmul.simulator.order.missing.syncs import (
    another_warp_knows,
    each_waits_for_its_own,
    lanes_of_one_warp,
    missing_sync,
    released_alone,
    waited_for_later,
    written_again,
)
from blackwell_matmul.simulator.order.missing.too_early import has_to_come_last
from blackwell_matmul.simulator.order.missing.waits import (
    arrival_of_another_cta,
    barrier_carries_it,
    completion,
    each_cta_writes,
    reader_went_on,
)
from blackwell_matmul.simulator.order.missing.weak_edges import proxy_fence, relaxed_arrival, relaxed_both, relaxed_wait

CANDIDATES: tuple[Callable[[Conflict], Missing | None], ...] = (
    hardware_alone, copied_twice, copied_after,
    proxy_fence, relaxed_wait, relaxed_arrival, relaxed_both, lanes_of_one_warp, nobody_waits, skips_a_wait,
    reads_before_the_first, commit_tracks_none, commit_comes_before, count_too_small, came_too_early, wrong_phase,
    arrival_tracks_none, arrival_comes_before, released_too_early, one_lane_arrived, goes_on_without, stale_wait,
    ran_ahead, written_again, reader_went_on, barrier_carries_it, another_cta_signalled, own_cta_alone_arrived,
    released_alone, value_too_early, stored_over, never_locks, only_others_arrive, has_to_come_last, each_cta_writes,
    another_warp_knows, waited_for_later, each_waits_for_its_own, completion, arrival_of_another_cta,
)  # fmt: skip


def missing_edge(conflict: Conflict) -> Missing:
    """Return the first edge that would have ordered the two accesses."""
    for candidate in CANDIDATES:
        found = candidate(conflict)
        if found is not None:
            return found
    return missing_sync(conflict)
