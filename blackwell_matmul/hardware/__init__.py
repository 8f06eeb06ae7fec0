"""The GPUs: their limits and figures, each with its source, and those of this machine as the CUDA driver reports them.

May import: base.
"""
