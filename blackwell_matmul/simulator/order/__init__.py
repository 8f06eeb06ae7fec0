"""What orders what: listeners that find races, missing fences and waits, each with the missing edge, and deadlocks."""
