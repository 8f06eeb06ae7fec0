"""Lowering: a Program's tile view becomes Python, once.

May import: base, frontend, simulator, simulator.machine, simulator.semantics.
"""
