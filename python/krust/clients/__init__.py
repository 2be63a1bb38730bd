"""Clients of any Kafka: `Producer`, `Consumer`, `Admin`, and clients with older APIs.

Settings are Kafka's keys, in a dict or as keywords: `{"linger.ms": 5}` is `linger_ms=5`. A client
cannot be used in a process that was forked after its creation: every call raises ForkedError.
"""

from __future__ import annotations

import os

from krust import _krust

os.register_at_fork(after_in_child=_krust.forked)
