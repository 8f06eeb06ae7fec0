"""Matrices of tensor cores: shapes and block scales of tcgen05.mma, and wmma."""
