"""The finalized level of the feature `transaction.version`, read and set on a live broker."""

from __future__ import annotations

from krust._krust import Client
from tests.waiting import until

FEATURE, SAFE_DOWNGRADE = "transaction.version", 2


def finalize(bootstrap: str, level: int) -> None:
    """Set the level of `transaction.version`."""
    levels = [{"feature": FEATURE, "max_version_level": level, "upgrade_type": SAFE_DOWNGRADE}]
    body = {"timeout_ms": 60_000, "feature_updates": levels, "validate_only": False}
    answer = Client(bootstrap, {}).request("UpdateFeatures", body)
    assert answer["error_code"] == 0, answer
    until(lambda: finalized(bootstrap) == level)


def finalized(bootstrap: str) -> int:
    """The level of `transaction.version`."""
    who = {"client_software_name": "krust", "client_software_version": "1"}
    answer = Client(bootstrap, {}).request("ApiVersions", who)
    levels = {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}
    return int(levels.get(FEATURE, 0))
