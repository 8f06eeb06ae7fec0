"""Foundations of all rooms: errors, checks of values, atomic file writes, digests, records, processes, Ctrl-C.

`moved` keeps old module names working.

May import: nothing of this package.
"""
