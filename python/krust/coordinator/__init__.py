"""Decisions about groups, as pure functions: no thread, clock, socket or file.

It imports the standard library, and of krust only error codes and message types. Start reading at
`group_coordinator.py`.
"""
