"""What ran when in a predicted run, against the run itself."""

from itertools import pairwise

import pytest

from blackwell_matmul.harness.calls.kernel_call import resolve
from blackwell_matmul.harness.predicting import predict_call, trace_call

KERNELS = [("v0", "B200"), ("v2", "B200"), ("v3", "B200"), ("v6", "B200"), ("h5", "H200")]


@pytest.fixture(scope="module", params=KERNELS, ids=lambda each: each[0])
def timed(request):
    """A kernel's timeline, and its prediction."""
    kernel, gpu = request.param
    return tuple(told(resolve(kernel, (1024, 1024, 512), target=gpu)) for told in (trace_call, predict_call))


def tracks(timeline):
    return {track: [each for each in timeline.events if each.track == track] for track in timeline.tracks}


@pytest.mark.slow
def test_it_is_the_run_that_was_predicted(timed):
    timeline, prediction = timed
    assert timeline.end_cycles == prediction.cycles
    assert timeline.busy_cycles("tensor core") == pytest.approx(prediction.by_resource["tensor core"])
    assert timeline.busy_cycles("TMA loads") == pytest.approx(prediction.by_resource["TMA loads"])


@pytest.mark.slow
def test_events_are_within_the_run_and_on_known_tracks(timed):
    timeline, _ = timed
    assert {each.track for each in timeline.events} == set(timeline.tracks)
    for each in timeline.events:
        assert 0 <= each.start_cycles <= each.end_cycles <= timeline.end_cycles + 1e-6


def test_on_no_track_do_two_things_happen_at_once(timed):
    timeline, _ = timed
    for events in tracks(timeline).values():
        for one, next_ in pairwise(events):
            assert one.end_cycles <= next_.start_cycles + 1e-6, (one, next_)


def test_each_event_of_a_warp_has_its_line(timed):
    timeline, _ = timed
    warps = [each for track, found in tracks(timeline).items() if "warp " in track for each in found]
    assert warps and all(timeline.sources[each.line] for each in warps)


def test_a_phase_lasts_from_its_first_load_to_its_last_byte():
    timeline = trace_call(resolve("v2", (128, 128, 256), schedule="stages=2,block_k=64", target="B200"))
    loads = [each for each in timeline.events if each.track == "TMA loads"]
    phase = next(each for each in timeline.events if each.track == "tma_barriers[0]")
    assert phase.name == "phase 0" and "parity 0" in phase.detail
    assert phase.start_cycles <= loads[0].start_cycles and phase.end_cycles > loads[1].end_cycles + 400
    assert loads[0].detail.startswith("CTA (0, 0, 0), s_a[0:1")


def test_states_of_a_barrier_are_those_of_its_phases(timed):
    """Within a phase arrivals and bytes only come in as announced, and it ends when nothing is pending."""
    timeline, _ = timed
    for track in {each.track for each in timeline.barriers}:
        states = [each for each in timeline.barriers if each.track == track]
        assert (states[0].phase, states[0].pending, states[0].tx_bytes) == (0, states[0].expected, 0)
        for one, next_ in pairwise(states):
            assert one.cycle < next_.cycle and 0 <= next_.pending <= next_.expected
            assert next_.phase - one.phase in (0, 1)
            assert next_.phase == one.phase or next_.pending == next_.expected


def test_ends_of_phases_are_changes_of_state():
    timeline = trace_call(resolve("v2", (128, 128, 256), schedule="stages=2,block_k=64,block_n=128", target="B200"))
    phases = {(each.track, each.end_cycles) for each in timeline.events if each.name.startswith("phase ")}
    assert phases and phases <= {(each.track, each.cycle) for each in timeline.barriers}
    first = [each for each in timeline.barriers if each.track == "tma_barriers[0]"][:4]
    told = [(each.phase, each.pending, each.tx_bytes) for each in first]
    assert told == [(0, 1, 0), (0, 0, 32768), (0, 0, 16384), (1, 1, 0)]


def test_a_wait_says_who_ends_it():
    timeline = trace_call(resolve("v2", (128, 128, 256), target="B200"))
    waits = {each.name: each.detail for each in timeline.events if each.name.startswith("waits for ")}
    assert waits["waits for mma_barrier"].endswith("signalled by tcgen05.commit")
    assert waits["waits for tma_barriers[0]"].endswith("signalled by cp.async.bulk.tensor (load)")


def test_ctas_that_share_an_sm_have_slots_of_their_own():
    timeline = trace_call(resolve("v3", (4096, 4096, 256), target="B200"))
    assert {"slot 0: warp 0", "slot 1: warp 0"} <= set(timeline.tracks)
    ctas = [{each.detail for each in timeline.events if each.track == f"slot {slot}: warp 0"} for slot in (0, 1)]
    assert all(ctas) and ctas[0].isdisjoint(ctas[1])


def test_of_many_turns_it_shows_the_first():
    timeline = trace_call(resolve("v3", (8192, 8192, 256), target="B200"))
    assert timeline.part == "6 of 14 CTAs that one SM gets"
