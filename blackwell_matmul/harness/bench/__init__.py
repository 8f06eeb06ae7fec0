"""Benchmarks on a GPU. `contenders` has the participants, `suites` the problems, `protocol` the method of timing,
`results` the results. `session` runs a benchmark; child processes (`jobs.worker`) run its `tasks`.
"""

TASKS = f"{__name__}.tasks"
"""Name of the module of tasks, which workers import before their first task."""
