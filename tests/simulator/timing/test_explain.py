"""What `explain` says of kernels that do one thing badly, and what they take without it."""

import re
from functools import cache
from pathlib import Path

import pytest

from blackwell_matmul import predict

SCRIPTS = Path(__file__).parent / "explained_scripts.py"
PUBLISHED = Path(__file__).parents[3] / "bench" / "public_ladder_kernels.py"
CARELESS = f"{Path(__file__).parent / 'careless_scripts.py'}:Careless"


@cache
def predicted(name, size, explained=True, **schedule):
    gpu = "H200" if name == "Hopper" else "B200"
    return predict(f"{SCRIPTS}:{name}", *size, gpu=gpu, schedule=schedule or None, explained=explained)


def told(prediction, pattern):
    """The sentence that says so, and what it promises, of all cycles."""
    sentences = [each for each in prediction.explanation if re.search(pattern, each)]
    assert len(sentences) == 1, prediction.explanation
    promised = re.search(r"(\d+)% fewer cycles", sentences[0])
    return sentences[0], int(promised[1]) / 100


def saved(before, after):
    return 1 - after.cycles / before.cycles


def schedule(**schedule):
    return schedule


WIDE, SMALL = (2048, 4096, 512), (2048, 2048, 1024)
DEEP, DEEPER = (2304, 2048, 2048), (2304, 2048, 8192)
"""144 tiles of 128 x 256; of the deeper ones the L2 of a B200 does not keep the operands."""

CASES = {
    "the right to allocate": (
        "Blackwell", WIDE, schedule(stages=2, keeps=True), schedule(stages=2), "relinquish_alloc_permit", 0.04,
    ),
    "room for one more CTA": (
        "Blackwell", WIDE, schedule(stages=2, unused=70), schedule(stages=2), "1 CTA at once, by its shared", 0.04,
    ),
    "few stages": (
        "Blackwell", DEEPER, schedule(stages=3), schedule(stages=4), "3 stages cannot hide that.*has room for 4", 0.07,
    ),
    "a wait for each product": (
        "Blackwell", DEEP, schedule(waits=True), schedule(), r"^tcgen05.mma .*: the end of each product is", 0.04,
    ),
    "small boxes": (
        "Blackwell", DEEP, schedule(boxes=16), schedule(), r"^cp.async.bulk.tensor \(load\) .*: what one warp", 0.04,
    ),
    "short rows": (
        "Blackwell", DEEP, schedule(block_k=16, stages=8), schedule(), "at the rate of TMA, which is busy", 0.1,
    ),
    "small tiles": (
        "Blackwell", (1152, 1024, 4096), schedule(block_n=32, stages=6), schedule(block_n=64, stages=6),
        "128 x 32 .* 2.5 t", 0.12,
    ),
    "small boxes on a Hopper": (
        "Hopper", (2048, 1024, 1024), schedule(block_n=128, boxes=16), schedule(block_n=128),
        "what one warp has to issue", 0.12,
    ),
    "short rows on a Hopper": (
        "Hopper", SMALL, schedule(block_n=128, block_k=16, stages=8), schedule(block_n=128), "the rate of TMA", 0.12,
    ),
    "narrow tiles on a Hopper": (
        "Hopper", SMALL, schedule(block_n=64), schedule(), "at the rate of the L2, which is busy", 0.06,
    ),
}  # fmt: skip
"""A kernel, with and without what is bad; what is said of it; and how far the promise may be from what it takes."""


CASES |= {
    "a stage that is filled late": (
        "Together", DEEP, schedule(stages=3, ahead=1), schedule(stages=3, ahead=2), "A stage is filled late", 0.1,
    ),
    "a wait for each product, and loads after it": (
        "Together", DEEP, schedule(ahead=4), schedule(), r"^tcgen05.mma .*: the end of each product is", 0.04,
    ),
    "one place for sums": (
        "Stays", (4096, 4096, 512), schedule(sums=1), schedule(), r"waits for sums.empty_barriers, the one place", 0.08,
    ),
    "a grid of more CTAs than run at once": (
        "Stays", (512, 19200, 1024), schedule(columns=64, ctas=150), schedule(columns=64),
        "each goes on to further tiles", 0.2,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_what_is_promised_is_saved_by_the_change(case):
    name, size, bad, good, pattern, apart = CASES[case]
    before, after = (predicted(name, size, **each) for each in (bad, good))
    _, promised = told(before, pattern)
    assert saved(before, after) == pytest.approx(promised, abs=apart)
    assert not any(re.search(pattern, each) for each in after.explanation)


def test_a_needless_fence_is_named_with_its_line():
    bad, good = (predicted("Blackwell", DEEP, explained=fences, stages=2, fences=fences) for fences in (True, False))
    sentence, promised = told(bad, "^fence.proxy.async")
    line = next(
        number for number, text in enumerate(SCRIPTS.read_text().splitlines(), 1) if "fence.proxy_async" in text
    )
    assert sentence.startswith(f"fence.proxy.async (explained_scripts.py:{line}): needed where threads have written")
    assert saved(bad, good) == pytest.approx(promised, abs=0.02)


def test_a_stage_that_is_given_back_late_is_told_apart_from_too_few():
    late, in_time = (predicted("Blackwell", (2304, 2048, 4096), stages=3, late=late) for late in (True, False))
    sentence, _ = told(late, "stages cannot hide that")
    share = int(re.search(r"given back late: for (\d+)% of each lap", sentence)[1]) / 100
    assert saved(late, in_time) == pytest.approx(share, abs=0.08)
    assert not any("given back late" in each for each in in_time.explanation)


@pytest.mark.slow
def test_an_epilogue_that_nothing_hides_is_worth_what_hiding_it_saves():
    size = (8192, 8192, 1024)
    sentence, promised = told(predicted("Blackwell", size), "^tcgen05.ld")
    hidden = predict("v5", *size, schedule="block_m=128,block_n=256,block_k=64,stages=4,e_block_n=16", explained=False)
    assert "cp.async.bulk.tensor (store)" in sentence and "while the tensor core multiplies" in sentence
    assert saved(predicted("Blackwell", size), hidden) == pytest.approx(promised, abs=0.08)


@pytest.mark.slow
def test_a_last_turn_with_little_to_do_is_told():
    one_more, even = (predicted("Blackwell", (128 * ctas, 256, 2048)) for ctas in (149, 148))
    sentence, promised = told(one_more, "turns of 148")
    assert sentence.startswith("149 CTAs take 2 turns of 148, the last of which has 1:")
    assert saved(one_more, even) == pytest.approx(promised, abs=0.05)
    assert not any("turns of" in each for each in even.explanation)


def test_few_ctas_are_told():
    assert any(
        each.startswith("8 CTAs run where 148 could") for each in predicted("Blackwell", (512, 512, 2048)).explanation
    )


def test_of_a_kernel_that_the_tensor_core_holds_nothing_is_promised():
    assert predicted("Hopper", (2048, 2048, 16384)).explanation == ("the tensor core multiplies for 98% of the time.",)


def test_the_operation_that_tells_a_barrier_is_that_of_this_one_of_an_array():
    """V1 of tilus has both in one array; here each stage's is told by TMA, and a commit tells those beside them."""
    (first, *_) = predicted("Blackwell", DEEP, stages=3).explanation
    assert first.endswith("where it waits for full, which cp.async.bulk.tensor (load) signals.")


V3 = "block_m=128,block_n=256,block_k=64,e_block_n=64,stages={}"
H3 = "block_m=128,block_n=128,block_k=64,e_block_n=32,stages={},consumers=2"
H7 = (
    "block_m=128,block_n=128,block_k=64,e_block_n=64,stages=4,consumers=2,group_m=16,cluster_m=1,cluster_n=1,split_k={}"
)


@cache
def rung(name, size, pins, explained=True):
    gpu = "B200" if name.startswith("v") else "H100"
    return predict(name, *size, gpu=gpu, schedule=pins, explained=explained)


def unexplained(name, size, pins):
    return rung(name, size, pins, explained=False)


@pytest.mark.slow
def test_the_number_of_stages_that_is_told_saves_what_is_promised(no_other_schedules):
    size = (2368, 2048, 8192)
    before, after = predict("v3", *size, gpu="B200", schedule=V3.format(3)), unexplained("v3", size, V3.format(4))
    _, promised = told(before, "3 stages cannot hide that: with 4, ")
    assert saved(before, after) == pytest.approx(promised, abs=0.02)


@pytest.mark.slow
def test_a_stage_that_costs_a_cta_is_not_advised_and_what_the_cta_costs_is_told():
    size = (4736, 4096, 4096)
    two, three = rung("v2", size, V3.format(2)), unexplained("v2", size, V3.format(3))
    assert (two.resident, three.resident) == (2, 1)
    assert three.cycles > 1.3 * two.cycles
    assert not any("stages would" in each or "with 3, " in each for each in two.explanation)
    sentence, _ = told(two, "2 stages cannot hide that")
    costs = re.search(r"with 3 an SM has room for 1 CTA and not 2, and takes (\d+)% more cycles", sentence)
    assert three.cycles / two.cycles - 1 == pytest.approx(int(costs[1]) / 100, abs=0.02)


@pytest.mark.slow
def test_of_loads_that_queue_the_rate_is_told_and_no_number_of_stages():
    size = (2048, 4096, 1024)
    four, six = rung("h3", size, H3.format(4)), unexplained("h3", size, H3.format(6))
    assert six.cycles == pytest.approx(four.cycles, rel=0.005)
    _, promised = told(four, "at the rate of the L2, which is busy")
    wide = unexplained("h3", size, H3.format(4).replace("block_n=128", "block_n=256"))
    assert saved(four, wide) == pytest.approx(promised, abs=0.04)
    assert not any("stages" in each for each in four.explanation)


@pytest.mark.slow
def test_what_a_cta_loads_first_is_not_for_stages_to_hide():
    size = (4096, 4096, 256)
    few, more = predicted("Together", size, stages=3, ahead=2), predicted("Together", size, explained=False)
    assert saved(few, more) < 0.02
    told(few, "until a CTA's first loads are there, nothing is multiplied")
    assert not any("cannot hide" in each for each in few.explanation)


V5 = "block_m=128,block_n=256,block_k=64,e_block_n=16,stages=4,group_m=8"


@pytest.mark.parametrize(("name", "pins"), [("v3", V3.format(3)), ("v5", V5)])
def test_a_product_that_its_ring_alone_waits_for_is_not_called_waited_for(name, pins, no_other_schedules):
    explanation = predict(name, 2048, 4096, 2048, gpu="B200", schedule=pins).explanation
    assert not any("the end of each product" in each for each in explanation)


@pytest.mark.slow
def test_what_other_warps_do_already_is_to_be_done_in_larger_pieces():
    size = (4096, 4096, 512)
    narrow, wide = predicted("Stays", size), predicted("Stays", size, explained=False, columns=64)
    sentence, promised = told(narrow, "^tcgen05.ld")
    assert "other warps do this while the tensor core multiplies, and take longer; fewer, larger pieces" in sentence
    assert saved(narrow, wide) == pytest.approx(promised, abs=0.1)
    assert not any("the one place" in each for each in narrow.explanation)


def test_a_fence_after_what_threads_have_written_is_not_called_needless():
    explanation = predicted("Together", (4096, 4096, 256), bias=True).explanation
    assert not any(each.startswith("fence.proxy.async") for each in explanation)
    told(
        predicted("Together", (4096, 4096, 256), bias=True), r"^load_global .*fence.proxy.async .*if this took no time"
    )


@pytest.mark.slow
def test_the_l2_is_not_called_memory_and_a_part_of_k_that_it_keeps_is_not_advised(no_other_schedules):
    size = (1024, 2048, 4096)
    whole, halves = (predict("hopper", *size, gpu="H100", schedule=H7.format(split_k)) for split_k in (1, 2))
    assert halves.cycles > whole.cycles
    assert not any("fill more SMs" in each for each in whole.explanation)
    share = halves.by_resource["L2"] / halves.cycles
    told(halves, f"at the rate of the L2, which is busy for {share:.0%} of the time")


@pytest.mark.slow
def test_clusters_are_not_advised_where_neighbours_share_what_they_load():
    narrow = H7.replace("block_n=128", "block_n=80").replace("e_block_n=64", "e_block_n=16")
    size, pins = (1024, 1024, 1024), narrow.format(1)
    alone, pairs = (
        predict("hopper", *size, gpu="H200", schedule=pins.replace("m=1,s", f"m={c},s"), explained=c == 1)
        for c in (1, 2)
    )
    assert saved(alone, pairs) < 0.01
    sentence, _ = told(alone, "at the rate of the L2")
    assert sentence.endswith("fewer cycles: no schedule beside this one takes less time.")


def without(prediction, pattern):
    """The change that the sentence begins with, and what it saves of the time."""
    (sentence,) = [each for each in prediction.explanation if re.search(pattern, each)]
    words, share = re.search(r"with ([^;:]*?), (\d+)% less time", sentence).groups()
    return sentence, dict(re.findall(r"(\w+)=(\d+)", words)), int(share) / 100


def held(name, size, pins, pattern):
    """What is said, and the changes that it proposes, which save what it says."""
    before = rung(name, size, pins)
    sentence, changes, promised = without(before, pattern)
    pins = ",".join(f"{knob}={value}" for knob, value in {**parsed(pins), **changes}.items())
    after = unexplained(name, size, pins)
    assert 1 - after.time_us / before.time_us == pytest.approx(promised, abs=0.006)
    return sentence, changes


def parsed(pins):
    return dict(each.split("=") for each in pins.split(","))


@pytest.mark.slow
def test_several_tiles_for_each_of_few_ctas_are_told():
    """144 tiles of 128x128 are two for 72 SMs of 132; 96 of 128x192 one for each, as 128 of 192x96 are."""
    sentence, changes = held(
        "hopper", (1536, 1536, 512), H7.format(1) + ",neighbours=2", "clusters of 2 tiles run where 66 could: with"
    )
    larger = int(changes.get("block_m", 128)) * int(changes["block_n"]) > 128 * 128
    assert larger and "larger ones" not in sentence


H4 = "block_m=128,block_n=256,block_k=64,e_block_n=16,stages={},consumers=2,group_m=8"
ONE = "block_m=64,block_n=256,block_k=64,e_block_n=64,stages=4,consumers=1"


@pytest.mark.slow
def test_one_warpgroup_where_two_take_less_is_told():
    _, changes = held("h3", (2048, 2048, 1024), ONE, "^with .*consumers=2")
    assert changes == {"block_m": "128", "consumers": "2"}


PARTS = H7.format(4).replace("block_n=128", "block_n=256")


@pytest.mark.slow
def test_a_k_in_too_many_parts_is_told():
    sentence, changes = held("hopper", (1024, 1024, 1024), PARTS, r"^with split_k=\d, ")
    assert changes == {"split_k": "2"} and "what is done besides loads and products (hopper.py:" in sentence


@pytest.mark.slow
def test_of_few_ctas_it_is_told_which_tile_uses_more():
    few = "block_m=128,block_n=256,block_k=64,e_block_n=16,stages=4,group_m=8"
    sentence, changes = held("v5", (1024, 2048, 1024), few, "^64 CTAs run where 148 could: with")
    assert changes == {"block_n": "128"}
    assert "up to" not in sentence


def test_where_no_schedule_uses_idle_sms_nothing_is_promised():
    explanation = rung("v2", (4096, 4096, 512), V3.format(2)).explanation
    assert "512 CTAs take 4 turns of 148, the last of which has 68; no schedule beside this one fills more" in str(
        explanation
    )
    assert not any("tiles that come out even" in each for each in explanation)


@pytest.mark.slow
def test_an_epilogue_that_a_second_cta_hides_is_told_with_the_stages_that_leave_room_for_it():
    pins = "block_m=128,block_n=256,block_k=64,e_block_n=16,stages=4,group_m=8"
    _, changes = held("v4", (2048, 4096, 512), pins, "^an SM holds 1 CTA at once, by its shared memory: with stages=2,")
    assert changes == {"stages": "2"}


@pytest.mark.slow
def test_what_registers_have_no_room_for_is_not_promised_of_shared_memory():
    """With two stages there is room in shared memory for a second CTA, and a warpgroup's sums take the registers."""
    size = (2048, 4096, 512)
    four, two = rung("h4", size, H4.format(4)), unexplained("h4", size, H4.format(2))
    assert four.resident == two.resident == 1
    (sentence,) = [each for each in four.explanation if "1 CTA at once" in each]
    assert "by its shared memory and its registers; with one more" in sentence and "KiB" not in sentence


@cache
def careless(size, **schedule):
    return predict(CARELESS, *size, gpu="H100", schedule=schedule or None)


@pytest.mark.slow
def test_what_a_stage_gets_twice_is_told_and_no_number_of_stages():
    """Both halves of A come by one instruction, and with more stages neither is there for nothing."""
    size = (3072, 1408, 4096)
    twice, once = (careless(size, copies=copies) for copies in (2, 1))
    more = predict(CARELESS, *size, gpu="H100", schedule={"copies": 2, "stages": 5}, explained=False)
    sentence, promised = told(twice, "at the rate of the L2")
    assert re.search(r"; 33% of it comes into the same stage a second time \(careless_scripts.py:\d+\): ", sentence)
    assert saved(twice, once) == pytest.approx(promised, abs=0.06) and abs(saved(twice, more)) < 0.01
    assert not any("cannot hide" in each for each in (*twice.explanation, *once.explanation))
    assert not any("second time" in each for each in once.explanation)


@pytest.mark.slow
def test_a_store_that_is_waited_for_to_its_end_is_told():
    size = (4096, 2048, 512)
    whole, read = careless(size, whole=True), careless(size)
    _, promised = told(whole, "a warp waits until it is in memory")
    assert saved(whole, read) == pytest.approx(promised, abs=0.02)
    assert not any("until it is in memory" in each for each in read.explanation)


def test_of_a_script_no_other_schedule_is_known():
    assert not any("less time" in each for each in predicted("Blackwell", DEEP, stages=3).explanation)


def test_who_takes_all_of_tensor_memory_is_told_what_less_would_save():
    def predicted(columns):
        schedule = f"stages=1,columns={columns}"
        return predict(f"{PUBLISHED}:Alone", 2560, 2048, 1024, dtype="bf16", schedule=schedule, target="B200")

    before, after = predicted(512), predicted(128)
    sentence, promised = told(before, "it takes 512 of 512 columns of tensor memory, .* with 128 each")
    assert sentence.startswith("an SM has room for 3 CTAs and one works at a time") and "relinquish" in sentence
    assert abs(promised - saved(before, after)) < 0.05
    assert not any("the right to allocate" in each for each in before.explanation)
    assert not any("columns of tensor memory" in each for each in after.explanation)


def test_a_stage_of_a_pair_takes_each_ctas_own_bytes():
    """The leader's barrier counts the bytes of both; three stages of 64 KiB have room, of 128 KiB two."""

    def pairs(stages):
        schedule = f"block_n=256,block_k=128,stages={stages},ctas=148"
        explained = stages == 2
        problem = {"dtype": "bf16", "schedule": schedule, "target": "B200", "explained": explained}
        return predict(f"{PUBLISHED}:Pairs", 2048, 4096, 4096, **problem)

    before, after = pairs(2), pairs(3)
    sentence, promised = told(before, "2 stages cannot hide that")
    assert "with 3," in sentence and "no room" not in sentence
    assert saved(before, after) == pytest.approx(promised, abs=0.05)
