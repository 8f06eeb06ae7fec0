"""One call of a kernel: finds the script, its file and helper modules, the problem and the arguments."""
