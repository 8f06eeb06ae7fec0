"""Device functions: their frames, the instruction `call`, and the functions that the CUDA toolkit promises."""
