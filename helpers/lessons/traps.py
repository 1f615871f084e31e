"""Lesson 07's game: the learner picks the timers that a trap deceives, and then sees what each of them said."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from helpers.widgets.shown import Shown, frontend

if TYPE_CHECKING:
    import pandas as pd

# Outcomes of the record timer/traps that do no harm: the figure is right, or the timer says what is wrong.
_HARMLESS = ("right", "not fooled", "refuses", "says so")

# Why each trap of the record deceives whom it does.
WHY = {
    "warm L2": "Who flushes nothing finds the data in the cache.",
    "nothing launched: a cached result": "Marks and clocks always read some time; only who looks for kernels finds none.",
    "lazy result": "The call returns before anything is computed: the work comes when somebody looks at the result.",
    "lazy result behind a small kernel": "One kernel does run, so looking for kernels is not enough: the result itself must be "
    "looked at.",
    "zeros as input": "Zeros need less power, so the clocks may stay higher; only who looks at the data can say so.",
    "throttling (the driver's word replaced)": "Clocks that are held down lengthen the kernel for every timer; only who asks "
    "the driver can say so.",
    "compiled in the first call": "The first call takes far longer. torch.utils.benchmark meets it while it estimates, and settles for "
    "blocks of one call, each with a launch and a wait.",
    "torch.cuda.Event replaced": "Who reads torch's events reads the replaced ones; other clocks are not touched.",
    "torch.cuda.synchronize replaced": "The wait returns at once: who then reads events finds that the GPU has not reached "
    "them, and stops.",
    "the host's clock replaced": "Who reads the host's clock is deceived; events and CUPTI read the GPU's.",
    "side stream": "Marks on the current stream wait for nothing on another; a host that waits for the whole GPU sees it.",
}


def deceived(traps: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Trap -> timer -> what it told, for the timers that the trap deceives; in the record's order.

    Args:
        traps: rows of "trap", "timer", "outcome" and "told", as in the record timer/traps.
    """
    found: dict[str, dict[str, str]] = {trap: {} for trap in traps["trap"].unique()}
    for row in traps[~traps["outcome"].isin(_HARMLESS)].itertuples():
        found[row.trap][row.timer] = row.told
    return found


class Game:
    """A row for each trap: a button for each timer, and one that shows which were deceived.

    Attributes:
        box: all of it as one widget.
        picks: trap -> timer -> its button.
        seen: trap -> the button that shows the answer.
        answers: trap -> the line with the answer.
        score: the line with the count.
    """

    def __init__(self, timers: list[str], truth: dict[str, dict[str, str]]) -> None:
        import ipywidgets as w

        self._truth, self._right = truth, {}
        self.picks, self.seen, self.answers = {}, {}, {}
        self.score = w.HTML()
        rows = []
        for number, trap in enumerate(truth, 1):
            self.picks[trap] = {
                timer: w.ToggleButton(description=timer, layout={"width": "auto"}) for timer in timers
            }
            self.seen[trap] = w.Button(description="See", layout={"width": "4em"})
            self.seen[trap].on_click(lambda button, trap=trap: self.see(trap))
            self.answers[trap] = w.HTML()
            line = w.HBox(
                [*self.picks[trap].values(), self.seen[trap]],
                layout={"flex_flow": "row wrap", "grid_gap": "4px"},
            )
            rows += [w.HTML(f"<b>{number}. {html.escape(trap)}</b>"), line, self.answers[trap]]
        self.box = w.VBox([*rows, self.score])

    def see(self, trap: str) -> None:
        """Show which timers a trap deceives, count what was picked rightly, and leave the picks as they are."""
        truth = self._truth[trap]
        picks = {timer: button.value for timer, button in self.picks[trap].items()}
        self._right[trap] = sum(picked == (timer in truth) for timer, picked in picks.items())
        for button in (*self.picks[trap].values(), self.seen[trap]):
            button.disabled = True
        missed = [timer for timer, picked in picks.items() if picked != (timer in truth)]
        mine = f" You had {', '.join(missed)} the other way." if missed else " You had them all."
        said = f"{answer(truth)} {WHY.get(trap, '')}{mine}"
        self.answers[trap].value = f'<div role="status">{html.escape(said)}</div>'
        n, right = len(self._right) * len(picks), sum(self._right.values())
        self.score.value = f"<b>{right} of {n} timers right</b>"


def answer(truth: dict[str, str]) -> str:
    """Which timers a trap deceives, with what each told, as a sentence."""
    if not truth:
        return "It deceives none."
    return f"It deceives {'; '.join(f'{timer} ({told})' for timer, told in truth.items())}."


def game(traps: pd.DataFrame) -> Shown:
    """The game: buttons where there is a live kernel; elsewhere each trap with its answer folded away.

    Args:
        traps: as in `deceived`.
    """
    truth = deceived(traps)
    said = {trap: f"{answer(told)} {WHY.get(trap, '')}".strip() for trap, told in truth.items()}
    folds = "".join(
        f"<details><summary>{html.escape(trap)}</summary>{html.escape(answers)}</details>"
        for trap, answers in said.items()
    )
    text = f"{len(truth)} traps; in JupyterLab you pick the timers that each deceives."
    live = Game(list(traps["timer"].unique()), truth) if frontend() == "widgets" else None
    return Shown(text, f"<div>Which timers does each trap deceive? Decide, then open it.{folds}</div>", live)
