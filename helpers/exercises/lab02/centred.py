"""Lab 02's slow kernel, and what runs next to the learner's fixed one: a guarded run, and counts of accesses
on the host.

It contains no answers: the counts describe any text.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from helpers.exercises import writeup
from helpers.exercises.lab02 import launchers

SHAPE = (2, 256)  # rows and columns of the matrix on which accesses are counted

SLOW_CUDA = r"""
__global__ void center_rows_kernel(const float* input, float* output, int height, int width) {
    const float* row = input + static_cast<long long>(blockIdx.x) * width;
    for (int col = threadIdx.x; col < width; col += blockDim.x) {
        float sum = 0.0f;
        for (int k = 0; k < width; ++k) sum += row[k];
        output[static_cast<long long>(blockIdx.x) * width + col] = row[col] - sum / width;
    }
}
"""


def counts(built: launchers.Built) -> dict[str, float]:
    """A kernel's accesses to global memory on a matrix of `SHAPE`, counted on the host.

    Returns:
        `loads` and `stores` of all threads, the warps' `requests`, the `sectors` that these touch,
        `sectors_a_request`, `bytes_used_percent` of the sectors' bytes, and `loads_an_element`.

    Raises:
        helpers.cuda.emulator.checked.EmulatorError, helpers.cuda.BuildError: as in any run and build for the
        host.
    """
    run = launchers.traced(built, *SHAPE)
    accesses = run.accesses[run.accesses["argument"].isin(("input", "output"))]
    reads = accesses[accesses["access"] == "read"]
    requests, sectors, used_percent = launchers.requests(run, "input", "output")
    return {
        "loads": len(reads),
        "stores": len(accesses) - len(reads),
        "requests": requests,
        "sectors": sectors,
        "sectors_a_request": sectors / requests,
        "bytes_used_percent": used_percent,
        "loads_an_element": len(reads) / (SHAPE[0] * SHAPE[1]),
        "threads": len(accesses.drop_duplicates(["block_x", "thread_x"])),
        "widest_load_bytes": int(reads["n_bytes"].max()) if len(reads) else 0,
    }


# `counts` of the slow kernel: each warp asks for one number 256 times, then for its own 32.
SLOW_COUNTS = {
    "loads": 131_584,
    "stores": 512,
    "requests": 4128,
    "sectors": 4224.0,
    "sectors_a_request": 4224 / 4128,
    "bytes_used_percent": 100 * 5 / 33,
    "loads_an_element": 257.0,
    "threads": 512,
    "widest_load_bytes": 4,
}


@dataclass
class Answer:
    """A write-up and its kernel."""

    write_up: dict[str, Any]

    @functools.cached_property
    def built(self) -> launchers.Built:
        """The kernel; raises BuildError if there is none."""
        return launchers.load("center_rows", self.write_up.get("work"))


def prepare(text: str) -> Answer:
    """The answer from `writeup.as_text`'s text."""
    return Answer(writeup.from_text(text))


def form(answer: Answer) -> dict[str, Any]:
    """The write-up, without its kernel's results."""
    return answer.write_up


def run(answer: Answer, inputs: list, shape: tuple, numbers: list) -> dict[str, Any]:
    """`launchers.run` of the kernel in the write-up."""
    return launchers.run(answer.built, inputs, shape, numbers)


def read(answer: Answer) -> dict[str, Any]:
    """The write-up, the host's counts for the slow kernel and for the one in it, and what its text uses."""
    text = launchers.without_comments(answer.built.text)
    return {
        "write_up": answer.write_up,
        "before": SLOW_COUNTS,
        "after": counts(answer.built),
        "shared": "__shared__" in text,
        "shuffles": "__shfl" in text,
    }
