"""Other people's test suites, run against krust: `make conformance SUITE=name`."""
