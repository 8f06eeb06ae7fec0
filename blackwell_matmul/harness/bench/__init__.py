"""Measuring on a GPU: who takes part (`contenders`), on what (`suites`), how (`protocol`), and what was found
(`results`). `session` runs it, with the work in child processes (`workers`, `child`, `tasks`).
"""
