"""Diagnosis of this machine: packages, GPUs and their features, and problems.

`facts` queries the machine once. `diagnosis_lines` has a function for each line of the diagnosis, which reads the
facts. `verify` runs the checks of each layer (`checks`) in a new process.
"""
