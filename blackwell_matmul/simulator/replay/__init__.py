"""CTAs that repeat the steps of an earlier CTA: only their values are computed.

May import: simulator, simulator.lowering, simulator.machine, simulator.semantics.
"""
