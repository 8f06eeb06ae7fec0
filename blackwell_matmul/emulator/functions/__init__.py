"""Device functions: their stack frames, the instruction `call`, and functions of the CUDA toolkit such as printf."""
