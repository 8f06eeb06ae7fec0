"""Finds races, missing fences and deadlocks of PTX that the emulator runs, by PTX's memory consistency model.

A listener of the emulator with state of its own. `clocks` says what lanes know, `agents` who acts, `shadow` who
accessed each byte last, `barriers` what a barrier carries, `judging` which unordered accesses are findings.
"""
