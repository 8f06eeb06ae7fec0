"""Long jobs as lists of independent trials, and the processes that run them.

`worker` runs a task in a child process that may crash or hang; `fork_server` starts the children. `handing_out` submits
a list of trials: for the pool of `worker`, and for `running_trials` on any of the `executors`. `row_file` stores
results.

May import: base.
"""
