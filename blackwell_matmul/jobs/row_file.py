"""Rows of trials in a file of JSON lines, which several runs may extend in parallel.

Readers and writers hold a lock, so that each row is complete and unique. A killed run may leave an incomplete last
line: the line is removed, and its trial runs again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from filelock import FileLock, Timeout

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.files import write_whole
from blackwell_matmul.base.records import content_of, open_regular, parsed
from blackwell_matmul.base.validation import said, shown

Row = dict[str, Any]
DIED = "died"
"""Field of a row with the reason why its trial killed its worker."""

TAIL_BYTES = 256
"""Bytes before the last position read. If they are unchanged, the file was only extended since."""

LOCK_S = 10.0
"""Seconds to wait for another run's lock."""


class Rows:
    """Rows in memory. fields: names of the fields that identify a trial. Iteration yields the rows as of the last
    `read`."""

    def __init__(self, fields: Iterable[str]) -> None:
        self.fields = tuple(fields)
        self._rows: dict[str, Row] = {}

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __contains__(self, names: Mapping[str, Any]) -> bool:
        return self.name_of(names) in self._rows

    def get(self, names: Mapping[str, Any]) -> Row | None:
        return self._rows.get(self.name_of(names))

    def count(self, names: Set[str]) -> int:
        """Return how many of these names, by `name_of`, have a row."""
        return len(self._rows.keys() & names)

    def name_of(self, row: Mapping[str, Any]) -> str:
        return json.dumps([row[field] for field in self.fields], sort_keys=True)

    def kept(self, names: Set[str]) -> str:
        """Return the message of an interrupted run."""
        return "nothing is kept, as no file was named"

    def read(self) -> None:
        """Read rows that other runs have added."""

    def add(self, row: Row) -> None:
        """Add a row, unless another run has added it."""
        self._rows[self.name_of(row)] = row


def usable(rows: object) -> Path:
    """Return the path of a file of rows; raise InputError unless rows can be kept there. The file is not made."""
    if not isinstance(rows, (str, os.PathLike)):
        raise InputError(f"rows is {shown(rows)}; it must be the path of a file, or None.")
    path = Path(rows)
    with _told(path):
        if not path.parent.is_dir():
            where = shown(str(path.parent))
            raise InputError(f"cannot keep rows in {shown(str(path))}: {where} is no folder; choose another file.")
        with TemporaryFile(dir=path.parent), suppress(FileNotFoundError):
            os.close(open_regular(path, os.O_RDWR))
    return path


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn errors of the disk or the lock into InputError."""
    try:
        yield
    except InputError:
        raise
    except Timeout as error:
        held = f"another run has held {path}.lock for {LOCK_S:.0f} s"
        raise InputError(f"{held}; end that run if it is stopped, or choose another file.") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or said(error)
        raise InputError(f"cannot keep rows in {shown(str(path))}: {why}; choose another file.") from error


class RowFile(Rows):
    """Rows that are stored in a file."""

    def __init__(self, path: Path, fields: Iterable[str]) -> None:
        super().__init__(fields)
        self.path = usable(path)
        self._lock = FileLock(f"{path}.lock", LOCK_S)
        self._read_bytes, self._tail = 0, b""
        self.read()

    def count_now(self, names: Set[str]) -> int:
        """Return how many of these names have a row in the file, read without its lock. After an interrupt the count in
        memory may be too low."""
        whole, _, _ = content_of(self.path).rpartition(b"\n")
        return len({self.name_of(self._row(line)) for line in filter(bytes.strip, whole.splitlines())} & names)

    def kept(self, names: Set[str]) -> str:
        return f"{self.count_now(names)} of {len(names)} trials are kept in {self.path}"

    def read(self) -> None:
        with self._opened():
            pass

    def add(self, row: Row) -> None:
        line = _line(row)
        with self._opened() as file:
            if row not in self:
                file.write(line)
                file.flush()
                self._take(line)

    def sort(self, order: Callable[[Row], Any]) -> None:
        """Sort the rows in the file."""
        with self._opened():
            write_whole(self.path, b"".join(map(_line, sorted(self, key=order))))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Lock and open the file, read new rows, and yield the file, positioned at its end."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        with _told(self.path), self._lock, open(open_regular(self.path, flags), "a+b") as file:
            if not self._goes_on(file):
                self._rows, self._read_bytes, self._tail = {}, 0, b""
            file.seek(self._read_bytes)
            whole, end, torn = file.read().rpartition(b"\n")
            self._take(whole + end)
            if torn:
                self._require_torn(torn)
                file.truncate(self._read_bytes)
            yield file

    def _require_torn(self, line: bytes) -> None:
        """Raise InputError unless the line is the beginning of a row, so that foreign files stay unchanged."""
        try:
            parsed(line)
        except ValueError:
            if line.startswith(b"{") or not line.strip(b"\0"):
                return
        self._row(line)

    def _goes_on(self, file: Any) -> bool:
        file.seek(self._read_bytes - len(self._tail))
        return bool(file.read(len(self._tail)) == self._tail)

    def _take(self, lines: bytes) -> None:
        for line in filter(bytes.strip, lines.splitlines()):
            row = self._row(line)
            self._rows[self.name_of(row)] = row
        self._read_bytes += len(lines)
        self._tail = (self._tail + lines)[-TAIL_BYTES:]

    def _row(self, line: bytes) -> Row:
        try:
            row = parsed(line)
        except ValueError:
            row = None
        if isinstance(row, dict) and row.keys() >= set(self.fields):
            return row
        raise InputError(
            f"{self.path} has the line {line[:60].decode(errors='replace')!r}, which is no row with "
            f"{', '.join(self.fields)}; take it out, or choose another file."
        )


def _line(row: Row) -> bytes:
    """Return a row as a line of JSON; raise InputError if JSON cannot hold it."""
    try:
        return f"{json.dumps(row, sort_keys=True, allow_nan=False)}\n".encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"its row is none that JSON has: {said(error)}.") from error
