"""The schedule space: resources of each schedule on a GPU, reasons why a schedule cannot run, and the predicted fastest
one.

May import: base, hardware, problem.
"""
