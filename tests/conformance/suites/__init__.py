"""One file per foreign suite. Each has `SETTINGS` (for its broker), `NEEDS` (programs on PATH),
`prepare(cache)` (gets the suite from its package registry, once) and `run(cache, access)`, which
gives `{test: passed}`; a test that skipped itself is left out. Where it must: `PORT`, its broker's
port, `ONE_BROKER`, the tests that hold only where there is no other broker, `LISTENERS`, the
protocols that its clients can be told to use, and `NO_TLS`, the tests that cannot use TLS.
"""
