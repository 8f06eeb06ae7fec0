"""The trials: plain data, one name each, and only options that torch has."""

from __future__ import annotations

import json

import pytest
import torch

from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul.harness.bench.results import Machine
from blackwell_matmul_studies import STUDIES, torch_compile, trials_of
from blackwell_matmul_studies.running import run
from blackwell_matmul_studies.study_results import StudyResults
from blackwell_matmul_studies.torch_compile import configurations, kinds, measuring, switches
from blackwell_matmul_studies.torch_compile.workloads import ALL_WORKLOADS, LONELY

SIZES = {
    "linear": {"m": 8, "n": 24, "k": 48},
    "mlp": {"m": 4, "hidden": 32, "intermediate": 64},
    "attention": {"batch": 2, "length": 16, "heads": 2, "width": 16},
    "scaled": {"m": 16, "n": 32, "k": 32},
    "integer": {"m": 32, "n": 32, "k": 32},
}
BRIEF = Settings(rounds=2, group_us=10.0, warmup_s=0.01)


def test_the_trials_are_plain_data_with_names_of_their_own():
    assert "torch-compile" in STUDIES
    few, every = (trials_of("torch-compile")(quick) for quick in (True, False))
    assert len(few) == 1 + 3 * 4 and {each.name for each in few} < {each.name for each in every}
    assert len({each.name for each in every}) == len(every)
    assert json.loads(json.dumps([each.task for each in every]))
    patience = {each.name.partition(torch_compile.BETWEEN)[0]: each.patience for each in few}
    assert patience["max-autotune"] > patience["default"] >= 1


def test_all_types_and_models_take_part():
    assert {each.dtype for each in (*ALL_WORKLOADS, *LONELY)} == {"fp16", "bf16", "fp8", "int8"}
    named = " ".join(each.name for each in ALL_WORKLOADS)
    assert all(model in named for model in ("Llama 2", "Llama 3", "GPT-2", "GPT-J", "GPT-NeoX", "T5", "BERT"))
    assert {each.kind for each in (*ALL_WORKLOADS, *LONELY)} == {*kinds.KINDS}


def test_a_configuration_with_an_option_that_torch_lacks_is_left_out(monkeypatch):
    monkeypatch.setattr(configurations, "lacking", lambda option: option == "cpp_wrapper")
    assert "C++ wrapper" not in {each.name for each in configurations.installed()}
    assert configurations.unknown() == {"C++ wrapper": ["cpp_wrapper"], "all TMA, C++": ["cpp_wrapper"]}


def test_the_options_of_the_configurations_are_torchs():
    assert configurations.unknown() == {}
    assert configurations.lacking("triton.no_such_switch") and configurations.lacking("no_such.switch")


def test_a_variable_is_read_where_it_stands_as_a_word(tmp_path):
    (tmp_path / "a.py").write_text('os.environ.get("ENABLE_TMA_STORE"), "MY_ENABLE_TMA"')
    (tmp_path / "b.so").write_bytes(b"\0DISABLE_MMA\0")
    (tmp_path / "empty.py").touch()
    names = ["ENABLE_TMA", "ENABLE_TMA_STORE", "DISABLE_MMA", "MMA"]
    assert switches.read(names, sorted(tmp_path.iterdir())) == {"ENABLE_TMA_STORE", "DISABLE_MMA"}


def test_the_variables_that_the_snippets_name_are_read_by_this_torch():
    found = switches.looked_up(lambda what: None)
    assert not {*configurations.VARIABLES.values()} & {*found["unread"]}
    assert "TRITON_ENABLE_TMA" in found["unread"] and found["unknown"] == {}


@pytest.mark.process
def test_the_search_runs_as_a_trial(tmp_path):
    results = StudyResults(tmp_path, "torch-compile", Machine("none", "sm_90a", 1, None))
    (first, *_) = trials_of("torch-compile")(True)
    run([first], results, limit_s=60)
    assert "ENABLE_PERSISTENT_TMA_MATMUL" in results.result(torch_compile.SWITCHES_TRIAL)["read"]


@pytest.mark.parametrize("kind", SIZES)
def test_each_kind_computes_what_its_float64_does(kind):
    dtype = {"scaled": "fp8", "integer": "int8"}.get(kind, "fp16")
    work = kinds.made(kind, SIZES[kind], dtype, torch.device("cpu"))
    operands = work.operands(torch.Generator().manual_seed(0))
    result, exact = work.call(*operands), work.reference(operands)
    assert exact.dtype == torch.float64 and result.shape == exact.shape
    assert exact.std() > 0.1
    assert measuring._largest_error(result, exact) < (0.05 if dtype != "int8" else 1e-9)


def test_a_trial_compares_and_times_against_eager():
    steps: list[str] = []
    arguments = {"kind": "linear", "sizes": SIZES["linear"], "dtype": "bf16", "device": "cpu", "settings": BRIEF}
    row = measuring.measured(steps.append, configuration="default", options={}, **arguments)
    assert row["compiled_times"] == 1 and not row["dynamic"] and row["compile_s"] > 0
    assert row["flops"] == 2 * 8 * 24 * 48 and row["error"] <= 2 * row["eager_error"]
    assert set(row["timings"]) == {"eager calls", "compiled calls"}
    assert steps[:4] == ["making the inputs", "running eager", "compiling", "comparing with float64"]
    assert json.loads(json.dumps(row, allow_nan=False))


def test_a_result_that_is_no_number_is_an_error_that_json_can_write():
    result = torch.tensor([float("nan"), 1.0])
    assert measuring._largest_error(result, torch.ones(2, dtype=torch.float64)) == measuring.FAR


def test_graphs_of_its_own_keep_one_set_of_weights():
    work = kinds.made("linear", SIZES["linear"], "fp16", torch.device("cpu"))
    here = measuring.device_named("cpu")
    assert len(measuring._sets(work, here, graphs=True)) == 1
    assert len(measuring._sets(work, here, graphs=False)) > 8
