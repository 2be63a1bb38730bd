"""Assignors: their contract (`assignor`), the built-in ones, and how others are found."""
