"""Predicted time: the same program, with service times on the parts of an SM and the memory it shares.

May import: base, frontend, hardware, problem, simulator, simulator.lowering, simulator.machine, simulator.replay,
simulator.semantics, simulator.trace.
"""
