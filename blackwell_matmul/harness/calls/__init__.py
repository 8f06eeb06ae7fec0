"""One call of a kernel: the script that is meant, its file and helpers, the problem, the arguments."""
