"""Limits and figures of GPUs, and the GPUs of this machine as the CUDA driver reports them.

The files of figures/ have each number with its unit and source.

May import: base.
"""
