"""One call of a kernel: resolves the script, its file and helper modules, the problem and the arguments."""
