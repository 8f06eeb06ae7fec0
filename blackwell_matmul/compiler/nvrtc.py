"""NVRTC, the CUDA compiler as a library: compiles CUDA C++ to PTX and a cubin for a target."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from blackwell_matmul.base.errors import CompileError, UnsupportedError

OPTIONS = (
    "--std=c++17",
    # tilus's options for nvcc: flush denormals, approximate float division
    "--ftz=true",
    "--prec-div=false",
    "-lineinfo",
    "--ptxas-options=-v",
    # unused variables and constant conditions: normal in generated code
    *(f"--diag-suppress={number}" for number in (39, 177, 179, 186, 550)),
)
SOURCE_NAME = "/kernel.cu"
_PACKAGES = "the packages cuda-python and nvidia-cuda-nvrtc"


@dataclass(frozen=True)
class Compiled:
    """Output of NVRTC. log: ptxas's report, and warnings."""

    ptx: str
    cubin: bytes
    log: str


def compile_source(source: str, target: str, name: str) -> Compiled:
    """Compile device code. name: of the script, for messages. Raises CompileError with the first error and its line."""
    nvrtc = _nvrtc()
    if target not in supported_targets():
        raise UnsupportedError(
            f"NVRTC {version()} does not compile for {target}, only for {', '.join(supported_targets())}; "
            "a newer nvidia-cuda-nvrtc may."
        )
    headers = _included(source)
    texts, names = ([each.encode() for each in part] for part in (headers.values(), headers))
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), SOURCE_NAME.encode(), len(headers), texts, names))
    try:
        includes = [f"-I{folder}" for folder in (_cuda_headers(), _tilus_headers())] if "#include" in source else []
        options = [option.encode() for option in (f"-arch={target}", *OPTIONS, *includes)]
        (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            reason = _first_error(log, functools.partial(_text, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program))
            raise CompileError(f"{name} does not compile for {target}: {reason or f'NVRTC fails with {code.name}'}.")
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
        return Compiled(ptx, _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@functools.cache
def version() -> str:
    """Return NVRTC's version with its build, read from PTX that NVRTC writes; builds generate different code."""
    program = _checked(_nvrtc().nvrtcCreateProgram(b"", b"", 0, [], []))
    _checked(_nvrtc().nvrtcCompileProgram(program, 0, []))
    ptx = _text(_nvrtc().nvrtcGetPTXSize, _nvrtc().nvrtcGetPTX, program)
    build = re.search(r"Cuda compilation tools, release .*?, V(\d[\d.]*)", ptx)
    return build[1] if build else ".".join(map(str, _checked(_nvrtc().nvrtcVersion())))


@functools.cache
def supported_targets() -> tuple[str, ...]:
    """Return the names of NVRTC's targets, such as sm_100, and sm_100a with architecture-specific features."""
    numbers = [int(number) for number in _checked(_nvrtc().nvrtcGetSupportedArchs())]
    return tuple(f"sm_{number}{suffix}" for number in numbers for suffix in (("", "a") if number >= 90 else ("",)))


@functools.cache
def _nvrtc() -> ModuleType:
    """Return the bindings of NVRTC; raise UnsupportedError if they or the library are missing."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:  # a missing wheel, a missing library, or another version
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise UnsupportedError(f"Compiling needs NVRTC, which {_PACKAGES} bring: {reason}.") from error
    return nvrtc


def _checked(result: tuple[Any, ...]) -> Any:
    """Return the values of a call of the bindings; raise UnsupportedError if its code is an error."""
    code, *values = result
    if int(code):
        raise UnsupportedError(f"NVRTC fails with {getattr(code, 'name', code)}.")
    return values[0] if len(values) == 1 else values


def _bytes(size: Any, get: Any, program: Any) -> bytes:
    """Return the bytes that NVRTC writes into a buffer.

    `bytes(n)` is a new object for every n but 0. `b" " * n` is shared by CPython for n == 1, an empty log, and NVRTC
    would overwrite the shared object.
    """
    nbytes = _checked(size(program))
    if nbytes < 2:
        return b""
    buffer = bytes(nbytes)
    _checked(get(program, buffer))
    return buffer


def _text(size: Any, get: Any, program: Any) -> str:
    return _bytes(size, get, program).rstrip(b"\0").decode(errors="replace")


# --- headers


_INCLUDE = re.compile(r'^\s*#\s*include\s+[<"](cuda_(?:fp|bf)\d+\.\w+|tilus/[^>"]+)[>"]', re.MULTILINE)
"""Pattern of includes of header files with inlined functions. From a folder, NVRTC would write the headers' paths into
PTX and cubin."""


def _included(source: str) -> Mapping[str, str]:
    """Return the text of each header that the source includes, directly or indirectly, by name."""
    found: dict[str, str] = {}
    waiting = [source]
    while waiting:
        for name in _INCLUDE.findall(waiting.pop()):
            if name not in found:
                found[name] = _header(name)
                waiting.append(found[name])
    return found


@functools.cache
def _header(name: str) -> str:
    """Return a header's text. Its `#line` names a file at the root; NVRTC would insert the current folder."""
    folder = _tilus_headers() if name.startswith("tilus/") else _cuda_headers()
    return f'#line 1 "/{name}"\n{Path(folder, name).read_text(encoding="utf-8", errors="replace")}'


@functools.cache
def _cuda_headers() -> str:
    """Return the folder of cuda_fp16.h and of the other headers of 16- and 8-bit types."""
    from cuda import pathfinder

    found = pathfinder.find_nvidia_header_directory("cudart")
    if found is None or not (Path(found) / "cuda_fp16.h").is_file():
        raise UnsupportedError(
            "This kernel's types need the header cuda_fp16.h, which the package nvidia-cuda-runtime brings; install it."
        )
    return found


def _tilus_headers() -> str:
    import tilus.hidet

    return str(Path(tilus.hidet.__file__).parent / "include")


# --- errors

_ERROR = re.compile(r"^(?P<file>.*?)\((?P<line>\d+)\): (?:catastrophic )?error: (?P<text>.*)$", re.MULTILINE)
_PTXAS = re.compile(r"^ptxas (?:.*?, line (?P<line>\d+); )?(?:error|fatal)\s*: (?P<text>.*)$", re.MULTILINE)


def _first_error(log: str, ptx: Callable[[], str]) -> str:
    """Return the log's first error, with its line of the Python kernel."""
    found = _ERROR.search(log)
    if found is not None:
        where = "" if found["file"] == SOURCE_NAME else f" ({found['file']}:{found['line']})"
        return f"{_sentence(found['text'])}{where}"
    found = _PTXAS.search(log)
    if found is None:
        return _sentence(log)
    place = _python_line(ptx(), int(found["line"])) if found["line"] else ""
    return f"ptxas: {_sentence(found['text'])}{place}"


def _python_line(ptx: str, line: int) -> str:
    """Return the Python file and line of a PTX line, from the last `.loc` before the line; "" if unknown."""
    places = re.findall(r"^\s*\.loc\s+(\d+) (\d+)", "\n".join(ptx.splitlines()[:line]), re.MULTILINE)
    files = dict(re.findall(r'^\s*\.file\s+(\d+) "(.*?)"', ptx, re.MULTILINE))
    if not places or files.get(places[-1][0], SOURCE_NAME) == SOURCE_NAME:
        return ""
    return f" ({files[places[-1][0]]}:{places[-1][1]})"


def _sentence(text: str) -> str:
    return " ".join(text.split())[:300].rstrip(".")
