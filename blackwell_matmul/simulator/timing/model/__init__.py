"""The model of time: a clock for each warp, servers for each part of an SM, the traffic of the memory."""
