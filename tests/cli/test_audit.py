"""The audit: refusals and administrative operations are log lines of `krust.audit`."""

from __future__ import annotations

import logging

import pytest

import krust
from krust.errors import KafkaError
from tests.waiting import until

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def test_a_refusal_names_user_address_api_operation_and_resource(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "krust.audit")
    settings = {**SETTINGS, "super.users": "User:admin"}
    with krust.Broker(config=settings) as broker:
        with pytest.raises(KafkaError, match=r"opic authorization failed"):
            krust.Admin({"bootstrap.servers": broker.bootstrap}).create_topic("plans")
        line = 'denied user="ANONYMOUS" host=127.0.0.1 api="CreateTopics" operation=Create '
        line += 'resource=Topic name="plans"'
        until(lambda: line in lines(caplog))


def test_what_a_super_user_changes_is_noted_and_what_it_reads_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "krust.audit")
    with krust.Broker(config=SETTINGS) as broker:
        admin = krust.Admin({"bootstrap.servers": broker.bootstrap})
        admin.create_topic("plans")
        assert admin.topics() == {"plans": 1}
        admin.delete_topic("plans")
        until(lambda: len(lines(caplog)) == 2)
        assert all(line.startswith('allowed user="ANONYMOUS"') for line in lines(caplog))
        assert ["CreateTopics" in lines(caplog)[0], "DeleteTopics" in lines(caplog)[1]] == [
            True
        ] * 2


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "krust.audit"]
