"""Papers, reproduced: one package a paper, one function a figure or table, its claims beside it.

Repeats and curves over test data in here evaluate a reproduction on public data. No budget covers them: a practitioner who
looked at them would have to pay for them.
"""

from honestdp.data.named import LOADERS

LOADERS.update(
    {
        "mnist-signed": "honestdp_papers.forms:mnist_signed",
        "adult-202": "honestdp_papers.forms:adult_twice",
        "enron-counts": "honestdp_papers.forms:enron_counts",
        "gisette-standin": "honestdp_papers.forms:gisette_standin",
        "ag-news-standin": "honestdp_papers.forms:ag_news_standin",
        "cifar10": "honestdp_papers.forms:cifar10",
    }
)
