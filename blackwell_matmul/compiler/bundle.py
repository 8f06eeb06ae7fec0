"""`Bundle`: one compiled kernel with all data to run or read it, saved as a folder of four files.

This module imports neither tilus nor cuda: a saved bundle runs on a machine that has no compiler.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from blackwell_matmul.base.digests import digest
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.files import write_whole
from blackwell_matmul.base.one_line import OneLine, spelled_out
from blackwell_matmul.base.records import content_of, sealed, unsealed, whole
from blackwell_matmul.base.validation import shown
from blackwell_matmul.compiler.plan import LaunchPlan

BUNDLE_FORMAT = 4
"""Version of the format that `save` writes."""
RECORD = "bundle.json"
FILES = {"source": "kernel.cu", "ptx": "kernel.ptx", "cubin": "kernel.cubin"}
"""File name of each part of a bundle."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one CTA and its threads, and the number of CTAs that fit on one SM of the target.

    registers: per thread. spill_bytes: spilled local memory per thread; stack_bytes: all local memory per thread.
    static_shared_bytes, dynamic_shared_bytes: per CTA; dynamic is None if it depends on the arguments. ctas_per_sm,
    limited_by: None if the target's limits are unknown. warps: per CTA.
    """

    registers: int
    spill_bytes: int
    stack_bytes: int
    static_shared_bytes: int
    dynamic_shared_bytes: int | None
    warps: int | None
    ctas_per_sm: int | None
    limited_by: str | None


@dataclass(frozen=True, slots=True)
class Marks:
    """Layout of the buffer into which a kernel with a timeline writes records of its instructions
    (`compiler/marks.py`).

    events: maximum records per warp. warps: per CTA. marks: name, line and text of the line of each marked instruction
    i; records 2 i + 1 and 2 i + 2 are its start and end. barriers: byte offset in dynamic shared memory and name of
    each mbarrier.
    """

    events: int
    warps: int
    marks: tuple[tuple[str, str, str], ...]
    barriers: tuple[tuple[int, str], ...]


@dataclass(frozen=True, repr=False)
class Bundle(OneLine):
    """A kernel compiled for one target.

    name: of the script. consts: the call's compile-time constants, by name. serves: one sentence on the sizes that this
    code supports. schedule: arguments of the script's `__init__`. versions: of the tools. key: digest of all inputs of
    the code. marks: layout of the timeline, or None.
    """

    name: str
    target: str
    source: str
    ptx: str
    cubin: bytes
    plan: LaunchPlan
    consts: dict[str, Any]
    serves: str
    schedule: dict[str, Any]
    resources: Resources | None
    versions: dict[str, str]
    key: str
    marks: Marks | None = None

    def __str__(self) -> str:
        used = "" if self.resources is None else f"{self.resources.registers} registers a thread"
        return "  ".join(filter(None, (self.name, self.target, spelled_out(self.schedule), used, self.serves)))

    def ordered(self, **named: Any) -> list[Any]:
        """Return the values of the kernel's parameters in order. An argument such as n or k may be a compiled-in
        constant.

        Raises InputError if a compiled-in argument has another value.
        """
        for name, compiled in self.consts.items():
            if named.get(name, compiled) != compiled:
                raise InputError(f"{self.name} was compiled for {name} = {compiled}, and {name} is {named[name]}.")
        return [named[each.name] for each in self.plan.parameters if each.name in named]

    def _facts(self) -> Mapping[str, object]:
        known = {"kernel": self.name, "target": self.target, "schedule": spelled_out(self.schedule)}
        used = {} if self.resources is None else _as_dict(self.resources)
        sizes = {"PTX (lines)": self.ptx.count("\n"), "cubin (bytes)": len(self.cubin)}
        return {**known, **used, **sizes, "serves": self.serves}

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the four files into `folder` and return the folder, made if missing; existing files are replaced."""
        place = _folder(folder)
        parts = {name: _bytes(getattr(self, name)) for name in FILES}
        try:
            record = sealed(self._record(parts), BUNDLE_FORMAT)
            place.mkdir(parents=True, exist_ok=True)
            for name, content in parts.items():
                write_whole(place / FILES[name], content)
            write_whole(place / RECORD, record)
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"cannot write the bundle to {place}: {why}; give another folder.") from error
        except ValueError as error:  # for example, a schedule with an infinity
            raise InputError(f"{self.name} has what JSON cannot hold: {error}.") from error
        return place

    def _record(self, parts: Mapping[str, bytes]) -> dict[str, Any]:
        body = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in FILES}
        body["plan"] = self.plan.as_dict()
        if self.marks is None:
            del body["marks"]
        else:
            body["marks"] = _as_dict(self.marks)
        body["resources"] = None if self.resources is None else _as_dict(self.resources)
        body["files"] = {FILES[name]: digest(content) for name, content in parts.items()}
        return body

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Bundle:
        """Return the bundle in `folder`; raise InputError, with the file's name, for a missing or changed file."""
        place = _folder(folder)
        record = unsealed(place / RECORD, BUNDLE_FORMAT, "bundle")
        parts = {name: _read_part(place / file, record.get("files")) for name, file in FILES.items()}
        try:
            names = [field.name for field in fields(cls) if field.name not in (*FILES, "marks")]
            values = {name: record[name] for name in names}
            values["marks"] = _read_marks(record.get("marks"))
            values["plan"] = LaunchPlan.from_dict(values["plan"])
            values["resources"] = None if values["resources"] is None else whole(Resources(**values["resources"]))
            return whole(
                cls(**values, cubin=parts["cubin"], source=parts["source"].decode(), ptx=parts["ptx"].decode())
            )
        except InputError as error:
            raise InputError(f"{place / RECORD} is damaged: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{place / RECORD} is damaged: {type(error).__name__} {error}.") from error


def _folder(folder: object) -> Path:
    """Return the path of a bundle's folder; raise InputError for a value that is no path."""
    if not isinstance(folder, (str, os.PathLike)):
        raise InputError(f"folder is {shown(folder)}; it must be the path of a bundle's folder.")
    return Path(folder)


def _bytes(part: str | bytes) -> bytes:
    return part.encode() if isinstance(part, str) else part


def _as_dict(part: Resources | Marks) -> dict[str, Any]:
    return {field.name: getattr(part, field.name) for field in fields(part)}


def _read_part(path: Path, digests: Any) -> bytes:
    content = content_of(path)
    if not isinstance(digests, dict) or digest(content) != digests.get(path.name):
        raise InputError(f"{path} is damaged: its {len(content)} bytes are not what was saved.")
    return content


def _read_marks(record: Any) -> Marks | None:
    if record is None:
        return None
    each, barriers = (tuple(map(tuple, record[name])) for name in ("marks", "barriers"))
    return whole(Marks(record["events"], record["warps"], each, barriers))
