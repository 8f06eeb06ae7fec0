"""A kernel reads what the grid before it writes, before it waits for that grid."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="A tile scheduler reads problem shapes before griddepcontrol.wait, while the grid before may still "
    "write them",
    sources=("https://github.com/NVIDIA/cutlass/issues/2962",),
    says="The group scheduler's constructor reads the first problem shape from global memory, ahead of the wait "
    "for dependent grids: a race with programmatic dependent launch.",
    guess="That the array is written by the grid before is possible in the source, and certain here.",
    section="griddepcontrol",
    ptx=Ptx(
        """
ld.global.b32 %r10, [%base]; //-
griddepcontrol.wait;
ld.global.b32 %r10, [%base]; //+
add.u32 %r10, %r10, %t; st.global.b32 [%out+4096], %r10;
""",
        "(access-before-grid-wait)",
        missing="whether the grid before writes there is not in the PTX, and check_ptx runs one grid",
    ),
)
