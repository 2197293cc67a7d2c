"""A budget: the epsilon and delta that may be spent."""

from dataclasses import dataclass

from honestdp import checks


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta) differential privacy under the adding or removing of one record."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        checks.probability(delta=self.delta)
