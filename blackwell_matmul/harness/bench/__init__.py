"""Benchmarks on a GPU: participants (`contenders`), problems (`suites`), method (`protocol`), results (`results`).
`session` runs them in child processes (`workers`, `child`, `tasks`).
"""
