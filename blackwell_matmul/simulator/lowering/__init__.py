"""From a Program's tile view to Python, once."""
