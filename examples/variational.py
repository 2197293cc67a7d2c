"""Variational inference under differential privacy: run with `python examples/variational.py`.

A Bayesian logistic regression. Its posterior is approximated by independent normal distributions, q(w) = N(loc, scale^2), whose
numbers are learned by making a bound of the evidence large. The bound is a sum over records,

    bound_i = E_q ln p(y_i | x_i, w) - KL(q || prior) / N,

and that is all that is needed: the model gives one number a record, and `honestdp.train` and `honestdp.tune` clip, sum
and noise its gradient as any other. Labels are inputs here, since the bound is of them, so the data is ((x, y), None):
no label is left over.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

import honestdp

RECORDS, FEATURES, VALIDATION = 2000, 5, 0.2


class Regression(nn.Module):
    """In training the evidence bound of each record, with one draw of the weights a record and step; in eval() its log-likelihood
    at the posterior's mean.
    """

    def __init__(self, records: float) -> None:
        """records: N, among which the KL divergence is divided: a public constant, such as the declared number of records."""
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(FEATURES))
        self.log_scale = nn.Parameter(torch.full((FEATURES,), -1.0))
        self.draw = honestdp.GaussianDraw()
        self.records = records

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        weights = self.draw(self.loc, self.log_scale.exp())
        likelihood = functional.logsigmoid((2 * y - 1) * (x @ weights))
        if not self.training:
            return likelihood
        # KL divergence of N(loc, scale^2) from the prior N(0, 1), in closed form.
        divergence = (0.5 * (self.loc**2 + (2 * self.log_scale).exp() - 1) - self.log_scale).sum()
        return likelihood - divergence / self.records


def made_up(records: int, seed: int) -> tuple[Tensor, Tensor]:
    """Records of a known truth: weights 2, -1, 0, 1, -2."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(records, FEATURES, generator=generator)
    truth = torch.tensor([2.0, -1.0, 0.0, 1.0, -2.0])
    return x, (torch.rand(records, generator=generator) < torch.sigmoid(x @ truth)).float()


def main(steps: int = 200) -> tuple[honestdp.Result, honestdp.TuneResult]:
    x, y = made_up(RECORDS, seed=0)
    budget = honestdp.Budget(epsilon=2.0, delta=1e-5)

    # One training. No loss is named: for data without labels it is less what the model gives.
    run = honestdp.Run(records=RECORDS, lot=100, steps=steps, noise=0)  # the noise follows from the budget
    rule = honestdp.optimizers.ADADP(clip=1.0, tau=0.1, accept=True)  # finds its own step size
    trained = honestdp.train(Regression(RECORDS), ((x, y), None), run=run, optimizer=rule, budget=budget)
    loc, scale = trained.model.loc.detach(), trained.model.log_scale.detach().exp()
    print("posterior, mean ± deviation:", ", ".join(f"{m:.2f} ± {s:.2f}" for m, s in zip(loc, scale, strict=True)))
    with torch.no_grad():
        print(
            "log-likelihood of fresh public records:", round(float(trained.model.eval()(*made_up(1000, 1)).mean()), 3)
        )

    # A search. Runs are scored by the held-out log-likelihood, which is clipped record by record to a declared range: a
    # record that gets a probability below exp(-4) counts as one that gets exp(-4).
    tuned = honestdp.tune(
        lambda: Regression((1 - VALIDATION) * RECORDS),
        ((x, y), None),
        budget=budget,
        optimizer="sgd",
        space={"lr": [0.3, 1.0, 3.0], "clip": 1.0},
        lot=100,
        steps=steps,
        validation=VALIDATION,
        metric=honestdp.LogLikelihood(low=-4.0, high=0.0),
    )
    print("the winner:", tuned.hyperparameters, tuned.score)
    print(tuned.statement)
    return trained, tuned


if __name__ == "__main__":
    main()
