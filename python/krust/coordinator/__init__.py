"""Groups as pure policy: no thread, clock, socket or file; of krust only error codes
and message types, else the standard library.

The way in is "krust.coordinator.group_coordinator".
"""
