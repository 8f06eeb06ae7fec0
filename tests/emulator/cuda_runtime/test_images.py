"""PTX in images that are written here byte by byte: cubins, fat binaries, compressed text."""

from __future__ import annotations

import ctypes
import ctypes.util
import struct

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.emulator.cuda_runtime import images

PTX = b".version 8.7\n.target sm_90\n"


def elf(name: bytes, content: bytes) -> bytes:
    """An ELF file with one section beside the names."""
    names = b"\0" + name + b"\0.shstrtab\0"
    body = content + names
    headers = [
        struct.pack("<IIQQQQ24x", 1, 1, 0, 0, 64, len(content)),
        struct.pack("<IIQQQQ24x", len(name) + 2, 3, 0, 0, 64 + len(content), len(names)),
    ]
    start = struct.pack("<4s28xQQ4xHHHHHH", images.ELF, 0, 64 + len(body), 64, 56, 0, 64, 2, 1)
    return start + body + b"".join(headers)


def entry(kind: int, of: int, body: bytes, flags: int = 0, nbytes: int = 0) -> bytes:
    """An entry of a fat binary, as nvcc writes one."""
    header = struct.pack("<HHIQI8xI8xQ8xQ", kind, 1, 64, len(body), len(body), of, flags, nbytes)
    return header + body


def fat(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", images.FAT_BINARY, 1, 16, len(body)) + body


def read(image: bytes, architecture: int = 100) -> str:
    return images.ptx_of(lambda at, nbytes: image[at : at + nbytes], lambda at: image[at:].decode(), 0, architecture)


def test_text_is_the_ptx_itself() -> None:
    assert read(PTX) == PTX.decode()


def test_a_cubin_keeps_its_ptx_with_line_information() -> None:
    assert read(elf(images.PTX_SECTION, PTX.replace(b"\n", b"\0"))) == PTX.decode()
    with pytest.raises(InputError, match=r"no PTX, which the emulator executes; compile it with -lineinfo"):
        read(elf(b".text.k", PTX))


def test_the_ptx_for_the_highest_gpu_up_to_this_one() -> None:
    image = fat(*(entry(images.PTX_KIND, of, b"for %d\0" % of) for of in (80, 120, 90)))
    assert [read(image, each) for each in (70, 80, 100, 121)] == ["for 80", "for 80", "for 90", "for 120"]


def test_ptx_of_a_cubin_in_a_fat_binary() -> None:
    cubin = elf(images.PTX_SECTION, PTX.replace(b"\n", b"\0"))
    assert read(fat(entry(images.CUBIN_KIND, 90, cubin))) == PTX.decode()
    with pytest.raises(InputError, match="holds machine code of a GPU and no PTX"):
        read(fat(entry(images.CUBIN_KIND, 90, elf(b".text.k", b"x"))))


def test_lz4() -> None:
    literals = b"0123456789abcdefXYZ"  # 19: 15 and one byte of 4
    block = bytes([0xF0 | 15, 4]) + literals + bytes([3, 0, 2]) + bytes([0x10]) + b"!"
    made = literals + (b"XYZ" * 9)[: 15 + 2 + 4] + b"!"
    assert images.unpacked_lz4(block, len(made)) == made
    assert read(fat(entry(images.PTX_KIND, 90, block, images.LZ4_FLAG, len(made)))) == made.decode()


@pytest.mark.process
def test_zstd() -> None:
    name = ctypes.util.find_library("zstd")
    if not name:
        pytest.skip("no libzstd")
    library = ctypes.CDLL(name)
    packed = ctypes.create_string_buffer(4096)
    text = PTX * 20
    count = library.ZSTD_compress(packed, ctypes.c_size_t(4096), text, ctypes.c_size_t(len(text)), 3)
    assert read(fat(entry(images.PTX_KIND, 90, packed.raw[:count], images.ZSTD_FLAG, len(text)))) == text.decode()


@pytest.mark.process
def test_zstd_without_its_library_or_damaged_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    image = fat(entry(images.PTX_KIND, 90, b"no frame", images.ZSTD_FLAG, 99))
    if ctypes.util.find_library("zstd"):
        with pytest.raises(InputError, match=r"its compressed PTX is damaged; compile it again\."):
            read(image)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    with pytest.raises(InputError, match=r"libzstd is not on this machine; .* --compress-mode=speed"):
        read(image)
