"""Python in a script: names, operators and statements have Python's meaning, or are refused (docs/python.md)."""
