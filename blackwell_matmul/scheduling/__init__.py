"""The schedule space: what each schedule takes on a GPU, why a schedule cannot run, and the predicted fastest.

May import: base, hardware, problem.
"""
