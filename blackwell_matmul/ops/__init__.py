"""Operations of torch: products of what a model multiplies, with autograd, under torch.compile and in CUDA graphs.

`functions.py` has what a user calls, `library.py` what torch is told, `gradients.py` the other direction, `sharding.py`
how they are sharded; `placing.py` says what is read where it is and what is copied, `launching.py` which kernel runs,
`direct.py` when it is called without torch's dispatch and `eager.py` how, `casting.py` what torch.autocast makes of
operands. `following.py` says which tensors torch.func and forward mode follow, `counting.py` how much a product
computes.
`grouped.py` has the products of groups of rows, in both directions; `overlap.py` products whose rows travel between
processes meanwhile, as `exchanges.py` sends them.

May import: base, frontend, hardware, kernels, problem, runtime, schedules.
"""
