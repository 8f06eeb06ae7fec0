"""PTX in a module's image: text, a fat binary, or a cubin that was compiled with -lineinfo.

A fat binary holds entries, each for one GPU, with PTX (kind 1) or a cubin (kind 2). nvcc compresses the PTX with zstd
or LZ4. With -lineinfo, ptxas keeps its input in the section .nv_debug_ptx_txt, with lines that end in a zero byte.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from blackwell_matmul.base.errors import InputError

Read = Callable[[int, int], bytes]
"""Function that returns bytes of an image. Arguments: address and number of bytes."""

ELF, FAT_WRAPPER, FAT_BINARY = b"\x7fELF", 0x466243B1, 0xBA55ED50
PTX_KIND, CUBIN_KIND = 1, 2
LZ4_FLAG, ZSTD_FLAG = 0x2000, 0x8000
PTX_SECTION = b".nv_debug_ptx_txt"

_NO_PTX = (
    "it holds machine code of a GPU and no PTX, which the emulator executes; compile it with -lineinfo, or for nvcc "
    "with code=compute_..., which keep the PTX"
)


class Section(NamedTuple):
    """A section of an ELF file. place: offset of its bytes in the file."""

    name: bytes
    place: int
    nbytes: int


def ptx_of(read: Read, string: Callable[[int], str], address: int, architecture: int) -> str:
    """Return the PTX of an image in memory; raise InputError if the image has none. architecture: 100 for sm_100a."""
    magic = read(address, 4)
    if magic == ELF:
        return cubin_ptx(read(address, elf_bytes(read(address, 64))))
    number = int.from_bytes(magic, "little")
    if number == FAT_WRAPPER:
        return ptx_of(read, string, int.from_bytes(read(address + 8, 8), "little"), architecture)
    if number == FAT_BINARY:
        _, header_bytes, nbytes = struct.unpack("<HHQ", read(address + 4, 12))
        return fat_ptx(read(address, header_bytes + nbytes), architecture)
    return string(address)


def cubin_ptx(cubin: bytes) -> str:
    """Return the PTX that ptxas kept in a cubin; raise InputError if the cubin has none."""
    for each in sections(cubin):
        if each.name == PTX_SECTION:
            return cubin[each.place : each.place + each.nbytes].replace(b"\0", b"\n").decode(errors="replace")
    raise InputError(f"{_NO_PTX}.")


def elf_bytes(header: bytes) -> int:
    """Return a cubin's size in bytes. Its last part is the table of program headers or of section headers."""
    programs, sections = struct.unpack_from("<QQ", header, 0x20)
    program_bytes, program_count, section_bytes, section_count = struct.unpack_from("<4H", header, 0x36)
    return int(max(programs + program_bytes * program_count, sections + section_bytes * section_count))


def sections(elf: bytes) -> Iterator[Section]:
    (place,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, place + size * index) for index in range(count)]
    for name, _, _, _, start, nbytes in headers:
        at = headers[names][4] + name
        yield Section(elf[at : elf.index(b"\0", at)], start, nbytes)


def fat_ptx(binary: bytes, architecture: int) -> str:
    """Return the PTX of a fat binary: for the newest GPU up to this architecture, else for the oldest GPU."""
    found: dict[int, Callable[[], str]] = {}
    at = struct.unpack_from("<H", binary, 6)[0]
    while at < len(binary):
        kind, _, header_bytes, nbytes = struct.unpack_from("<HHIQ", binary, at)
        header, body = binary[at : at + header_bytes], binary[at + header_bytes : at + header_bytes + nbytes]
        of = struct.unpack_from("<I", header, 28)[0]
        if kind == PTX_KIND:
            found[of] = partial(_text, header, body)
        elif kind == CUBIN_KIND and any(each.name == PTX_SECTION for each in sections(body)):
            found.setdefault(of, partial(cubin_ptx, body))
        at += header_bytes + nbytes
    if not found:
        raise InputError(f"{_NO_PTX}.")
    return found[max((each for each in found if each <= architecture), default=min(found))]()


def _text(header: bytes, body: bytes) -> str:
    (compressed_bytes,), (flags,) = struct.unpack_from("<I", header, 16), struct.unpack_from("<Q", header, 40)
    if flags & (LZ4_FLAG | ZSTD_FLAG):
        (nbytes,) = struct.unpack_from("<Q", header, 56)
        body = (unpacked_zstd if flags & ZSTD_FLAG else unpacked_lz4)(body[:compressed_bytes], nbytes)
    return body.rstrip(b"\0").decode(errors="replace")


def unpacked_zstd(data: bytes, nbytes: int) -> bytes:
    """Return the unpacked bytes of a zstd frame; raise InputError if libzstd is missing."""
    name = ctypes.util.find_library("zstd")
    if name is None:
        raise InputError(
            "its PTX is compressed with zstd, and libzstd is not on this machine; install it, or give nvcc "
            "--compress-mode=speed."
        )
    target = ctypes.create_string_buffer(nbytes)
    unpack = ctypes.CDLL(name).ZSTD_decompress
    unpack.restype = ctypes.c_size_t
    unpack.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    if unpack(target, nbytes, data, len(data)) != nbytes:
        raise InputError("its compressed PTX is damaged; compile it again.")
    return target.raw


def unpacked_lz4(data: bytes, nbytes: int) -> bytes:
    """Return the unpacked bytes of an LZ4 block: literals, and copies of earlier bytes (LZ4 block format)."""
    made, at = bytearray(), 0
    while len(made) < nbytes:
        token = data[at]
        literals, at = _length(data, at + 1, token >> 4)
        made += data[at : at + literals]
        at += literals
        if len(made) < nbytes:
            distance = int.from_bytes(data[at : at + 2], "little")
            count, at = _length(data, at + 2, token & 15)
            _repeat(made, distance, count + 4)
    return bytes(made)


def _length(data: bytes, at: int, code: int) -> tuple[int, int]:
    """Return an LZ4 length and the index after it. A length of 15 continues in bytes, up to the first below 255."""
    more = 255 if code == 15 else 0
    while more == 255:
        more = data[at]
        at, code = at + 1, code + more
    return code, at


def _repeat(made: bytearray, distance: int, count: int) -> None:
    """Append `count` bytes, copied from `distance` before the end. A copy longer than the distance repeats."""
    piece = bytes(made[len(made) - distance :])
    made += (piece * (count // distance + 1))[:count]
