"""Happens-before: listeners that find races, missing fences, missing waits and deadlocks, each with the missing edge.

May import: frontend, simulator, simulator.lowering, simulator.machine, simulator.semantics.
"""
