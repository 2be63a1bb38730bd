"""`krust cluster features`: the finalized features of a cluster (KIP-584), on krust and on Kafka.

A level says which new behaviour all brokers may use, for example `transaction.version` 2: each
transaction has an epoch of its own (KIP-890). Clients learn it from ApiVersions. The command shows
one broker's view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from krust.cli import options as shared
from krust.cli import output, session
from krust.cli.options import KeyValue
from krust.errors import KrustError

if TYPE_CHECKING:
    from krust.cli.options import Options

UPGRADE, SAFE_DOWNGRADE = 1, 2
COLUMNS = ("feature", "lowest", "highest", "finalized", "epoch")


@click.command()
@click.argument("pairs", metavar="[FEATURE=LEVEL]...", nargs=-1, type=KeyValue())
@click.option("--downgrade", is_flag=True, help="The levels may be lower than now.")
@click.option("--dry-run", is_flag=True, help="Have it checked, and change nothing.")
@shared.client
@click.pass_obj
def features(
    options: Options, pairs: tuple[tuple[str, str], ...], downgrade: bool, dry_run: bool
) -> None:
    """Show the cluster's features, or finalize levels: all given ones, or none.

    Level 0 means that a feature is not used.
    """
    asked = session.client(options)
    if not pairs:
        output.rows(options, COLUMNS, _rows(asked.request("ApiVersions", _WHO)))
        return
    updates = [
        {
            "feature": name,
            "max_version_level": _level(text),
            "upgrade_type": SAFE_DOWNGRADE if downgrade else UPGRADE,
        }
        for name, text in pairs
    ]
    body = {"timeout_ms": options.timeout_ms, "feature_updates": updates, "validate_only": dry_run}
    answer = asked.request("UpdateFeatures", body)
    session.check(answer, "features")
    for each in answer.get("results") or ():
        session.check(each, str(each["feature"]))
    done = "would be finalized" if dry_run else "finalized"
    session.note(options, f"{done}: {', '.join('='.join(pair) for pair in pairs)}")


_WHO = {"client_software_name": "krust", "client_software_version": "1"}


def _level(text: str) -> int:
    if not text.isdecimal():
        raise KrustError(f"level {text!r} is not valid", hint="it is a number, 0 for none")
    return int(text)


def _rows(answer: dict[str, Any]) -> list[dict[str, object]]:
    """A row for each feature that the broker supports or the cluster has finalized."""
    found: dict[str, dict[str, object]] = {}
    epoch = answer.get("finalized_features_epoch", -1)
    for each in answer.get("supported_features") or ():
        levels = {"lowest": each["min_version"], "highest": each["max_version"]}
        found[each["name"]] = {"feature": each["name"], **levels, "finalized": 0}
    for each in answer.get("finalized_features") or ():
        row = found.setdefault(each["name"], {"feature": each["name"]})
        row["finalized"] = each["max_version_level"]
    return [{**row, "epoch": epoch} for _, row in sorted(found.items())]
