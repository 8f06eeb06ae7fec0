"""What `explain` says of kernels unlike the rungs: without products, and with faults of their own."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch

from blackwell_matmul import predict

CARELESS = Path(__file__).parent / "careless_scripts.py"
EXPLAINED = Path(__file__).parent / "explained_scripts.py"
BUSY_LOADER = Path(__file__).parent / "busy_loader_scripts.py"
PLAIN = Path(__file__).parent / "plain_scripts.py"


def told(prediction, pattern):
    """The sentence that says so, and what it promises, of all cycles."""
    (sentence,) = [each for each in prediction.explanation if re.search(pattern, each)]
    promised = re.search(r"(\d+)% fewer cycles", sentence)
    return sentence, int(promised[1]) / 100 if promised else None


def saved(before, after):
    return 1 - after.cycles / before.cycles


@cache
def moves(**schedule):
    x = torch.empty(8192, 4096, dtype=torch.float16)
    return predict(f"{PLAIN}:Moves", 8192, 4096, x, torch.empty_like(x), gpu="B200", schedule=schedule)


@cache
def sums(rows, piece, explained=True):
    x, y = torch.empty(rows, 4096), torch.empty(rows, 1)
    return predict(f"{PLAIN}:Sums", rows, 4096, x, y, gpu="B200", schedule={"piece": piece}, explained=explained)


def test_of_a_ring_that_stores_read_the_number_of_stages_is_told_that_saves_what_is_promised():
    few = moves(stages=1)
    sentence, promised = told(few, "1 stage cannot hide that: with")
    arriving, held, _ = (int(each.replace(",", "")) for each in re.findall(r"(?:after|over) ([\d,]+)", sentence))
    assert arriving > 1000 > held > 100 and "what reads it is over" in sentence
    more = moves(stages=int(re.search(r"with (\d+),", sentence)[1]))
    assert promised > 0.5 and saved(few, more) == pytest.approx(promised, abs=0.06)


@pytest.mark.parametrize("size", [64, 256])
def test_of_a_small_transpose_more_ctas_are_promised_no_more_than_the_launch_leaves(size):
    x = torch.empty(size, size, dtype=torch.float32)
    found = predict(f"{PLAIN}:Sums", size, size, x, torch.empty(size, 1), gpu="B200")
    sentence, promised = told(found, "run where .* could")
    begins, launch = told(found, "the launch, and what each CTA begins with")
    assert "part of k" not in sentence and "smaller tiles fill more SMs" in sentence
    assert 0 < promised <= 1 - launch + 0.01, (sentence, begins)


@pytest.mark.parametrize("prediction", [lambda: moves(stages=1), lambda: sums(4736, 64)])
def test_where_nothing_is_multiplied_no_tensor_core_and_no_products_are_named(prediction):
    explanation = " ".join(prediction().explanation)
    assert explanation and not re.search("tensor core|product|multipl", explanation)


def test_what_threads_load_is_promised_no_more_than_memory_leaves():
    small, large = sums(4736, 64), sums(4736, 256)
    _, promised = told(small, "^load_global .*: if more of it ran at a time, .* up to")
    assert 0.05 < saved(small, large) < promised + 0.01
    assert promised - 0.01 <= 1 - max(
        small.memory_utilisation, *(each / small.cycles for each in small.by_resource.values())
    )


@pytest.mark.slow
def test_of_what_no_change_can_save_nothing_is_promised():
    assert sums(9472, 256).bound == "loads and stores"
    held, *others = sums(9472, 256).explanation
    busy = re.fullmatch(r"it is held by loads and stores of threads, busy for (9\d)% of the time\.", held)
    promised = [int(each) for each in re.findall(r"up to (\d+)% fewer", " ".join(others))]
    assert busy and all(each <= 100 - int(busy[1]) for each in promised)
    (sentence,) = moves(stages=8).explanation
    assert sentence.startswith("it is held by memory, busy for ")


def test_no_more_ctas_work_at_once_than_an_sm_gets():
    alone, four = moves(stages=8), moves(stages=8, ctas=592)
    assert alone.resident == four.resident > 4
    assert (alone.working, four.working) == (1, 4)


def test_ctas_that_run_at_once_are_not_said_to_take_turns():
    uneven, even = sums(16 * 512, 512), sums(16 * 444, 512)
    assert uneven.resident == 4
    sentence, promised = told(uneven, "CTAs run at once")
    assert sentence.startswith("512 CTAs run at once on 148 SMs, 68 of which have 4 and the others 3;")
    assert 1 - even.cycles * 512 / 444 / uneven.cycles == pytest.approx(promised, abs=0.05)
    assert not any("turns" in each for each in uneven.explanation)
    assert not any("run at once" in each for each in even.explanation)


@pytest.mark.slow
def test_one_cta_more_that_costs_nothing_is_not_told():
    """Each waits for its own loads most of the time."""
    uneven, even = sums(16 * 512, 64), sums(16 * 444, 64, explained=False)
    assert saved(uneven, even) < 0.05 and not any("run at once" in each for each in uneven.explanation)


@pytest.mark.slow
def test_where_each_byte_comes_once_nothing_is_advised_that_asks_memory_for_less():
    """A row of A by a B that the L2 has no room for; the tiles of B of each CTA are its own."""

    @cache
    def predicted(block_n):
        schedule = {"block_n": block_n, "stages": 4}
        return predict(f"{EXPLAINED}:Blackwell", 1, 16384, 16384, gpu="B200", schedule=schedule)

    sentence, promised = told(predicted(128), "at the rate of memory, which is busy for 8.%")
    assert sentence.endswith("each byte comes from there once, and nothing asks it for less.") and promised is None
    sentence, _ = told(predicted(64), "at the rate of memory, which is busy for [67].%")
    assert sentence.endswith("each byte comes from there once; larger tiles ask the L2 for less.")
    assert saved(predicted(64), predicted(128)) > 0.05


@cache
def loader(**schedule):
    return predict(f"{BUSY_LOADER}:BusyLoader", 4096, 4736, 1024, gpu="B200", schedule=schedule)


@pytest.mark.slow
def test_a_warp_that_loads_and_stores_is_told_what_another_warp_for_either_saves():
    """Of one place for sums only both changes together are worth something."""
    both, own = loader(sums=2), loader(own=True, sums=2)
    sentence, promised = told(both, "the warp that loads does this, and loads wait for it meanwhile; in another warp:")
    assert sentence.startswith("tcgen05.ld (busy_loader_scripts.py:")
    assert saved(both, own) == pytest.approx(promised, abs=0.04)
    assert not any("filled late" in each or "take longer" in each for each in both.explanation)
    assert not any("the warp that loads" in each for each in own.explanation)


@pytest.mark.slow
def test_where_that_warp_stores_from_the_one_place_for_sums_both_are_told():
    one = loader(sums=1)
    _, promised = told(one, "in another warp, and with a second place beside sums.empty_barriers:")
    assert saved(one, loader(own=True, sums=1)) < 0.1
    assert saved(one, loader(own=True, sums=2)) == pytest.approx(promised, abs=0.04)


@cache
def careless(k=2048, **schedule):
    return predict(f"{CARELESS}:Careless", 2816, 3072, k, gpu="H200", schedule={"block_n": 256, **schedule})


@pytest.mark.slow
def test_a_copy_of_what_a_stage_has_is_told_with_the_stages_that_have_room_without_it():
    """Two stages of 80 KiB are three of 48, and loads do not queue."""
    twice, once = careless(stages=2, copies=2, apart=True), careless(stages=3)
    sentence, promised = told(twice, "second time")
    assert re.match(
        r"40% of what is loaded comes into the same stage a second time \(careless_scripts.py:\d+\)", sentence
    )
    assert "without that, and with 3 stages, which then find room," in sentence
    assert saved(twice, once) == pytest.approx(promised, abs=0.03)
    assert not any("no room for another" in each for each in twice.explanation)


@pytest.mark.slow
def test_a_copy_in_the_same_place_takes_no_room():
    twice, once = careless(stages=2, copies=2), careless(stages=3)
    sentence, promised = told(twice, "second time.*: without that, and with 3 stages, ")
    assert "find room" not in sentence and saved(twice, once) == pytest.approx(promised, abs=0.03)


@pytest.mark.slow
def test_a_second_cta_is_not_promised_whose_accumulators_have_no_room():
    """Two of 128 x 256 in two warpgroups take all registers; of 128 x 128 they take half."""
    wide, narrow = careless(k=512, stages=3), careless(k=512, stages=6, block_n=128)
    assert wide.resident == narrow.resident == 1
    assert not any("CTA at once" in each for each in wide.explanation)
    told(narrow, "an SM holds 1 CTA at once, by its shared memory; with one more")
