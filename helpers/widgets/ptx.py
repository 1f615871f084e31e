"""`explore_ptx`: PTX and SASS of a kernel, compiled anew for every position of the sliders."""

from __future__ import annotations

import html
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helpers import device
from helpers.widgets import panes
from helpers.widgets.constants import require_constants, with_constants
from helpers.widgets.controls import grid_of, labelled_slider
from helpers.widgets.shown import Shown
from helpers.widgets.space import label, require_position, word

if TYPE_CHECKING:
    from helpers.ptx import Stages

BLOCK_SIZES = tuple(2**i for i in range(6, 14))
NUM_WARPS = (1, 2, 4, 8, 16, 32)
TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100")
# What a page has of them, where every position is compiled beforehand: as far as registers spill.
_PAGE = {"block_size": (256, 1024, 2048, 8192), "num_warps": (1, 2, 4, 8)}
_MOST_ON_A_PAGE = 24
_SQUARE = {
    "output_ptr": "*fp32",
    "input_ptr": "*fp32",
    "input_row_stride": "i32",
    "output_row_stride": "i32",
    "n_cols": "i32",
}
# Two explorers of one notebook have different CSS classes.
_numbers = itertools.count(1)

Position = Mapping[str, Any]


@dataclass(frozen=True)
class _Subject:
    """What is compiled, and what the sliders move over.

    Attributes:
        axes: the positions of each slider.
        start: where each stands at first; also of `aligned`, where there is that box.
        compiled: gives the stages at a position.
        one_source: whether all positions have the same source.
    """

    axes: Mapping[str, tuple]
    start: Position
    compiled: Callable[[Position], Stages]
    one_source: bool


def explore_ptx(
    kernel: Any = None,
    *,
    signature: dict[str, str] | None = None,
    constexpr: str = "BLOCK_SIZE",
    block_size: int = 1024,
    num_warps: int = 4,
    target: str = "sm_90",
    aligned: bool = False,
    name: str | None = None,
    **constants: Sequence[int | float],
) -> Shown:
    """Shows PTX and SASS of a kernel, compiled again for each position of the sliders. No GPU is needed.

    Lines have the color of the source line that they came from; pointing at a source line, or picking it,
    highlights them. A + marks lines that are new since the last position, and facts that changed show their
    old value. Each load and store shows how many bytes it moves per thread. Two positions can be compared
    side by side.

    `explore_ptx(cuda_text, BLOCK=[128, 256, 512])` does the same for CUDA C++, compiled by NVRTC, with one
    slider per constant. The text can define the constant (`#define BLOCK 256`, `constexpr int BLOCK = 256;`)
    or only use it.

    Args:
        kernel: a `@triton.jit` function, or CUDA text; `square_rows_kernel` where None.
        signature: the types of a Triton kernel's run-time arguments, as for `ptx.stages`.
        constexpr: the name of its `tl.constexpr` argument that the first slider sets.
        block_size, num_warps: the first position, of a Triton kernel.
        target: the first position of the slider over GPUs.
        aligned: whether the compiler may take a Triton kernel's integer arguments for multiples of 16.
        name: which kernel of a CUDA text, where it has several.
        **constants: of a CUDA text, each with the list of its positions; the first one is where its slider
            begins.

    Raises:
        ValueError: a position that a slider does not have, a kernel without its signature, a constant that
            the text does not use, or an argument that goes with the other kind of kernel.
        helpers.ptx.CompileError, helpers.cuda.BuildError: the kernel does not compile at the first position.
    """
    require_position("target", target, TARGETS)
    if isinstance(kernel, str):
        if signature is not None or aligned or (constexpr, block_size, num_warps) != ("BLOCK_SIZE", 1024, 4):
            raise ValueError(
                "signature, constexpr, block_size, num_warps and aligned go with a Triton kernel; a CUDA "
                "text "
                "takes its constants, such as BLOCK=[128, 256]."
            )
        subject = _cuda(kernel, constants, target, name)
    else:
        if constants or name is not None:
            given = ", ".join([*constants, *(["name"] if name else [])])
            raise ValueError(
                f"{given}: this goes with a CUDA text; a Triton kernel has constexpr=… and block_size=…."
            )
        subject = _triton(kernel, signature, constexpr, block_size, num_warps, target, aligned)
    first = subject.compiled(subject.start)
    css = f"kw-ptx{next(_numbers)}"
    text = f"PTX and SASS of {first.name}, with sliders over {', '.join(map(word, subject.axes))}."
    # Its widgets are sliders and HTML only, which Colab's old ipywidgets have too: `frontend` is not asked.
    if os.environ.get("WORKBOOK_WIDGETS") == "plain" or device.package_version("ipywidgets") is None:
        return Shown(text, _plain(subject, f"{css}p", alone=True))
    return Shown(text, _plain(subject, f"{css}p", alone=False), _PtxExplorer(subject, first, css))


def _triton(
    kernel: Any,
    signature: dict[str, str] | None,
    constexpr: str,
    block_size: int,
    num_warps: int,
    target: str,
    aligned: bool,
) -> _Subject:
    from helpers import ptx

    require_position("block_size", block_size, BLOCK_SIZES)
    require_position("num_warps", num_warps, NUM_WARPS)
    if kernel is None:
        from helpers.kernels.square import square_rows_kernel as kernel

        signature = signature or _SQUARE
    if signature is None:
        raise ValueError(
            "explore_ptx needs the signature of your kernel, such as {'x_ptr': '*fp32', 'n': 'i32'}."
        )

    def compiled(at: Position) -> Stages:
        return ptx.stages(
            kernel, signature=signature, constexprs={constexpr: at["block_size"]}, target=at["target"],
            num_warps=at["num_warps"], divisible_by_16=tuple(signature) if at["aligned"] else None,
        )  # fmt: skip

    axes = {"block_size": BLOCK_SIZES, "num_warps": NUM_WARPS, "target": TARGETS}
    start = {"block_size": block_size, "num_warps": num_warps, "target": target, "aligned": aligned}
    return _Subject(axes, start, compiled, True)


def _cuda(
    text: str,
    constants: Mapping[str, Sequence[Any]],
    target: str,
    name: str | None,
) -> _Subject:
    from helpers import ptx

    require_constants(text, constants)

    def compiled(at: Position) -> Stages:
        made, flags = with_constants(text, {constant: at[constant] for constant in constants})
        return ptx.cuda_stages(made, target=at["target"], flags=flags, kernel=name)

    axes = {**{constant: tuple(values) for constant, values in constants.items()}, "target": TARGETS}
    start = {**{constant: values[0] for constant, values in axes.items()}, "target": target}
    return _Subject(axes, start, compiled, False)


def _plain(subject: _Subject, name: str, *, alone: bool) -> str:
    """A page's form: what its sliders reach is compiled beforehand.

    Behind widgets only the first slider stands, so that the cell is not kept waiting for a page that may
    never be made.
    """
    axes = {axis: _PAGE.get(axis, values) for axis, values in subject.axes.items() if axis != "target"}
    axes = {axis: tuple(sorted({*values, subject.start[axis]})) for axis, values in axes.items()}
    if not alone:
        axes = dict([*axes.items()][:1])
    while len(list(itertools.product(*axes.values()))) > _MOST_ON_A_PAGE:
        axes.popitem()
    points = [
        {**subject.start, **dict(zip(axes, at, strict=True))} for at in itertools.product(*axes.values())
    ]
    first = subject.compiled(subject.start)
    with ThreadPoolExecutor(2) as pool:  # of the disassembler, which is a process of its own
        made = list(pool.map(lambda at: _looked_at(subject, at), points))
    above = panes.style(first, name)
    if subject.one_source:
        above += panes.source_html(first, name)
    positions = [_position(subject, at, one, first, name) for at, one in zip(points, made, strict=True)]
    fixed = [
        f"{word(axis)} {label(v)}" for axis, v in subject.start.items() if axis not in (*axes, "aligned")
    ]
    labels = {f"{word(axis)}:": [label(v) for v in values] for axis, values in axes.items()}
    if not labels:
        labels = {"target:": [subject.start["target"]]}
    elif fixed:
        labels = {
            f"{what[:-1]} ({', '.join(fixed)}):" if n == 0 else what: w
            for n, (what, w) in enumerate(labels.items())
        }
    start = [values.index(subject.start[axis]) for axis, values in axes.items()] or [0]
    return panes.plain_html(labels, positions, start, above, name)


def _looked_at(subject: _Subject, at: Position) -> Stages | Exception:
    """The stages at a position, disassembled; or why there are none."""
    from helpers.cuda import BuildError
    from helpers.ptx import CompileError

    try:
        stages = subject.compiled(at)
        assert stages.sass and stages.resources
    except (CompileError, BuildError) as error:
        return error
    return stages


def _position(subject: _Subject, at: Position, made: Stages | Exception, first: Stages, name: str) -> str:
    """A page's position, compared with the first one."""
    if isinstance(made, Exception):
        return _refused(made)
    before = None if at == subject.start else first
    source = "" if subject.one_source else panes.source_html(made, name)
    return f"{panes.summary_html(made, before)}{source}{panes.listings_html(made, before)}"


def _refused(error: Exception) -> str:
    return f'<div role="status">refused: {html.escape(str(error))}</div>'


class _PtxExplorer:
    """The live form of `explore_ptx`: sliders and HTML boxes."""

    def __init__(self, subject: _Subject, first: Stages, name: str) -> None:
        import ipywidgets as w

        self.subject, self.now, self.kept = subject, first, first
        self.at = self.kept_at = dict(subject.start)
        self.sliders = {
            axis: labelled_slider(axis, values, subject.start[axis], continuous=False)
            for axis, values in subject.axes.items()
        }
        boxes = []
        if "aligned" in subject.start:
            self.aligned = _box("strides and sizes are multiples of 16", subject.start["aligned"])
            boxes.append(self.aligned)
        for control in (*self.sliders.values(), *boxes):
            control.observe(self._moved, "value")
        # Buttons, not a menu: JupyterLab takes a menu's arrow keys for moves between cells.
        self.view = w.ToggleButtons(
            options=["PTX and SASS", "diff of PTX", "diff of SASS"],
            style={"button_width": "auto"},
            layout={"width": "auto"},
        )
        self.keep = w.Button(description="Compare with this position", layout={"width": "auto"})
        self.exact = _box("compare registers too", False)
        self.view.observe(self._looked, "value")
        self.exact.observe(self._looked, "value")
        self.keep.on_click(self._keep)
        pane = {"width": "auto", "min_width": "0"}
        self.summary = w.HTML(panes.summary_html(first, None))
        self.name = name
        self.source = w.HTML(self._source(), layout=pane)
        self.code = w.HTML(panes.listings_html(first, None), layout=pane)
        row = {"flex_flow": "row wrap", "grid_gap": "0 1.2em", "align_items": "center"}
        controls = grid_of([*self.sliders.values(), *boxes])
        views = w.HBox([self.view, self.keep, self.exact], layout=row)
        self.box = w.VBox([controls, self.summary, views, self.source, self.code])
        self.box.add_class("kw")
        self.box.add_class(name)

    def _moved(self, change: dict) -> None:
        from helpers.cuda import BuildError
        from helpers.ptx import CompileError

        at = {axis: slider.value for axis, slider in self.sliders.items()}
        if "aligned" in self.subject.start:
            at["aligned"] = self.aligned.value
        try:
            new = self.subject.compiled(at)
        except (CompileError, BuildError) as error:
            self.summary.value = _refused(error)
            return
        before, self.now, self.at = self.now, new, at
        if not self.subject.one_source:
            self.source.value = self._source()
        self._show(before)

    def _source(self) -> str:
        return panes.style(self.now, self.name) + panes.source_html(self.now, self.name)

    def _looked(self, change: dict) -> None:
        self._show(None)

    def _keep(self, button: Any) -> None:
        self.kept, self.kept_at = self.now, self.at
        if self.view.value != "PTX and SASS":
            self._show(None)

    def _show(self, before: Stages | None) -> None:
        if self.view.value == "PTX and SASS":
            self.code.value = panes.listings_html(self.now, before)
        else:
            kind = self.view.value.split()[-1].lower()
            titles = (f"kept: {self._said(self.kept_at)}", f"now: {self._said(self.at)}")
            self.code.value = panes.diff(kind, self.kept, self.now, titles, exact=self.exact.value)
        self.summary.value = panes.summary_html(self.now, before)

    def _said(self, at: Position) -> str:
        """A position in words."""
        axes = ", ".join(f"{word(axis)} {label(at[axis])}" for axis in self.sliders)
        return axes + (", multiples of 16" if at.get("aligned") else "")


def _box(description: str, value: bool) -> Any:
    import ipywidgets as w

    return w.Checkbox(value=value, description=description, indent=False, layout={"width": "auto"})
