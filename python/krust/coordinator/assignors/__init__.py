"""Assignors: their contract (`spec`), the built-in ones, and how others are found."""
