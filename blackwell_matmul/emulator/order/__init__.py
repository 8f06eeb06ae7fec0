"""Checks of races, missing fences and deadlocks in PTX that the emulator runs, by PTX's memory consistency model.

A listener of the emulator with state of its own. `clocks`: what lanes have observed. `agents`: lanes and streams of
operations. `last_accesses`: those to each byte. `barriers`: what a barrier carries. `judging`: which unordered
accesses are findings.
"""
