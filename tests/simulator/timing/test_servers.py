"""What operations share: one after the other, a rate with bursts, and the right to allocate tensor memory."""

from blackwell_matmul.simulator.timing.model.servers import Banks, Bucket, Calendar, Pipe, TensorMemoryLock


def test_a_pipe_serves_in_order():
    pipe = Pipe()
    assert pipe.start(10, 5) == 10
    assert pipe.start(11, 5) == 15
    assert pipe.start(30, 5) == 30
    assert pipe.busy == 15


def test_a_calendar_serves_who_comes_sooner_between_the_turns_of_who_was_asked_first():
    calendar = Calendar()
    assert [calendar.start(0, 10, ahead=at) for at in (0, 30, 5, 12, 18)] == [0, 30, 10, 20, 40]
    assert calendar.start(35, 10) == 50
    assert calendar.taken == [(30, 40), (40, 50), (50, 60)]
    assert calendar.busy == 60 and calendar.free == 60


def test_warps_that_ask_for_the_same_in_step_are_done_when_all_are():
    banks = Banks()
    assert [banks.through(0, at, 10, "load", 4) for at in (0, 0, 5, 0)] == [40, 40, 40, 40]
    assert banks.through(0, 100, 10, "load", 4) == 140
    assert banks.through(0, 50, 10, "other", 1) == 60
    assert banks.busy == 60


def test_a_bucket_lets_a_burst_through_and_then_its_rate():
    bucket = Bucket(rate=2, burst=100)
    assert bucket.take(1000, 100) == 1000
    assert bucket.take(1000, 100) == 1050
    assert bucket.take(1000, 100) == 1100
    assert bucket.take(2000, 100) == 2000


def locked(columns=512):
    lock, grants = TensorMemoryLock(columns), []
    return lock, grants, lambda owner, wanted: lock.request(owner, wanted, lambda again: grants.append((owner, again)))


def test_who_keeps_the_permit_keeps_others_out_though_columns_are_free():
    lock, grants, ask = locked()
    ask("a", 256)
    ask("b", 256)
    assert grants == [("a", False)]
    lock.free("a", 256)
    assert grants == [("a", False)]
    lock.leave("a")
    assert grants == [("a", False), ("b", True)]


def test_who_has_the_permit_allocates_again_before_those_that_wait():
    lock, grants, ask = locked()
    ask("a", 256)
    ask("b", 256)
    ask("a", 32)
    assert grants == [("a", False), ("a", False)]
    lock.relinquish("a")
    assert len(grants) == 2  # 224 columns are left
    lock.leave("a")
    assert grants[-1] == ("b", True)


def test_relinquish_lets_the_next_one_in():
    lock, grants, ask = locked()
    ask("a", 256)
    ask("b", 256)
    lock.relinquish("a")
    assert grants[-1] == ("b", True)
    assert (lock.waited, lock.most, lock.left) == (1, 2, 0)


def test_who_has_given_its_columns_back_does_not_count_any_more():
    lock, _, ask = locked()
    for owner in "abc":
        ask(owner, 256)
        lock.relinquish(owner)
    lock.free("a", 256)
    assert lock.held.keys() == {"b", "c"} and lock.most == 2


def test_columns_run_out_though_the_permit_is_free():
    lock, grants, ask = locked()
    ask("a", 512)
    lock.relinquish("a")
    ask("b", 32)
    assert grants == [("a", False)]
    lock.free("a", 512)
    assert grants[-1] == ("b", True)
