"""What others make of the same work: Triton's persistent matmul and torch.compile, for `bench --baselines`, and the TMA
primitives in Triton, for the studies. Each file can be loaded alone and knows no other room.
"""
