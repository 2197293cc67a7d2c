"""Galli et al. 2024: networks of the printed sizes, noises, parts that train, verdicts that follow the numbers."""

from __future__ import annotations

import pytest
import torch

from honestdp_papers.galli2024 import setting
from honestdp_papers.galli2024.setting import AG_NEWS, FASHION, MNIST, STANDIN, UNSTRIDED, Task


@pytest.mark.parametrize("task", [MNIST, FASHION, UNSTRIDED, AG_NEWS, STANDIN], ids=lambda task: task.name)
def test_a_network_has_exactly_the_printed_number_of_weights_and_the_right_output(task: Task) -> None:
    network = task.make()
    assert sum(weights.numel() for weights in network.parameters()) == task.weights
    x = torch.zeros(2, 1, 28, 28) if task.image else torch.zeros(2, 750)
    assert network(x).shape == (x.shape if task.error else (2, 4 if task.name.startswith("ag") else 10))


def test_weights_steps_and_looks_are_those_of_table_1() -> None:
    assert [task.weights for task in (MNIST, FASHION, AG_NEWS)] == [551322, 48705, 113156]
    assert [task.steps for task in (MNIST, FASHION, AG_NEWS)] == [1172, 1172, 2344]
    assert [round(setting.EPOCHS * task.records / task.lot) for task in (MNIST, FASHION, STANDIN)] == [1172, 1172, 2344]
    assert MNIST.looks[:2] == (50, 100)
    assert MNIST.looks[-2:] == (1150, 1172)
    assert STANDIN.run(1.0).rate == pytest.approx(AG_NEWS.run(1.0).rate)
    assert setting.step_sizes(7) == pytest.approx([0.003162, 0.01468, 0.06813, 0.3162, 1.468, 6.813, 31.62], rel=1e-3)
    assert setting.clips(7) == pytest.approx([0.01, 0.0464, 0.2154, 1.0, 4.64, 21.54, 100.0], rel=1e-2)
