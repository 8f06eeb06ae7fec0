"""What this machine can do with the kernels of this package, and what stands in the way.

`facts` asks the machine once; `diagnosis_lines` turns the facts into a diagnosis, one function a line. `verify` does
not ask but tries: each layer compiles, runs and compares in a process of its own.
"""
