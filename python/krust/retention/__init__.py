"""Retention policies: their contract, the built-in ones, and the process that calls others."""
