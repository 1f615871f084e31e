"""The game of lesson 07: you pick the timers that a trap deceives, and then see what each timer reported."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from helpers.widgets.shown import Shown, frontend

if TYPE_CHECKING:
    import pandas as pd

# Harmless outcomes in the record timer/traps: the time is correct, or the timer reports the problem.
_HARMLESS = ("right", "not fooled", "refuses", "says so")

# Why each trap of the record deceives these timers.
WHY = {
    "warm L2": "Timers that don't flush the L2 find the data in the cache.",
    "nothing launched: a cached result": "Events and clocks always measure some time; only a timer that "
    "looks for kernels notices that there are none. (PyTorch warns about the empty CUDA graph, but "
    "do_bench_cudagraph reports a time all the same.)",
    "lazy result": "The call returns before anything is computed. The work happens only when somebody uses "
    "the result.",
    "lazy result behind a small kernel": "One kernel does run, so it's not enough to look for kernels: the "
    "timer must check the result itself.",
    "zeros as input": "Zeros need less power, so the GPU's clocks may stay higher. Only a timer that "
    "inspects the data can notice that.",
    "throttling (the driver's word replaced)": "Reduced clocks slow the kernel down for every timer. Here "
    "only the driver's report changes, so only a timer that asks the driver notices it. (nvbench measures "
    "the clock itself, and drops slow samples.)",
    "compiled in the first call": "The first call takes far longer. torch.utils.benchmark includes it in its "
    "estimate, so it times one call at a time, each with a launch and a wait.",
    "torch.cuda.Event replaced": "Timers that use torch's events get the replaced ones; other clocks are not "
    "affected.",
    "torch.cuda.synchronize replaced": "The wait returns immediately. A timer that then reads events finds "
    "that the GPU has not reached them, and stops. torch.utils.benchmark waits with another function, "
    "torch.accelerator.synchronize.",
    "the host's clock replaced": "Timers that use the host's clock are deceived; events and CUPTI use the "
    "GPU's clock.",
    "side stream": "Events on the current stream don't wait for other streams; a host that waits for the "
    "whole GPU includes their work.",
    "persisting L2 lines": "A flush writes other data, and persisting lines survive that. So timers that "
    "flush find the input in the cache; those that don't flush find it there anyway. time_gpu sets nothing "
    "aside while it measures. The truth here is what each timer reports without the setting.",
}


def deceived(traps: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Returns trap -> timer -> the reported time, for the timers that a trap deceives, in the order of the
    record.

    Args:
        traps: Rows with "trap", "timer", "outcome" and "told", as in the record timer/traps.
    """
    found: dict[str, dict[str, str]] = {trap: {} for trap in traps["trap"].unique()}
    for row in traps[~traps["outcome"].isin(_HARMLESS)].itertuples():
        found[row.trap][row.timer] = row.told
    return found


def readable(traps: pd.DataFrame) -> pd.DataFrame:
    """Returns the record with times for nothing below 0.1 µs in ns, where the record has "0.0 µs".

    Args:
        traps: The record timer/traps, with the columns "us" and "told".
    """
    short = (traps["us"] < 0.1) & traps["told"].str.endswith(" µs for nothing")
    in_ns = (1e3 * traps["us"]).map("{:.0f} ns for nothing".format)
    return traps.assign(told=traps["told"].mask(short, in_ns))


class Game:
    """A row per trap, with a button per timer and a button that shows which timers were deceived.

    Attributes:
        box: The whole game as one widget.
        picks: Trap -> timer -> its button.
        seen: Trap -> the button that shows the answer.
        answers: Trap -> the line with the answer.
        score: The line with the score.
    """

    def __init__(self, timers: list[str], truth: dict[str, dict[str, str]]) -> None:
        import ipywidgets as w

        self._truth, self._n_right = truth, {}
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
        """Shows which timers a trap deceives, adds the correct picks to the score, and locks the picks."""
        truth = self._truth[trap]
        picks = {timer: button.value for timer, button in self.picks[trap].items()}
        self._n_right[trap] = sum(picked == (timer in truth) for timer, picked in picks.items())
        for button in (*self.picks[trap].values(), self.seen[trap]):
            button.disabled = True
        missed = [timer for timer, picked in picks.items() if picked != (timer in truth)]
        result = f" You had {', '.join(missed)} the other way." if missed else " You had them all."
        sentences = f"{answer(truth)} {WHY.get(trap, '')}{result}"
        self.answers[trap].value = f'<div role="status">{html.escape(sentences)}</div>'
        n, right = len(self._n_right) * len(picks), sum(self._n_right.values())
        self.score.value = f"<b>{right} of {n} timers right</b>"


def answer(truth: dict[str, str]) -> str:
    """Returns a sentence with the timers that a trap deceives and what each of them reported."""
    if not truth:
        return "It deceives none."
    if len(truth) > 1 and len(set(truth.values())) == 1:
        return f"It deceives {', '.join(truth)} (each {next(iter(truth.values()))})."
    return f"It deceives {'; '.join(f'{timer} ({reported})' for timer, reported in truth.items())}."


def game(traps: pd.DataFrame) -> Shown:
    """Returns the game: buttons if there is a live kernel, otherwise each trap with its answer collapsed.

    Args:
        traps: As in `deceived`.
    """
    truth = deceived(traps)
    sentences = {trap: f"{answer(reported)} {WHY.get(trap, '')}".strip() for trap, reported in truth.items()}
    sections = "".join(
        f"<details><summary>{html.escape(trap)}</summary>{html.escape(answers)}</details>"
        for trap, answers in sentences.items()
    )
    text = f"{len(truth)} traps; in JupyterLab you pick the timers that each deceives."
    live = Game(list(traps["timer"].unique()), truth).box if frontend() == "widgets" else None
    return Shown(
        text, f"<div>Which timers does each trap deceive? Decide, then open it.{sections}</div>", live
    )
