"""opendp's exact mechanisms by name, without its prelude: that imports scikit-learn and pandas, a second of every search."""

from __future__ import annotations

from types import SimpleNamespace


def opendp() -> SimpleNamespace:
    """What of opendp is used here, imported when it is first needed: training alone does not need it."""
    from opendp import domains, measurements, measures, metrics, mod

    mod.enable_features("contrib")
    return SimpleNamespace(
        m=measurements,
        atom_domain=domains.atom_domain,
        vector_domain=domains.vector_domain,
        absolute_distance=metrics.absolute_distance,
        l1_distance=metrics.l1_distance,
        l2_distance=metrics.l2_distance,
        symmetric_distance=metrics.symmetric_distance,
        max_divergence=measures.max_divergence,
        binary_search_param=mod.binary_search_param,
    )
