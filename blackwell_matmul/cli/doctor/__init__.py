"""Diagnosis of this machine: features for this package's kernels, and problems.

`facts` queries the machine once. `diagnosis_lines` makes the diagnosis of the facts, one function a line. `verify`
compiles, runs and compares each layer in a process of its own.
"""
