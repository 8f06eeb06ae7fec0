"""Small kernels for Hopper that use wgmma in other ways than the rungs do, for the mutation study and the tests."""
