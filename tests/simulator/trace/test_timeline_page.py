"""The page of a timeline, in a browser."""

import re
import shutil
import subprocess

import pytest

from blackwell_matmul import trace
from blackwell_matmul.simulator.trace import timeline_page

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a page of V2 on two stages."""
    folder = tmp_path_factory.mktemp("page")
    trace("v2", 128, 128, 256, schedule={"stages": 2, "block_k": 64, "block_n": 128}).save(folder / "v2.html")
    return folder


def opened(folder, address):
    """The page, once its script has run."""
    command = [BROWSER, *QUIET, f"--user-data-dir={folder}/profile", "--dump-dom", f"file://{folder}/{address}"]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=120).stdout


def shown(folder, fragment):
    """The moment, and by mbarrier what the table says of it."""
    page = opened(folder, f"v2.html#{fragment}")
    rows = re.findall(r"<tr[^>]*>((?:<td.*?</td>)+)</tr>", page)
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in rows]
    table = {each[0]: [re.sub(r"<small>.*", "", cell) for cell in each[1:]] for each in cells}
    return float(re.search(r"<output>cycle (.*?)</output>", page)[1].replace(",", "")), table


def test_steps_go_through_the_states_of_one_barrier(folder):
    start, before = shown(folder, "at=0&of=tma_barriers[0]")
    assert start == 0
    assert before["tma_barriers[0]"] == ["0", "1 of 1", "0", "", "initialised"]
    second, table = shown(folder, "at=0&of=tma_barriers[0]&step=2")
    assert table["tma_barriers[0]"] == ["0", "0 of 1", "16,384", "warp 0", "16,384 bytes came"]
    assert table["mma_barrier"][:3] == ["0", "1 of 1", "0"]
    third, table = shown(folder, "at=0&of=tma_barriers[0]&step=3")
    assert table["tma_barriers[0]"][4] == "phase 0 is over"
    assert shown(folder, f"at={third}&of=tma_barriers[0]&step=-1")[0] == second < third


def test_the_head_says_which_cycles_are_shown_of_how_many(folder, monkeypatch):
    def head(address):
        return re.search(r'<span id="shown">(.*?)</span>', opened(folder, address))[1]

    timeline = trace("v2", 128, 128, 256, schedule={"stages": 2, "block_k": 64, "block_n": 128})
    every = f"{timeline.end_cycles:,.0f}"
    monkeypatch.setattr(timeline_page, "FIRST_CYCLES", 1_500)
    timeline.save(folder / "part.html")
    assert head("v2.html") == f"Cycles 0 to {every}, which are all."
    assert head("part.html") == f"Cycles 0 to 1,500 of {every}; a double click shows all."
    assert head("part.html#at=1000&span=500") == f"Cycles 750 to 1,250 of {every}; a double click shows all."
