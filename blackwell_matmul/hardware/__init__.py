"""The GPUs: their limits and figures, each with its source, and those of this machine as the CUDA driver reports them.

A number of a GPU goes into a file of figures/.

May import: base.
"""
