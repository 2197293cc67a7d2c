"""An `AdaptiveClient` behind Flower's messages: `client_app` makes the ClientApp that a SuperNode runs.

Flower makes a client anew for every message. What it must remember (how many rounds it made, and what its rule found) is kept in
Flower's own context of the node, which never leaves it; randomness is not, for every round has fresh randomness. The server's
configuration is not read: what decides the guarantee is the client's own. There is no handler for evaluation: a score of private
records is a release of its own, which nothing here would noise, charge or state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from honestdp.checks import InvalidArgument
from honestdp.federated.client import AdaptiveClient, RoundFailed, RoundsOver
from honestdp.logs import logger

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

_log = logger(__name__)
RAISED = 2  # Flower's code of an error of a client
KEPT = "honestdp"
"""The names in Flower's context begin with it."""


def client_app(make: Callable[[Context], AdaptiveClient]) -> ClientApp:
    """Flower's ClientApp of a client. make: the client of a node, from Flower's context; called for every message.

    Needs the extra: pip install 'honestdp[federated]'.

    >>> from honestdp.federated import client_app
    >>> app = client_app(lambda context: AdaptiveClient(...))
    >>> type(app).__name__
    'ClientApp'
    """
    try:
        from flwr.clientapp import ClientApp
    except ImportError as missing:
        raise ImportError("client_app needs Flower: pip install 'honestdp[federated]'") from missing

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        try:
            client = make(context)
        except Exception as trouble:
            # A user's code, which may have read records: Flower would send its words to the server.
            return _unanswered(message, trouble)
        return answer(client, message, context)

    return app


def answer(client: AdaptiveClient, message: Message, context: Context) -> Message:
    """The client's reply to a message of training, for a ClientApp of one's own: its weights, and its declared number of records.

    A round that fails after records were read is told to the server without its cause, which stays in this node's log. It is a
    reply and not an exception: of an app that raises, Flower's simulation keeps no state, and the round would not count. What
    refuses a round before that may be told by the records too (how many there are) or by the ledger: of errors the server gets
    the words about the weights that it sent, and that all rounds are made.
    """
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

    recall(client, context)
    _, arrays = next(iter(message.content.array_records.items()))
    sent = {name: array.numpy() for name, array in arrays.items()}
    try:
        weights = client.fit(sent)
    except RoundFailed as trouble:
        _log.error("%s: %r", trouble, trouble.__cause__)
        return _error(message, str(trouble))
    except RoundsOver:
        raise
    except Exception as trouble:
        if isinstance(trouble, InvalidArgument) and trouble.argument.startswith("weights"):
            raise
        return _unanswered(message, trouble)
    finally:
        remember(client, context)
    metrics: dict[str, int | float | list[int] | list[float]] = {"num-examples": client.run.records}
    if client.step_size is not None:
        metrics["step-size"] = client.step_size
    reply = ArrayRecord({name: Array(value) for name, value in weights.items()})
    content = RecordDict({"arrays": reply, "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=message)


def _unanswered(message: Message, trouble: Exception) -> Message:
    """The reply where there is no answer. Why stays in this node's log."""
    words = "this client has no answer; why is in the log of its node"
    _log.error("%s: %r", words, trouble)
    return _error(message, words)


def _error(message: Message, words: str) -> Message:
    from flwr.app import Error, Message

    return Message(Error(code=RAISED, reason=words), reply_to=message)


def recall(client: AdaptiveClient, context: Context) -> None:
    """Let a client go on from what the node's context kept of it."""
    made = context.state.config_records.get(f"{KEPT}.rounds")
    if made is None:
        return
    kept = context.state.array_records[f"{KEPT}.rule"]
    client.resume(int(str(made["made"])), {name: array.numpy() for name, array in kept.items()})


def remember(client: AdaptiveClient, context: Context) -> None:
    """Keep in the node's context what the client needs in its next round."""
    from flwr.app import Array, ArrayRecord, ConfigRecord

    context.state[f"{KEPT}.rounds"] = ConfigRecord({"made": client.made})
    state = {name: Array(value.cpu().numpy()) for name, value in client.state().items()}
    context.state[f"{KEPT}.rule"] = ArrayRecord(state)
