"""Scales of block-scaled operands: moves them from global memory to stages of shared memory, and to tensor memory. S0
has this code in full.

An example of nvfp4, block_k = 256, 128 rows of A and 256 of B. An atom has 128 rows and 4 blocks of 16 elements. Each
number is an atom, in the order of its columns in tensor memory:

    rows of A      0  1  2  3        rows of B     0 to 127      0  2  4  6
                                                   128 to 255    1  3  5  7
    along k ->                       along k ->
"""

import tilus
from tilus import RegisterTensor, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.lang import FORMATS, BlockScaled
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED

SETS = 2
"""Number of k-tiles for whose scales tensor memory has columns."""


class ScaleAtoms(tilus.Class):
    """Scales of `rows_a` rows of A and `rows_b` rows of B, for k-tiles of `block_k`, in `stages` stages.

    dtype: a key of `lang.FORMATS`. ctas: 1, or 2 for a CTA pair; each CTA then has the scales of its rows of A and of
    all rows of B. columns: columns of tensor memory for one k-tile; the kernel allocates `SETS` times as many. nbytes:
    bytes of a stage. t_all: the kernel's allocation of tensor memory, which the kernel sets.
    """

    tcgen05 = BlockScaled()

    def __init__(
        self, dtype: str, m: int32, n: int, k: int, scale_a_ptr: void_p, scale_b_ptr: void_p,
        rows_a: int, rows_b: int, block_k: int, stages: int, ctas: int = 1,
    ):  # fmt: skip
        format = FORMATS[dtype]
        self.format = format
        self.ctas = ctas
        self.blocks = block_k // format.block
        atoms = self.blocks // 4
        atoms_a, atoms_b = BLOCK_SCALED[dtype].tile_atoms(rows_a, rows_b, block_k)
        self.rows_a, self.rows_b = 128 * atoms_a // atoms, 128 * atoms_b // atoms
        self.columns_a, self.columns_b = 4 * atoms_a, 4 * atoms_b
        self.columns = self.columns_a + self.columns_b
        self.nbytes = 512 * (atoms_a + atoms_b)
        k_atoms = cdiv(k, 4 * format.block)
        self.place: int32 = 0
        self.g_a = self.global_view(scale_a_ptr, dtype=format.scale, shape=[cdiv(m, 128), k_atoms, 2, 256])
        self.g_b = self.global_view(scale_b_ptr, dtype=format.scale, shape=[cdiv(n, 128), k_atoms, 2, 256])
        self.s_a = self.shared_tensor(dtype=format.scale, shape=[stages, atoms_a // atoms, atoms, 2, 256])
        self.s_b = self.shared_tensor(dtype=format.scale, shape=[stages, atoms_b // atoms, atoms, 2, 256])

    def load(self, stage: int32, offset_m: int32, offset_n: int32, offset_k: int32, full: RegisterTensor):
        """Load the scales of a k-tile by TMA: A's from row offset_m on, B's from row offset_n on."""
        atom: int32 = offset_k // (4 * self.format.block)
        self.tma.global_to_shared(
            src=self.g_a, dst=self.s_a[stage], offsets=[offset_m // 128, atom, 0, 0], mbarrier=full, cta_group=self.ctas
        )
        self.tma.global_to_shared(
            src=self.g_b, dst=self.s_b[stage], offsets=[offset_n // 128, atom, 0, 0], mbarrier=full, cta_group=self.ctas
        )

    def copy(self, ring: Ring, column: int32):
        """Copy the scales of the ring's stage to tensor memory; return A's and B's scales there.

        column: first column of `t_all` for scales. Two k-tiles use the columns in turns.

        The copies are asynchronous. They precede later MMAs of the same thread ("tcgen05 Memory Consistency Model"),
        and the same commit covers both. PTX does not guarantee that a copy follows MMAs that still read these columns.
        So this method waits for the commit of the MMAs two k-tiles before.
        """
        stage, wraps = ring.stage, ring.stage < SETS
        read = ring.empty_barriers[stage - SETS + (ring.stages if wraps else 0)]
        self.mbarrier.wait(read, phase=ring.phase ^ wraps, scope=ring.scope)
        column = column + self.place * self.columns
        self.place = self.place ^ 1
        t_a = self.tcgen05.slice(self.t_all, [0, column], [0, 1], [128, self.columns_a])
        t_b = self.tcgen05.slice(self.t_all, [0, column + self.columns_a], [0, 1], [128, self.columns_b])
        scale_a = self.tcgen05.view_scales(t_a, self.format.scale, rows=self.rows_a, blocks=self.blocks)
        scale_b = self.tcgen05.view_scales(t_b, self.format.scale, rows=self.rows_b, blocks=self.blocks)
        self.tcgen05.copy_scales(self.s_a[stage], scale_a, cta_group=self.ctas)
        self.tcgen05.copy_scales(self.s_b[stage], scale_b, cta_group=self.ctas)
        return scale_a, scale_b
