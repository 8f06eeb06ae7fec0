"""The state of the machine, a file for each part. The engine and the semantics act on the state.

May import: frontend, simulator.
"""
