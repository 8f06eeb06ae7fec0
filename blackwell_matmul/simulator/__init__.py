"""The machine on a CPU: it computes the values, checks the ordering and reports. It knows no kernel."""

from blackwell_matmul.simulator.findings import Event, Finding, Run, Severity
from blackwell_matmul.simulator.simulate import simulate

__all__ = ["Event", "Finding", "Run", "Severity", "simulate"]
