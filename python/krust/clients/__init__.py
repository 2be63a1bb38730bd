"""Clients of any Kafka: `Producer`, `Consumer`, `Admin`, and the older ones' APIs beside them.

Settings are Kafka's keys, in a dict or as keywords: `{"linger.ms": 5}` is `linger_ms=5`. No client
may be used in a process forked after it was made: every call there raises ForkedError.
"""

from __future__ import annotations

import os

from krust import _krust

os.register_at_fork(after_in_child=_krust.forked)
