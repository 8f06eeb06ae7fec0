"""Cache of compiled bundles on disk, named by their keys. A lost bundle is compiled again.

A bundle is a folder. The folder is written under another name and then renamed: parallel writers are safe, and no
reader sees an incomplete bundle. A damaged bundle, or a bundle with another key, is compiled again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

from blackwell_matmul.base.digests import is_as_imported
from blackwell_matmul.base.errors import BlackwellMatmulError, InputError
from blackwell_matmul.base.files import make_private
from blackwell_matmul.base.validation import shown
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.compiler.cache_bound import DRAFT, discard, held, keep_bound, most_bytes, used

CACHE_VARIABLE = "BLACKWELL_MATMUL_CACHE"
"""Environment variable that names another folder for the cache, or "off"."""

NO_HOME = "this user has no home folder"

_warned: set[str] = set()


def folder() -> Path | None:
    """Return the cache's folder; None if the cache is off, or if the user has no home folder. A missing home is
    reported once."""
    most_bytes()
    named = _variable()
    if named:
        return None if is_off() else _named(named)
    found = _usual()
    if found is None:
        _tell(NO_HOME, f"compiled kernels are not kept: {NO_HOME}; {CACHE_VARIABLE} names a folder, or off.")
    return found


def is_off() -> bool:
    return _variable().lower() == "off"


def _variable() -> str:
    return os.environ.get(CACHE_VARIABLE, "").strip()


def _usual() -> Path | None:
    """Return the default folder; None if neither HOME nor the user database gives an absolute path."""
    import platformdirs

    try:
        found = Path(platformdirs.user_cache_dir("blackwell-matmul", appauthor=False)) / "bundles"
    except RuntimeError:
        return None
    return found if found.is_absolute() else None


def _named(folder: str) -> Path:
    try:
        return Path(folder).expanduser()
    except RuntimeError:  # an unknown user
        raise InputError(
            f"{CACHE_VARIABLE} is {shown(folder)}, and there is no such home; give another folder, or off."
        ) from None


def read(key: str) -> Bundle | None:
    """Return the bundle with this key; None if the cache has no intact bundle of this key."""
    root = folder()
    if root is None:
        return None
    place = _place(root, key)
    try:
        if not (place / "bundle.json").is_file():
            return None
        with held(place):
            bundle = Bundle.load(place)
    except (BlackwellMatmulError, OSError):
        return None
    if bundle.key != key:
        return None
    used(place)
    return bundle


def write(bundle: Bundle) -> None:
    """Store a bundle under its key, unless files of this package or tilus have changed since import. Warn once if the
    disk refuses."""
    root = folder()
    if root is None or not is_as_imported():
        return
    place = _place(root, bundle.key)
    draft: str | None = None
    try:
        make_private(place.parent)
        draft = tempfile.mkdtemp(dir=place.parent, prefix=DRAFT)
        with held(Path(draft)):
            bundle.save(draft)
            _replace(Path(draft), place)
        keep_bound(root, place)
    except (BlackwellMatmulError, OSError) as error:
        _warn(root, error)
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)


def _place(root: Path, key: str) -> Path:
    return root / key[:2] / key


def _replace(draft: Path, place: Path) -> None:
    """Rename a new folder to its place. A damaged folder there is removed first, as the rename would fail."""
    for _ in range(3):
        try:
            os.rename(draft, place)
            return
        except OSError:
            if read_whole(place):
                return  # another process was faster
            discard(place)
    os.rename(draft, place)


def read_whole(place: Path) -> bool:
    """Return True if the folder has an intact bundle."""
    with suppress(BlackwellMatmulError, OSError):
        return Bundle.load(place).key == place.name
    return False


def _warn(root: Path, error: Exception) -> None:
    reason = getattr(error, "strerror", None) or str(error).rstrip(".")
    _tell(root, f"compiled kernels are not kept in {root}: {reason}; {CACHE_VARIABLE} names another folder, or off.")


def _tell(about: object, sentence: str) -> None:
    """Warn with a sentence, once per subject and process."""
    if str(about) not in _warned:
        _warned.add(str(about))
        warnings.warn(sentence, RuntimeWarning, stacklevel=3)
