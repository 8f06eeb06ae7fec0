"""Happens-before: listeners that find races, missing fences, missing waits and deadlocks, each with the missing edge.

`missing/` searches for that edge, one kind of edge a file.

May import: frontend, simulator, simulator.lowering, simulator.machine, simulator.semantics.
"""
