"""Models and losses whose examples influence each other only in wide lots, at later calls, or in one mode, are refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from honestdp.checks import InvalidArgument
from honestdp.gradients import Prepared, RefusedModel, per_example, vet_forward
from honestdp.gradients.independence import row_by_row

from .plain_autograd import drawn

WIDTH = 60


def squared(output: Tensor, y: Tensor) -> Tensor:
    return (output.flatten(1) - y[:, None]).square().sum(1)


def ask(model: nn.Module, loss: object = squared, *, lot: int = WIDTH, tokens: bool = False) -> object:
    x = torch.zeros(1, lot, 6, dtype=torch.long) if tokens else torch.zeros(1, lot, 6)
    return per_example(model, loss, drawn(model, 1, torch.float32), x, torch.zeros(1, lot))


class Own(nn.Module):
    """A linear layer before and after what `mixed` does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def mixed(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.mixed(self.first(x)))


class Experts(Own):
    """A mixture of experts, each of which takes the first max(4, n / experts) examples that come to it."""

    def mixed(self, x: Tensor) -> Tensor:
        expert = x[:, :3].argmax(1)
        before = (expert[:, None] == expert[None, :]).tril(-1).sum(1)
        kept = before < max(4, len(x) // 3)
        return torch.where(kept[:, None], x * (1 + expert[:, None]), 0)


class FullExperts(Own):
    """Of a capacity that does not grow with the lot."""

    def mixed(self, x: Tensor) -> Tensor:
        order = x[:, 0].argsort(stable=True).argsort()
        return torch.where((order < 40)[:, None], x, 0)


class GhostNorm(Own):
    """Batch norm in groups of 32; smaller lots pass unchanged."""

    def mixed(self, x: Tensor) -> Tensor:
        whole = len(x) // 32 * 32
        groups = x[:whole].view(-1, 32, 6)
        return torch.cat([((groups - groups.mean(1, True)) / (groups.std(1, keepdim=True) + 1)).view(-1, 6), x[whole:]])


class FromSixteen(Own):
    def mixed(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if len(x) >= 16 else x


class ThreeQuarters(Own):
    """The smallest of the lot are dropped, where there are at least fifty."""

    def mixed(self, x: Tensor) -> Tensor:
        if len(x) < 50:
            return x
        kept = x.norm(dim=1).topk(3 * len(x) // 4).indices
        return torch.zeros_like(x).index_copy(0, kept, x[kept])


class ByPlace(Own):
    """An example that comes in moves the others to other places."""

    def mixed(self, x: Tensor) -> Tensor:
        return x * (1 + torch.arange(len(x), device=x.device)[:, None] / 100)


class ByNumber(Own):
    def mixed(self, x: Tensor) -> Tensor:
        return x / len(x)


class ExactNumber(Own):
    def mixed(self, x: Tensor) -> Tensor:
        return 2 * x if len(x) == WIDTH else x


class Duplicates(Own):
    """Examples that are there twice count less."""

    def mixed(self, x: Tensor) -> Tensor:
        _, place, counts = torch.unique(x, dim=0, return_inverse=True, return_counts=True)
        return x / counts[place][:, None]


class FirstBatch(Own):
    """Scaled by the statistics of the first lot it sees, kept outside torch."""

    def mixed(self, x: Tensor) -> Tensor:
        if not hasattr(self, "scale"):
            self.scale = 1 + x.detach().std(0)
        return x / self.scale


class LastBatch(Own):
    """Adds what the last lot was like."""

    last_mean: Tensor | float = 0.0

    def mixed(self, x: Tensor) -> Tensor:
        before, self.last_mean = self.last_mean, x.detach().mean(0)
        return x + before


class SecondCall(Own):
    """Mixes from its second call on."""

    calls = 0

    def mixed(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x - x.mean(0) if self.calls > 1 else x


class Running(Own):
    """Normalises by a running mean which it keeps in a buffer that it replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def mixed(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


class Counts(Own):
    """A histogram of tokens is a record of the examples too, though of whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3, dtype=torch.long))

    def mixed(self, x: Tensor) -> Tensor:
        self.seen += torch.bincount(x.detach()[:, :3].argmax(1), minlength=3)
        return x


class AtTestTime(Own):
    """Normalises by the lot in eval() mode alone."""

    def mixed(self, x: Tensor) -> Tensor:
        return x if self.training else (x - x.mean(0)) / x.std(0)


class AtTestTimeInWideLots(Own):
    def mixed(self, x: Tensor) -> Tensor:
        return x if self.training or len(x) < 32 else x - x.mean(0)


class FirstBatchAtTestTime(FirstBatch):
    def mixed(self, x: Tensor) -> Tensor:
        return x if self.training else super().mixed(x)


MIXING: list[type[Own]] = [
    Experts,
    FullExperts,
    GhostNorm,
    FromSixteen,
    ThreeQuarters,
    ByPlace,
    ByNumber,
    ExactNumber,
    Duplicates,
    FirstBatch,
    LastBatch,
    SecondCall,
    Running,
    Counts,
]
AT_TEST_TIME: list[type[Own]] = [AtTestTime, AtTestTimeInWideLots, FirstBatchAtTestTime]


class Lowest(Own):
    """Zeroes the lowest tenth of the lot, by a score of each example."""

    score = staticmethod(lambda x: x.sum(1))

    def mixed(self, x: Tensor) -> Tensor:
        kept = self.score(x).topk(int(0.9 * len(x))).indices
        return torch.zeros_like(x).index_copy(0, kept, x[kept])


class LowestByNorm(Lowest):
    score = staticmethod(lambda x: x.norm(dim=1))


class LowestByConfidence(Lowest):
    score = staticmethod(lambda x: x.softmax(1).amax(1))


class BelowQuantile(Own):
    """Zeroes what is below a quantile of the lot, and reads no number for it."""

    def mixed(self, x: Tensor) -> Tensor:
        scores = x.sum(1)
        return torch.where((scores > scores.quantile(0.1))[:, None], x, 0)


class AboveMedianOfUnits(Own):
    def mixed(self, x: Tensor) -> Tensor:
        return torch.where(x > x.median(0).values, x, 0)


class NextToTheMedian(Own):
    """Zeroes what is in a band about the median, where of an even number there is nobody."""

    def mixed(self, x: Tensor) -> Tensor:
        scores = x.sum(1)
        low, high = scores.quantile(0.499), scores.quantile(0.501)
        return torch.where(((scores > low) & (scores < high))[:, None], 0, x)


@pytest.mark.parametrize("lot", [7, 16, 21, 30, 37, 64])
@pytest.mark.parametrize(
    "kind", [NextToTheMedian, Lowest, LowestByNorm, LowestByConfidence, BelowQuantile, AboveMedianOfUnits]
)
def test_a_model_that_compares_examples_is_refused_at_every_width(kind: type[Own], lot: int) -> None:
    """One example that is moved may stay on its side of what is compared; half a lot does not."""
    with pytest.raises(RefusedModel, match="mix examples"):
        ask(kind(), lot=lot)


@pytest.mark.parametrize("lot", [7, 16, 21, 30, 37, 64])
def test_a_loss_that_leaves_out_the_lowest_is_refused_at_every_width(lot: int) -> None:
    def trimmed(output: Tensor, y: Tensor) -> Tensor:
        losses = squared(output, y)
        return torch.where(losses > losses.detach().quantile(0.1), losses, 0)

    with pytest.raises(InvalidArgument, match="mixes examples"):
        ask(Own(), trimmed, lot=lot)


@pytest.mark.parametrize("source", [0, -1])
def test_one_example_that_all_others_read_is_found(source: int) -> None:
    class Leader(Own):
        def mixed(self, x: Tensor) -> Tensor:
            return x + x[source]

    class Follower(Own):
        """The last example alone reads the first."""

        def mixed(self, x: Tensor) -> Tensor:
            return torch.cat([x[:-1], x[-1:] + x[:1]]) if len(x) > 8 else x

    for kind in (Leader, Follower):
        with pytest.raises(RefusedModel, match="mix examples"):
            ask(kind())


def test_eval_mode_is_tried_where_something_reads_the_mode_and_only_there() -> None:
    seen: list[tuple[bool, int]] = []

    class Watched(Own):
        def mixed(self, x: Tensor) -> Tensor:
            seen.append((vars(self)["training"], len(x)))
            return x

    class Asks(Watched):
        def mixed(self, x: Tensor) -> Tensor:
            return super().mixed(x) + (0 if self.training else 1)

    ask(Watched())  # of these wide passes one is the lot itself
    assert {mode for mode, _ in seen} == {True}
    assert sum(width >= WIDTH for _, width in seen) == 5, "wide passes"
    seen.clear()
    ask(Asks())
    assert {mode for mode, _ in seen} == {True, False}
    assert sum(width >= WIDTH for _, width in seen) == 7, "wide passes"
    assert {width for _, width in seen if width >= WIDTH} == {WIDTH, WIDTH + 1}, "several widths"
    seen.clear()
    ask(nn.Sequential(Watched(), nn.Dropout(0.5), nn.Linear(3, 2)).train())
    assert {mode for mode, _ in seen} == {True}, "dropout is torch's own"


@pytest.mark.parametrize("kind", MIXING + AT_TEST_TIME)
def test_a_model_that_mixes_examples_of_a_wide_lot_is_refused(kind: type[Own]) -> None:
    with pytest.raises(RefusedModel, match=r"mix examples|keep a record") as refused:
        ask(kind())
    assert kind.__name__ in str(refused.value)
    ask(Own())


@pytest.mark.parametrize("kind", MIXING + AT_TEST_TIME)
def test_a_model_that_mixes_examples_where_it_is_scored_is_refused(kind: type[Own]) -> None:
    x, y = torch.zeros(2, 6), torch.zeros(2)
    with pytest.raises(RefusedModel, match=r"mix examples|keep a record"):
        vet_forward(kind(), squared, x, y, examples=WIDTH)
    assert vet_forward(Own(), squared, x, y, examples=WIDTH) == WIDTH


def test_a_scored_model_that_reads_a_number_to_choose_its_way_gets_one_example_at_a_time() -> None:
    class Reads(Own):
        def mixed(self, x: Tensor) -> Tensor:
            return x if x.mean() > 1000 else 2 * x

    assert vet_forward(Reads(), squared, torch.zeros(2, 6), torch.zeros(2), examples=WIDTH) == 1


def test_vetting_leaves_the_model_as_it_was_and_never_calls_it() -> None:
    model = FirstBatchAtTestTime()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RefusedModel):
        ask(model)
    assert not hasattr(model, "scale")
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Longest(nn.Module):
    """Tokens are cut to the longest example of the lot, and averaged over what is left."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.padding = padding
        self.table, self.last = nn.Embedding(9, 4, padding_idx=padding), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        longest = int((x != self.padding).sum(1).amax())
        return self.last(self.table(x[:, : max(1, longest)]).mean(1))


@pytest.mark.parametrize("padding", [0, 8])
def test_a_model_that_pads_to_the_longest_of_the_lot_is_refused(padding: int) -> None:
    with pytest.raises(RefusedModel, match="mix examples"):
        ask(Longest(padding), tokens=True)


class FilledIn(nn.Module):
    """What is missing of an example is filled in from the others: numbers that are NaN, an example without a mask, a blank one.

    modes: only in training, or only where it is scored, or in both.
    """

    def __init__(self, what: str, *, modes: tuple[bool, ...]) -> None:
        super().__init__()
        self.what, self.modes, self.last = what, modes, nn.Linear(4, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        weights = mask.to(x.dtype).unsqueeze(-1)
        read = (torch.nan_to_num(x) * weights).sum(1) / weights.sum(1).clamp(min=1)
        missing = {
            "mask": (mask == 0).all(1),
            "padding": mask.bool().all(1),
            "numbers": x.isnan().flatten(1).any(1),
            "all": (x == 0).flatten(1).all(1),
        }
        if self.training in self.modes:
            read = torch.where(missing[self.what].unsqueeze(1), read.mean(0, keepdim=True), read)
        return self.last(read)


@pytest.mark.parametrize("modes", [(True,), (False,), (True, False)])
@pytest.mark.parametrize("what", ["mask", "padding", "numbers", "all"])
def test_a_model_that_fills_in_what_is_missing_from_the_others_is_refused(what: str, modes: tuple[bool, ...]) -> None:
    """Also where only what is scored is filled in: a record would move the scores of the others."""
    model, x = FilledIn(what, modes=modes), (torch.zeros(2, 5, 4), torch.ones(2, 5, dtype=torch.bool))
    lot = tuple(leaf[None, :1].expand(1, WIDTH, *leaf.shape[1:]) for leaf in x)
    with pytest.raises(RefusedModel, match="mix examples"):
        per_example(model, squared, drawn(model, 1, torch.float32), lot, torch.zeros(1, WIDTH))
    if False in modes:
        with pytest.raises(RefusedModel, match="mix examples"):
            vet_forward(model, squared, x, torch.zeros(2), examples=WIDTH)
    else:
        assert vet_forward(model, squared, x, torch.zeros(2), examples=WIDTH) == WIDTH


class Categories(nn.Module):
    """Texts that are padded with the last word, and a category of three."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(9, 3, padding_idx=8), nn.Embedding(3, 3)

    def forward(self, words: Tensor, kinds: Tensor) -> Tensor:
        assert int(kinds.max()) < 3, "a row that is not there"
        return self.words(words).mean(1) + self.kinds(kinds).mean(1)


def test_no_made_up_number_names_a_row_that_a_table_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU it would end the process, and not only the trial."""
    failed: list[BaseException] = []
    look = Categories.forward

    def noted(self: Categories, words: Tensor, kinds: Tensor) -> Tensor:
        try:
            return look(self, words, kinds)
        except AssertionError as trouble:
            failed.append(trouble)
            raise

    monkeypatch.setattr(Categories, "forward", noted)
    x = torch.zeros(2, 6, dtype=torch.long), torch.zeros(2, 4, dtype=torch.long)
    vet_forward(Categories(), squared, x, torch.zeros(2), examples=WIDTH)
    assert failed == []


# ---- Losses


def hardest(output: Tensor, y: Tensor, *, min_kept: int = 16) -> Tensor:
    """Online hard example mining: the hardest 16 are kept."""
    losses = squared(output, y)
    if len(losses) <= min_kept:
        return losses
    kept = losses.detach().topk(min_kept).values[-1]
    return torch.where(losses >= kept, losses, 0)


def from_sixteen(output: Tensor, y: Tensor) -> Tensor:
    return squared(output - output.mean(0), y) if len(output) >= 16 else squared(output, y)


def by_number(output: Tensor, y: Tensor) -> Tensor:
    return squared(output, y) / len(y) if len(y) > 30 else squared(output, y)


def contrastive(output: Tensor, y: Tensor) -> Tensor:
    """In-batch negatives in wide lots."""
    if len(output) < 32:
        return squared(output, y)
    return F.cross_entropy(output @ output.mT, torch.arange(len(output)), reduction="none")


def straight_through(output: Tensor, y: Tensor) -> Tensor:
    """Its numbers are right and its gradients are not."""
    losses = squared(output, y)
    return losses + (losses.mean() - losses.mean().detach()) if len(losses) >= 16 else losses


class Ema:
    """Divided by a running mean of the loss."""

    def __init__(self) -> None:
        self.mean = 1.0

    def __call__(self, output: Tensor, y: Tensor) -> Tensor:
        losses = squared(output, y)
        self.mean = 0.9 * self.mean + 0.1 * losses.mean().item()
        return losses / self.mean


class EmaModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(()))

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        losses = squared(output, y)
        self.mean.mul_(0.9).add_(0.1 * losses.detach().mean())
        return losses / self.mean


class LastLot(nn.Module):
    """Its first call is as it should be; from then on it takes off what the lot before it was like."""

    before: Tensor | None = None

    def forward(self, output: Tensor, y: Tensor) -> Tensor:
        losses = squared(output, y)
        before, self.before = self.before, losses.detach().mean()
        return losses if before is None else losses / (1 + before)


@pytest.mark.parametrize(
    "make",
    [
        lambda: hardest,
        lambda: from_sixteen,
        lambda: by_number,
        lambda: contrastive,
        lambda: straight_through,
        Ema,
        EmaModule,
        LastLot,
    ],
    ids=["hardest", "from_sixteen", "by_number", "contrastive", "straight_through", "ema", "ema_module", "last_lot"],
)
def test_a_loss_that_mixes_examples_of_a_wide_lot_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument, match="loss that mixes examples"):
        ask(Own(), make())
    with pytest.raises(InvalidArgument, match="loss that mixes examples"):
        vet_forward(Own(), make(), torch.zeros(2, 6), torch.zeros(2), examples=WIDTH)
    ask(Own(), squared)


# ---- Widths


def of_what_counts(output: Tensor, y: Tensor) -> Tensor:
    """Labels to ignore are left out, and the others weigh more for it."""
    counts = (y != -100).to(output.dtype)
    return F.cross_entropy(output, y, reduction="none", ignore_index=-100) / counts.mean().clamp(min=0.01)


def filled_in(output: Tensor, y: Tensor) -> Tensor:
    losses = F.cross_entropy(output, y, reduction="none")
    return torch.where(losses.isnan(), losses.nan_to_num(0).mean(), losses)


@pytest.mark.parametrize("loss", [of_what_counts, filled_in])
def test_a_loss_that_looks_at_the_others_where_something_is_missing_is_refused(loss: Callable[..., Tensor]) -> None:
    model, x, y = Own(), torch.zeros(1, WIDTH, 6), torch.zeros(1, WIDTH, dtype=torch.long)
    params = drawn(model, 1, torch.float32)
    with pytest.raises(InvalidArgument, match="depends on that example's output and label alone"):
        per_example(model, loss, params, x, y)
    per_example(model, nn.CrossEntropyLoss(reduction="none", ignore_index=-100), params, x, y)


def test_a_wider_call_is_vetted_anew_before_it_is_made() -> None:
    model = FromSixteen()
    params = drawn(model, 2, torch.float32)
    prepared = Prepared(model, squared)
    with torch.no_grad():
        prepared(params, torch.zeros(2, 7, 6), torch.zeros(2, 7))
        prepared(params, torch.zeros(2, 5, 6), torch.zeros(2, 5))
        with pytest.raises(RefusedModel, match="FromSixteen"):
            prepared(params, torch.zeros(2, 8, 6), torch.zeros(2, 8))


@pytest.mark.slow
def test_a_wider_call_vets_the_loss_anew() -> None:
    model = Own()
    params = drawn(model, 2, torch.float32)
    prepared = Prepared(model, hardest)
    with torch.no_grad():
        prepared(params, torch.zeros(2, 7, 6), torch.zeros(2, 7))
        with pytest.raises(InvalidArgument, match="loss that mixes"):
            prepared(params, torch.zeros(2, 8, 6), torch.zeros(2, 8))


def test_a_width_that_was_vetted_is_not_vetted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("honestdp.gradients.prepared.refuse_mixing", lambda trial, *, examples: asked.append(examples))
    model = Own()
    prepared, params = Prepared(model, squared), drawn(model, 1, torch.float32)
    with torch.no_grad():
        prepared.vet(params, torch.zeros(1, 2, 6), torch.zeros(1, 2), examples=40)
        for lot in (7, 40, 0, 39, 41, 12, 41):
            prepared(params, torch.zeros(1, lot, 6), torch.zeros(1, lot))
    assert asked == [40, 41]


class Drawing(Own):
    """Draws random numbers by itself in training, as functional dropout does."""

    def mixed(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, self.training)


class DrawingAndMixing(Drawing):
    def mixed(self, x: Tensor) -> Tensor:
        return super().mixed(x) - (x.mean(0) if len(x) > 30 else 0)


def test_a_model_that_draws_random_numbers_is_compared_with_equal_draws() -> None:
    ask(Drawing())
    with pytest.raises(RefusedModel, match="DrawingAndMixing"):
        ask(DrawingAndMixing())


class SeldomMixes(nn.Module):
    """Mixes neighbours once in fifty calls: no trial of a few calls sees it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return torch.where(torch.rand(()) < 0.02, y + y.sum(0), y)


def loss_that_seldom_mixes(output: Tensor, y: Tensor) -> Tensor:
    losses = (output[:, 0] - y) ** 2
    return torch.where(torch.rand(()) < 0.02, losses + losses.sum(0), losses)


@pytest.mark.parametrize("which", ["model", "loss"])
def test_whatever_takes_a_random_number_is_shown_one_example_at_a_time(which: str) -> None:
    """Where a number is drawn that seldom matters, what a trial compares is alike: that it is drawn counts."""
    model = SeldomMixes(3, 1) if which == "model" else nn.Linear(3, 1)
    loss = loss_that_seldom_mixes if which == "loss" else (lambda output, y: (output[:, 0] - y) ** 2)
    params = {name: value.detach()[None] for name, value in model.named_parameters()}
    x, y = torch.zeros(1, 8, 3), torch.zeros(1, 8)
    other = torch.cat([x[:, :7], torch.full((1, 1, 3), 1e3)], 1)
    prepared = Prepared(model, loss)
    with torch.no_grad():
        assert prepared.vet(params, x, y, examples=8).layers is None
        for seed in range(100):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                norms = prepared(params, x, y).norms
                torch.manual_seed(seed)
                assert torch.equal(prepared(params, other, y).norms[:, :7], norms[:, :7])


def test_a_scored_model_that_takes_a_random_number_gets_one_example_at_a_time() -> None:
    x, y = torch.zeros(2, 3), torch.zeros(2)
    loss = lambda output, y: (output[:, 0] - y) ** 2  # noqa: E731
    assert vet_forward(nn.Linear(3, 1).eval(), loss, x, y, examples=8) == 8
    assert vet_forward(SeldomMixes(3, 1).eval(), loss, x, y, examples=8) == 1


def test_dropout_layers_and_deep_models_are_not_taken_for_mixing() -> None:
    """Rounding differs between lots of different sizes, the more the deeper a model is."""
    deep = nn.Sequential(
        *[nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Dropout(0.5), nn.GELU()) for _ in range(24)]
    )
    ask(deep, lot=203)
    ask(deep.eval(), lot=204)


def test_mixing_below_the_digits_of_rounding_is_found_by_a_huge_example() -> None:
    class Slightly(Own):
        def mixed(self, x: Tensor) -> Tensor:
            return x + 1e-4 * x.mean(0) if len(x) > 10 else x

    with pytest.raises(RefusedModel, match="Slightly"):
        ask(Slightly())


# ---- A forward pass that writes to the model


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 4))
        self.last = nn.Linear(4, 3)

    def rows(self, x: Tensor) -> Tensor:
        return F.embedding(x, self.table)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.rows(x).mean(1))


class Functional(Table):
    def rows(self, x: Tensor) -> Tensor:
        return F.embedding(x, self.table, max_norm=1.0)


class Renormalises(Table):
    def rows(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.table[x.flatten()] = F.normalize(self.table[x.flatten()], dim=-1)
        return super().rows(x)


class ThroughData(Table):
    """torch does not count such a write."""

    def rows(self, x: Tensor) -> Tensor:
        self.table.data[x.flatten()] *= 0.5
        return super().rows(x)


class Clamps(Table):
    """Nothing changes while all weights are small, as they are in a trial."""

    def rows(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.table.clamp_(-100, 100)
        return super().rows(x)


class InWideLots(Table):
    def rows(self, x: Tensor) -> Tensor:
        if len(x) > 30:
            self.table.data.mul_(0.5)
        return super().rows(x)


class Frozen(ThroughData):
    def __init__(self) -> None:
        super().__init__()
        self.table.requires_grad_(False)


@pytest.mark.parametrize("kind", [Functional, Renormalises, ThroughData, Clamps, InWideLots, Frozen])
def test_a_forward_pass_that_writes_to_a_parameter_is_refused(kind: type[Table]) -> None:
    with pytest.raises(RefusedModel, match=r"wrote to the parameter 'table'.*max_norm=None"):
        ask(kind(), tokens=True)
    with pytest.raises(RefusedModel, match="wrote to the parameter 'table'"):
        vet_forward(kind(), squared, torch.zeros(2, 6, dtype=torch.long), torch.zeros(2), examples=WIDTH)
    ask(Table(), tokens=True)


@pytest.mark.parametrize(
    "layer", [nn.Embedding(9, 4, max_norm=1.0), nn.EmbeddingBag(9, 4, max_norm=1.0, mode="sum")], ids=repr
)
@pytest.mark.parametrize("frozen", [False, True])
def test_embeddings_that_renormalise_their_rows_are_refused_by_name(layer: nn.Module, frozen: bool) -> None:
    model = nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(2))
    model(torch.zeros(2, 6, dtype=torch.long))
    layer.requires_grad_(not frozen)
    with pytest.raises(RefusedModel, match=rf"past clip and noise.*max_norm=None.*{type(layer).__name__} at '0'"):
        ask(model, tokens=True)


def test_the_way_out_of_max_norm_is_accepted() -> None:
    class Normalised(Table):
        def rows(self, x: Tensor) -> Tensor:
            return F.normalize(super().rows(x), dim=-1)

    ask(Normalised(), tokens=True)


# ---- Memory that two parameters share


def test_parameters_that_share_memory_are_refused_and_tied_weights_are_not() -> None:
    def views() -> nn.Module:
        model, buffer = nn.Linear(3, 3), torch.randn(4, 3)
        model.weight, model.bias = nn.Parameter(buffer[:3]), nn.Parameter(buffer[2])
        return model

    def expanded() -> nn.Module:
        model = nn.Linear(3, 3)
        model.bias = nn.Parameter(torch.ones(1).expand(3))
        return model

    def watched() -> nn.Module:
        model = nn.Linear(3, 3)
        model.register_buffer("seen", model.weight.detach())
        return model

    def side_by_side() -> nn.Module:
        model, buffer = nn.Linear(3, 3), torch.randn(4, 3)
        model.weight, model.bias = nn.Parameter(buffer[:3]), nn.Parameter(buffer[3])
        return model

    def tied() -> nn.Module:
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        model[1].weight = model[0].weight
        return model

    for make in (views, expanded, watched):
        model = make()
        with pytest.raises(RefusedModel, match=r"memory of their own.*\.clone\(\)"):
            per_example(model, squared, drawn(model, 1, torch.float32), torch.zeros(1, 4, 3), torch.zeros(1, 4))
    for make in (side_by_side, tied):
        model = make()
        per_example(model, squared, drawn(model, 1, torch.float32), torch.zeros(1, 4, 3), torch.zeros(1, 4))


def whole(g: Tensor) -> Tensor:
    """Held to a norm, that of a whole lot."""
    return g * (30 / g.norm().clamp(min=30))


def last(g: Tensor) -> Tensor:
    """Held to the last example's."""
    return g * (30 / g[-1].norm().clamp(min=30)) if len(g) > 1 else g


def later(g: Tensor) -> Tensor:
    """Each example's held to the largest of those behind it."""
    return g * (30 / g.abs().amax(1).flip(0).cummax(0)[0].flip(0).clamp(min=30))[:, None]


def sparse(g: Tensor) -> Tensor:
    """Without what is small beside the largest of a lot."""
    return g * (g.abs() > 1e-3 * g.abs().max())


Held = Callable[[Tensor], Tensor]


class Hold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, held: Held) -> Tensor:
        ctx.held = held
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.held(g), None


class Holds(Own):
    def __init__(self, held: Held, *, by_hook: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        self.held, self.by_hook, self.scale = held, by_hook, scale

    def mixed(self, x: Tensor) -> Tensor:
        if not self.by_hook:
            return Hold.apply(x, self.held)
        if x.requires_grad:
            x.register_hook(self.held)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * super().forward(x)


HOLDS = {
    "a hook": Holds(whole, by_hook=True),
    "a function": Holds(whole),
    "by the last": Holds(last),
    "by those behind": Holds(later),
    "small gradients": Holds(sparse, scale=1e-14),
    "large gradients": Holds(sparse, scale=1e16),
}


@pytest.mark.parametrize("large", [0, 7])
@pytest.mark.parametrize("name", HOLDS)
def test_a_backward_pass_that_goes_by_a_whole_lot_is_given_one_example_at_a_time(name: str, large: int) -> None:
    """One record's label moves nothing of the others: not by a gradient so large that theirs are held for it."""
    torch.manual_seed(0)
    model = HOLDS[name]
    params, x, y = drawn(model, 1, torch.float32), torch.randn(1, 8, 6), torch.zeros(1, 8)

    def loss(output: Tensor, y: Tensor) -> Tensor:
        return squared(output / model.scale, y)

    sums = []
    for label in (0.0, 1e4):
        y[0, large] = label
        found = per_example(model, loss, params, x, y)
        weights = (1 / found.norms).clamp(max=1)
        weights[0, large] = 0
        sums.append(found.weighted_sum(weights))
    for name in params:
        torch.testing.assert_close(sums[0][name], sums[1][name])


@pytest.mark.parametrize("held", [whole, last, later])
@pytest.mark.parametrize("most", [1.0, 100.0])
def test_a_loss_whose_backward_pass_goes_by_a_whole_lot_is_refused(held: Held, most: float) -> None:
    def holding(output: Tensor, y: Tensor) -> Tensor:
        return squared(Hold.apply(output, lambda g: most * held(g / most)), y)

    with pytest.raises(InvalidArgument, match="mixes examples"):
        ask(nn.Linear(6, 3), holding)


# ---- Chains of torch's own layers


def test_a_chain_of_torchs_own_layers_is_tested_with_a_few_examples_and_no_other_model() -> None:
    widths: list[int] = []

    def watched(output: Tensor, y: Tensor) -> Tensor:
        return squared(output, y)

    class Watched(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            widths.append(len(x))
            return super().forward(x)

    plain = nn.Sequential(
        nn.Linear(6, 6), nn.Tanh(), nn.Sequential(nn.GroupNorm(2, 6), nn.Dropout(0.1)), nn.Linear(6, 3)
    )
    assert row_by_row(plain)
    handle = plain[1].register_forward_hook(lambda *_: None)
    assert not row_by_row(plain), "a hook"
    handle.remove()
    plain[1].forward = torch.tanh  # type: ignore[method-assign]
    assert not row_by_row(plain), "a forward of the instance"
    for layer in (
        nn.Flatten(0, 1),
        nn.Unflatten(0, (2, -1)),
        nn.BatchNorm1d(6),
        nn.Softmax(0),
        nn.TransformerEncoderLayer(6, 1, 6),
        Watched(6, 6),
    ):
        assert not row_by_row(nn.Sequential(nn.Linear(6, 6), layer)), layer
    conv = nn.Conv1d(1, 1, 1)
    conv._conv_forward = lambda *_: torch.zeros(())  # type: ignore[method-assign]
    assert not row_by_row(conv), "a method of the instance"
    ask(nn.Sequential(Watched(6, 6), nn.Linear(6, 3)), watched)
    assert max(widths) > WIDTH
