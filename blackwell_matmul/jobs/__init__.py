"""Long jobs as lists of independent trials: any executor runs them, and one file keeps what they give.

May import: base.
"""
