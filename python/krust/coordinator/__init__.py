"""Groups as pure policy: no thread, clock, socket or file; the standard library only."""
