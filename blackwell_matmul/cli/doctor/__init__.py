"""Diagnosis of this machine: features for this package's kernels, and problems.

`facts` queries the machine once. `diagnosis_lines` derives the diagnosis from the facts, one function for each line.
`verify` compiles, runs and compares each layer in a process of its own.
"""
