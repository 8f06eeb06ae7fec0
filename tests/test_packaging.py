"""What the metadata says fits what the package imports, on every platform it names."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def imports(file: Path, top_level_only: bool = False) -> Iterator[str]:
    """The dotted names of the modules that `file` imports."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            yield node.module or ""


def third_party_imports() -> dict[str, Path]:
    """Distribution name to a file of the package that imports it."""
    found: dict[str, Path] = {}
    for file in PACKAGE.rglob("*.py"):
        for module in imports(file):
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and top != "blackwell_matmul":
                found[canonicalize_name(DISTRIBUTION.get(top, top))] = file
    return found


def test_every_import_is_declared() -> None:
    undeclared = {name: str(file) for name, file in third_party_imports().items() if name not in REQUIREMENTS}
    assert not undeclared


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
    for requirement in [*REQUIREMENTS.values(), *EXTRAS["dev"], *EXTRAS["nvcc"]]:
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"constraints.txt does not pin {requirement.name}"
        assert pin in requirement.specifier, f"constraints.txt pins {requirement.name}=={pin}, outside {requirement}"


def test_readme_gives_each_dependency_a_reason() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [r.name for r in REQUIREMENTS.values() if f"| `{r.name}` |" not in readme]
    assert not missing


def test_console_script_exists() -> None:
    module, _, function = PROJECT["scripts"]["blackwell-matmul"].partition(":")
    tree = ast.parse((ROOT / module.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("room", "may_not_import"),
    [
        ("kernels", ["simulator", "harness", "tuner", "cli"]),
        (
            "scheduling",
            ["kernels", "script", "frontend", "simulator", "compiler", "runtime", "harness", "tuner", "cli"],
        ),
        ("frontend", ["simulator", "scheduling", "harness", "kernels", "script", "cli"]),
        ("simulator", ["kernels", "scheduling", "harness", "script", "cli"]),
        ("harness", ["tuner", "studies", "cli"]),
        ("studies", ["tuner", "cli"]),
        ("baselines", ["harness", "studies", "cli"]),
        ("tuner", ["cli"]),
        ("compiler", ["kernels", "scheduling", "script", "simulator", "runtime", "harness", "cli"]),
        ("runtime", ["kernels", "scheduling", "script", "simulator", "harness", "tuner", "cli"]),
        ("doctor", ["cli"]),
    ],
)
def test_arrows_point_down(room: str, may_not_import: list[str]) -> None:
    forbidden = tuple(f"blackwell_matmul.{name}" for name in may_not_import)
    wrong = [
        f"{file.relative_to(ROOT)}: {module}"
        for file in (PACKAGE / room).rglob("*.py")
        for module in imports(file, top_level_only=True)
        if module.startswith(forbidden)
    ]
    assert not wrong


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
