"""Which facts of the emulator do foreign kernels pin? Break one at a time, and see who notices.

python bench/foreign/who_pins.py build/foreign --processes 2 --out bench/results/who_pins.json

A fact is a function of the emulator that is put in the place of the right one. The kernels of a folder are right on
hardware (by their compiler's authors, or by a run on a GPU); one that is right with the fact and not without pins it.
A fact that no kernel pins is held by nothing but the reading of the manual.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import numpy as np  # noqa: E402

from blackwell_matmul.emulator import operands, tensor_map  # noqa: E402
from blackwell_matmul.emulator.instructions import copies, fragments, tensor_cores  # noqa: E402
from blackwell_matmul.emulator.instructions.matrices import shapes, wmma  # noqa: E402
from blackwell_matmul.emulator.machine import PhaseBarrier  # noqa: E402

Patch = tuple[Any, str, Any]
SHOWN = 4


def _swizzle(change: Callable[[Any, int], Any]) -> list[Patch]:
    """In TMA and in the tensor core alike, or in one of them: see the facts."""
    return [(tensor_map, "swizzled", change), (operands, "swizzled", change)]


def _without(span: int) -> Callable[[Any, int], Any]:
    right = tensor_map.swizzled
    return lambda addresses, at: addresses if at == span else right(addresses, at)


def _other_bits(addresses: Any, span: int) -> Any:
    return addresses ^ (addresses >> 4 & span // 16 - 1 << 4) if span else addresses


def _descriptor(**swap: str) -> list[Patch]:
    right = operands.descriptor

    def other(bits: int, blackwell: bool) -> Any:
        found = right(bits, blackwell)
        return dataclasses.replace(found, **{name: getattr(found, other) for name, other in swap.items()})

    return [(module, "descriptor", other) for module in (operands, fragments, tensor_cores)]


def _chunks(change: Callable[[Any, int, int, bool], Any]) -> list[Patch]:
    return [(module, "chunks", change) for module in (operands, tensor_cores)]


def _mn_pitch(found: Any, outer: int, inner: int, k_major: bool) -> Any:
    """MN-major: leading and stride offsets exchanged."""
    if not k_major:
        found = dataclasses.replace(found, leading=found.stride, stride=found.leading)
    return _right_chunks(found, outer, inner, k_major)


def _k_unswizzled(found: Any, outer: int, inner: int, k_major: bool) -> Any:
    """K-major without a swizzle: leading and stride offsets exchanged."""
    if k_major and not found.swizzle:
        found = dataclasses.replace(found, leading=found.stride, stride=found.leading)
    return _right_chunks(found, outer, inner, k_major)


_right_chunks = operands.chunks
_right_layout, _right_places = tensor_cores.layout, tensor_cores._places
_right_box, _right_shape, _right_scales = tensor_map.box_of, tensor_cores.shape_of, tensor_cores._scales


def _shape(**fields: Any) -> list[Patch]:
    def other(*bits_and_kind: Any) -> Any:
        found = _right_shape(*bits_and_kind)
        return dataclasses.replace(found, **{name: change(found) for name, change in fields.items()})

    return [(tensor_cores, "shape_of", other)]


def _box(change: Callable[[Any], Any]) -> list[Patch]:
    return [(tensor_map, "box_of", lambda found, place: change(_right_box(found, place)))]


def _scales(change: Callable[..., Any]) -> list[Patch]:
    return [(tensor_cores, "_scales", change)]


def _register_order() -> list[Patch]:
    """wgmma and mma: the rows of registers 0, 1 and of 2, 3 exchanged."""
    read, write = fragments.accumulators, fragments.registers_of
    return [
        (fragments, "accumulators", lambda raw, type: np.roll(read(raw, type), 8, axis=1)),
        (fragments, "registers_of", lambda value, type: write(np.roll(value, 8, axis=1), type)),
    ]


_OTHER = {"f16": "bf16", "bf16": "f16"}
FACTS: dict[str, Callable[[], list[Patch]]] = {
    "the 128-byte swizzle": lambda: _swizzle(_without(128)),
    "the 64-byte swizzle": lambda: _swizzle(_without(64)),
    "the 32-byte swizzle": lambda: _swizzle(_without(32)),
    "swizzle: by bits 7 to 9, not 8 to 10": lambda: _swizzle(_other_bits),
    "TMA swizzles as the tensor core reads": lambda: [(tensor_map, "swizzled", lambda addresses, span: addresses)],
    "matrix descriptor: leading and stride offsets": lambda: _descriptor(leading="stride", stride="leading"),
    "matrix descriptor: K-major without swizzle, leading and stride": lambda: _chunks(_k_unswizzled),
    "matrix descriptor: MN-major, leading and stride": lambda: _chunks(_mn_pitch),
    "wgmma swizzle codes 1, 2, 3": lambda: [(operands, "WGMMA_SWIZZLES", {0: 0, 1: 32, 2: 64, 3: 128})],
    "tcgen05 swizzle codes 2, 4, 6": lambda: [(operands, "TCGEN05_SWIZZLES", {0: 0, 2: 32, 4: 64, 6: 128})],
    "instruction descriptor: format of A": lambda: _shape(a=lambda found: _OTHER.get(found.a, found.b)),
    "instruction descriptor: format of B": lambda: _shape(b=lambda found: _OTHER.get(found.b, found.a)),
    "instruction descriptor: major of A": lambda: _shape(a_k_major=lambda found: not found.a_k_major),
    "instruction descriptor: major of B": lambda: _shape(b_k_major=lambda found: not found.b_k_major),
    "instruction descriptor: N in bits 17 to 22": lambda: _shape(n=lambda found: max(found.n // 2, 8)),
    "instruction descriptor: negate": lambda: _shape(negate=lambda found: not found.negate),
    "which scale id is A's": lambda: _shape(scales=lambda found: found.scales[::-1]),
    "the type of the scales": lambda: _shape(scale=lambda found: {"ue8m0": "ue4m3", "ue4m3": "ue8m0"}[found.scale]),
    "scales: row r in column r / 32": lambda: _scales(lambda *where: _right_scales(*where)[::-1]),
    "scales: ids count from the lowest byte": lambda: _scales(_ids_from_the_highest),
    "accumulator of 64 rows: lanes 0 to 15 of each 32": lambda: [
        (module, "row_lanes", lambda shape: np.arange(shape.rows)) for module in (shapes, tensor_cores)
    ],
    "pairs of CTAs, 128 rows: the second half of N in lanes 64 on": lambda: [(tensor_cores, "layout", _unstacked)],
    "fragments: rows of the registers of an accumulator": _register_order,
    "fragments: registers of A": lambda: [(fragments, "_fragments", _columns_before_rows)],
    "tcgen05.ld 16x256b": lambda: [(tensor_cores, "_places", _other_places("16x256b"))],
    "tcgen05.ld 16x128b": lambda: [(tensor_cores, "_places", _other_places("16x128b"))],
    "tcgen05.ld 16x64b": lambda: [(tensor_cores, "_places", _other_places("16x64b"))],
    "tcgen05.ld 16x32bx2": lambda: [(tensor_cores, "_places", _other_places("16x32bx2"))],
    "complete_tx counts the part outside of the tensor": lambda: _box(
        lambda box: dataclasses.replace(box, counted_bytes=int((box.places >= 0).sum()) * box.slot_bytes)
    ),
    "complete_tx does not count the padding of 4-bit types": lambda: _box(
        lambda box: dataclasses.replace(box, counted_bytes=box.nbytes)
    ),
    "TMA fills with zero": lambda: [(copies, "_fetched", _fetched_ones)],
    "TMA clips what is outside": lambda: [(copies, "_fetched", _fetched_inside)],
    "an mbarrier's phase waits for its bytes": lambda: [(PhaseBarrier, "expect", lambda self, nbytes: None)],
    "an mbarrier's parity": lambda: [(PhaseBarrier, "has_passed", lambda self, parity: self.phase % 2 == parity)],
    "cta_group::2: the barrier of a multicast by parity": lambda: [
        (copies, "_signals", lambda targets, signal, pairs, multicast: _signals(targets, signal, False, multicast))
    ],
    "tf32 ignores 13 bits": lambda: [(module, "elements", _rounded_tf32) for module in (operands, wmma)],
    "the order of nibbles": lambda: [(operands, "_nibbles", _swapped_nibbles)],
}  # fmt: skip
_fragments, _signals, _fetched, _elements = fragments._fragments, copies._signals, copies._fetched, operands.elements


def _other_places(shape: str) -> Callable[[Any], Any]:
    def other(each: Any) -> Any:
        lane, column = _right_places(each)
        return (lane, column[::-1]) if shape in each.modifiers else (lane, column)

    return other


def _ids_from_the_highest(cta: Any, start: int, rows: int, shape: Any, id: int, name: str) -> Any:
    return _right_scales(cta, start, rows, shape, 4 - shape.k // shape.block - id, name)


def _unstacked(shape: Any) -> Any:
    lane, column = _right_layout(shape)
    return (lane[:, :1] + 0 * lane, np.arange(shape.n) + 0 * lane) if shape.group == 2 else (lane, column)


def _columns_before_rows(raw: Any, format: str, of_a: bool) -> Any:
    return _fragments(raw[[0, 2, 1, 3]] if of_a and len(raw) == 4 else raw, format, of_a)


def _fetched_ones(cta: Any, found: Any, box: Any) -> Any:
    words = _fetched(cta, found, box).copy()
    words[box.places < 0] = 0x3C
    return words


def _fetched_inside(cta: Any, found: Any, box: Any) -> Any:
    places = np.where(box.places < 0, box.places.max(), box.places)
    return _fetched(cta, found, dataclasses.replace(box, places=places))


def _rounded_tf32(raw: Any, format: str) -> Any:
    return raw.view(np.float32) if format == "tf32" else _elements(raw, format)


def _swapped_nibbles(raw: Any) -> Any:
    return np.stack([raw >> 4, raw & 15], axis=-1).reshape(*raw.shape[:-1], -1)


# --- running


def who_notices(fact: str, folder: str, names: list[str]) -> dict[str, Any]:
    """The kernels that are no longer right without the fact ("" breaks none)."""
    from run import outcome

    patches = FACTS[fact]() if fact else []
    for module, name, other in patches:  # this process is for this fact: nothing is in a cache
        setattr(module, name, other)
    noticed = {}
    for name in names:
        path = Path(folder) / f"{name}.json"
        record = json.loads(path.read_text())
        try:
            right, _, message = outcome(path, record, "random" if "tf32" in fact else "exact")
        except Exception as error:
            right, message = False, f"{type(error).__name__}: {error}"
        if not right:
            noticed[name] = message[:100]
    return {"fact": fact, "noticed": noticed}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="facts with this in their name")
    parser.add_argument("--out", type=Path, default=Path("build/who_pins.json"))
    options, start = parser.parse_args(), time.perf_counter()
    names = sorted(path.stem for path in options.folder.glob("*.json") if path.stem != "refused")
    facts = ["", *(fact for fact in FACTS if options.only in fact)]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = [pool.submit(who_notices, fact, str(options.folder), names) for fact in facts]
        found = [future.result() for future in futures]
    broken = set(found[0]["noticed"])
    rows = {}
    for each in found[1:]:
        pins = sorted(set(each["noticed"]) - broken)
        rows[each["fact"]] = {"kernels": len(pins), "first": pins[:SHOWN]}
        print(f"{len(pins):4} {each['fact']}")
    record = {"what": "emulated; no GPU", "kernels": len(names), "seconds": round(time.perf_counter() - start),
              "not right with every fact": sorted(broken), "facts": rows,
              "unpinned": [fact for fact, row in rows.items() if not row["kernels"]]}  # fmt: skip
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
