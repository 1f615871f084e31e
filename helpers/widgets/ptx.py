"""`explore_ptx`: PTX and SASS of a Triton kernel, compiled anew for every position of the sliders."""

from __future__ import annotations

import html
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from helpers import device
from helpers.widgets import panes
from helpers.widgets.controls import grid_of, labelled_slider
from helpers.widgets.shown import Shown
from helpers.widgets.space import require_position

if TYPE_CHECKING:
    from helpers.ptx import Stages

BLOCK_SIZES = tuple(2**i for i in range(6, 14))
NUM_WARPS = (1, 2, 4, 8, 16, 32)
TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100")
_SQUARE = {
    "output_ptr": "*fp32",
    "input_ptr": "*fp32",
    "input_row_stride": "i32",
    "output_row_stride": "i32",
    "n_cols": "i32",
}
# Two explorers of one notebook have different CSS classes.
_numbers = itertools.count(1)


@dataclass(frozen=True)
class _Position:
    """Where the sliders and the box stand."""

    block_size: int
    num_warps: int
    target: str
    aligned: bool


def explore_ptx(
    kernel: Any = None,
    *,
    signature: dict[str, str] | None = None,
    constexpr: str = "BLOCK_SIZE",
    block_size: int = 1024,
    num_warps: int = 4,
    target: str = "sm_90",
    aligned: bool = False,
) -> Shown:
    """PTX and SASS of a Triton kernel, compiled anew for every position of the sliders; no GPU is needed.

    Lines are tinted by the source line that they came from; pointing at a source line, or picking it, lights them.
    What is new since the last position is marked with a +, and facts that changed say what they were.

    Args:
        kernel: a `@triton.jit` function; `square_rows_kernel` where None.
        signature: the types of its run-time arguments, as for `ptx.stages`.
        constexpr: the name of its `tl.constexpr` argument that the first slider sets.
        block_size, num_warps, target: the first position.
        aligned: whether the compiler may take the integer arguments for multiples of 16.

    Raises:
        ValueError: a position that a slider does not have, or a kernel without its signature.
        helpers.ptx.CompileError: the kernel does not compile at the first position.
    """
    from helpers import ptx

    require_position("block_size", block_size, BLOCK_SIZES)
    require_position("num_warps", num_warps, NUM_WARPS)
    require_position("target", target, TARGETS)
    if kernel is None:
        from helpers.kernels.square import square_rows_kernel as kernel

        signature = signature or _SQUARE
    if signature is None:
        raise ValueError(
            "explore_ptx needs the signature of your kernel, such as {'x_ptr': '*fp32', 'n': 'i32'}."
        )

    def compiled(at: _Position) -> Stages:
        return ptx.stages(
            kernel, signature=signature, constexprs={constexpr: at.block_size}, target=at.target,
            num_warps=at.num_warps, divisible_by_16=tuple(signature) if at.aligned else None,
        )  # fmt: skip

    start = _Position(block_size, num_warps, target, aligned)
    first = compiled(start)
    name = f"kw-ptx{next(_numbers)}"
    text = f"PTX and SASS of {first.name}, with sliders over {constexpr}, num_warps and target."
    plain = _plain(compiled, start, f"{name}p")
    # Its widgets are sliders and HTML only, which Colab's old ipywidgets have too: `frontend` is not asked.
    if os.environ.get("WORKBOOK_WIDGETS") == "plain" or device.package_version("ipywidgets") is None:
        return Shown(text, plain)
    return Shown(text, plain, _PtxExplorer(compiled, start, first, name))


def _plain(compiled: Callable[[_Position], Stages], start: _Position, name: str) -> str:
    """A page's form: one slider over block sizes, all compiled beforehand."""
    sizes = [size for size in BLOCK_SIZES if size <= max(2048, start.block_size)]
    positions = [(f"{size:,}", compiled(replace(start, block_size=size))) for size in sizes]
    what = f"BLOCK_SIZE ({start.num_warps} warps, {start.target}):"
    return panes.plain_html(positions, sizes.index(start.block_size), name, what)


class _PtxExplorer:
    """The live form of `explore_ptx`: sliders and HTML boxes."""

    def __init__(
        self, compiled: Callable[[_Position], Stages], start: _Position, first: Stages, name: str
    ) -> None:
        import ipywidgets as w

        self.compiled, self.now = compiled, first
        self.block = labelled_slider("block_size", BLOCK_SIZES, start.block_size, continuous=False)
        self.warps = labelled_slider("num_warps", NUM_WARPS, start.num_warps, continuous=False)
        self.target = labelled_slider("target", TARGETS, start.target, continuous=False)
        self.aligned = w.Checkbox(
            value=start.aligned,
            description="strides and sizes are multiples of 16",
            indent=False,
            layout={"width": "auto"},
        )
        self.sliders = {"block_size": self.block, "num_warps": self.warps, "target": self.target}
        for control in (*self.sliders.values(), self.aligned):
            control.observe(self._moved, "value")
        pane = {"width": "auto", "min_width": "0"}
        self.summary = w.HTML(panes.summary_html(first, None))
        self.source = w.HTML(panes.style(first, name) + panes.source_html(first, name), layout=pane)
        self.code = w.HTML(panes.panes_html(first, None), layout=pane)
        controls = grid_of([*self.sliders.values(), self.aligned])
        self.box = w.VBox([controls, self.summary, self.source, self.code])
        self.box.add_class("kw")
        self.box.add_class(name)

    def _moved(self, change: dict) -> None:
        from helpers.ptx import CompileError

        at = _Position(self.block.value, self.warps.value, self.target.value, self.aligned.value)
        try:
            new = self.compiled(at)
        except CompileError as error:
            self.summary.value = f'<div role="status">refused: {html.escape(str(error))}</div>'
            return
        before, self.now = self.now, new
        self.summary.value = panes.summary_html(new, before)
        self.code.value = panes.panes_html(new, before)
