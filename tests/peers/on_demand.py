"""The marks of tests that start a whole Kafka: they run where KRUST_KAFKA_CLUSTER=1 asks for it."""

from __future__ import annotations

import os

import pytest

OF_KAFKA = [
    pytest.mark.java,
    pytest.mark.timeout(600),
    pytest.mark.skipif("KRUST_KAFKA_CLUSTER" not in os.environ, reason="KRUST_KAFKA_CLUSTER=1"),
]
