"""The state of the machine, a file for each part. It knows nobody: who acts on it is engine.py, with semantics/."""
