"""What only a GPU can show of the engine, each a check that prints its finding and counts if it fails.

    PYTHONPATH=src python -m tests.gpu_checks

Needs torch and numpy alone (safetensors for the checkpoint). The tests proper run on any machine; these are about
capture: that replayed steps draw new noise, agree with eager ones, handle overlong lots, need nothing of the host,
survive lack of memory and resume bit for bit.
"""

from __future__ import annotations

import gc
import math
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from honestdp import Compute, Run
from honestdp import kernels as own_kernels
from honestdp import optimizers as rules
from honestdp.boundary.capture import UNROLL
from honestdp.boundary.noise import noise_source, torch_generator
from honestdp.boundary.query import Constants, Query
from honestdp.boundary.records import Examples
from honestdp.boundary.release import release
from honestdp.boundary.rounding import grid
from honestdp.boundary.sampling import PendingLots
from honestdp.boundary.seed import Seed
from honestdp.gradients import ModelWritten, Untouched
from honestdp.gradients.layout import layout_of, stack
from honestdp.losses import cross_entropy
from honestdp.training.population import Population
from honestdp.training.spec import TrainSpec
from honestdp.training.train import Interrupted, assemble, train, train_population

from .kernels.fused_kernels import compare
from .mnist_models import MODELS
from .toy_training import MeanOfTokens, moved, opposite_tokens, squared, vetted_of

CUDA = torch.device("cuda")
RECORDS = 6000
EVERY_RULE = [
    rules.SGD(lr=0.1, clip=1.0),
    rules.SGD(lr=0.1, clip="auto"),
    rules.Momentum(lr=0.1, momentum=0.9, clip=1.0),
    rules.Adam(clip=1.0),
    rules.AdamWOSM(clip=1.0),
    rules.ADADP(clip=1.0, accept=True),
    rules.OSO(lr=0.1),
    rules.OSO(lr=0.1, momentum=0.9, proportional=True),
    rules.OSO(lr=0.1, automatic=True),
    rules.AdamOSO(),
    rules.Quantile(lr=0.1),
    rules.Horizon(),
    rules.Horizon(average=True),
]


def data() -> tuple[Tensor, Tensor]:
    maker = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (RECORDS, 784), dtype=torch.uint8, generator=maker)
    return x.to(CUDA), torch.randint(0, 10, (RECORDS,), generator=maker).to(CUDA)


def population(
    optimizers: list[rules.Rule],
    *,
    noise: float,
    steps: int = 200,
    lot: float = 100,
    captured: bool = True,
    model: str = "",
) -> Population:
    torch.manual_seed(0)
    made = MODELS[model or "logistic regression"]()
    run = Run(records=RECORDS, lot=lot, steps=steps, noise=noise)
    job = assemble(
        made, data(), run=run, optimizers=optimizers, spec=TrainSpec(compute=Compute(device=CUDA), noise_seed=5)
    )
    found = job.population(list(range(len(optimizers))))
    found._mechanism._capturable = captured
    return found


def finish(one: Population) -> Tensor:
    while one.step < one.total:
        one.block()
    return one.weights().clone()


def captured_agrees_with_eager_without_noise() -> str:
    worst = 0.0
    for model in MODELS:
        for rule in EVERY_RULE if model == "logistic regression" else EVERY_RULE[:1]:
            if isinstance(rule, rules.AdamWOSM):
                continue  # its step size is undefined without noise
            pair = []
            for captured in (True, False):
                one = population([rule] * 3, noise=0.0, steps=40, captured=captured, model=model)
                pair.append(finish(one))  # before the next is made: both draw from the same seed
                graph = one._mechanism._captured is not None
                assert graph is captured or model != "logistic regression", f"{rule}: graph {graph}, asked {captured}"
            worst = max(worst, ((pair[0] - pair[1]).norm() / pair[1].norm()).item())
    assert worst < 5e-3, worst  # the model's products keep 11 binary digits, and shapes decide how they are rounded
    return f"weights after 40 steps differ by {worst:.1e} relative at most"


def captured_agrees_with_eager_with_the_same_noise() -> str:
    pair = [finish(population([rules.AdamWOSM(clip=1.0)] * 3, noise=1.0, steps=72, captured=c)) for c in (True, False)]
    difference = ((pair[0] - pair[1]).norm() / pair[1].norm()).item()
    assert difference < 1e-3, difference
    return f"weights after 72 noisy steps differ by {difference:.1e} relative"


def every_replay_draws_new_noise() -> str:
    """With next to no records per lot the weights are a random walk: its increments must be independent normals."""
    one = population([rules.SGD(lr=1.0, clip=1.0)] * 4, noise=1.0, steps=64 * 8, lot=1e-6)
    places = [one.params.clone()]
    while one.step < one.total:
        one.block()
        places.append(one.params.clone())
    moves = torch.stack(places).diff(dim=0) * 1e-6 / math.sqrt(64)
    flat = moves.flatten(2)
    correlation = torch.corrcoef(flat.reshape(-1, flat.shape[-1]).double()) - torch.eye(
        32, device=CUDA, dtype=torch.float64
    )
    assert correlation.abs().max() < 6 / math.sqrt(flat.shape[-1]), correlation.abs().max()
    spread = moves.std().item()
    assert abs(spread - 1) < 0.01, spread
    return f"8 blocks x 4 runs: largest correlation {correlation.abs().max().item():.3f}, spread {spread:.4f}"


def unrolled_steps_draw_different_noise() -> str:
    """One replay makes 8 steps; if they shared their noise, its sum would be 8 and not sqrt(8) times as large."""
    one = population([rules.SGD(lr=1.0, clip=1.0)], noise=1.0, steps=UNROLL, lot=1e-6)
    start = one.params.clone()
    spread = ((finish(one) - start) * 1e-6 / math.sqrt(UNROLL)).std().item()
    assert abs(spread - 1) < 0.05, spread
    return f"spread of {UNROLL} steps {spread:.3f} in units of sqrt({UNROLL})"


def overlong_lots_are_not_truncated() -> str:
    wide = population([rules.SGD(lr=0.5, clip=0.1)] * 4, noise=0.5, steps=128)
    narrow = population([rules.SGD(lr=0.5, clip=0.1)] * 4, noise=0.5, steps=128)
    narrow._mechanism._width = 108  # a standard deviation above the mean: most replays must give way to eager steps
    a, b = finish(wide), finish(narrow)
    difference = ((a - b).norm() / a.norm()).item()
    assert difference < 1e-3, difference
    return f"weights differ by {difference:.1e} relative"


def replays_need_nothing_of_the_host() -> str:
    one = population([rules.Adam(clip=1.0)] * 4, noise=1.0, steps=10_000)
    one.block()
    one._mechanism._start(64)
    lots, params, state = one._mechanism._lots(), one.params, one.state
    torch.cuda.set_sync_debug_mode("error")
    try:
        for first in range(0, 64, UNROLL):
            params, state = one._mechanism._replayed(params, state, lots, first)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "64 steps without a synchronisation"


def lots_on_the_gpu_are_poisson() -> str:
    lots = PendingLots(torch_generator(CUDA, Seed.fresh()), records=500, rate=0.1, steps=4000, runs=4).finish()
    present = torch.arange(lots.indices.shape[-1], device=CUDA) < lots.counts[..., None]
    counts = torch.bincount(lots.indices[present], minlength=500).double()
    statistic = ((counts - 1600) ** 2 / (1600 * 0.9)).sum().item()
    assert abs(statistic - 500) < 6 * math.sqrt(2 * 500), statistic
    variance = lots.counts.double().var().item() / (500 * 0.1 * 0.9)
    assert abs(variance - 1) < 0.06, variance
    return f"chi-square {statistic:.0f} for 500 records; variance of the sizes {variance:.3f} of the binomial"


def no_record_exceeds_the_clip_in_short_products() -> str:
    """One record a lot, no noise: L times the release is that record's part of the sum."""
    runs, clip = 200, 0.5
    torch.manual_seed(3)
    maker = MODELS["one hidden layer of 100"]
    job = assemble(
        [maker for _ in range(runs)],
        (torch.randint(0, 256, (runs, 784), dtype=torch.uint8), torch.randint(0, 10, (runs,))),
        run=Run(records=runs, lot=1, steps=1, noise=0.0),
        optimizers=[rules.SGD(lr=1.0, clip=clip)] * runs,
        spec=TrainSpec(compute=Compute(device=CUDA)),
    )
    made = job.population(list(range(runs)))
    mechanism = made._mechanism
    lots = torch.arange(runs, device=CUDA)[:, None]
    example = mechanism._examples(lots, torch.ones_like(lots, dtype=torch.bool))
    released = mechanism._release([example], made.params, Query(clip=torch.full((runs,), clip, device=CUDA)))
    largest = released.gradient.double().norm(dim=1).max().item()
    assert largest <= clip, largest
    assert largest > 0.99 * clip, largest
    return f"largest of {runs} parts: {largest / clip:.5f} of the clip"


def lack_of_memory_halves_the_chunk() -> str:
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(CUDA).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_reserved() + 400 * 2**20) / total))
    try:
        model = nn.Sequential(nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 10))
        run = Run(records=RECORDS, lot=100, steps=20, noise=1.0)
        results = train_population(
            model,
            data(),
            run=run,
            optimizers=[rules.SGD(lr=0.1, clip=1.0)] * 32,
            compute=Compute(device=CUDA),
            noise_seed=1,
        )
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    assert all(torch.isfinite(p).all() for r in results for p in r.model.parameters())
    return f"{len(results)} runs of 795010 parameters trained inside 400 MiB"


def a_checkpoint_resumes_bit_for_bit() -> str:
    run = Run(records=RECORDS, lot=100, steps=500, noise=1.0)

    def weights(path: str | None) -> Tensor:
        torch.manual_seed(0)
        results = train_population(
            MODELS["one hidden layer of 100"](),
            data(),
            run=run,
            optimizers=[rules.Adam(clip=1.0), rules.Adam(clip=0.1), rules.OSO(lr=0.1)],
            compute=Compute(device=CUDA, checkpoint=path, checkpoint_seconds=0.0),
            noise_seed=3,
        )
        return torch.stack([torch.cat([p.flatten() for p in r.model.parameters()]) for r in results])

    expected = weights(None)
    true, count = Population.block, [0]

    def block(self: Population, **named: int | None) -> None:
        count[0] += 1
        if count[0] in (3, 12):
            raise KeyboardInterrupt
        true(self, **named)

    stops = 0
    with tempfile.TemporaryDirectory() as folder:
        Population.block = block
        try:
            while True:
                try:
                    found = weights(f"{folder}/kept")
                    break
                except Interrupted:
                    stops += 1
        finally:
            Population.block = true
    assert stops == 2, stops
    assert found.equal(expected), (found - expected).abs().max()
    return "two interruptions, equal in every bit"


def a_watched_run_is_bit_for_bit_the_same() -> str:
    """Dropout, whose generator on_step draws from as well; lots of which some are longer than the captured shape."""
    run, seen = Run(records=RECORDS, lot=100, steps=300, noise=1.0), list[int]()
    model = nn.Sequential(MODELS["one hidden layer of 100"](), nn.Dropout(0.1))

    def meddle(step: int, copy: nn.Module) -> None:
        seen.append(step)
        torch.manual_seed(1)
        torch.rand(3, device=CUDA)
        for value in copy.parameters():
            value.data.fill_(9.0)

    def weights(**more: object) -> Tensor:
        given = {"optimizer": rules.Adam(clip=1.0), "noise_seed": 3, "compute": Compute(device=CUDA)} | more
        return torch.cat([p.flatten() for p in train(model, data(), run=run, **given).model.parameters()])

    expected = weights()
    assert weights(on_step=meddle, every=20).equal(expected)
    assert seen == [0, 24, 40, 64, 80, 104, 120, 144, 160, 184, 200, 224, 240, 264, 280, 300], seen
    return f"{len(seen)} looks at groups of {UNROLL}"


def kernels_agree_with_tensor_operations() -> str:
    assert own_kernels.on(CUDA) is not None, "Triton does not compile here"
    return compare(CUDA)


def positions_that_cancel_stay_within_the_clip() -> str:
    """One record of two opposite, large tokens, among others: by how many clips it moves the sum."""
    model = MeanOfTokens().to(CUDA)
    found = [moved(model, squared, *opposite_tokens(size, CUDA)) for size in (1e2, 1e3, 1e4, 1e6, 1e8)]
    assert max(found) <= 1.005, found
    return f"at most {max(found):.3f} clips"


def releases_lie_on_their_grid_and_their_noise_is_that_of_an_empty_lot() -> str:
    """Rounded by the kernel or without it; with lots of tiny and huge gradients, and of none."""
    model, number = nn.Linear(784, 10, bias=False).to(CUDA), torch.ones(1, device=CUDA)
    layout = layout_of(model, CUDA)
    constants = Constants(RECORDS, 250.0, 10, 4 * number, layout, torch.ones(10, device=CUDA))
    params, y = stack([model], layout, CUDA), torch.zeros(1, 300, dtype=torch.int64, device=CUDA)
    cells, noises = grid(4 * number / 250), []
    for size in (0.0, 1e-6, 1.0, 1e6):
        x = size * torch.randn(1, 300, 784, device=CUDA)
        lot = [Examples(x, y, torch.ones(1, 300, device=CUDA))] if size else []
        quiet, loud = (
            release(lot, params, Query(number), vetted=vetted_of(model, cross_entropy), constants=which, noise=source)
            for which, source in (
                (replace(constants, noise=0 * number), noise_source(CUDA, Seed.fixed(1))),
                (constants, noise_source(CUDA, Seed.fixed(1))),
            )
        )
        assert (loud.gradient.double() / cells).frac().eq(0).all()
        noises.append(loud.gradient.double() - quiet.gradient.double())
    worst = max((one - noises[0]).abs().max().item() for one in noises[1:])
    assert worst <= 1.01 * cells.item(), worst
    drawn = noise_source(CUDA, Seed.fresh()).normal((20_000_000,))
    assert drawn.dtype == torch.float64
    assert abs(drawn.std().item() - 1) < 0.001
    assert (drawn != drawn.float()).double().mean() > 0.99
    return f"noise of four lots equal to {worst / cells.item():.2f} cells"


def a_write_in_a_replayed_step_is_found() -> str:
    """A forward pass that writes to the weights it was lent, unseen by torch: the flag on the device is set by a replay."""
    watched, params, graph = Untouched(nn.Linear(2, 2).to(CUDA)), torch.randn(2, 6, device=CUDA), torch.cuda.CUDAGraph()
    before = params.clone()
    with watched.lent(params):
        pass
    with torch.cuda.graph(graph), watched.lent(params) as lent:
        lent.data.mul_(0.5)
    watched.settle()
    graph.replay()
    try:
        watched.settle()
    except ModelWritten:
        assert params.equal(before)
        return "and the weights are as they were"
    raise AssertionError("it was not")


class Masked(nn.Module):
    """Token numbers with a mask through a transformer; with a frozen body its head alone is trained."""

    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)
        for value in [*self.table.parameters(), *self.body.parameters()]:
            value.requires_grad_(not frozen)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        hidden = self.body(self.table(input_ids), src_key_padding_mask=~attention_mask)
        shown = attention_mask.to(hidden.dtype).unsqueeze(-1)
        return {"logits": self.head((hidden * shown).sum(1) / shown.sum(1))}


class Last(nn.Module):
    """The last state of a recurrent layer."""

    def __init__(self, recurrent: nn.Module) -> None:
        super().__init__()
        self.recurrent, self.head = recurrent, nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(x)[0][:, -1])  # type: ignore[no-any-return]


def models_of_many_kinds_train() -> str:
    """Captured where a graph can hold their steps, and otherwise not: alone and several together, strict too."""
    ids, y = torch.randint(1, 50, (400, 12)), torch.randint(0, 3, (400,))
    masked = {"input_ids": ids, "attention_mask": torch.rand(400, 12) > 0.3}
    masked["attention_mask"][:, 0] = True
    kinds: dict[str, tuple[nn.Module, object]] = {
        "masked": (Masked(frozen=False), masked),
        "frozen": (Masked(frozen=True), masked),
        "lstm": (Last(nn.LSTM(16, 8, batch_first=True)), torch.randn(400, 12, 16)),
        "gru": (Last(nn.GRU(16, 8, batch_first=True)), torch.randn(400, 12, 16)),
        "bag": (nn.Sequential(nn.EmbeddingBag(50, 8), nn.Linear(8, 3)), ids),
    }
    run, done = Run(records=400, lot=64, steps=40, noise=1.0), 0
    for name, (model, x) in kinds.items():
        for strict in (False, True):
            for runs in (1, 3):
                if strict and name in ("lstm", "gru"):
                    continue  # torch.func has no rule for them
                results = train_population(
                    model,
                    (x, y),
                    run=run,
                    optimizers=[rules.SGD(lr=0.5, clip=1.0)] * runs,
                    strict=strict,
                    compute=Compute(device="cuda"),
                )
                assert all(value.isfinite().all() for one in results for value in one.model.parameters()), name
                done += 1
    return f"{done} trainings of {', '.join(kinds)}"


CHECKS: list[Callable[[], str]] = [
    releases_lie_on_their_grid_and_their_noise_is_that_of_an_empty_lot,
    kernels_agree_with_tensor_operations,
    positions_that_cancel_stay_within_the_clip,
    captured_agrees_with_eager_without_noise,
    captured_agrees_with_eager_with_the_same_noise,
    every_replay_draws_new_noise,
    unrolled_steps_draw_different_noise,
    overlong_lots_are_not_truncated,
    replays_need_nothing_of_the_host,
    lots_on_the_gpu_are_poisson,
    no_record_exceeds_the_clip_in_short_products,
    lack_of_memory_halves_the_chunk,
    a_checkpoint_resumes_bit_for_bit,
    a_watched_run_is_bit_for_bit_the_same,
    a_write_in_a_replayed_step_is_found,
    models_of_many_kinds_train,
]


def main() -> int:
    failed = 0
    for check in CHECKS:
        name = check.__name__.replace("_", " ")
        try:
            print(f"ok      {name}: {check()}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc(limit=-6)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
