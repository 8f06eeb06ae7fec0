"""Events around a finding, and timelines of one SM.

May import: base, frontend, simulator, simulator.machine.
"""
