"""Groups as pure policy: no thread, clock, socket or file; the standard library only.

The way in is "krust.coordinator.group_coordinator".
"""
