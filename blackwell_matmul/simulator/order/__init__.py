"""Checks of the order: listeners that find races, missing fences and waits, each with its edge, and deadlocks."""
