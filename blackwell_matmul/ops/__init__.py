"""torch operations for a model's products, with autograd, under torch.compile and in CUDA graphs.

`functions.py` has the public functions, `scaled.py` `scaled_mm`, `operand_checks.py` all checks of operands.
`library.py` has the product, and its registration with torch; `gradients.py` the backward pass, `sharding.py` the
sharding rules. `placing.py` decides which operands are copied, `launching.py` which kernel runs. `direct.py` decides if
a call may bypass torch's dispatch, `ready.py` if its kind is known, so that it is launched without checks.
`casting.py` applies torch.autocast. `following.py` detects torch.func and forward mode, `counting.py` counts FLOPs.
`grouped.py` has grouped products, forward and backward. `overlap.py` has products overlapped with communication by
`exchanges.py`. `block_scaled/` has `quantize`, `dequantize` and products with scales of blocks.

May import: base, frontend, hardware, kernels, problem, runtime, scheduling.
"""
