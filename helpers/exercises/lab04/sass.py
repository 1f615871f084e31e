"""Pairs of SASS listings for lab 04's `sass-difference`: a CUDA kernel before and after one change."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

from helpers import ptx

CHANGES = ("double", "fast-math", "float4", "no-guard", "same")
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100")

# No number is a sum of a few powers of two, because the compiler may replace a double product with 0.5 by one
# in float.
FORMULAS = {
    "gelu": "0.51f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)))",
    "silu": "1.1f * x / (1.0f + expf(-x))",
    "softplus": "1.1f * logf(1.0f + expf(x))",
    "softsign": "x / (1.1f + fabsf(x))",
    "bell": "0.3989423f * expf(-0.7f * x * x)",
    "normalized": "x / sqrtf(x * x + 0.1f)",
    "cauchy": "0.318310f / (1.1f + x * x)",
}
_KERNEL = """__global__ void activation(const TYPE* input, TYPE* output, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    GUARD{
BODY
    }
}
"""


def source(formula: str, *, guard: bool = True, four: bool = False) -> str:
    """CUDA C++ that applies a formula of `x` to every element: one float per thread, or four."""
    if four:
        of_one = "".join(f"        {{ const float x = v.{c}; w.{c} = {formula}; }}\n" for c in "xyzw")
        body = f"        const float4 v = input[i];\n        float4 w;\n{of_one}        output[i] = w;"
    else:
        body = f"        const float x = input[i];\n        output[i] = {formula};"
    text = _KERNEL.replace("TYPE", "float4" if four else "float").replace("BODY", body)
    return text.replace("GUARD", "if (i < n) " if guard else "")


def listing(stages: ptx.Stages) -> str:
    """The instructions and labels, without annotations and without types in the kernel's name."""
    lines = (line.rstrip() for line in stages.sass.replace(stages.kernel, "activation").splitlines())
    return "\n".join(line for line in lines if re.match(r"\s*/\*[0-9a-f]{4,}\*/|(\.L|\$)\S*:$", line))


def changed(formula: str, change: str, rng: random.Random | None = None) -> tuple[str, tuple[str, ...]]:
    """The source with one change, and the compiler's flags for it.

    Args:
        formula: C++ with float literals.
        change: one of `CHANGES`. "same" changes a number's value, which moves no instruction.
        rng: chooses the number.
    """
    if change == "double":  # the first literal loses its f
        return source(re.sub(r"(\d\.\d+)f", r"\1", formula, count=1)), ()
    if change == "same":
        value = (rng or random.Random(0)).uniform(0.21, 0.94)
        first = re.search(r"\d\.\d+f", formula)[0]
        return source(formula.replace(first, f"{value:.6f}f", 1)), ()
    if change == "fast-math":
        return source(formula), ("--use_fast_math",)
    return source(formula, guard=change != "no-guard", four=change == "float4"), ()


def pair(name: str, change: str, target: str, rng: random.Random | None = None) -> tuple[str, str]:
    """Two listings, before and after the change.

    Args:
        name: one of `FORMULAS`.
        change: one of `CHANGES`.
        target: such as "sm_90".
        rng: for a "same" pair: chooses the new number.

    Raises:
        ValueError: no such formula or change.
    """
    if name not in FORMULAS or change not in CHANGES:
        raise ValueError(
            f"There is no pair ({name!r}, {change!r}); "
            f"formulas are {', '.join(FORMULAS)}, changes {', '.join(CHANGES)}."
        )
    text, flags = changed(FORMULAS[name], change, rng)
    before = ptx.cuda_stages(source(FORMULAS[name]), target=target)
    return listing(before), listing(ptx.cuda_stages(text, target=target, flags=flags))


def _opcodes(text: str) -> Counter:
    return Counter(re.findall(r"\*/\s+(?:@\S+\s+)?([A-Z][\w.]*)", text))


def hidden(rng: random.Random) -> Iterator[tuple[str, str, str, str]]:
    """Each change twice, in three formulas for three targets: (label, before, after, change).

    A compiler may generate the same instructions for both (CUDA 13.0's does of a softplus with fast math for
    sm_86, on one machine): such a pair is replaced by the same change of another formula.
    """
    formulas = [(name, rng.choice(TARGETS)) for name in rng.sample(sorted(FORMULAS), 3)]
    changes = list(CHANGES) * 2
    rng.shuffle(changes)
    for n, change in enumerate(changes):
        candidates = [formulas[n % len(formulas)], *((name, rng.choice(TARGETS)) for name in FORMULAS)]
        for name, target in candidates:
            before, after = pair(name, change, target, rng)
            if change == "same" or _opcodes(before) != _opcodes(after):
                break
        yield f"{name} for {target}, pair {n + 1} of {len(changes)}", before, after, change
