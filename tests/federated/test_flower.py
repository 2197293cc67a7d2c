"""The client behind Flower's own messages and its FedAvg, without its simulation engine."""

from __future__ import annotations

import doctest
import random
from typing import Any

import numpy as np
import pytest

flwr = pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

import honestdp  # noqa: E402
from honestdp import Compute  # noqa: E402
from honestdp.federated import Federation, RoundsOver, client_app, flower  # noqa: E402
from tests.federated.small import RECORDS, client, records_of, start  # noqa: E402

CLIENTS, ROUNDS = 3, 3


@pytest.fixture(scope="module", autouse=True)
def a_server() -> None:
    """Flower's messages name who sends them."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def context_of(place: int) -> Context:
    return Context(run_id=1, node_id=place, node_config={"partition-id": place}, state=RecordDict(), run_config={})


def arrays_of(weights: dict[str, Any]) -> ArrayRecord:
    return ArrayRecord({name: Array(value) for name, value in weights.items()})


def message_to(place: int, arrays: ArrayRecord, **config: Any) -> Message:
    content = RecordDict({"arrays": arrays, "config": ConfigRecord(config)})
    return Message(content, dst_node_id=place, message_type="train")


def federated(noise: float) -> tuple[dict[str, Any], list[Message], list[Context]]:
    """Rounds of Flower's FedAvg; a client is made anew for every message, as Flower's engines do."""
    app = client_app(
        lambda context: client(context.node_config["partition-id"], noise=noise, noise_seed=context.node_id)
    )
    strategy, contexts = FedAvg(), [context_of(place) for place in range(CLIENTS)]
    arrays, replies = arrays_of(start()), []
    for number in range(1, ROUNDS + 1):
        replies = [app(message_to(place, arrays), contexts[place]) for place in range(CLIENTS)]
        random.Random(number).shuffle(replies)
        averaged, _ = strategy.aggregate_train(number, replies)
        assert averaged is not None
        arrays = averaged
    return {name: array.numpy() for name, array in arrays.items()}, replies, contexts


@pytest.fixture(scope="module", params=[0.0, 1.0], ids=["paper", "private"])
def ran(request: pytest.FixtureRequest) -> tuple[float, dict[str, Any], list[Message], list[Context]]:
    return request.param, *federated(request.param)


def test_flower_and_the_federation_give_the_same_weights(ran: Any) -> None:
    noise, weights, _, _ = ran
    together = Federation([client(place, noise=noise, noise_seed=place) for place in range(CLIENTS)]).train(ROUNDS)
    assert set(weights) == set(together)
    for name in together:
        np.testing.assert_allclose(weights[name], together[name], rtol=0, atol=1e-9)


def test_what_leaves_a_client_are_its_weights_its_declared_records_and_its_step_size(ran: Any) -> None:
    for reply in ran[2]:
        assert set(reply.content) == {"arrays", "metrics"}
        assert set(reply.content["arrays"]) == set(start())
        metrics = dict(reply.content["metrics"])
        assert set(metrics) == {"num-examples", "step-size"}
        assert metrics["num-examples"] == RECORDS


def test_the_node_remembers_how_many_rounds_it_made_and_refuses_more(ran: Any) -> None:
    context = ran[3][0]
    assert context.state["honestdp.rounds"]["made"] == ROUNDS
    app = client_app(lambda context: client(0, noise=1.0, rounds=ROUNDS))
    with pytest.raises(RoundsOver):
        app(message_to(0, arrays_of(start())), context)


def test_no_configuration_of_the_server_changes_what_a_client_does() -> None:
    replies = []
    for config in ({}, {"noise": 0.0, "clip": 1e9, "rounds": 1000, "steps": 1000, "lot": 60, "lr": 5.0}):
        app = client_app(lambda context: client(0, noise_seed=4))
        replies.append(app(message_to(0, arrays_of(start()), **config), context_of(0)))
    first, second = (reply.content["arrays"] for reply in replies)
    assert all(np.array_equal(first[name].numpy(), second[name].numpy()) for name in first)


class Undecodable:
    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> Any:
        raise RuntimeError("record 12345 cannot be decoded")


def test_the_server_is_told_that_a_round_failed_and_not_why() -> None:
    """What Flower sends of an error are its words and those of the errors behind it."""
    app, context = client_app(lambda context: client(0, data=Undecodable(), compute=Compute(workers=0))), context_of(0)
    reply = app(message_to(0, arrays_of(start())), context)
    assert reply.has_error()
    assert not reply.has_content()
    assert reply.error.reason is not None
    assert reply.error.reason.startswith("round 1 failed")
    assert "12345" not in repr(reply)
    assert context.state["honestdp.rounds"]["made"] == 1


def unready(context: Context) -> Any:
    """A client that holds fewer records than it declares."""
    x, y = records_of(0)
    return client(0, data=(x[:59], y[:59]))


def unreadable(context: Context) -> Any:
    raise ValueError("line 59 of the records: 'Alice' is no number")


@pytest.mark.parametrize("make", [unready, unreadable])
def test_the_server_is_not_told_why_a_client_makes_no_round(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Flower sends the words of whatever an app raises."""
    context = context_of(0)
    reply = client_app(make)(message_to(0, arrays_of(start())), context)
    assert reply.error.reason == "this client has no answer; why is in the log of its node"
    assert "59" in caplog.text  # its owner's


def test_the_server_is_told_what_is_wrong_with_its_weights() -> None:
    sent = start()
    del sent["0.bias"]
    with pytest.raises(honestdp.errors.InvalidArgument, match=r"0\.bias"):
        client_app(lambda context: client(0))(message_to(0, arrays_of(sent)), context_of(0))


def test_the_example_runs() -> None:
    assert doctest.testmod(flower) == (0, 3)


def test_there_is_no_door_to_a_score_of_private_records() -> None:
    app = client_app(lambda context: client(0))
    content = RecordDict({"arrays": arrays_of(start()), "metrics": MetricRecord({})})
    with pytest.raises(ValueError, match="evaluate"):
        app(Message(content, dst_node_id=0, message_type="evaluate"), context_of(0))
