"""What a user reads where tilus refuses a script: what is wrong, what would work, and the statement's line."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.frontend import bind, build, import_tilus
from blackwell_matmul.frontend.messages import phrases
from blackwell_matmul.harness.calls import user_kernel

import_tilus()

SCRIPT = """
import math, tilus
from tilus import RegisterTensor, boolean, float16, float32, int8, int32, uint32, void_p

class Bad(tilus.Script):
    def __init__(self):
        super().__init__()

    def __call__(self, n: int32, m: int, x_ptr: ~float16, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[n, m])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n, m])
"""

LOAD = "a = self.load_global(g_x, offsets=[0, 0], shape=[64, 32])"
PRODUCT = """
a = self.load_global(g_x, offsets=[0, 0], shape=[{m}, {k}])
b = self.load_global({b}, offsets=[0, 0], shape=[{k}, {n}])
acc = self.register_tensor(dtype={acc}, shape=[{m}, {n}], init=0)
c = self.dot(a, b, acc)  # here
self.store_global(g_y, c.to(float32), offsets=[0, 0])
"""
MMA = """
s_a = self.shared_tensor(dtype=float16, shape=[128, {k}])
s_b = self.shared_tensor(dtype=float16, shape=[64, {k}])
t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, 64])
with self.single_warp():
    self.tcgen05.mma(s_a, {b}, t_acc, enable_input_d=False)  # here
self.tcgen05.dealloc(t_acc)
"""
COPY = """
s = self.shared_tensor(dtype=float16, shape=[2, 64, 32])
b = self.mbarrier.alloc(counts=[1, 1])
with self.single_warp():
    self.tma.global_to_shared(src=g_x, dst=s[0], offsets=[0, 0], mbarrier=b[0])  # here
"""
WGMMA = """
s_a = self.shared_tensor(dtype={dtype}, shape=[{m}, 64])
s_b = self.shared_tensor(dtype={dtype}, shape=[{n}, 64])
acc = self.register_tensor(dtype={acc}, shape=[{m}, {n}], init=0)
self.wgmma.mma(s_a, s_b.transpose(), acc)  # here
"""
WGMMA_STEPS = (
    "wgmma has M, N and K {}, and an instruction works on M = 64, N = 8 and K = 16 of float16; take multiples of "
    "these, such as {}"
)
TOTAL = """
x = self.load_global(g_x, offsets=[0, 0], shape=[64, {n}])
total = self.register_tensor(dtype=float16, shape={total}, init=0.0)
{statement}  # here
"""


def wgmma(m: int = 64, n: int = 32, dtype: str = "float16", acc: str = "float32") -> str:
    return WGMMA.format(m=m, n=n, dtype=dtype, acc=acc)


def total(statement: str, n: int = 64, total: str = "[64, 1]") -> str:
    return TOTAL.format(statement=statement, n=n, total=total)


def product(m: int = 64, n: int = 64, k: int = 32, b: str = "g_x", acc: str = "float32") -> str:
    return PRODUCT.format(m=m, n=n, k=k, b=b, acc=acc)


NARROW = "t = self.register_tensor(dtype={}, shape=[{}], init={})  # here"
CASES: list[tuple[str, str]] = [
    # tiles and products
    (
        "s = self.shared_tensor(dtype=float16, shape=[64, 64])\ng_odd = self.global_view(x_ptr, dtype=float16, "
        "shape=[64, 63])\nself.copy_async(g_odd, s, offsets=[0, 0])  # here",
        "cp.async copies 4 bytes at least, neighbours in global and in shared memory, and here fewer are; pad the rows",
    ),
    (product(k=33), "dot has M, N and K (64, 64, 33), and an instruction works on M = 16, N = 8 and K = 16"),
    (
        "a = self.load_global(g_x, offsets=[0, 0], shape=[64, 33])  # here\n"
        "self.store_global(g_y, a.to(float32), offsets=[0, 0])",
        "a tile of shape (64, 33) cannot be spread evenly over 128 threads; take extents whose product is a multiple",
    ),
    (product(k=40), "dot has M, N and K (64, 64, 40), and an instruction works on M = 16, N = 8 and K = 16"),
    (product(m=16, n=8), "the M, N and K of this dot, (16, 8, 32), cannot be shared out evenly among the warps"),
    (product(acc="int32"), "no instruction that multiplies float16 into int32; float16 and bfloat16 go into float32"),
    (product(b="g_y"), "dot multiplies one type, and here a (float16 64x32) and b (float32 32x64); convert one"),
    (
        f"{LOAD}\nc = self.dot(a, a)  # here",
        "dot needs its accumulator: dot(a, b, acc), or dot(a, b, acc_dtype=float32)",
    ),
    (
        f"{LOAD}\nc = self.dot(a, a, self.register_tensor(dtype=float32, shape=[64, 64], init=0.0))  # here",
        "these have (64, 32), (64, 32) and (64, 64); a transposed b is b.transpose()",
    ),
    (
        f"{LOAD}\nb = self.load_global(g_x, offsets=[0, 0], shape=[64, 64])\nc = a * b  # here",
        "(64, 32) and (64, 64); their",
    ),
    (
        f"self.attrs.warps = 3\n{LOAD}  # here\nself.store_global(g_y, a.to(float32), offsets=[0, 0])",
        "a tile of shape (64, 32) cannot be spread evenly over 96 threads",
    ),
    (
        "a = self.load_global(g_x, offsets=[0, 0], shape=[64, 64])\n"
        "b = self.load_global(g_x, offsets=[0, 0], shape=[64, 64])\n"
        "acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)\n"
        "c = self.dot(a, b, acc)\nd = self.dot(c.to(float16), b, acc)  # here\n"
        "self.store_global(g_y, d * c, offsets=[0, 0])",
        "cannot work with the layouts of c (float32 64x64), c.to(float16) (float16 64x64); pass one of them",
    ),
    (
        "r = self.register_tensor(dtype=float32, shape=[64], init=0.0)  # here\n"
        "s = self.shared_tensor(dtype=float32, shape=[64])\nself.store_shared(s, r)",
        "no rule can infer a layout for r (float32 64); use it with a tensor that was loaded or multiplied",
    ),
    (
        "a = self.load_global(g_x, offsets=[0, 0], shape=[128, 1])\n"
        "b = self.load_global(g_x, offsets=[0, 0], shape=[1, 32])\n"
        "s = self.shared_tensor(dtype=float16, shape=[128, 32])\nself.store_shared(s, a * b)  # here",
        "an outer product of a row and a column says nothing of where its elements lie; give it one with",
    ),
    (
        "a = self.load_global(g_x, offsets=[0, 0], shape=[128, 1])\n"
        "b = self.load_global(g_x, offsets=[0, 0], shape=[1, 32])\n"
        "c = a * b  # here\nself.store_global(g_y, c.to(float32), offsets=[0, 0])",
        "pass both operands through shared memory",
    ),
    (
        "s = self.shared_tensor(dtype=float16, shape=[1, 1])\nb = self.mbarrier.alloc(counts=1)\n"
        "with self.single_warp():\n"
        "    self.tma.global_to_shared(src=g_x, dst=s, offsets=[0, 0], mbarrier=b)  # here",
        "a TMA load of g_x copies rows of a multiple of 16 bytes, and s has shape (1, 1), 2 bytes of float16",
    ),
    (
        "s = self.shared_tensor(dtype=float16, shape=[2, 3])\nwith self.single_warp():\n"
        "    self.tma.shared_to_global(s, g_x, offsets=[0, 0])  # here",
        "a TMA store of g_x copies rows of a multiple of 16 bytes, and s has shape (2, 3), 12 bytes of float16",
    ),
    (
        "sems = self.global_tensor(dtype=int32, shape=[4, 4], requires_clean=True)\n"
        "self.lock_semaphore(~sems, value=1)  # here",
        "the address of an element, as of a semaphore, is tensor[i, j].item_ptr(), with an index for each dimension",
    ),
    (
        "sems = self.global_tensor(dtype=int32, shape=[4, 4], requires_clean=True)\n"
        "self.lock_semaphore(sems[0, 1], value=1)  # here",
        "tensor[i, j].item_ptr() its address, as lock_semaphore takes it",
    ),
    ("x = self.threadIdx.x  # here", "self has no threadIdx: a tile's layout shares it out over the threads"),
    ("self.tma.load(g_x)  # here", "self.tma has no load: self.tma.global_to_shared"),
    ("x = blockIdx.x  # here", "the name `blockIdx` is not defined: self.blockIdx.x is this CTA's number"),
    (
        "s = self.shared_tensor(dtype=float16, shape=[n, 64])  # here",
        "make it a constant (annotate it with",
    ),
    # tensor cores of Blackwell
    (
        MMA.format(k=33, b="s_b.transpose()"),
        "tcgen05.mma has M, N and K (128, 64, 33), and an instruction works on M = 128, N = 8 and K = 16 of float16; "
        "take multiples of these, such as (128, 64, 48)",
    ),
    (
        MMA.format(k=32, b="s_b.transpose()").replace(
            "\nt_acc", "\nself.annotate_layout(s_a, tilus.ir.layout.ops.shared_row_major(128, 32))\nt_acc"
        ),
        "the shared tensor a has no layout that the tensor core reads; it must be",
    ),
    (MMA.format(k=32, b="s_b"), "(128, 32), (64, 32) and (128, 64); a transposed B is b.transpose()"),
    (
        MMA.format(k=32, b="s_b.transpose(), cta_group=2").replace("t_acc, enable", "d=t_acc, enable"),
        "CTA A of shape (m / 2, k), B of (k, n / 2) and D of (m / 2, n), and these have (128, 32), (32, 64) and",
    ),
    (
        MMA.format(k=64, b="s_b.transpose()").replace("mma(s_a,", "mma(t_acc,"),
        "tilus 0.2.0 has no code for an mma with A in tensor memory; put A into shared memory",
    ),
    (
        "t = self.tcgen05.alloc(dtype=float32, shape=[100, 64])  # here",
        "tilus 0.2.0 allocates tensor memory of 128 lanes alone, and this tile",
    ),
    (
        "t = self.tcgen05.alloc(dtype=float32, shape=[64, 64])  # here",
        "of 128 lanes alone, and this tile of (64, 64) has 64; take one of 128 rows, which four warps load",
    ),
    (
        MMA.format(k=32, b="s_b.transpose()").replace("shape=[128, 64])", "shape=[128, 32])"),
        "mma multiplies (128, 32) by (32, 64), which goes into an accumulator of (128, 64), and t_acc has shape",
    ),
    ("t = self.tcgen05.alloc(dtype=float32, shape=[128, 700])  # here", "must be in the range [32, 512]"),
    (
        "t = self.tcgen05.alloc(dtype=float32, shape=[128, 64])\nwith self.single_warp():\n"
        "    r = self.tcgen05.load(t)  # here\nself.tcgen05.dealloc(t)",
        "lanes 0 to 128 of tensor memory are for as many threads, and here are threads 0 to 32",
    ),
    (
        "s = self.shared_tensor(dtype=float16, shape=[64, 32])\nb = self.mbarrier.alloc([1])\n"
        "with self.single_thread():\n"
        "    self.tma.global_to_shared(src=g_x, dst=s, offsets=[0, 0], mbarrier=b[0])  # here",
        "is for one whole warp; put it under `with self.single_warp():`",
    ),
    (
        COPY.replace("dst=s[0]", "dst=s"),
        "the copy is of a tile with 2 dimensions of g_x, and s has shape (2, 64, 32); index it, as in s[i]",
    ),
    (
        COPY.replace("dst=s[0]", "dst=s[0][0]"),
        "the copy is of a tile with 2 dimensions of g_x, and s[0][0] has shape (32,); say which with dims",
    ),
    (
        COPY.replace("src=g_x, dst=s[0]", "src=s[0], dst=g_x"),
        "takes a global tensor as src and a shared tensor as dst, and here the two are exchanged",
    ),
    (
        COPY.replace("offsets=[0, 0]", "offsets=[0, 0, 0]"),
        "g_x has 2 dimensions and takes as many offsets, and here are 3",
    ),
    (COPY.replace("mbarrier=b[0]", "mbarrier=b"), "a tensor of several elements stands where one is wanted"),
    # names, calls and types
    (f"{LOAD}\nb = a * scale  # here", "the name `scale` is not defined"),
    ("a = self.load_globl(g_x, offsets=[0, 0], shape=[64, 32])  # here", "self has no load_globl; it has load_global"),
    ("self.tcgen05.comit(1)  # here", "self.tcgen05 has no comit; it has commit"),
    (
        "s = self.shared_tensor(dtype=float16, shape=[64, 32])\nself.store_global(g_x, s, offsets=[0, 0])  # here",
        "takes a register tensor as src, and here is a 2D shared tensor",
    ),
    (f"{LOAD}\nb = a.relu()  # here", "a register tensor has no relu"),
    (
        "a = self.load_global(g_x, offset=[0, 0], shape=[64, 32])  # here",
        "self.load_global() got an unexpected keyword",
    ),
    (
        "a = self.load_global(g_x, shape=[64, 32])  # here",
        "self.load_global() missing 1 required keyword-only argument",
    ),
    ("a = self.load_global(g_x, offsets=[0], shape=[64, 32])  # here", "number of offsets must be equal to the number"),
    (
        "a = self.load_global(g_x, offsets=[0, 0], shape=[64])  # here",
        "self.load_global cannot work with these arguments: src = a 2D global tensor, offsets = [0, 0], shape = [64]",
    ),
    (f"{LOAD}.to('float32')  # here", "'float32' stands where tilus takes a type"),
    (
        "s = self.shared_tensor(dtype='float16', shape=[64, 64])  # here",
        "takes a type (float16, without quotes) as dtype",
    ),
    (
        "s = self.shared_tensor(dtype=float16, shape=[64, 64])\n"
        "self.store_shared(s, self.register_tensor(dtype=float32, shape=[64, 64], init=0.0))  # here",
        "Cannot store shared tensor float16[64, 64] from register tensor float32[64, 64]: dtype mismatch",
    ),
    (f"{LOAD}\nb = self.sum(a, dim=2, keepdim=True)  # here", "arguments: x = a 2D register tensor, dim = 2, keepdim"),
    (
        "a = self.load_global(g_x, offsets=[0, 0], shape=[64, 32], dims=[0, 2])  # here",
        "an index or a dimension is out of",
    ),
    ("self.copy_async_wait_group(n)  # here", "the number of groups is known only when the kernel runs"),
    (
        "b = math.log()  # here",
        "`math.log()` has no value in Python: ",
    ),  # its words are those of Python's version
    ("b = abs(n)  # here", "n if n > 0 else -n is the same"),
    # reduced dimensions
    (
        total("total = total + self.sum(x, dim=1)"),
        "total of line 16 has shape (64, 1) and is assigned (64, 64), broadcast from (64, 1) and (64,); self.sum(x, "
        "dim=1) is without dimension 1; with keepdim=True it has shape (64, 1)",
    ),
    (total("total += self.sum(x, dim=1)"), "self.sum(x, dim=1) is without dimension 1; with keepdim=True it has shape"),
    (total("total = self.max(x, dim=1)"), "self.max(x, dim=1) is without dimension 1; with keepdim=True it has shape"),
    (total("total = total + self.sum(x, dim=1) * 2"), "with keepdim=True it has shape (64, 1)"),
    (
        total("total = total + self.sum(x, dim=1, keepdim=True)", total="[1, 64]"),
        "total of line 16 has shape (1, 64) and is assigned (64, 64), broadcast from (1, 64) and (64, 1); give it",
    ),
    (total("x = x / self.sum(x, dim=1)", n=32), "or 1 in one of them (keepdim=True leaves 1 of a dimension that is"),
    # statements
    (
        "print('n', n)  # here",
        "print in a kernel prints while the kernel is compiled, once; self.printf('%d', x) prints",
    ),
    ("try:  # here\n    pass\nexcept Exception:\n    pass", "a kernel cannot have try"),
    ("self.printf(f'{n}')  # here", "a kernel cannot have an f-string"),
    ("a = 3\ndel a  # here", "a kernel cannot have del"),
    ("if n > 3:\n    raise ValueError('x')  # here", "a kernel cannot have raise"),
    ("assert n > 3  # here", "a kernel cannot have assert"),
    ("import math  # here", "a kernel cannot have an import"),
    ("def f(x):  # here\n    return x", "a kernel cannot have a function inside of it"),
    ("if (q := n) > 3:  # here\n    self.sync()", "a kernel cannot have the operator :="),
    ("a = [i for i in range(3) if i > n]  # here", "the filter of a list; make it a constant"),
    (f"{LOAD}\nif a > 0:  # here\n    self.sync()", "a tensor stands where one number must, as in a condition"),
    (f"{LOAD}\nb = a if a else a  # here", "`a if c else b` in a kernel is for scalars alone"),
    ("for i in [1, 2]:  # here\n    self.sync()", "a for loop goes over range(...) or self.range(...) alone"),
    (
        f"i: int32 = 0\n{LOAD.replace('a =', 'i =')}  # here",
        "is a scalar variable, and a register tensor does not go into it",
    ),
    (
        f"{LOAD}\na = self.register_tensor(dtype=float16, shape=[64, 64], init=0.0)  # here",
        "a of line 14 has shape (64, 32) and is assigned (64, 64); give it another name, or make both of the same",
    ),
    (
        "i = 0\nfor j in range(n):\n    i = i + 1  # here",
        "declare it as a variable of the kernel, as in `i: int32 = ...`",
    ),
    # what is assigned, and where names end
    (
        "self.attrs.blocks = n\nn = n + 1  # here",
        "`n` is assigned here, and the grid, a global tensor or a view for TMA has its extents from it",
    ),
    ("self.attrs.blocks = n\nn += 1  # here", "give the new value a name of its own, as in `n_1: int32 = ...`"),
    ("self.attrs.blocks = [1, n]\nn = min(n, 1000)  # here", "`n` is assigned here, and the grid"),
    (
        "s = self.shared_tensor(dtype=float16, shape=[64, 32])\nn = n + 1  # here\n"
        "g = self.global_view(x_ptr, dtype=float16, shape=[n, 64])\n"
        "with self.single_warp():\n    self.tma.shared_to_global(s, g, offsets=[0, 0])",
        "`n` is assigned here, and the grid, a global tensor or a view for TMA has its extents from it",
    ),
    ("m = m + 1  # here", "`m` is a constant parameter, which is not assigned again; give the new value a name"),
    ("m += 64  # here", "of its own, as in `m_1: int32 = ...`"),
    (
        "phase = 0\nfor i in range(n):\n    phase ^= 1  # here",
        "`phase` is a Python int, which tilus cannot assign again; declare it as a variable of the kernel, as in",
    ),
    ("on = True\nfor i in range(n):\n    on ^= True  # here", "as in `on: boolean = ...`"),
    (f"i: int32 = 0\n{LOAD}\ni += a  # here", "`i` is a scalar variable, and a register tensor does not go into it"),
    (
        "r: int32 = self.blockIdx.x\ng = self.global_tensor(dtype=float16, shape=[r, 4], requires_clean=False)  # here",
        "`r` is computed in the kernel, and the grid, a global tensor or a view for TMA has its extents from it",
    ),
    (
        "for i in range(n):\n    r: int32 = i\nself.assume(r % 2 == 0)  # here",
        "the name `r` is bound in the `for` at line 14 and ends with it; bind it before that block",
    ),
    ("with self.single_warp():\n    t = n + 1\nself.printf('%d', t)  # here", "is bound in the `with` at line 14"),
    ("if n > 3:\n    t = n + 1\nself.printf('%d', t)  # here", "is bound in the `if` at line 14"),
    ("for i in range(n):\n    self.sync()\nself.printf('%d', i)  # here", "is bound in the `for` at line 14"),
    # arguments
    ("k = -x_ptr  # here", "`-x_ptr` has a pointer, to which an integer is added and nothing else"),
    ("k = x_ptr + 1.5  # here", "`x_ptr + 1.5` has a pointer, to which an integer is added and nothing else"),
    ("k = x_ptr * 2  # here", "`x_ptr * 2` has a pointer, to which an integer is added and nothing else"),
    ("self.mbarrier(1)  # here", "`self.mbarrier` is a group of statements, which cannot be called"),
    (
        "k = self.blockIdx + 1  # here",
        "has a trio of numbers (.x, .y, .z) and an int; operators take numbers and tiles",
    ),
    ("self.blockIdx.x = 5  # here", "a trio of numbers (.x, .y, .z) takes no attribute"),
    ("k = {'a': 1}['b']  # here", "a kernel cannot have a dict"),
    ("return  # here\nself.sync()", "return is the last statement of a method alone"),
    ("self.printf(n)  # here", "self.printf takes a text as fstring, and here is a number of the kernel"),
    ("self.printf('%d %% of %5.2f')  # here", "the text of printf has 2 places such as %d, and here are 0 values"),
    ("k = sum([1], 2, start=3)  # here", "`sum([1], 2, start=3)` has no value in Python"),
    ("self.print_tensor('x', n)  # here", "takes a tensor as tensor, and here is a number of the kernel"),
    ("g = self.global_view(3.5, dtype=float16, shape=[64])  # here", "takes a number as ptr, and here is 3.5"),
    (
        "for i in self.range(n, unroll='yes'):  # here\n    self.sync()",
        "takes 'all' or an integer as unroll, and here is",
    ),
    ("for i in range('5'):  # here\n    self.sync()", "range counts in integers, and here is a str"),
    ("k: int32 = 'a'  # here", "`k` is a number of the kernel, and a str does not go into it"),
    ("k: list = [3]  # here", "annotated with list, which is no type of a kernel"),
    (f"{LOAD}\na = 5.0  # here", "a name that stands for a tensor is assigned again"),
    ("k = n(1)  # here", "`n` is a number of the kernel, which cannot be called"),
    (f"{LOAD}\nk = a(1)  # here", "`a` is a register tensor, which cannot be called"),
    ("self.attrs.blocks = 'a'  # here", "takes an integer, or a list of up to three, and here is a str"),
    ("self.attrs.warps = n  # here", "`self.attrs.warps` is known only when the kernel runs"),
    ("self.assume(n > 4)  # here", "assume takes a condition such as m % 16 == 0, and here is (4 < n)"),
    ("with self:  # here\n    self.sync()", "a with statement takes threads, as self.single_warp(0)"),
    ("with self.single_warp(9):  # here\n    self.sync()", "there is no such warp here"),
    (f"{LOAD}\nself.lock_semaphore(a, value=0)  # here", "a tensor stands where a number or an address must"),
    (
        "a = self.load_global(g_x, offsets=0, shape=[64, 32])  # here",
        "takes a list of integers as offsets, and here is 0",
    ),
    ("a = self.load_global(g_x, offsets=[0, 0], shape=['64', 32])  # here", "as shape, and here is ['64', 32]"),
    (
        "a = self.load_global(x_ptr, offsets=[0, 0], shape=[64, 32])  # here",
        "a global tensor as src, and here is a pointer",
    ),
    ("a = self.load_shared(g_x)  # here", "takes a shared tensor as src, and here is a 2D global tensor"),
    (f"{LOAD}\nself.store_global(a, g_x, offsets=[0, 0])  # here", "as src, and here the two are exchanged"),
    (f"{LOAD}\nb = self.exp(2.0)  # here", "as x, and here is 2.0; self.register_tensor("),
    (f"{LOAD}\nb = a + x_ptr  # here", "`a + x_ptr` has a tile and a pointer; operators take tiles and numbers"),
    (f"{LOAD}\nb = a + None  # here", "`a + None` has a tile and None"),
    ("b = x_ptr.rows  # here", "a pointer has no rows"),
    ("b = n.rows  # here", "a number of the kernel has no rows"),
    ("n.rows = 3  # here", "`n.rows` is assigned, and a number of the kernel takes no attribute"),
    ("self.attrs.warp = 4  # here", "self.attrs has blocks, cluster_blocks, warps alone"),
    ("b = int32(1, 2)  # here", "`int32(1, 2)` has 2 arguments, and int32 converts one number"),
    ("b = float32([1])  # here", "`float32([1])` converts a number, and here is a list"),
    (
        "b = self.where(n > 0, 1.0, 2.0)  # here",
        "these are single numbers, and a choice between two is `a if n > 0 else b`",
    ),
    (
        f"{LOAD}\nb = max(a, 0.0)  # here",
        "self.maximum(a, b) is the larger of each two elements, self.max(x, dim=0) the largest of one tile",
    ),
    (
        f"{LOAD}\nb = self.maximum(a, 0.0)  # here",
        "self.maximum takes a register tensor as rhs, and here is 0.0; operators take numbers,",
    ),
    (
        "full = self.mbarrier.alloc(counts=[1])\nself.mbarrier.wait(full[0], parity=0)  # here",
        "self.mbarrier.wait() got an unexpected keyword argument 'parity'; it takes barrier, phase, sem, scope",
    ),
    (f"{LOAD}.to()  # here", "RegisterTensor.to() missing 1 required positional argument: 'dtype'; it takes dtype"),
    (
        "full = self.mbarrier.alloc(counts=[1, 1])\nself.mbarrier.arrive(full)  # here",
        "a tensor of several elements stands where one is wanted, as one barrier; index it, as in full[stage]",
    ),
    (
        "full = [self.mbarrier.alloc(counts=1) for _ in range(2)]\nfor i in range(n):\n"
        "    self.mbarrier.arrive(full[i])  # here",
        "a Python list is indexed by a variable of the kernel, which only tensors are",
    ),
    (
        "t = self.tcgen05.alloc(dtype=float32, shape=[128, 64])\nself.tcgen05.dealloc(t)\n"
        "self.tcgen05.dealloc(t)  # here",
        "t (float32 128x64) has been deallocated before at line 15; one tcgen05.dealloc goes with each alloc",
    ),
    # attributes of the launch
    ("self.attrs.blocks = None  # here", "self.attrs.blocks is not set; set it in __call__"),
    ("self.attrs.warps = 0  # here", "self.attrs.warps is 0; it must be 1 to 32"),
    ("self.attrs.warps = 33  # here", "self.attrs.warps is"),
    ("self.attrs.blocks = (1, 1, 1, 1)  # here", "more than three extents"),
    (
        NARROW.format("int8", "64, 64", "lambda i, j: i") + "\nself.store_global(g_y, t.to(float32), offsets=[0, 0])",
        "t is of int8, which would cut int32; convert that to int8 first",
    ),
    (NARROW.format("int32", "3 - 8", 0), "the extent -5 of shape=[3 - 8] is negative; every extent of a tensor is at"),
]

HOPPER_CASES: list[tuple[str, str]] = [
    (
        wgmma().replace("[64, 32], init", "[32, 64], init"),
        "mma multiplies (64, 64) by (64, 32), which goes into an accumulator of (64, 32), and acc has shape (32, 64)",
    ),
    (wgmma(m=32), WGMMA_STEPS.format("(32, 32, 64)", "(64, 32, 64)")),
    (wgmma(m=96), WGMMA_STEPS.format("(96, 32, 64)", "(128, 32, 64)")),
    (wgmma(n=20), WGMMA_STEPS.format("(64, 20, 64)", "(64, 24, 64)")),
    (wgmma(acc="int32"), "no instruction that multiplies float16 into int32; float16 or float32 works"),
    (wgmma(dtype="int8"), "no instruction that multiplies int8 into float32; int32 works"),
    (wgmma().replace(".transpose()", ""), "mma takes A of shape (m, k), B of (k, n) and D of (m, n), and these have"),
    (
        wgmma().replace("self.wgmma", "with self.single_warp():\n    self.wgmma"),
        "wgmma is for 128 threads, four neighbouring warps; set self.attrs.warps = 4",
    ),
]


def refusal(script: type, target: str = "sm_100a") -> str:
    arguments = (64, 64, np.zeros(4, np.float16), np.zeros(4, np.float32))
    with pytest.raises(CompileError) as caught:
        build(bind(script, arguments, target=target), target)
    text = str(caught.value)
    assert text.startswith(f"Bad does not compile for {target}: ") and "\n" not in text
    assert not re.search(r"Layout\(|<class|hidet|InstructionGroup|0x[0-9a-f]{6}|site-packages", text), text
    return text


def written(folder: Path, text: str) -> Any:
    file = folder / "bad.py"
    file.write_text(text)
    return user_kernel.load(f"{file}:Bad").script_cls


TARGETED = [("sm_100a", *case) for case in CASES] + [("sm_90a", *case) for case in HOPPER_CASES]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "body", "words"), TARGETED, ids=[words[:40] for *_, words in TARGETED])
def test_a_refusal_says_what_is_wrong_and_the_statement(tmp_path: Path, target: str, body: str, words: str) -> None:
    text = SCRIPT + textwrap.indent(body, " " * 8) + "\n"
    told = refusal(written(tmp_path, text), target)
    assert words in told
    assert len(told) - len(str(tmp_path)) < 340
    (line,) = [number for number, each in enumerate(text.splitlines(), 1) if each.endswith("# here")]
    assert told.endswith(f"bad.py:{line}).")


def test_a_script_that_forgot_super(tmp_path: Path) -> None:
    text = SCRIPT.replace("super().__init__()", "self.block = 3")
    told = refusal(written(tmp_path, text))
    assert "its __init__ does not call super().__init__(), which must come first" in told
    assert told.endswith(f"bad.py:{text.splitlines().index('    def __init__(self):') + 1}).")


def test_a_script_that_hides_instructions(tmp_path: Path) -> None:
    text = SCRIPT.replace("super().__init__()", "super().__init__()\n        self.cluster = 2")
    told = refusal(written(tmp_path, text + " " * 8 + "self.cluster.sync()\n"))
    assert "an int has no sync; self.cluster has, unless __init__ keeps something of its own there" in told


def test_what_is_not_read_of_a_method_is_refused(tmp_path: Path) -> None:
    text = SCRIPT.replace("    def __init__", "    two = lambda self: 2\n\n    def __init__")
    told = refusal(written(tmp_path, text + " " * 8 + "k = self.two()\n"))
    assert "a lambda is a method of this class; write it with def" in told
    text = SCRIPT.replace("    def __call__", "    @contextlib.ContextDecorator()\n    def __call__")
    text = text.replace("import math", "import contextlib, math")
    told = refusal(written(tmp_path, text))
    assert "`__call__` has a decorator, whose own code is not read" in told


@pytest.mark.parametrize(
    ("parameter", "argument", "words"),
    [
        ("k: int32", "'a'", "the parameter k takes a number, and here is 'a'"),
        ("k: int", "n", "the parameter k takes an integer, and here is a number of the kernel; annotate it with int32"),
        ("k: RegisterTensor", "g_x", "the parameter k takes a register tensor, and here is a 2D global tensor"),
        ("k: list", "[1]", "the parameter k of a method is annotated with list; int32, ~float16,"),
    ],
)
def test_an_argument_of_a_method_of_ones_own(tmp_path: Path, parameter: str, argument: str, words: str) -> None:
    text = SCRIPT.replace(
        "    def __call__", f"    def twice(self, {parameter}):\n        return k\n\n    def __call__"
    )
    assert words in refusal(written(tmp_path, text + " " * 8 + f"k = self.twice({argument})\n"))


def test_what_tilus_has_no_translation_for_is_named(tmp_path: Path) -> None:
    told = refusal(written(tmp_path, SCRIPT + " " * 8 + "turn = ~x_ptr[0]\n"))
    assert "tilus has no translation for `x_ptr[0]`" in told


def test_more_shared_memory_than_there_is(tmp_path: Path) -> None:
    body = " " * 8 + "s_x = self.shared_tensor(dtype=float16, shape=[1024, 1024])\n"
    told = refusal(written(tmp_path, SCRIPT + body + " " * 8 + "self.sync()\n"))
    assert "bytes of shared memory, and a CTA can have 232448; fewer stages or smaller tiles take less" in told


def test_a_script_that_sets_no_warps(tmp_path: Path) -> None:
    text = SCRIPT.replace("        self.attrs.warps = 4\n", "")
    told = refusal(written(tmp_path, text))
    assert "self.attrs.warps is not set; set it in __call__, as in self.attrs.warps = 1" in told


def test_a_script_that_sets_no_warps_before_an_instruction(tmp_path: Path) -> None:
    text = (
        SCRIPT.replace("        self.attrs.warps = 4\n", "")
        + "        with self.single_warp():\n            self.sync()\n"
    )
    told = refusal(written(tmp_path, text))
    assert "self.attrs.warps is not set before the first instruction; set it first, as in" in told


def test_a_call_that_returns_several_values_needs_names(tmp_path: Path) -> None:
    method = "\n    def two(self, n: int32):\n        return n, n + 1\n"
    text = SCRIPT + "        self.two(n)  # here\n" + method
    told = refusal(written(tmp_path, text))
    assert "a call that returns 2 values stands alone; give them names" in told
    (line,) = [number for number, each in enumerate(text.splitlines(), 1) if each.endswith("# here")]
    assert told.endswith(f"bad.py:{line}).")


def test_a_class_without_source_is_told_to_move_to_a_file() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SCRIPT, "<string>", "exec", dont_inherit=True), space)  # not with this file's own annotations
    assert "put the class into a file or a notebook's cell (<string>:" in refusal(space["Bad"])


def test_what_no_phrase_covers_is_short_and_has_no_layouts() -> None:
    assert phrases.plain_sentence("Odd thing: SharedLayout(shape=[128, 33], mode_shape=[128, 33])") == "Odd thing"
    assert phrases.plain_sentence("takes ┌───┐\n│ 0 │") == "takes"
    assert phrases.plain_sentence("<class 'tilus.hidet.ir.expr.Var'> of tilus.hidet.ir.dtypes") == "Var of dtypes"
    assert len(phrases.plain_sentence("word " * 200)) <= phrases.LONGEST


def test_every_phrase_is_one_sentence() -> None:
    for template in phrases._TEMPLATES.values():
        assert not template.endswith(".") and not re.search(r"[.?!] [A-Z]", template)
    assert inspect.getdoc(phrases)
