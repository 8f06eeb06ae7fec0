"""Operations of torch: products of what a model multiplies, with autograd, under torch.compile and in CUDA graphs.

`functions.py` has what a user calls, `library.py` what torch is told, `gradients.py` the other direction; `placing.py`
says what is read where it is and what is copied first, `launching.py` which kernel runs.
"""
