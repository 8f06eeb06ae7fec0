"""Faults of tilus 0.2.0, a file each: the workaround, or the refusal in one sentence.

`tilus_compat` replaces attributes of tilus in the running process, for the time of one build. `refusals` collects the
faults of a program from every file.
"""
