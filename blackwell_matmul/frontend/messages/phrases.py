"""Sentences of tilus, and the sentences that a user reads in their place: the fault, the numbers, the remedy.

A text that is not in the table is cleaned of tilus's own names and kept short.
"""

from __future__ import annotations

import ast
import re

LONGEST = 200
"""Maximum number of characters of a message of tilus."""

LANES_ALONE = (
    "tilus 0.2.0 allocates tensor memory of 128 lanes alone, and this tile{} has {}; take one of 128 rows, which four "
    "warps load"
)
"""The sentence for a wrong number of lanes. It takes " of" with a shape, or "", and the number."""

_TEMPLATES: dict[str, str] = {
    r"Cannot auto local spatial layout with shape ([(\[].*?[])]) and num_threads (\d+)":
        r"a tile of shape \1 cannot be spread evenly over \2 threads; take extents whose product is a multiple of them "
        "(a load is zero beyond its view), or another number of warps",
    r'.*requires either "c" or "acc_dtype" to be specified':
        "dot needs its accumulator: dot(a, b, acc), or dot(a, b, acc_dtype=float32) for one that starts at zero",
    r"The shapes of a, b, and c must match for dot: a: (\(.*?\)), b: (\(.*?\)), c: (\(.*?\)).*":
        r"dot takes a of shape (m, k), b of (k, n) and c of (m, n), and these have \1, \2 and \3; a transposed b is "
        "b.transpose()",
    r"A, B, and D must have compatible shapes, but got (\(.*?\)), (\(.*?\)), and (\(.*?\))":
        r"mma takes A of shape (m, k), B of (k, n) and D of (m, n), and these have \1, \2 and \3; a transposed B is "
        "b.transpose()",
    r"For cta_group=2, A, B, and D must have compatible shapes .*but got (\(.*?\)), (\(.*?\)), and (\(.*?\))":
        r"mma for a CTA pair takes of each CTA A of shape (m / 2, k), B of (k, n / 2) and D of (m / 2, n), and these "
        r"have \1, \2 and \3",
    r"No layout validation rule registered for .*Tcgen05MmaTSInst.*":
        "tilus 0.2.0 has no code for an mma with A in tensor memory; put A into shared memory",
    r"Cannot broadcast shape (\(.*?\)) and (\(.*?\)) \(op=(\w+?)(?:Inst)?\)":
        r"\3 has tiles of shape \1 and \2; their extents must be equal, or 1 in one of them (keepdim=True leaves 1 "
        "of a dimension that is reduced)",
    r"Trying to access variable without definition: (\w+)": r"the name `\1` is not defined",
    r".*(?:does not|not) support pythonic logical operations.*":
        "a value that is known only when the kernel runs stands where one must be known before, as in a shape of a "
        "shared or register tensor or the filter of a list; make it a constant (annotate it with int, not int32)",
    r"(Register|Shared|Global|TMemory)Tensor\(.*":
        r"a tensor stands where one number must, as in a condition; choose between tiles with self.where, or take "
        "the .item() of a tensor of one element",
    r"Assignment between Var is only accepted for hidet_ir\.Expr":
        "a scalar variable is assigned something that is no scalar; give that another name",
    r"No thread group context found":
        "self.attrs.warps is not set before the first instruction; set it first, as in self.attrs.warps = 4",
    r"The script\.attrs\.(blocks|warps) is not set":
        r"self.attrs.\1 is not set; set it in __call__, as in self.attrs.\1 = 1",
    r"The script\.attrs\.warps must be in \[1, 32\], got (-?\d+)": r"self.attrs.warps is \1; it must be 1 to 32",
    r"Invalid type annotation: (.*)":
        r"a name is annotated with \1, which is no type of a kernel; int32 and float32 are, without quotes",
    r"Assignment between Value is only accepted for RegisterValue":
        "a name that stands for a tensor is assigned again; give the new value another name, and a tile of one number "
        "is self.register_tensor(dtype=..., shape=[...], init=1.0)",
    r"Layout shape (\(.*?\)) does not match tensor shape (\(.*?\)) in \w+\(.*":
        r"a tile of shape \2 stands where one of shape \1 must",
    r"allow_on_fly_groups must be an integer, got \w+":
        "the number of groups is known only when the kernel runs, and must be known before; make it a constant "
        "(annotate it with int, not int32)",
    r"The warp index must be such that the first thread in the warp is less than .*":
        "there is no such warp here; self.attrs.warps, or the group around it, has fewer",
    r"The context manager in Tilus Script must be .*":
        "a with statement takes threads, as self.single_warp(0), self.single_thread() or self.warp_group(0, 4)",
    r"Can not recognize the condition in assume: (.*)": r"assume takes a condition such as m % 16 == 0, and here is \1",
    r"The length of blocks_per_cluster should not be greater than 3":
        "self.attrs.blocks or cluster_blocks has more than three extents",
    r"The layout of RegisterTensor is not defined yet":
        "the layout of a register tensor is found when the whole kernel has been read; annotate_layout takes one that "
        "__init__ makes, as spatial(128, 1).local(1, 32) of tilus.ir.layout.ops",
    r"integer (division or )?modulo by zero":
        "an integer is divided by 0; a group has 1 thread or more, and each extent is 1 or more",
    r"For loop iterable must be a one of .*": "a for loop goes over range(...) or self.range(...) alone",
    r"Found the following variables with empty scalar sets.*":
        "a loop of it never runs, whatever the arguments are, and tilus does not compile such a loop; leave it out",
    r'.*do not support calling python builtin function "(\w+)"':
        r"Python's \1 does not work on values of a kernel; compute it in __init__, or from self's own operations",
    r".*(?:could not get source code|source code not available|could not find class definition).*":
        "tilus reads a kernel's source, and what is typed into Python or python -c has none; put the class into a file "
        "or a notebook's cell",
    r"TypeError: Cannot convert Expr to (int|float)":
        r"Python's \1(...) takes what is known before the kernel runs; int32(x) and float32(x) convert other values",
    r'Hidet builtin function "(\w+)" takes 1 arguments': r"\1 takes one value in a kernel",
    r"Can not recognize Constant (.*)": r"a kernel cannot have \1; its constants are numbers, texts, truths and None",
    r"The context does not have a bind value": "a with statement of threads has no value; leave `as ...` out",
    r"Tilus currently do not support multiple with items": "a with statement takes one context; nest two of them",
    r"Return statement must be the last statement in a tilus procedure|Return statement in Tilus .*":
        "return is the last statement of a method alone, outside of loops and branches; put the rest under an if",
    r"The left side of subscript assignment must be a RegisterTensor":
        "what is assigned to by index is no register tensor; store_shared and store_global write to the others, and a "
        "Python list is whole when it is made",
    r"The number of arguments does not match the lambda.*|Do not support keyword arguments in lambda.*":
        "a lambda takes each of its parameters, by their order and without defaults",
    r"block_m, block_n, block_k (\(.*?\)) must be multiples are illegal":
        r"dot has M, N and K \1, and an instruction works on M = 16, N = 8 and K = 16 (32 of int8); take multiples of "
        "these",
    r"Can not find a proper spatial repeat for block_m, block_n, block_k (\(.*?\))":
        r"the M, N and K of this dot, \1, cannot be shared out evenly among the warps; take fewer warps or larger "
        "powers of two",
    r"Unsupported MMA config for operand dtype (\w+) and accumulator dtype (\w+)":
        r"dot has no instruction that multiplies \1 into \2; float16 and bfloat16 go into float32, int8 into int32",
    r"Instruction \w+\(.*\) requires exactly one warp-aligned warp.*":
        r"this statement is for one whole warp; put it under `with self.single_warp():`",
    r"(?:The number of rows \()?shape\[-2\]\)? must be 32, 64, or 128, got (\d+)": LANES_ALONE.format("", r"\1"),
    r"The number of threads in the current thread group must be 128":
        "wgmma is for 128 threads, four neighbouring warps; set self.attrs.warps = 4, or to more and put "
        "it under `with self.warp_group(0, 4):`",
    r"The lane range (\d+) to (\d+) does not match the thread range (\d+) to (\d+)":
        r"the lanes \1 to \2 of tensor memory are for as many threads, and here are threads \3 to \4; do it with four "
        "warps, outside of single_warp",
    r"thread_begin must be in .* num_threads=(\d+), parent_num_threads=(\d+)":
        r"a group of \1 threads is asked for among \2; self.attrs.warps is set once, before all else",
    r"Cannot canonicalize the layout of (a|b) tensor.*":
        r"the shared tensor \1 has no layout that the tensor core reads; it must be two-dimensional, K-major (\1 as "
        "[rows, k], used as it is for A and transposed for B), with k of a multiple of 16 bytes",
    r"The layout/offset/mask is not valid in cp async instruction.*":
        "cp.async copies 4 bytes at least, neighbours in global and in shared memory, and here fewer are; pad the rows "
        "to a multiple of 4 bytes (an even k of 16-bit elements), and give an mma its B as b.transpose() of [n, k]",
    r"tensor_item_ptr requires tensor with a single element":
        "the address of an element, as of a semaphore, is tensor[i, j].item_ptr(), with an index for each dimension",
    r"(?:Register|Global|Shared)Tensor|Encounter unsupported type \w+Tensor in the IR functor":
        "a tensor stands where a number or an address must; tensor[i, j].item() is the value of an element, and "
        "tensor[i, j].item_ptr() its address, as lock_semaphore takes it",
    r"Cannot group the modes for shape (\(.*?\)) with mode_shape (\(.*?\))":
        r"extents \1 do not go into pieces of \2, as the layout of this tile has; take powers of two",
    r"NameError: name 'hidet' is not defined":
        "tilus 0.2.0 has no code for this operation on elements of this type; cast them to float32 first",
    r"The following instructions do not have a layout inference rule registered: (\w+?)(?:Inst)?":
        r"tilus 0.2.0 finds no layout for \1; what does without it is in docs/statements.md",
    r"(\w*Error: )?(?:list|tuple|pop)(?: assignment)? index out of range": "an index or a dimension is out of range",
    r"tensor [<>=!]+ tensor could only be used in Tilus Script":
        "Python's max, min and comparisons do not work on tiles; self.maximum(a, b) does, and self.where(a > b, a, b)",
    r"tensor \S+ tensor could only be used in Tilus Script":
        "an operator of tiles stands in a function outside of the kernel; write it in the kernel, or in a method of "
        "its class",
    r"tensor_item_value requires tensor with a single element":
        "a tensor of several elements stands where one is wanted, as one barrier; index it, as in full[stage]",
    r"The shared tensor layout is not supported by TMA: Shared tensor: (\w+)\[(.*?)\].*":
        r"TMA cannot copy a shared tensor of \1 and shape (\2) with the layout that it has here; for the tensor core "
        "its rows must have a multiple of 32 bytes (16 elements of 16 bits), and what leaves for global memory at most "
        "128 (64 of them): of a wider one make two, as in shape [2, 128, 64]",
    r"Requested dynamic shared memory bytes (\d+) exceed the device limit (\d+) for target.*":
        r"it takes \1 bytes of shared memory, and a CTA can have \2; fewer stages or smaller tiles take less",
    r"unknown binary operator .*": "an operand or an index is no number of the kernel",
    r'Parameter "(\w+)" has no type annotation.*':
        r"the parameter \1 of a method has no annotation; annotate it, as in \1: int32 or \1: RegisterTensor",
    r'Parameter "(\w+)" has an unsupported type annotation: (.*?)\. Currently.*':
        r"the parameter \1 of a method is annotated with \2; int32, ~float16, RegisterTensor and int work",
    r"(?:A python string as parameter type annotation detected|The parameter annotation is a string).*":
        "a parameter is annotated with text; leave out the quotes and `from __future__ import annotations`",
}  # fmt: skip
_PHRASES = {re.compile(pattern): template for pattern, template in _TEMPLATES.items()}

_CLEANED: tuple[tuple[str, str], ...] = (
    (r"┌.*", ""),  # the drawing of a layout
    (r"\b\w*Layout\(.*", ""),
    (r"\b\w+InstructionGroup\.(\w+)\(\)", r"self.\1()"),
    (r"<class '(?:\w+\.)*(\w+)'>", r"\1"),
    (r"\b(?:tilus\.)?hidet\.(?:ir\.)?", ""),
    (r"\btilus\.ir\.[\w.]*\.", ""),
    (r"\bat 0x[0-9a-f]+", ""),
    (r"^TypeError: (?=self\.)", ""),
)

_OUTSIDE_THE_KERNEL = "do that in __init__ or outside of the class"
_SYNTAX = {
    "Try": ("try", _OUTSIDE_THE_KERNEL),
    "TryStar": ("try", _OUTSIDE_THE_KERNEL),
    "JoinedStr": ("an f-string", _OUTSIDE_THE_KERNEL),
    "Delete": ("del", "leave it out, a name ends with its block"),
    "Raise": ("raise", _OUTSIDE_THE_KERNEL),
    "Assert": ("assert", _OUTSIDE_THE_KERNEL),
    "Import": ("an import", _OUTSIDE_THE_KERNEL),
    "ImportFrom": ("an import", _OUTSIDE_THE_KERNEL),
    "NamedExpr": ("the operator :=", "assign in a statement before"),
    "Global": ("global", "keep what changes in a tensor"),
    "Nonlocal": ("nonlocal", "keep what changes in a tensor"),
    "FunctionDef": ("a function inside of it", "make it a method, or a lambda"),
    "ClassDef": ("a class inside of it", _OUTSIDE_THE_KERNEL),
    "Yield": ("yield", _OUTSIDE_THE_KERNEL),
    "YieldFrom": ("yield", _OUTSIDE_THE_KERNEL),
    "Await": ("await", _OUTSIDE_THE_KERNEL),
    "Match": ("match", "if and elif do the same"),
    "Dict": ("a dict", _OUTSIDE_THE_KERNEL),
    "Set": ("a set", _OUTSIDE_THE_KERNEL),
    "Starred": ("a starred name", "write the values one by one"),
}
"""The name of each node of Python's syntax that a kernel cannot have, and a substitute."""


def one(noun: str) -> str:
    """Return a noun with its article: a float, an int."""
    return f"an {noun}" if noun[:1].lower() in "aeio" else f"a {noun}"


def plain_sentence(text: str) -> str:
    """Return a sentence, without its period, for a message of tilus."""
    text = " ".join(text.split())
    unknown = re.match(r"The AST node (\w+) is not supported", text)
    if unknown:
        return _no_syntax(unknown[1])
    for pattern, replacement in _CLEANED:
        text = re.sub(pattern, replacement, text)
    text = text.rstrip(" .:,")
    for phrase, template in _PHRASES.items():
        found = phrase.fullmatch(text)
        if found:
            return found.expand(template)
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"


def untranslated(node: object) -> str:
    """Return the sentence for a node of the script's syntax that tilus refuses without a word."""
    if not isinstance(node, ast.AST):
        return _no_syntax("")
    name = type(node).__name__
    return (
        _no_syntax(name) if name in _SYNTAX else f"tilus has no translation for `{plain_sentence(ast.unparse(node))}`"
    )


def _no_syntax(name: str) -> str:
    if name not in _SYNTAX:
        return "tilus has no translation for a statement of this kind"
    what, instead = _SYNTAX[name]
    return f"a kernel cannot have {what}; {instead}"
