"""`python -m tests.acl_matrix`: ask real Kafkas again, and keep what they answer."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.acl_matrix import recorded
from tests.acl_matrix.brokers import kafka_answers
from tests.acl_matrix.matrix import WORLDS, expected

for world in WORLDS:
    if world.name not in (sys.argv[1:] or [each.name for each in WORLDS]):
        continue
    with tempfile.TemporaryDirectory() as folder:
        cells = kafka_answers(Path(folder), world)
    recorded.save(world, cells)
    print(world.name, recorded.count(cells), "cells")
    print(*recorded.differences(cells, expected(world)), sep="\n")
