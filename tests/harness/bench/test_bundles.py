"""Kernels compiled ahead: the index, what makes it void, what it is made from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness.bench import bundles, contenders, session
from blackwell_matmul.harness.bench.bundles import Index
from blackwell_matmul.harness.bench.contenders import Contender, make_call
from blackwell_matmul.harness.bench.suites import BenchCase
from blackwell_matmul.problem.problem import Problem, Schedule

ROOT = Path(__file__).resolve().parents[3]
WGMMA = contenders.kernel(f"{ROOT}/bench/blackwell_matmul_studies/wgmma_kernels/wgmma_serial.py:WgmmaMatmul")
H200 = GPUS["H200"]


@pytest.fixture(scope="module")
def carried(tmp_path_factory):
    """A folder with wgmma for two sizes that differ in m alone, and for two that differ in n."""
    folder = tmp_path_factory.mktemp("carried")
    index = Index(folder, "sm_90a")
    for size in ((1792, 512, 128), (129, 512, 128), (129, 256, 128)):
        index.add(WGMMA, Problem(*size), bundles.compile_into(folder, WGMMA, Problem(*size), H200))
    index.save()
    return folder


@pytest.mark.slow
def test_m_shares_a_bundle_and_n_does_not(carried):
    index = Index(carried, "sm_90a")
    found = [index.find(WGMMA, Problem(m, n, 128)) for m, n in ((1792, 512), (129, 512), (129, 256))]
    assert found[0]["folder"] == found[1]["folder"] != found[2]["folder"]
    assert found[0]["schedule"] == {"block_m": 128, "block_n": 128, "block_k": 64}
    assert index.find(WGMMA, Problem(130, 512, 128)) is None
    assert index.find(Contender("x", "kernel", WGMMA.source, "block_m=64"), Problem(129, 512, 128)) is None


def test_an_index_of_other_sources_or_another_target_is_void(carried, monkeypatch):
    assert Index(carried, "sm_100a").find(WGMMA, Problem(129, 512, 128)) is None
    monkeypatch.setattr(bundles, "code_digest", lambda: "another")
    assert Index(carried, "sm_90a").find(WGMMA, Problem(129, 512, 128)) is None


@pytest.mark.parametrize("content", ["", "[]", '{"stamp": 1}', '{"bundles": 3, "stamp": null, "target": "sm_90a"}'])
def test_a_damaged_index_is_an_empty_one(tmp_path, content):
    (tmp_path / bundles.INDEX).write_text(content)
    assert Index(tmp_path, "sm_90a").find(WGMMA, Problem(129, 512, 128)) is None


def test_pins_and_the_content_of_a_file_are_in_the_key(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("1")
    mine = contenders.kernel(f"{file}:Mine")
    before = bundles.key(mine, Problem(1, 2, 3))
    file.write_text("2")
    assert bundles.key(mine, Problem(1, 2, 3)) != before
    pinned = contenders.kernel("v1", Schedule(block_n=64))
    assert pinned.name == "v1 block_n=64" and bundles.key(pinned, Problem(1, 2, 3)) == "v1 block_n=64 1x2x3 fp16"


def test_what_was_not_compiled_says_so():
    with pytest.raises(InputError, match=r"WgmmaMatmul was not compiled for 1x2x3 fp16\."):
        make_call(WGMMA, Problem(1, 2, 3), None)


@pytest.mark.process
def test_a_rung_is_compiled_with_the_schedule_for_this_gpu_and_what_is_refused_says_why(tmp_path):
    cases = (BenchCase(Problem(256, 256, 64)), BenchCase(Problem(256, 256, 63)))
    plan = session.Plan((contenders.kernel("v1"),), cases)
    index = Index(tmp_path, "sm_100a")
    (reason,) = session.compile_missing(plan, None, index, GPUS["B200"], lambda what: None)
    assert reason.startswith("v1 256x256x63 fp16: ") and "pad K to 64" in reason
    found = Index(tmp_path, "sm_100a").find(plan.contenders[0], Problem(256, 256, 64))
    assert found["schedule"]["block_m"] == 128
    record = json.loads((tmp_path / bundles.INDEX).read_text())
    assert record["target"] == "sm_100a" and record["stamp"] == bundles.code_digest()


@pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
def test_a_gpu_arrives_as_it_was_sent(gpu):
    assert bundles.gpu_of(json.loads(json.dumps(bundles.described(gpu)))) == gpu
