"""Brokers for tests: the pytest plugin (`plugin.py`) and nothing that a running broker needs."""
