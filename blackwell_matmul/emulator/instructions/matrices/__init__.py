"""Matrices of the tensor cores: shapes of tcgen05.mma and block scales, and wmma, whose registers PTX leaves open."""
