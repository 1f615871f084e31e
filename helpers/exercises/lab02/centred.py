"""Lab 02's slow kernel, and what runs next to the learner's fixed one: a guarded run, and counts of accesses
on the host.

It contains no answers: the counts describe any text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
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
    table = run.sectors()
    table = table[table["argument"].isin(("input", "output"))]
    requests = int(table["n_requests"].sum())
    touched = table["sectors_per_request"] * table["n_requests"]
    return {
        "loads": len(reads),
        "stores": len(accesses) - len(reads),
        "requests": requests,
        "sectors": float(touched.sum()),
        "sectors_a_request": float(touched.sum() / requests),
        "bytes_used_percent": float((touched * table["bytes_used_percent"]).sum() / touched.sum()),
        "loads_an_element": len(reads) / (SHAPE[0] * SHAPE[1]),
        "threads": len(accesses.drop_duplicates(["block_x", "thread_x"])),
        "widest_load_bytes": int(reads["n_bytes"].max()) if len(reads) else 0,
    }


def counts_of_slow() -> dict[str, float]:
    """`counts` of the slow kernel without building it: each warp asks for one number `width` times, then for
    its own 32.
    """
    height, width = SHAPE
    warps = height * width // 32
    requests, sectors = warps * (width + 2), warps * (width + 4 + 4)
    return {
        "loads": height * width * (width + 1),
        "stores": height * width,
        "requests": requests,
        "sectors": float(sectors),
        "sectors_a_request": sectors / requests,
        "bytes_used_percent": 100 * warps * (4 * width + 128 + 128) / (32 * sectors),
        "loads_an_element": float(width + 1),
        "threads": height * width,
        "widest_load_bytes": 4,
    }


@dataclass
class Answer:
    """A write-up and its kernel, which is built on its first run."""

    write_up: dict[str, Any]
    _built: list[launchers.Built] = field(default_factory=list)

    @property
    def built(self) -> launchers.Built:
        """The kernel; raises BuildError if there is none."""
        if not self._built:
            self._built.append(launchers.load("center_rows", self.write_up.get("work")))
        return self._built[0]


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
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", answer.built.text, flags=re.S)
    return {
        "write_up": answer.write_up,
        "before": counts_of_slow(),
        "after": counts(answer.built),
        "shared": "__shared__" in text,
        "shuffles": "__shfl" in text,
    }
