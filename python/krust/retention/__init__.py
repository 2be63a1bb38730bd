"""Which old segments may go: policies as plain objects, the built-in ones, and where they run."""
