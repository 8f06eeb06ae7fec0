"""What a script says for a name that CUDA, Triton or torch has and tilus has not."""

from __future__ import annotations

import re

import pytest

from blackwell_matmul.frontend import import_tilus
from blackwell_matmul.frontend.messages import other_names

import_tilus()

from tilus.lang.instructions import InstructionInterface  # noqa: E402
from tilus.lang.script import Script  # noqa: E402

ASKED = {
    "threadIdx": "self.single_warp", "warpIdx": "self.single_thread", "lane_id": "init=lambda",
    "atomic_add": "lock_semaphore", "atomicAdd": "release_semaphore", "atomicCAS": "no atomics",
    "syncthreads": "self.sync()", "__syncthreads": "self.sync()", "load": "self.load_global",
    "store": "self.store_global", "zeros": "init=0.0", "arange": "init=lambda i: i", "matmul": "self.dot",
    "mma": "self.tcgen05.mma", "shared": "self.shared_tensor", "cp_async": "self.copy_async",
    "cp_async_wait_all": "self.copy_async_wait_group", "program_id": "self.blockIdx", "num_programs": "self.gridDim",
    "shfl_sync": "self.sum", "sigmoid": "self.exp", "minimum": "self.where", "make_tensor_descriptor": "global_view",
    "blockDim": "self.attrs.warps", "astype": "self.cast", "try_wait": "self.mbarrier.wait",
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_what_is_said_for_a_name(name: str) -> None:
    meant = other_names.instead(name)
    assert meant is not None and ASKED[name] in meant


def test_a_group_has_a_meaning_of_its_own() -> None:
    assert other_names.instead("load", "self.tma") == "self.tma.global_to_shared"
    assert other_names.instead("wait", "self.wgmma") == "self.wgmma.wait_group(n)"
    assert other_names.instead("no_such_thing") is None


def test_every_text_says_what_there_is_and_no_name_what_is_there() -> None:
    """A method that tilus gets must leave the table."""
    groups = {name: group for name, group in vars(InstructionInterface).items() if not name.startswith("_")}
    texts = [*other_names._SAID, *(text for group in other_names._OF_GROUPS.values() for text in group.values())]
    for text in texts:
        for owner, name in re.findall(r"\bself\.(?:(tma|mbarrier|tcgen05|wgmma|cluster|fence)\.)?(\w+)", text):
            assert hasattr(groups[owner] if owner else Script, name) or name in ("attrs", *groups), (text, name)
    mine = {name for names in other_names._SAID.values() for name in names.split() if "*" not in name}
    assert not [name for name in mine if hasattr(InstructionInterface, name) and name not in groups]
