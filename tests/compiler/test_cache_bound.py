"""What the cache keeps, and what it removes: by made-up entries, since a bundle is more than its size."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.files import make_private
from blackwell_matmul.compiler import cache, cache_bound
from blackwell_matmul.compiler.cache_bound import held, keep_bound, most_bytes

MIB = 2**20
HOLDS = (
    "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_SH); print(flush=True); input()"
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that keeps 4 MiB."""
    monkeypatch.setenv(cache_bound.VARIABLE, "4")
    return tmp_path / "bundles"


def entry(root: Path, key: str, used: float) -> Path:
    """1 MiB, used so many seconds after the epoch."""
    place = root / key[:2] / key
    make_private(place)
    (place / "kernel.cubin").write_bytes(bytes(MIB))
    os.utime(place, (used, used))
    return place


def test_what_was_used_longest_ago_goes_first(root: Path) -> None:
    entries = [entry(root, f"{i:02x}entry", used) for i, used in enumerate([30, 10, 50, 20, 40])]
    keep_bound(root, entries[4])
    assert [each.exists() for each in entries] == [True, False, True, False, True]  # 90 % of the bound are left


def test_below_the_bound_nothing_goes(root: Path) -> None:
    entries = [entry(root, f"{i:02x}entry", i) for i in range(4)]
    keep_bound(root, entries[3])
    assert all(each.exists() for each in entries)


def test_what_comes_later_is_counted(root: Path) -> None:
    for i in range(12):
        keep_bound(root, entry(root, f"{i:02x}entry", i))
    assert {place.name for place in root.glob("*/*")} == {"08entry", "09entry", "0aentry", "0bentry"}


@pytest.mark.process
def test_what_is_read_or_written_elsewhere_stays(root: Path) -> None:
    entries = [entry(root, f"{i:02x}entry", i) for i in range(6)]
    reader = subprocess.Popen([sys.executable, "-c", HOLDS, entries[0]], stdin=-1, stdout=-1)
    assert reader.stdin is not None and reader.stdout is not None
    reader.stdout.readline()
    keep_bound(root, entries[5])
    assert [each.exists() for each in entries] == [True, False, False, False, True, True]
    reader.communicate()


def test_the_entry_just_written_stays_whatever_its_size(root: Path) -> None:
    new = entry(root, "00entry", 0)
    (new / "kernel.ptx").write_bytes(bytes(8 * MIB))
    old = entry(root, "01entry", 1)
    keep_bound(root, new)
    assert new.exists() and not old.exists()


def test_records_go_and_winners_of_tuning_stay(root: Path) -> None:
    files = [root / folder / "Kernel-0123.json" for folder in ("calls", "codes", "tuned")]
    for i, file in enumerate(files):
        make_private(file.parent)
        file.write_bytes(bytes(2 * MIB))
        os.utime(file, (i, i))
    keep_bound(root, entry(root, "00entry", 9))
    assert [file.exists() for file in files] == [False, True, True]


def test_what_a_killed_process_leaves_is_cleared(root: Path) -> None:
    there = entry(root, "00entry", 0)
    abandoned, written = there.parent / ".draft-abandoned", there.parent / ".draft-written"
    elsewhere, half = root / "ff" / ".draft-abandoned", root / "codes" / ".Kernel.json.0123"
    for each in (abandoned, written, elsewhere, half.parent):
        make_private(each)
    (abandoned / "kernel.cubin").write_bytes(b"half")
    half.write_bytes(b"half")
    os.utime(half, (0, 0))
    with held(written) as ours:
        keep_bound(root, there)
    assert ours and written.exists() and there.exists()
    assert not abandoned.exists() and not elsewhere.exists() and not half.exists()


def test_a_folder_is_held_alone_or_with_others(tmp_path: Path) -> None:
    with held(tmp_path) as one, held(tmp_path) as other, held(tmp_path, alone=True) as alone:
        assert (one, other, alone) == (True, True, False)
    with held(tmp_path, alone=True) as alone, held(tmp_path / "none") as missing:
        assert alone and not missing
    os.mkfifo(tmp_path / "fifo")  # whose opening waits for a writer
    with held(tmp_path / "fifo") as found:
        assert not found


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "much", "٣"])
def test_a_bound_that_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache_bound.VARIABLE, value)
    with pytest.raises(InputError, match=r"BLACKWELL_MATMUL_CACHE_MIB is .* it must be a whole number of MiB"):
        cache.folder()


def test_the_bound_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache_bound.VARIABLE, raising=False)
    assert most_bytes() == 2 * 2**30
    monkeypatch.setenv(cache_bound.VARIABLE, "100")
    assert most_bytes() == 100 * MIB


def test_folders_are_their_owners_alone(root: Path) -> None:
    make_private(root / "00" / "entry")
    made = [root, root / "00", root / "00" / "entry"]
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 3
