"""`run_matmul`, the command line and the examples on the real simulator, in small."""

import json
import runpy
from pathlib import Path

import pytest
import torch
from tilus import float16

from blackwell_matmul import BlackwellMatmulV1, InputError, SimulationError, cli, simulate
from blackwell_matmul.harness import make_inputs, report, run_matmul
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.runtime.script import Script

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("rung", ["v0", "v1", "v2"])
def test_each_rung_is_right_with_tails(rung, dtype):
    result = run_matmul(rung, Problem(130, 72, 40, dtype), seed=3)
    assert result.ok and not result.findings, str(result)
    assert (result.kernel, result.seed, result.how) == (f"BlackwellMatmul{rung.upper()}", 3, "simulated")
    assert "dtype" not in result.schedule and result.schedule["block_m"] == result.verdict.tile_m == 128


def test_a_schedule_may_pin_some_knobs():
    result = run_matmul("v1", Problem(64, 64, 64), schedule=Schedule(block_n=64, e_block_n=16))
    assert result.ok and (result.schedule["block_n"], result.schedule["e_block_n"]) == (64, 16)


def test_a_class_and_a_kernel_do_as_well():
    for script in (BlackwellMatmulV1, BlackwellMatmulV1(block_n=64)):
        result = run_matmul(script, Problem(8, 8, 8))
        assert result.ok and result.kernel == "BlackwellMatmulV1"


def test_a_run_prints_as_one_line_and_its_schedule_can_be_pinned() -> None:
    a, b, c = make_inputs(Problem(8, 8, 8, "bf16"))
    run = simulate(BlackwellMatmulV1, 8, 8, 8, a, b, c, schedule={"block_n": 64}, target="b200")
    assert run.schedule["dtype"] == "bfloat16" and run.target == "sm_100a"
    assert repr(run).startswith("BlackwellMatmulV1 on 1x1x1 CTAs of sm_100a  dtype=bfloat16,block_m=128,block_n=64,")
    assert "  no findings  simulated in " in repr(run) and str(run) == repr(run)
    assert simulate(BlackwellMatmulV1, 8, 8, 8, a, b, c, schedule=run.schedule).schedule == run.schedule
    result = report(run, a, b, c)
    assert repr([result]) == f"[{result}]"


class WritesHalf(Script):
    """Stores the left half of a 16 x 16 matrix of ones and forgets the right half."""

    def __call__(self, m: int, n: int, k: int, a: ~float16, b: ~float16, c: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_c = self.global_view(c, dtype=float16, shape=[m, n])
        ones = self.register_tensor(dtype=float16, shape=[16, 8], init=1.0)
        self.store_global(g_c, ones, offsets=[0, 0])


def test_a_wrong_kernel_is_a_result_and_no_exception():
    result = run_matmul(WritesHalf, Problem(16, 16, 16))
    assert not result.ok and result.verdict.bad_columns and result.verdict.unwritten == 128


def test_the_command_line_prints_one_json_object(capsys):
    assert cli.main(["run", "v2", "--size", "64", "64", "32", "--dtype", "bf16", "--json"]) == 0
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert err == "" and record["ok"] and record["schedule"]["stages"] >= 2 and record["target"] == "sm_100a"


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("matmul_v*.py")), ids=lambda path: path.stem)
def test_the_examples_print_one_line_with_a_right_result(example, capsys):
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(example), run_name="__main__")
    assert ended.value.code == 0
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") == 1 and "correct" in out and "simulated in" in out


@pytest.mark.process
@pytest.mark.parametrize("workers", [1, 2])
def test_progress_counts_ctas_up_to_all_of_them(workers):
    told = []
    result = run_matmul(
        "v1", 512, 512, 32, schedule={"block_n": 64}, workers=workers, progress=lambda *counts: told.append(counts)
    )
    done = [count for count, _ in told]
    assert result.ok and {total for _, total in told} == {32}
    assert done == sorted(done) and done[-1] == 32


def test_a_policy_and_workers_reach_the_simulator():
    assert run_matmul("v1", Problem(8, 8, 8), policy="random", seed=3, workers=1).ok
    for wrong in ({"policy": "lazy"}, {"workers": 0}, {"workers": 10**6}, {"progress": 3}, {"progress": len}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            run_matmul("v1", Problem(8, 8, 8), **wrong)


def test_an_error_of_progress_is_not_blamed_on_the_kernel():
    def progress(done, total):
        raise ValueError("no screen")

    with pytest.raises(SimulationError, match=r"progress\(1, 1\) raises ValueError: no screen\.") as caught:
        run_matmul("v1", Problem(8, 8, 8), progress=progress)
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_inputs_are_the_same_whatever_torch_is_set_to():
    problem = Problem(8, 16, 24, "bf16")
    plain = make_inputs(problem, 3)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with torch.device("meta"):
            other = make_inputs(problem, 3)
            assert run_matmul("v1", problem).ok
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(plain[0], other[0]) and torch.equal(plain[1], other[1])
    assert all(tensor.device.type == "cpu" and tensor.dtype == torch.bfloat16 for tensor in other)
