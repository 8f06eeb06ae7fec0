"""Names for scripts, by their present contents in memory.

`Meaning` walks from the methods that tilus reads to everything that these methods read: constants of modules,
closures, defaults, attributes of classes, and helpers. An attribute counts as read if any walked code has its name.
Two processes give the same name to the same meaning. If the walk meets an object without a name (a file, the clock, an
object of a C library), the name is None, and no result for the script is cached. `same` checks in microseconds whether
all objects that were read are unchanged.

Libraries in `TRUSTED` are assumed to be equal to their release. Their functions are known by their names, and by the
functions of other code that their decorators wrap.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import dis
import enum
import functools
import importlib.util
import linecache
import os
import re
import sys
import textwrap
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter, call, is_, itemgetter
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from blackwell_matmul.base.digests import digest

PROGRAM = ("__init__", "__call__", "starts_early", "leaves_zeros")
"""Methods whose code determines a program and its launch."""

CHOICE = (*PROGRAM, "complete", "check_arguments", "problem_of")
"""The methods that decide a program, and the methods that decide the schedule of a call."""

TRUSTED = frozenset((
    "abc", "builtins", "cmath", "collections", "contextlib", "copy", "dataclasses", "decimal", "enum", "fractions",
    "functools", "hidet", "inspect", "itertools", "logging", "math", "ml_dtypes", "numbers", "numpy", "operator", "re",
    "string", "textwrap", "tilus", "torch", "types", "typing", "warnings",
))  # fmt: skip
"""Libraries whose classes, and functions outside of `_IMPURE`, are known by their names."""

_OWN = re.compile(r"blackwell_matmul\.(?!kernels\b|scheduling\.(tcgen05_strips|\w+_fragments)$)")
"""Modules of this package without kernels. The key of a program has their files."""

_IMPURE = re.compile(
    r"torch\b|numpy\.(random|lib\.(_?npyio|_datasource)|_?core\.(arrayprint|_ufunc_config|printoptions))\b"
)
_IMPURE_BUILTINS = frozenset((
    "open", "input", "exec", "eval", "compile", "globals", "locals", "breakpoint", "__import__", "id", "fromfile",
    "memmap", "load", "loadtxt", "genfromtxt", "getcontext", "_get_extobj_dict",
))  # fmt: skip
_READS_BY_TEXT = frozenset(("getattr", "hasattr", "attrgetter", "methodcaller"))
_READS_EVERYTHING = frozenset(("vars", "dir", "__dict__", "__getattribute__"))
"""Functions that read attributes by a name in a variable: any string of the walked code may be that name, or any name
at all."""

_PLAIN = frozenset((
    "torch.dtype", "torch.device", "torch.layout", "torch.memory_format", "re.Pattern", "builtins.range",
    "builtins.slice", "builtins.object", "builtins.complex", "decimal.Decimal", "fractions.Fraction",
    "builtins.ellipsis", "logging.Logger", "logging.RootLogger",
    "builtins.NotImplementedType", "types.GenericAlias", "types.UnionType",
))  # fmt: skip
"""Types of immutable objects whose repr is their complete value."""

_ATOMS = (bool, int, str, bytes, type(None))
_CONTENT = (int, float, str, bytes, tuple, list, dict, set, frozenset)
_BASES = (object, *_CONTENT, OrderedDict, defaultdict, types.SimpleNamespace)
_UNREAD = frozenset((
    "__init_subclass__", "__subclasshook__", "__class_getitem__", "__reduce__", "__reduce_ex__",
    "__getstate__", "__setstate__", "__copy__", "__deepcopy__", "__dict__", "__weakref__", "__doc__", "__module__",
    "__sizeof__", "__dir__",
))  # fmt: skip
"""Attributes of every class that decide no program."""

_OF_FILES = frozenset(dir(Path)) - frozenset(dir(PurePath))
"""Attributes of a path that ask the file system."""

_OF_CLOCKS = frozenset(("now", "today", "utcnow"))
"""Methods of classes of datetime that ask the clock."""

_OF_MEMBERS = frozenset(("__objclass__", "_name_", "_sort_order_"))
"""Attributes of every member of an enumeration, in addition to its value."""

MOST_OBJECTS = 20_000
"""Maximum number of objects of one walk; a script with more has no name."""

_HOME = f"{Path(__file__).parents[2]}/"
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: of a class that is no static one of C
_IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: of those of C, too, that are made like Python's
_MISSING = object()
_MAPPINGS = (dict, types.MappingProxyType)

Watch = tuple[Callable[[Any], Iterable[object]], Any, tuple[object, ...]]
"""A function, its arguments, and its earlier results; new results are compared with these by identity."""


INSTANCE = (*PROGRAM, "_autotune_space", "debug_schedule")
"""Attributes that tilus reads when a class is called."""


class Unnameable(Exception):
    """Something is read that has no name which holds for long enough."""


class Meaning:
    """The meaning of some objects. name: of all that was read; None where something has no name."""

    def __init__(self, roots: Sequence[Any], names: Iterable[str] = (), everything: bool = False) -> None:
        walk = _Walk(frozenset(names), everything)
        found: list[str] = []
        while not found or walk.more():
            walk = _Walk(walk.read | walk.found, walk.everything)
            found = [walk.refer(root) for root in roots]
        self.name = None if walk.nameless else digest("\n".join([*walk.lines, *found]).encode())
        self._watched = _Watched([*walk.watches(), *walk.watched])
        self._kept = walk.kept
        orders = [root.__mro__ for root in roots if issubclass(type(root), type)]
        own = [each for order in orders for each in order[:-1] if not str(each.__module__).startswith("tilus.")]
        self._classes = [(vars(each), tuple(vars(each).values())) for each in own]
        self._modules = list(walk.constants())

    def same(self) -> bool:
        """Return True if every object that was read is still the same object."""
        try:
            return self._watched.same()
        except Exception:  # as in the walk
            return False

    def same_names(self) -> bool:
        """Return True if the root classes, their bases, and the names that code reads in their modules are unchanged.
        Takes 2 to 9 us."""
        try:
            if not all(all(map(is_, read(space), found)) for read, space, found in self._modules):
                return False
        except KeyError:  # a module has lost a name
            return False
        return all(len(now) == len(found) and all(map(is_, now.values(), found)) for now, found in self._classes)


KEPT_MEANINGS = 256
_known: OrderedDict[Hashable, Meaning] = OrderedDict()


def meaning(script_cls: type, methods: Sequence[str] = PROGRAM) -> Meaning:
    """Return the meaning of a script's class. The walk is made again only after a change."""
    key = script_cls, methods
    found = _known.get(key)
    if found is None or not found.same():
        found = _known[key] = Meaning([script_cls], methods)
        while len(_known) > KEPT_MEANINGS:
            _known.popitem(last=False)
    return found


def named_value(value: object) -> str | None:
    """Return the name of an argument of a script; None if it has none."""
    kind = type(value)
    return _atom(value) if kind in _ATOMS or kind is float else Meaning([value], everything=True).name


def _atom(value: Any) -> str:
    return f"float {value.hex()}" if type(value) is float else f"{type(value).__name__} {value!r}"


# --- the walk


class _Walk:
    """One walk with the attributes `read`. found: attribute names in the walked code. lines: descriptions of objects,
    one line each."""

    def __init__(self, read: frozenset[str], everything: bool) -> None:
        self.read, self.before, self.everything = read, everything, everything
        self.found: set[str] = set()
        self.nameless = False
        self._texts: set[str] = set()
        self.lines: list[str] = []
        self.watched: list[Watch] = []
        self.kept: list[object] = []  # ids are keys below: the objects must stay alive
        self._numbers: dict[int, int] = {}
        self._spaces: dict[int, tuple[Any, dict[str, object]]] = {}

    def more(self) -> bool:
        """Return True if code on the way reads more names than this walk looked at."""
        if self.found & _READS_BY_TEXT:
            self.found |= self._texts
        return bool(self.found - self.read) or self.everything > self.before

    def refer(self, value: Any) -> str:
        """Return a short description of a value. A value that can change or occur again gets an index and a line."""
        kind = type(value)
        if kind is str:
            self._texts.add(value)
        if kind in _ATOMS or kind is float:
            return _atom(value)
        if kind is tuple:
            return f"({', '.join(map(self.refer, value))})"
        if kind is frozenset:
            return f"{{{', '.join(sorted(map(self.refer, value)))}}}"
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self.kept)
            self.kept.append(value)
            self.lines.append(f"{number}: {self._described(value)}")
        return f"#{number}"

    def watches(self) -> Iterator[Watch]:
        """Yield, for each namespace, a watch of the names that were read there."""
        for space, names in self._spaces.values():
            yield functools.partial(_looked_up, names=tuple(names)), space, tuple(names.values())

    def constants(self) -> Iterator[Watch]:
        """Yield, for each module with kernel code, a watch of the names that were read there, without builtins."""
        for space, names in self._spaces.values():
            found = {name: value for name, value in names.items() if value is not _MISSING}
            if found and "__builtins__" in space and not _is_library(space["__name__"]):
                last = next(reversed(found))  # twice: of one name alone, itemgetter gives no tuple
                yield itemgetter(*found, last), space, (*found.values(), found[last])

    def _get(self, space: Any, name: str) -> Any:
        """Return the value under a name of a namespace; `same` will look again."""
        found = space.get(name, _MISSING)
        if id(space) not in self._spaces:
            self.kept.append(space)
        self._spaces.setdefault(id(space), (space, {}))[1][name] = found
        return found

    def _watch(self, read: Callable[[Any], Iterable[object]], holder: Any) -> tuple[Any, ...]:
        found = tuple(read(holder))
        self.watched.append((read, holder, found))
        return found

    def _described(self, value: Any) -> str:
        describe = next((each for kinds, each in _DESCRIBED if issubclass(type(value), kinds)), _Walk._object)
        try:
            if len(self.kept) > MOST_OBJECTS:
                raise Unnameable
            return describe(self, value)
        except Exception:  # what a value says of itself is another's code
            self.nameless = True
            return type(value).__qualname__

    # functions

    def _function(self, value: types.FunctionType) -> str:
        space = value.__globals__
        if _is_trusted(space.get("__name__", "")):
            cells = value.__closure__  # of a decorator: the functions of others that it calls
            kept = self._watch(_cell_contents, cells) if cells else ()
            parts = [self.refer(each) for each in kept if each is not _MISSING]
            return f"function {space['__name__']}.{value.__code__.co_qualname} {', '.join(parts)}"
        code, defaults, keywords, closure = self._watch(_function_parts, value)
        facts = _facts(code)
        self.found |= facts.names
        self._texts |= facts.texts
        self.everything |= facts.everything and not space["__name__"].startswith("blackwell_matmul.")
        cells = self._watch(_cell_contents, closure or ())
        outer = dict(zip(code.co_freevars, cells, strict=True))
        parts = [self.refer(each) for each in (defaults, keywords) if each is not None]
        parts += [f"{name}={'' if cell is _MISSING else self.refer(cell)}" for name, cell in outer.items()]
        chains = [*facts.chains, *_annotated(value)]
        parts += [f"{'.'.join(chain)}={self._chain(chain, outer, space)}" for chain in dict.fromkeys(chains)]
        parts += [f"import {name}={self._imported(name, level, space, facts)}" for name, level in facts.imports]
        parts += [self._annotations(value), *self._attributes(value.__dict__)]
        return f"function {value.__qualname__} {facts.text} {', '.join(parts)}"

    def _chain(self, chain: tuple[str, ...], outer: Mapping[str, object], space: Any) -> str:
        """Describe the value that code reads by a name; after the name of a module, by the attributes that follow."""
        first, *rest = chain
        found = outer[first] if first in outer else self._get(space, first)
        if found is _MISSING:
            home = space.get("__builtins__", builtins)
            found = self._get(home if isinstance(home, dict) else vars(home), first)
        while isinstance(found, types.ModuleType) and rest:
            name = rest.pop(0)
            found = self._of_module(found, name)
        if found is _MISSING:
            return "nothing"
        return self.refer(found)

    def _of_module(self, module: types.ModuleType, name: str) -> Any:
        found = self._get(vars(module), name)
        if found is _MISSING and ("__getattr__" in vars(module) or type(module) is not types.ModuleType):
            (found,) = self._watch(functools.partial(_asked, name=name), module)
        return found

    def _imported(self, name: str, level: int, space: Any, facts: _Facts) -> str:
        whole = importlib.util.resolve_name("." * level + name, space.get("__package__")) if level else name
        own = f"{space['__name__'].partition('.')[0]}.{whole}"  # of a file that has its modules apart
        module = self._get(sys.modules, own if own in sys.modules else whole)
        if not isinstance(module, types.ModuleType):
            raise Unnameable  # it has yet to be imported
        return ", ".join(
            f"{each}={self.refer(found)}"
            for each in sorted(facts.names)
            if (found := self._of_module(module, each)) is not _MISSING
        )

    def _annotations(self, value: types.FunctionType) -> str:
        """Return the types of a method's parameters, which tilus reads from the annotations; classes by their names."""
        items = self._watch(_items, value.__annotations__)
        return ", ".join(
            f"{each.__module__}.{each.__qualname__}" if isinstance(each, type) else self._annotation(each)
            for each in items
        )

    def _annotation(self, value: Any) -> str:
        return self.refer(value) if _is_trusted(type(value).__module__) else repr(value)

    def _attributes(self, state: Any, whole: bool = False, computed: frozenset[str] = frozenset()) -> list[str]:
        """Describe the attributes of an object that are read, except attributes that the object computes from
        others."""
        self._watch(_size, state)
        names = state.keys() if whole or self.everything else self.read & state.keys()
        return [f"{name}={self.refer(self._get(state, name))}" for name in sorted(names - computed)]

    def _builtin(self, value: Any) -> str:
        owner, name = value.__self__, value.__name__
        if owner is not None and not isinstance(owner, types.ModuleType):
            return f"{self.refer(owner)}.{name}"
        module = value.__module__ or getattr(owner, "__name__", "")
        if name in _IMPURE_BUILTINS or not _is_trusted(module.removeprefix("_")):
            raise Unnameable
        return f"{module}.{name}"

    # classes, modules, objects

    def _class(self, value: Any) -> str:
        if value.__module__ == "datetime" and self.read & _OF_CLOCKS:
            raise Unnameable
        if _is_named(value):
            return f"class {value.__module__}.{value.__qualname__}"
        order = self._watch(attrgetter("__mro__"), value)
        parts = [f"class {value.__module__}.{value.__qualname__}"]
        parts += [] if _is_named(type(value)) else [self.refer(type(value))]
        made = not any(each.__module__.startswith("tilus.") for each in order)  # tilus calls no `__new__`
        for each in order:
            if each is not object:
                parts += [f"of {each.__qualname__}", *self._own(each, made)]
        return ", ".join(parts)

    def _own(self, value: type, made: bool) -> list[str]:
        """Describe the attributes of a class itself that are read. made: include `__new__`."""
        space, trusted = vars(value), _is_named(value)
        self._watch(_size, space)
        return [
            f"{name}={self.refer(self._get(space, name))}"
            for name in sorted(space)
            if name not in _UNREAD and (made or name != "__new__")
            if name in self.read or (not trusted and self._is_implied(name, space[name]))
        ]

    def _is_implied(self, name: str, value: object) -> bool:
        """Return True if code can read an attribute without its name, as an operator does."""
        dunder = name.startswith("__") and name.endswith("__")
        return (
            isinstance(value, (types.FunctionType, staticmethod))
            if dunder
            else self.everything and not name.startswith("_abc_")
        )

    def _module(self, value: types.ModuleType) -> str:
        if _is_library(value.__name__):
            return f"module {value.__name__}"
        return f"module {value.__name__} {', '.join(self._attributes(vars(value)))}"

    def _mapping(self, value: Any) -> str:
        items = self._watch(_items, value)
        pairs = zip(items[::2], items[1::2], strict=True)
        return f"{type(value).__name__} {', '.join(f'{self.refer(key)}: {self.refer(each)}' for key, each in pairs)}"

    def _list(self, value: Any) -> str:
        return f"{type(value).__name__} {', '.join(map(self.refer, self._watch(tuple, value)))}"

    def _set(self, value: Any) -> str:
        return f"{type(value).__name__} {', '.join(sorted(map(self.refer, self._watch(tuple, value))))}"

    def _defaultdict(self, value: Any) -> str:
        return f"{self._mapping(value)} {self.refer(*self._watch(_factory_of, value))}"

    def _path(self, value: Any) -> str:
        if self.read & _OF_FILES:
            raise Unnameable
        return f"path {value!r}"

    def _array(self, value: Any) -> str:
        """Describe an array by its content. No object signals a change, so each check compares the bytes."""
        if value.dtype.hasobject or value.nbytes > 1 << 16:
            raise Unnameable
        content = value.tobytes()
        self.watched.append((lambda array: (array.tobytes() == content,), value, (True,)))
        return f"{value.dtype} {value.shape} {content!r}"

    def _object(self, value: Any) -> str:
        kind = type(value)
        named = f"{kind.__module__}.{kind.__qualname__}"
        if named in _PLAIN or isinstance(value, (np.dtype, np.generic)):
            return f"{named} {value!r}"
        if isinstance(value, enum.Enum):
            return f"{self.refer(kind)}.{value.name} {self._member(value)}"
        if isinstance(value, _DESCRIPTORS):
            return f"descriptor {value.__objclass__.__qualname__}.{value.__name__}"
        if not all(map(_is_of_python, kind.__mro__)) or kind.__module__.startswith("torch.backends."):
            raise Unnameable  # its state is not in Python: of flags such as allow_tf32 in torch's C library
        self._watch(_kind_of, value)
        parts = [self.refer(kind), *self._content(value)]
        whole = dataclasses.is_dataclass(kind) or _is_library(kind.__module__)
        state = getattr(value, "__dict__", None)
        parts += [] if state is None else self._attributes(state, whole, _computed(kind))
        return f"{', '.join(parts)}, {', '.join(self._slots(value))}"

    def _member(self, value: enum.Enum) -> str:
        """Describe the attributes of a member of an enumeration, and its value, which can be assigned as well."""
        items = self._watch(_items, vars(value))
        pairs = zip(items[::2], items[1::2], strict=True)
        return ", ".join(f"{name}={self.refer(each)}" for name, each in pairs if name not in _OF_MEMBERS)

    def _partial(self, value: Any) -> str:
        return f"partial {', '.join(map(self.refer, self._watch(attrgetter('func', 'args', 'keywords'), value)))}"

    def _content(self, value: Any) -> list[str]:
        """Describe the value of an object that is also a number, a text or a collection."""
        for kinds, describe in _CHANGING:
            if isinstance(value, kinds):
                return [describe(self, value)]
        base = next((each for each in _CONTENT if isinstance(value, each)), None)
        return [] if base is None else [self.refer(base(value))]

    def _slots(self, value: Any) -> list[str]:
        names = [name for each in type(value).__mro__ for name in _slot_names(each)]
        found = self._watch(functools.partial(_slot_values, names=tuple(names)), value)
        return [f"{name}={self.refer(each)}" for name, each in zip(names, found, strict=True) if each is not _MISSING]


def _through(*names: str) -> Callable[[_Walk, Any], str]:
    """Return a function that describes wrapper objects by the objects that they wrap."""

    def described(walk: _Walk, value: Any) -> str:
        return f"{type(value).__name__} {', '.join(walk.refer(getattr(value, name)) for name in names)}"

    return described


_DESCRIPTORS = (
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip

_DESCRIBED: list[tuple[Any, Callable[[_Walk, Any], str]]] = [
    (types.FunctionType, _Walk._function),
    (type, _Walk._class),
    (types.ModuleType, _Walk._module),
    (types.MethodType, _through("__func__", "__self__")),
    ((staticmethod, classmethod), _through("__func__")),
    (property, _through("fget", "fset")),
    (functools.cached_property, _through("func")),
    (functools.partial, _Walk._partial),
    (functools._lru_cache_wrapper, _through("__wrapped__")),
    (types.MethodWrapperType, _through("__name__", "__self__")),
    (types.BuiltinFunctionType, _Walk._builtin),
    (np.ufunc, lambda walk, value: f"ufunc {value.__name__}"),
    (np.ndarray, _Walk._array),
    (PurePath, _Walk._path),
    (type(os.environ), lambda walk, value: walk._mapping(value._data)),  # as bytes, which stay the same objects
]


def _described_exactly(kinds: tuple[type, ...], describe: Callable[[_Walk, Any], str]) -> Callable[[_Walk, Any], str]:
    """Return a description for objects of exactly these types; objects of subclasses may have attributes as well."""
    return lambda walk, value: describe(walk, value) if type(value) in kinds else walk._object(value)


_CHANGING: list[tuple[tuple[type, ...], Callable[[_Walk, Any], str]]] = [
    ((defaultdict,), _Walk._defaultdict), (_MAPPINGS, _Walk._mapping), ((list,), _Walk._list), ((set,), _Walk._set),
]  # fmt: skip
_DESCRIBED += [(kinds, _described_exactly(kinds, describe)) for kinds, describe in _CHANGING]


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in TRUSTED or _OWN.match(module) is not None


def _is_trusted(module: str) -> bool:
    return _is_library(module) and not _IMPURE.match(module)


def _is_named(value: type) -> bool:
    """Return True if its name identifies a class: a library's class, or a static class of C."""
    return _is_library(value.__module__) or not value.__flags__ & _HEAP_TYPE


def _computed(kind: type) -> frozenset[str]:
    """Return the attributes that a class caches after their first read."""
    found = (item for each in kind.__mro__ for item in vars(each).items())
    return frozenset(name for name, value in found if isinstance(value, functools.cached_property))


def _is_of_python(value: type) -> bool:
    """Return True where Python sees the whole state of the objects of a class."""
    if value in _BASES:
        return True
    marks = vars(value).keys() & {"__dict__", "__slots__", "__weakref__"}
    inherits = any(base not in _BASES and _is_of_python(base) for base in value.__bases__)
    return bool(marks or inherits) and value.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE


# --- what is looked at again


class _Watched:
    """Watched objects. Frequent kinds are in columns, because a launch checks all of them, and C's loops read a
    column."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        reads: list[tuple[Any, Any, Any, tuple[Any, ...]]]
        reads = [(getattr(read, "func", read), read, holder, found) for read, holder, found in watches]
        names = [(holder, read, found) for kind, read, holder, found in reads if kind is _looked_up]
        self._gets = [holder.get for holder, _, found in names for _ in found]
        self._names = [name for _, read, _ in names for name in read.keywords["names"]]
        self._values = [value for *_, found in names for value in found]
        sizes = [(holder, found[0]) for kind, _, holder, found in reads if kind is _size]
        self._spaces, self._sizes = [holder for holder, _ in sizes], [size for _, size in sizes]
        kinds = [(holder, found[0]) for kind, _, holder, found in reads if kind is _kind_of]
        self._objects, self._kinds = [holder for holder, _ in kinds], [kind for _, kind in kinds]
        columns = (_looked_up, _size, _kind_of)
        self._others = [
            (read, holder, found)
            for kind, read, holder, found in reads
            if kind not in columns and not (kind is _slot_values and not found)  # an object without slots
        ]

    def same(self) -> bool:
        """Return True if every watch returns the same objects as before."""
        return (
            all(map(is_, map(call, self._gets, self._names, repeat(_MISSING)), self._values))
            and list(map(len, self._spaces)) == self._sizes
            and all(map(is_, map(type, self._objects), self._kinds))
            and all(map(_is_same, self._others))
        )


def _is_same(watch: Watch) -> bool:
    read, holder, found = watch
    now = tuple(read(holder))
    return len(now) == len(found) and all(map(is_, now, found))


_function_parts = attrgetter("__code__", "__defaults__", "__kwdefaults__", "__closure__")


def _looked_up(space: Any, names: Sequence[str]) -> Iterator[object]:
    return map(space.get, names, repeat(_MISSING))


def _cell_contents(cells: Iterable[Any]) -> Iterator[object]:
    for cell in cells:
        try:
            yield cell.cell_contents
        except ValueError:  # it is not bound yet
            yield _MISSING


def _asked(module: Any, name: str) -> tuple[object, ...]:
    return (getattr(module, name, _MISSING),)


def _items(mapping: Any) -> Iterator[object]:
    return chain.from_iterable(mapping.items())


_sizes: dict[int, int] = {}


def _size(space: Any) -> tuple[object, ...]:
    """Return the size of an object; equal sizes are the same object."""
    return (_sizes.setdefault(len(space), len(space)),)


def _kind_of(value: object) -> tuple[object, ...]:
    return (type(value),)


def _factory_of(value: Any) -> tuple[object, ...]:
    return (value.default_factory,)


def _slot_names(kind: type) -> Sequence[str]:
    found = vars(kind).get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _slot_values(value: object, names: Sequence[str]) -> Iterator[object]:
    return map(getattr, repeat(value), names, repeat(_MISSING))


# --- code


class _Facts(NamedTuple):
    """The facts of a function's code. text: its digest. names: all that it names but its own variables. chains: names
    that are looked up outside of it, each with the attributes read of that. imports: modules, each with its level.
    texts: the strings in it. everything: whether it reads attributes that neither a name nor a text is."""

    text: str
    names: frozenset[str]
    texts: frozenset[str]
    everything: bool
    chains: tuple[tuple[str, ...], ...]
    imports: tuple[tuple[str, int], ...]


_facts_of: WeakKeyDictionary[types.CodeType, _Facts] = WeakKeyDictionary()


def _facts(code: types.CodeType) -> _Facts:
    found = _facts_of.get(code)
    if found is None:
        every = list(nested_code(code))
        reads = [_reads(each) for each in every]
        chains = dict.fromkeys(chain for found_there, _ in reads for chain in found_there)
        imports = dict.fromkeys(each for _, found_there in reads for each in found_there)
        names = frozenset(name for each in every for name in each.co_names)
        texts = frozenset(text for each in every for text in _strings(each.co_consts))
        everything = any(map(_reads_everything, every))
        text = digest(_text(code).encode())
        found = _facts_of[code] = _Facts(text, names, texts, everything, tuple(chains), tuple(imports))
    return found


def _strings(constants: Iterable[Any]) -> Iterator[str]:
    for each in constants:
        if isinstance(each, str):
            yield each
        elif isinstance(each, (tuple, frozenset)):
            yield from _strings(each)


def _reads_everything(code: types.CodeType) -> bool:
    """Return True if code may read any attribute, such as by a computed name."""
    names = set(code.co_names)
    composed = names & _READS_BY_TEXT and any(step.opname == "BUILD_STRING" for step in dis.get_instructions(code))
    return bool(composed or names & _READS_EVERYTHING)


def nested_code(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and all that are in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from nested_code(each)


def _text(code: types.CodeType) -> str:
    """Return a code object as text with its lines; equal in all processes."""
    file = code.co_filename.removeprefix(_HOME)
    return repr((
        code.co_code, [_constant(each) for each in code.co_consts], code.co_names, code.co_varnames, code.co_freevars,
        code.co_cellvars, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        file, code.co_qualname, code.co_firstlineno, code.co_linetable, code.co_exceptiontable,
    ))  # fmt: skip


def _constant(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return _text(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_constant, value)))}}}"
    return _atom(value) if type(value) is float else f"{type(value).__name__} {value!r}"


_OUTSIDE = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS")
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")


def _reads(code: types.CodeType) -> tuple[list[tuple[str, ...]], list[tuple[str, int]]]:
    chains: list[tuple[str, ...]] = []
    imports: list[tuple[str, int]] = []
    constants: list[Any] = []
    own, open_chain = {*code.co_cellvars, *code.co_freevars}, False
    for step in dis.get_instructions(code):
        if step.opname in _ATTRIBUTE and open_chain:
            chains[-1] += (step.argval,)
            continue
        if step.opname in ("CACHE", "PRECALL", "EXTENDED_ARG"):
            continue
        open_chain = step.opname in _OUTSIDE
        if open_chain:
            chains.append((step.argval,))
        elif step.opname == "LOAD_CONST":
            constants.append(step.argval)
        elif step.opname == "IMPORT_NAME":
            imports.append((step.argval, constants[-2]))
    return [chain for chain in chains if chain[0] not in own or chain[0] in code.co_freevars], imports


_DECLARES = re.compile(r"^\s+[\w.]+\s*:\s*[^\s=]", re.MULTILINE)


def _annotated(function: types.FunctionType) -> list[tuple[str, ...]]:
    """Return the names in annotations of variables. tilus reads them from the source; a code object has none."""
    code = function.__code__
    found = _annotations_of.get(code)
    if found is None:
        found = _annotations_of[code] = _names_in_annotations(code, function.__globals__)
    return found


_annotations_of: WeakKeyDictionary[types.CodeType, list[tuple[str, ...]]] = WeakKeyDictionary()


def _names_in_annotations(code: types.CodeType, space: Any) -> list[tuple[str, ...]]:
    last = max((line for each in nested_code(code) for *_, line in each.co_lines() if line), default=0)
    text = "".join(linecache.getlines(code.co_filename, space)[code.co_firstlineno - 1 : last])
    if not _DECLARES.search(text):
        return []
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return []
    found = (node.annotation for node in ast.walk(tree) if isinstance(node, ast.AnnAssign))
    return [chain for each in found for node in ast.walk(each) if (chain := _dotted(node))]


def _dotted(node: ast.AST) -> tuple[str, ...]:
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return (*before, node.attr) if before else ()
    return (node.id,) if isinstance(node, ast.Name) else ()
