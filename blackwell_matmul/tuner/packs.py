"""Packs: kernels for the most frequent calls on a GPU, compiled ahead on any machine.

A pack is a zip file with entries of the cache (`compiler/cache.py`). They are copied to another machine's cache, where
the first call finds them by its own key.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blackwell_matmul.base.digests import EDITED, package_digest
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.files import write_whole
from blackwell_matmul.base.records import sealed, unsealed
from blackwell_matmul.base.zip_files import unzipped, zip_folder
from blackwell_matmul.compiler import cache, entries
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench.suites import LARGE_M, LAYERS, SMALL_M
from blackwell_matmul.jobs.worker import compiled_in_pool

RECORD, PACK_FORMAT = "pack.json", 1
TASK = "blackwell_matmul.tuner.pack_tasks"
LIMIT_S = 300.0
"""Maximum seconds of one compilation on busy cores."""

TRAINED_M = 512
"""Minimum M of a product whose gradients are part of a pack."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Pack:
    """A pack for a GPU. kernels: keys of bundles, by the names of the cache's records. refused: number of problems
    without a kernel, by reason. versions: of the tools that determine the keys."""

    gpu: str
    versions: Mapping[str, str]
    kernels: Mapping[str, str]
    refused: Mapping[str, int]

    @property
    def keys(self) -> list[str]:
        return list(dict.fromkeys(self.kernels.values()))


def problems() -> Iterator[dict[str, Any]]:
    """Yield the products of a pack: layers of language models (`suites.LAYERS`), with a bias too, their gradients, and
    8-bit products with scales.
    """
    for n, k in dict.fromkeys((layer.n, layer.k) for layer in LAYERS):
        for m in (*SMALL_M, *LARGE_M):
            size = {"m": m, "n": n, "k": k}
            gradients = ("gradient of x", "gradient of w") if m >= TRAINED_M else ()
            for operation in ("matmul", "linear with bias", *gradients):
                yield from ({"operation": operation, **size, "dtype": dtype} for dtype in ("bf16", "fp16"))
            for operation in ("scaled_mm", "scaled_mm of rows"):
                yield {"operation": operation, **size, "dtype": "e4m3"}


def make(gpu: Gpu, tell: Tell) -> Pack:
    """Compile all products of a pack into this machine's cache, except those already there. Return the pack."""
    _root()
    common = {"do": f"{TASK}:compile_product", "gpu": gpu.name}
    tasks = {"{operation} {dtype} {m}x{n}x{k}".format(**each): {**common, **each} for each in problems()}
    outcomes = compiled_in_pool(tasks, LIMIT_S, TASK, tell).values()
    made = [each.result for each in outcomes if each.result is not None]
    refused = Counter(each.why for each in outcomes if each.result is None)
    return Pack(gpu.name, versions_here(), dict(itertools.chain(*map(dict.items, made))), refused)


def versions_here() -> dict[str, str]:
    """Return the versions of the tools that determine the keys of this machine's cache."""
    from blackwell_matmul.compiler.compiling import versions

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {**versions(), "package": package_digest(), "python": python}


def _root() -> Path:
    """Return the cache's folder; raise InputError if the cache is off or files have changed since import."""
    if package_digest() is EDITED:
        raise InputError("files of this package have changed since this process began; start the command again.")
    root = cache.folder()
    if root is None:
        raise InputError(f"the cache is off, and a pack is made and used through it; unset {cache.CACHE_VARIABLE}.")
    return root


def save(pack: Pack, file: Path) -> None:
    """Write a pack that was compiled here; raise InputError if the cache has lost a kernel, or the disk refuses."""
    with tempfile.TemporaryDirectory(prefix="blackwell-matmul-") as name:
        folder = Path(name)
        for key in pack.keys:
            bundle = cache.read(key)
            if bundle is None:
                raise InputError("the cache did not keep all kernels; give it more MiB, or another folder.")
            bundle.save(folder / key)
        write_whole(folder / RECORD, sealed(vars(pack), PACK_FORMAT))
        zip_folder(folder, file, "the pack")


def install(file: Path) -> Pack:
    """Copy a pack into this machine's cache and return it; raise InputError if damaged or of other versions."""
    root = _root()
    with unzipped(file, "pack", "`compile --pack GPU -o pack.zip` makes one") as folder:
        pack = _opened(folder, file)
        _require_versions(pack, file)
        for key in pack.keys:
            bundle = Bundle.load(folder / key)
            cache.write(bundle)
            if bundle.key != key or cache.read(key) is None:
                raise InputError(f"kernel {key[:12]} of {file} is not in the cache at {root} afterwards.")
        for record, key in pack.kernels.items():
            entries.keep_key(root / entries.CODES_FOLDER / Path(record).name, key)
    return pack


def _opened(folder: Path, file: Path) -> Pack:
    try:
        return Pack(**unsealed(folder / RECORD, PACK_FORMAT, "pack"))
    except TypeError as error:
        raise InputError(f"{file} is no pack: its fields are not those of format {PACK_FORMAT}.") from error


def _require_versions(pack: Pack, file: Path) -> None:
    """Raise InputError for a pack whose kernels no call would find here, because versions differ."""
    here = versions_here()
    differ = [name for name in here if pack.versions.get(name) != here[name]]
    if differ:
        was, now = ({name: each.get(name) for name in differ} for each in (pack.versions, here))
        raise InputError(
            f"{file} was made with {_told(was)}, and here is {_told(now)}; make it again: blackwell-matmul compile "
            f"--pack {pack.gpu!r} -o pack.zip."
        )


def _told(versions: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
