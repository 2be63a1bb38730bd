"""What a broker registers, and the decisions of its start and stop."""

import pytest

from krust.config import load
from krust.controller import registration
from krust.controller.entities import LiveBroker
from krust.controller.state import ControllerState
from krust.errors import ServerError


def state(**options: object) -> ControllerState:
    return ControllerState(load(options={**options}), lambda: "id", 7)


def test_an_address_for_all_addresses_is_advertised_as_the_name_of_the_host() -> None:
    endpoints = [("A", "0.0.0.0", 1), ("B", "::", 2), ("C", "10.0.0.1", 3)]
    assert registration.advertised(endpoints, "host") == [
        ("A", "host", 1),
        ("B", "host", 2),
        ("C", "10.0.0.1", 3),
    ]


def test_a_broker_asks_the_controller_to_move_its_leaderships_before_it_stops() -> None:
    broker = state()
    broker.brokers |= {7: LiveBroker(), 8: LiveBroker()}
    broker.set_controller(8)
    broker.broker_epoch = 30
    request = registration.controlled_shutdown(broker)
    assert request is not None
    assert (request.broker, request.api) == (8, "ControlledShutdown")
    assert request.message == {"broker_id": 7, "broker_epoch": 30}


def test_a_broker_alone_and_one_whose_settings_forbid_it_ask_for_no_controlled_shutdown() -> None:
    alone = state()
    alone.brokers[7] = LiveBroker()
    alone.broker_epoch = 30
    assert registration.controlled_shutdown(alone) is None
    forbidden = state(**{"controlled.shutdown.enable": "false"})
    forbidden.brokers |= {7: LiveBroker(), 8: LiveBroker()}
    forbidden.broker_epoch = 30
    assert registration.controlled_shutdown(forbidden) is None


def test_a_broker_that_is_not_registered_asks_for_no_controlled_shutdown() -> None:
    starting = state()
    starting.brokers |= {7: LiveBroker(), 8: LiveBroker()}
    starting.set_controller(8)
    assert registration.controlled_shutdown(starting) is None


def test_a_start_with_directories_of_another_cluster_is_refused() -> None:
    broker = state()
    broker.cluster_id = "mine"
    registration.check_cluster_id(broker, None, "its store")
    registration.check_cluster_id(broker, "mine", "its store")
    with pytest.raises(ServerError, match="belongs to cluster other, its store to cluster mine"):
        registration.check_cluster_id(broker, "other", "its store")
