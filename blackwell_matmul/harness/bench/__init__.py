"""Benchmarks on a GPU: participants (`contenders`), problems (`suites`), method (`protocol`), results (`results`).
`session` runs them in child processes (`jobs.worker`, `tasks`).
"""

TASKS = f"{__name__}.tasks"
"""Module of the tasks, which workers import before there is work."""
