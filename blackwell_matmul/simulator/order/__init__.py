"""Happens-before over the instructions' descriptions: races, missing fences and waits, each with the missing edge."""
