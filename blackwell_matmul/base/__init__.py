"""Foundations of all rooms: errors, checks of values, files written whole, digests, records, processes, Ctrl-C.

`moved` keeps old module names working.

May import: nothing of this package.
"""
