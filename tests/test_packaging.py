"""What the metadata says fits what the package imports, on every platform it names."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from blackwell_matmul.kernels import KERNELS, OLD_NAMES

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "blackwell_matmul"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = {canonicalize_name(r.name): r for r in map(Requirement, PROJECT["dependencies"])}
EXTRAS = {name: [Requirement(r) for r in rs] for name, rs in PROJECT["optional-dependencies"].items()}

DISTRIBUTION = {"cuda": "cuda-python"}
"""Import name to distribution, where they differ."""

NOT_IMPORTED_HERE = {"jinja2", "cuda-python", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime"}
"""Declared although no module of the package imports them: tilus does (the first two), or the compiler will."""

LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux"}
LINUX_ARM = {"sys_platform": "linux", "platform_machine": "aarch64", "platform_system": "Linux"}
WINDOWS = {"sys_platform": "win32", "platform_machine": "AMD64", "platform_system": "Windows"}
MAC = {"sys_platform": "darwin", "platform_machine": "arm64", "platform_system": "Darwin"}


@functools.cache
def imports(file: Path) -> tuple[str, ...]:
    """The dotted names of the modules that `file` imports, and of what it imports from them; read once."""
    return tuple(_imports(file))


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def third_party_imports() -> dict[str, Path]:
    """Distribution name to a file of the package that imports it."""
    found: dict[str, Path] = {}
    for file in PACKAGE.rglob("*.py"):
        for module in imports(file):
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and top != "blackwell_matmul":
                found[canonicalize_name(DISTRIBUTION.get(top, top))] = file
    return found


@pytest.mark.slow
def test_every_import_is_declared() -> None:
    undeclared = {name: str(file) for name, file in third_party_imports().items() if name not in REQUIREMENTS}
    assert not undeclared


@pytest.mark.slow
def test_every_dependency_is_used() -> None:
    unused = set(REQUIREMENTS) - set(third_party_imports()) - NOT_IMPORTED_HERE
    assert not unused


def test_tilus_is_exact() -> None:
    assert str(REQUIREMENTS["tilus"].specifier) == "==0.2.0"


@pytest.mark.parametrize("name", ["cuda-python", "nvidia-cuda-nvrtc"])
def test_cuda_is_a_range_below_14_where_wheels_exist(name: str) -> None:
    requirement = REQUIREMENTS[name]
    assert "13.0.88" in requirement.specifier
    assert "13.99" in requirement.specifier
    assert "14.0" not in requirement.specifier
    assert "12.9" not in requirement.specifier
    assert requirement.marker is not None
    assert all(requirement.marker.evaluate(machine) for machine in (LINUX, LINUX_ARM, WINDOWS))
    assert not requirement.marker.evaluate(MAC)


def test_only_cuda_depends_on_the_platform() -> None:
    assert {name for name, r in REQUIREMENTS.items() if r.marker} == {
        *("cuda-python", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime")
    }


def test_nvcc_extra_holds_what_only_nvcc_needs() -> None:
    assert [str(r) for r in EXTRAS["nvcc"]] == ["apache-tvm-ffi<=0.1.12"]


def test_constraints_pin_every_declared_dependency() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in [*REQUIREMENTS.values(), *EXTRAS["dev"], *EXTRAS["docs"], *EXTRAS["nvcc"]]:
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"constraints.txt does not pin {requirement.name}"
        assert pin in requirement.specifier, f"constraints.txt pins {requirement.name}=={pin}, outside {requirement}"


def test_each_dependency_has_a_reason() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    missing = [r.name for r in REQUIREMENTS.values() if f"| `{r.name}` |" not in page]
    assert not missing


def test_console_script_exists() -> None:
    module, _, function = PROJECT["scripts"]["blackwell-matmul"].partition(":")
    tree = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


# --- arrows


def module_files() -> dict[str, Path]:
    return {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def arrows() -> dict[str, set[str]]:
    """For each module of the package, those that it imports: at its top, inside of functions and for types alone."""
    files = module_files()
    found: dict[str, set[str]] = {module: set() for module in files}
    for module, file in files.items():
        for name in imports(file):
            package = name.rpartition(".")[0]
            meant = (name, f"{name}.__init__", package, f"{package}.__init__")
            target = next((each for each in meant if each in files), None)
            if target not in (None, module):
                found[module].add(target)
    return found


def room_of(module: str) -> str:
    """Return the folder, or the file where it lies beside the folders; the simulator has rooms of its own."""
    parts = module.split(".")[1:]
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    inside = parts[0:1] == ["simulator"] and (PACKAGE / "simulator" / "/".join(parts[1:2])).is_dir()
    return ".".join(parts[: 2 if inside else 1]) or "__init__"


@functools.cache
def found_rooms() -> dict[str, set[str]]:
    """Return for each room the other rooms that its files import."""
    found: dict[str, set[str]] = {}
    for module, targets in arrows().items():
        room = room_of(module)
        found.setdefault(room, set()).update(each for each in map(room_of, targets) if each != room)
    return found


def declared(room: str) -> set[str] | None:
    """Return the rooms after "May import:" in the docstring of `room`; None where the docstring has no such line."""
    folder = PACKAGE / room.replace(".", "/")
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    line = re.search(r"May import: ([^.]*(?:\.[a-z][^.]*)*)\.\s*\Z", ast.get_docstring(parsed(file)) or "")
    if line is None:
        return None
    names = line[1].replace("\n", " ").split(", ")
    return set() if names == ["nothing of this package"] else {name.strip() for name in names}


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_no_circle_of_files() -> None:
    graph = {module: {t for t in targets if not t.endswith("__init__")} for module, targets in arrows().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


EVERYTHING = {"__init__", "__main__"}
"""Modules that may import every room: the public names and the command."""


@pytest.mark.slow
def test_each_room_says_what_it_may_import() -> None:
    rooms = {room: found for room, found in found_rooms().items() if room not in EVERYTHING}
    assert {room: declared(room) for room in rooms} == rooms


@pytest.mark.slow
def test_rooms_import_downwards() -> None:
    """The simulator's own rooms count as one here: its engine, its order and its reports belong together."""
    whole = {room.partition(".")[0]: set[str]() for room in found_rooms()}
    for room, below in found_rooms().items():
        whole[room.partition(".")[0]] |= {each.partition(".")[0] for each in below} - {room.partition(".")[0]}
    order = list(TopologicalSorter(whole).static_order())  # raises where rooms import one another
    assert order[0] == "base" and order[-1] == "__main__"


NEVER = [
    ("emulator", "simulator"),
    ("simulator", "emulator"),
    ("simulator", "kernels"),
    ("kernels", "simulator"),
    ("simulator.machine", "simulator.order"),
    ("runtime", "tuner"),
    ("runtime", "harness"),
    ("harness", "cli"),
    ("compiler", "simulator"),
]
"""Pairs of rooms: the first must not import the second, whatever the docstrings allow."""


@pytest.mark.slow
@pytest.mark.parametrize(("above", "below"), NEVER)
def test_two_witnesses_and_other_walls(above: str, below: str) -> None:
    wrong = {
        (room, each)
        for room, found in found_rooms().items()
        for each in found
        if f"{room}.".startswith(f"{above}.") and f"{each}.".startswith(f"{below}.")
    }
    assert not wrong


MOST_FILES = 16
"""Files of one folder, and places at the top of the package."""


def test_no_folder_is_too_full() -> None:
    ours = {"__init__.py", "__main__.py", "__pycache__", "py.typed"}
    folders = {PACKAGE, *(file.parent for file in module_files().values())}
    files = {folder: [f for f in folder.glob("*.py") if f.name != "__init__.py"] for folder in folders}
    full = {str(folder): len(found) for folder, found in files.items() if len(found) > MOST_FILES}
    places = [place.name for place in PACKAGE.iterdir() if place.name not in ours]
    assert not full and len(places) <= MOST_FILES, places


def project_texts() -> Iterator[Path]:
    """The project's own text files; what is built or cached beside them has a name that tells."""
    generated = {".git", ".venv", "build", "dist", "__pycache__"}
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if any(p in generated or p.endswith((".egg-info", "_cache")) or p in {".cache", ".hypothesis"} for p in parts):
            continue
        if path.is_file() and path.suffix in {"", ".cfg", ".md", ".py", ".svg", ".toml", ".txt", ".yml"}:
            yield path


def test_no_text_depends_on_a_machine() -> None:
    """No absolute path of somebody's machine, no host of a package registry."""
    path = re.compile(r"(?<![\w.}])/(?:work|root|home|Users)/")
    host = re.compile(r"pypi\.org|pythonhosted\.org|download\.pytorch\.org|--(?:extra-)?index-url")
    this = Path(__file__).resolve()
    wrong = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in project_texts()
        if file != this
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if path.search(line) or host.search(line)
    ]
    assert not wrong


def test_a_type_checker_knows_each_rung_and_calls_it_without_knobs() -> None:
    from blackwell_matmul.harness import typed

    declared = {name for name, value in vars(typed).items() if value is typed.Rung} - {"Rung"}
    homes = {home.partition(":")[2] for name, home in KERNELS.items() if name != "few"}
    assert declared == homes | {name for name in OLD_NAMES if name not in ("v7", "h8")}
    parameters = inspect.signature(typed.Rung.__init__).parameters.values()
    assert all(each.kind is each.VAR_KEYWORD or each.default is ... for each in list(parameters)[1:])


def test_an_editable_install_is_a_path_that_type_checkers_follow() -> None:
    """Otherwise setuptools installs an import hook ("Development Mode"), which they do not run."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    assert options["package-dir"] == {"": "."}


def test_each_function_that_quick_leaves_out_is_there() -> None:
    for line in (ROOT / "tests" / "slow.txt").read_text().splitlines():
        path, _, name = line.partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (ROOT / path).read_text(encoding="utf-8"), line
