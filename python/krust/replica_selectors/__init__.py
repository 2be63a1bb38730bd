"""Replica selectors: their contract, and the process that calls a user's one."""
