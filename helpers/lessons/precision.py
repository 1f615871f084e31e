"""What lesson 11 shows about precision: how far a product is off, by the format of its inputs and sums.

Everything runs on a CPU. Rounding errors are facts of arithmetic and need no GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from helpers import plots

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    import torch

    Rounding: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Format:
    """How a product rounds.

    Attributes:
        inputs: Rounds the factors.
        u_in: The unit roundoff of `inputs`; 0 if the factors stay as they are.
        sums: Rounds the sum after each addition.
        u_acc: The unit roundoff of `sums`.
    """

    inputs: Rounding
    u_in: float
    sums: Rounding
    u_acc: float

    def bound(self, k: int) -> float:
        """The error of a sum of k products, relative to the root of their summed squares."""
        return self.u_in + self.u_acc * math.sqrt(k)


def errors(
    product: Callable[[torch.Tensor, torch.Tensor, Rounding, Rounding], torch.Tensor],
    formats: Mapping[str, Format],
    ks: Iterable[int],
    *,
    size: int = 16,
    seed: int = 0,
) -> pd.DataFrame:
    """Multiplies random matrices and compares the results with float64.

    Args:
        product: Receives a (size, k), b (k, size), and the two functions that round.
        formats: How to round, by name.
        ks: The numbers of terms.
        size: Rows of a and columns of b.
        seed: Of the random numbers.

    Returns:
        A row per format and k: `format`, `k`, `typical` and `largest` error of the elements, each relative
        to the root of the summed squares of its terms, and the `bound`.
    """
    import pandas as pd
    import torch

    rows = []
    for k in ks:
        generator = torch.Generator().manual_seed(seed)
        a, b = (torch.randn(shape, generator=generator) for shape in ((size, k), (k, size)))
        exact, terms = a.double() @ b.double(), (a.double().square() @ b.double().square()).sqrt()
        for name, form in formats.items():
            off = ((product(a, b, form.inputs, form.sums).double() - exact) / terms).abs()
            rows.append({"format": name, "k": k, "typical": off.square().mean().sqrt().item(),
                         "largest": off.max().item(), "bound": form.bound(k)})  # fmt: skip
    return pd.DataFrame(rows)


def draw(found: pd.DataFrame) -> go.Figure:
    """Draws the typical errors of `errors` as points, and the bounds as lines of the same color."""
    import plotly.graph_objects as go

    fig = go.Figure()
    for i, (name, rows) in enumerate(found.groupby("format", sort=False)):
        color, k = plots.PALETTE[i], list(rows["k"])
        line = {"color": color, "width": 1.5, "dash": "dash"}
        bound = {"y": list(rows["bound"]), "mode": "lines", "line": line, "showlegend": False}
        fig.add_trace(go.Scatter(x=k, name=f"bound of {name}", **bound))
        marker = {"color": color, "size": 9, "symbol": plots.MARKERS[i]}
        fig.add_trace(go.Scatter(x=k, y=list(rows["typical"]), mode="markers", marker=marker, name=name))
    title = "Error of a product: measured (points) and bound (lines)"
    plots.layout(fig, title, "terms per sum, k", "typical error, relative to t")
    fig.update_xaxes(type="log", tickvals=sorted(set(found["k"])), tickformat=",")
    fig.update_yaxes(type="log", dtick=1, exponentformat="power")
    return fig


def verdicts(results: Mapping[str, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> pd.DataFrame:
    """Asks `torch.allclose`, with its default tolerances, and the checker about matrix products.

    Args:
        results: A product and its two factors, by name.

    Returns:
        A row per product: `product`, the size of its `typical element`, and whether `allclose` and `checker`
        accept it.
    """
    import pandas as pd
    import torch

    rows = []
    for name, (got, a, b) in results.items():
        exact = a.double() @ b.double()
        rows.append({"product": name, "typical element": f"{exact.square().mean().sqrt().item():.2g}",
                     "allclose": _word(torch.allclose(got, exact.to(got.dtype))),
                     "checker": _word(_accepted(got, a, b))})  # fmt: skip
    return pd.DataFrame(rows)


def _word(accepted: bool) -> str:
    return "accepts" if accepted else "rejects"


def _accepted(got: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    from helpers.check import Mismatch, assert_result

    try:
        assert_result("the product", got, torch.matmul, [a, b])
    except Mismatch:
        return False
    return True
