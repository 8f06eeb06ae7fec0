"""Checks for races, missing fences and deadlocks in PTX during emulation, by PTX's memory consistency model.

The checks are a listener of the emulator with its own state. `clocks`: accesses that lanes have observed. `agents`:
lanes and streams of operations. `last_accesses`: last accesses to each byte. `barriers`: clocks that a barrier passes
on. `judging`: findings for unordered accesses.
"""
