"""torch operations for a model's products, with autograd, under torch.compile and in CUDA graphs.

`functions.py` has the public functions, `scaled.py` `scaled_mm`, `operand_checks.py` all checks of operands.
`library.py` registers the product with torch, `gradients.py` has its backward pass. `placing.py` decides which operands
are copied, `launching.py` which kernel runs. `direct.py` decides if a call bypasses torch's dispatch. `ready.py` keeps
launches for calls like an earlier one, which then need no checks. `casting.py` applies torch.autocast, `following.py`
detects torch.func and forward mode, `counting.py` counts FLOPs. `grouped.py` has grouped products, `distributed/`
sharding rules and products that overlap with communication. `block_scaled/` has `quantize`, `dequantize` and products
with scales of blocks.

May import: base, frontend, hardware, kernels, problem, runtime, scheduling.
"""
