"""Long jobs as lists of independent trials, run by any executor; one file stores their results.

May import: base.
"""
