"""From a Program's tile view to Python, once.

May import: base, frontend, simulator, simulator.machine, simulator.semantics.
"""
