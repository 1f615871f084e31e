"""The corpus of CUDA kernels: inputs, references and what is expected of the broken ones.

`python tests/cuda_corpus/corpus.py` on a GPU runs the right kernels there and the broken ones under
compute-sanitizer; with WORKBOOK_RECORD=1 it keeps both as records, which tests/cuda/test_emulator.py compares
with the host.
"""

from __future__ import annotations

import functools
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from helpers import cuda, device, records

HERE = Path(__file__).parent
RIGHT = (HERE / "right.cu").read_text()
BROKEN = (HERE / "broken.cu").read_text()
SAMPLES = 16


@dataclass(frozen=True)
class Case:
    """One launcher of right.cu.

    Attributes:
        name: the launcher.
        n, m: its sizes.
        make: gives the tensors for its four addresses from a random state; missing ones are null.
        outputs: which of them it writes.
        reference: takes the tensors as they were before and (n, m); gives the expected outputs.
        tolerance: (relative, absolute) for floating-point outputs; integers must be equal.
    """

    name: str
    n: int
    m: int
    make: Callable
    outputs: tuple[int, ...]
    reference: Callable
    tolerance: tuple[float, float] = (2e-6, 1e-6)


def _floats(*shape, dtype=torch.float32):
    return lambda r, n, m: torch.from_numpy(
        r.standard_normal([eval(s, {}, {"n": n, "m": m}) if isinstance(s, str) else s for s in shape])
    ).to(dtype)


def _ints(*shape, low=-100, high=100):
    return lambda r, n, m: torch.from_numpy(
        r.randint(low, high, [eval(s, {}, {"n": n, "m": m}) if isinstance(s, str) else s for s in shape])
    ).to(torch.int32)


def _made(dtype, *shape, value=None):
    """An output: poison where the kernel writes all of it, `value` where it adds to what is there."""

    def make(r, n, m):
        sizes = [eval(s, {}, {"n": n, "m": m}) if isinstance(s, str) else s for s in shape]
        if value is not None:
            return torch.full(sizes, value, dtype=dtype)
        return torch.full(sizes, float("nan") if dtype.is_floating_point else 0x5A5A5A, dtype=dtype)

    return make


def _makes(*makers):
    return lambda r, n, m: tuple(make(r, n, m) for make in makers)


F, I32, D = torch.float32, torch.int32, torch.float64


def _blocks(x, size, fill=0):
    pad = -len(x) % size
    return torch.cat([x, x.new_full((pad,), fill)]).view(-1, size)


def _stencil(x, n, m):
    p = torch.nn.functional.pad(x.view(1, 1, n, n, n), (1,) * 6, mode="replicate")[0, 0]
    c = slice(1, -1)
    return (
        (p[c, c, :-2] + p[c, c, 2:] + p[c, :-2, c] + p[c, 2:, c] + p[:-2, c, c] + p[2:, c, c]) / 6
    ).reshape(n, n, n)


def _votes(x, n, m):
    out = []
    values = x.tolist()
    for i in range(n):
        first = i // 32 * 32
        warp = [values[j] if j < n else None for j in range(first, first + 32)]
        ballot = sum(1 << k for k, v in enumerate(warp) if v is not None and v & 1)
        kind = int(np.fmod(values[i], 4))
        same = sum(1 << k for k, v in enumerate(warp) if (7 if v is None else int(np.fmod(v, 4))) == kind)
        word = (
            bin(ballot).count("1")
            | any(v is not None and v > 90 for v in warp) << 8
            | all(v is not None for v in warp) << 9
        )
        out.append(((word | same << 10) ^ ballot) & 0xFFFFFFFF)
    return torch.from_numpy(np.array(out, dtype=np.uint32).view(np.int32).copy())


def _warp_scan(x, n, m):
    groups = _blocks(x, 8).cumsum(1)
    return (groups * 1000 + groups[:, 7:]).flatten()[:n].to(torch.int32)


def _many_atomics(x, out, wrapped, n, m):
    v = x.numpy()
    a = np.bitwise_and.reduce(~(1 << (v & 7)).astype(np.int32), initial=-1)
    o = np.bitwise_or.reduce(1 << (v & 15))
    xor = np.bitwise_xor.reduce(v)
    first = [min(v.min(), 0), max(v.max(), 0), int(a) & 0, o, xor, -int(v.sum()), 2 * n]
    return torch.tensor(first, dtype=I32), torch.tensor([n % 10], dtype=I32)


def _bits(x, n, m):
    v = (x.numpy().astype(np.int64) * 2654435761) & 0xFFFFFFFF
    out = []
    for u in v.tolist():
        reverse = int(f"{u:032b}"[::-1], 2)
        both = ((~u & 0xFFFFFFFF) << 32) | u
        perm = sum(((both >> (8 * ((0x5140 >> (4 * k)) & 7))) & 255) << (8 * k) for k in range(4))
        ffs = (u & -u).bit_length()
        as_float = int(np.float32(1.0 + (u & 1023)).view(np.uint32))
        out.append(
            reverse
            ^ bin(u).count("1")
            ^ ((32 - u.bit_length()) << 8)
            ^ (ffs << 16)
            ^ perm
            ^ (u * u >> 32)
            ^ as_float
        )
    return torch.from_numpy(np.array(out, dtype=np.uint32).view(np.int32).copy())


def _random(x, n, m):
    s = (x.numpy().astype(np.int64) + 1).astype(np.uint32).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for _ in range(10):
        s ^= s << np.uint64(13)
        s ^= s >> np.uint64(7)
        s ^= s << np.uint64(17)
    return torch.from_numpy(s.view(np.int64).copy())


def _fast_math(x, n, m):
    v = x.abs() + 0.5
    return (-v).exp() + v.log() + 1 / v + v.rsqrt() + v.sin() * v.cos() + v**1.5


def _softmax(x, n, m):
    return x.softmax(1)


def _layernorm(x, weight, n, m):
    mean, var = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
    return (x - mean) / (var + 1e-5).sqrt() * weight


def _convolve(x, n, m):
    weights = torch.tensor([0.1, 0.2, 0.4, 0.2, 0.1], dtype=D).view(1, 1, 5)
    return torch.nn.functional.conv1d(x.view(1, 1, -1), weights, padding=2).view(-1)


def _complex(x, y, n, m):
    return torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(y))


_out = _made
CASES = (
    Case("add", 1000, 0, _makes(_floats("n"), _floats("n"), _out(F, "n")), (2,), lambda x, y, o, n, m: x + y),
    Case("axpy", 2000, 0, _makes(_floats("n"), _floats("n")), (1,), lambda x, y, n, m: 1.5 * x + y),
    Case("clamp", 777, 0, _makes(_ints("n"), _out(I32, "n")), (1,), lambda x, o, n, m: x.clamp(-50, 50)),
    Case(
        "gelu",
        1000,
        0,
        _makes(_floats("n"), _out(F, "n")),
        (1,),
        lambda x, o, n, m: torch.nn.functional.gelu(x, approximate="tanh"),
    ),
    Case(
        "fast_math",
        1000,
        0,
        _makes(_floats("n"), _out(F, "n")),
        (1,),
        lambda x, o, n, m: _fast_math(x, n, m),
        (2e-5, 1e-5),
    ),
    Case(
        "square_matrix", 37, 50, _makes(_floats("n", "m"), _out(F, "n", "m")), (1,), lambda x, o, n, m: x * x
    ),
    Case(
        "stencil",
        13,
        0,
        _makes(_floats("n", "n", "n"), _out(F, "n", "n", "n")),
        (1,),
        lambda x, o, n, m: _stencil(x, n, m),
    ),
    Case("transpose", 45, 70, _makes(_floats("n", "m"), _out(F, "m", "n")), (1,), lambda x, o, n, m: x.t()),
    Case(
        "block_sum",
        1000,
        0,
        _makes(_ints("n"), _out(I32, 4)),
        (1,),
        lambda x, o, n, m: _blocks(x, 256).sum(1).to(I32),
    ),
    Case(
        "block_max",
        1000,
        0,
        _makes(_ints("n"), _out(I32, 1, value=-1000)),
        (1,),
        lambda x, o, n, m: x.max().view(1),
    ),
    Case(
        "scan",
        200,
        0,
        _makes(_ints("n"), _out(I32, "n")),
        (1,),
        lambda x, o, n, m: _blocks(x, 64).cumsum(1).flatten()[:n].to(I32),
    ),
    Case(
        "matmul",
        37,
        29,
        _makes(_floats("n", "m"), _floats("m", "n"), _out(F, "n", "n")),
        (2,),
        lambda x, y, o, n, m: x @ y,
        (1e-5, 1e-5),
    ),
    Case(
        "softmax",
        5,
        300,
        _makes(_floats("n", "m"), _out(F, "n", "m")),
        (1,),
        lambda x, o, n, m: _softmax(x, n, m),
    ),
    Case(
        "shuffle_sum",
        1000,
        0,
        _makes(_floats("n"), _out(F, 4)),
        (1,),
        lambda x, o, n, m: _blocks(x, 256).sum(1),
        (1e-5, 1e-5),
    ),
    Case(
        "layernorm",
        8,
        100,
        _makes(_floats("n", "m"), _floats("m"), _out(F, "n", "m")),
        (2,),
        lambda x, w, o, n, m: _layernorm(x, w, n, m),
        (1e-5, 1e-5),
    ),
    Case("votes", 500, 0, _makes(_ints("n"), _out(I32, "n")), (1,), lambda x, o, n, m: _votes(x, n, m)),
    Case(
        "warp_scan", 300, 0, _makes(_ints("n"), _out(I32, "n")), (1,), lambda x, o, n, m: _warp_scan(x, n, m)
    ),
    Case(
        "warp_synchronous",
        300,
        0,
        _makes(_ints("n"), _out(I32, 10)),
        (1,),
        lambda x, o, n, m: _blocks(x, 32).sum(1).to(I32),
    ),
    Case(
        "histogram",
        3000,
        0,
        _makes(_ints("n", low=0), _out(I32, 32, value=0)),
        (1,),
        lambda x, o, n, m: torch.bincount(x & 31, minlength=32).to(I32),
    ),
    Case(
        "histogram_shared",
        3000,
        0,
        _makes(_ints("n", low=0), _out(I32, 32, value=0)),
        (1,),
        lambda x, o, n, m: torch.bincount(x & 31, minlength=32).to(I32),
    ),
    Case(
        "many_atomics",
        1000,
        0,
        _makes(_ints("n"), _out(I32, 7, value=0), _out(I32, 1, value=0)),
        (1, 2),
        _many_atomics,
    ),
    Case(
        "dot",
        3000,
        0,
        _makes(_floats("n", dtype=D), _floats("n", dtype=D), _out(D, 1, value=0.0)),
        (2,),
        lambda x, y, o, n, m: (x @ y).view(1),
        (1e-12, 1e-11),
    ),
    Case(
        "every",
        100,
        0,
        _makes(_floats("3 * n", dtype=D), _out(D, "n")),
        (1,),
        lambda x, o, n, m: 0.5 * x[::3],
        (1e-13, 0),
    ),
    Case("compose", 300, 0, _makes(_ints("n"), _out(I32, "n")), (1,), lambda x, o, n, m: 2 * (x + 1)),
    Case("square4", 1000, 0, _makes(_floats("n"), _out(F, "n")), (1,), lambda x, o, n, m: x * x),
    Case(
        "complex_product",
        300,
        0,
        _makes(_floats("n", 2), _floats("n", 2), _out(F, "n", 2)),
        (2,),
        lambda x, y, o, n, m: _complex(x, y, n, m),
        (1e-5, 1e-5),
    ),
    Case(
        "half_affine",
        300,
        0,
        _makes(_floats("n", dtype=torch.float16), _out(torch.float16, "n")),
        (1,),
        lambda x, o, n, m: 1.25 * x + 0.1,
        (2e-3, 1e-4),
    ),
    Case(
        "bfloat_triple",
        300,
        0,
        _makes(_floats("n", dtype=torch.bfloat16), _out(torch.bfloat16, "n")),
        (1,),
        lambda x, o, n, m: 3 * x,
        (1.6e-2, 1e-3),
    ),
    Case("bits", 300, 0, _makes(_ints("n"), _out(I32, "n")), (1,), lambda x, o, n, m: _bits(x, n, m)),
    Case("convolve", 300, 0, _makes(_floats("n"), _out(F, "n")), (1,), lambda x, o, n, m: _convolve(x, n, m)),
    Case(
        "random_bits",
        300,
        0,
        _makes(_ints("n", low=0), _out(torch.int64, "n")),
        (1,),
        lambda x, o, n, m: _random(x, n, m),
    ),
)


def inputs(case: Case) -> tuple[torch.Tensor, ...]:
    """The case's tensors, on the CPU; the same on every machine: numpy keeps RandomState's
    streams for ever.
    """
    return case.make(np.random.RandomState(sum(map(ord, case.name))), case.n, case.m)


@functools.cache
def right(where: str):
    """The module of right.cu, built for "cuda" or "emulator"."""
    names = [case.name for case in CASES]
    declared = "".join(
        f"const char* {n}(int64_t, int64_t, int64_t, int64_t, int, int, int64_t);\n" for n in names
    )
    return cuda.load_cuda(
        "corpus_right", RIGHT, names, cpp_source=declared, torch_headers=False, device=where
    )


@functools.cache
def broken():
    """The module of broken.cu, built for the host."""
    return cuda.load_cuda("corpus_broken", BROKEN, list(EXPECTED), torch_headers=False, device="emulator")


def run(case: Case, where: str) -> tuple[torch.Tensor, ...]:
    """The case's outputs, on the CPU."""
    tensors = [t.to("cuda" if where == "cuda" else "cpu") for t in inputs(case)]
    addresses = [t.data_ptr() for t in tensors] + [0] * (4 - len(tensors))
    stream = torch.cuda.current_stream().cuda_stream if where == "cuda" else 0
    said = getattr(right(where), case.name)(*addresses, case.n, case.m, stream)
    if said != "no error":
        raise RuntimeError(f"{case.name}: {said}")
    if where == "cuda":
        torch.cuda.synchronize()
    return tuple(tensors[i].cpu() for i in case.outputs)


def digest(case: Case, outputs: tuple[torch.Tensor, ...]) -> list[dict]:
    """Small rows that hold the outputs: a hash of integers; of floats their sums and some elements."""
    rows = []
    for number, t in enumerate(outputs):
        row = {
            "case": case.name,
            "output": number,
            "dtype": str(t.dtype).removeprefix("torch."),
            "n": t.numel(),
        }
        if t.is_floating_point():
            flat = t.double().flatten()
            where = torch.linspace(0, flat.numel() - 1, min(SAMPLES, flat.numel())).long()
            row |= {
                "sum": flat.sum().item(),
                "absolute_sum": flat.abs().sum().item(),
                "samples": flat[where].tolist(),
            }
        else:
            row["sha256"] = hashlib.sha256(t.contiguous().numpy().tobytes()).hexdigest()
        rows.append(row)
    return rows


def recorded():
    """The outputs on a GPU as `digest` gives them: measured where one is, replayed elsewhere."""
    return records.measured(
        "host_cuda/corpus",
        lambda: [row for case in CASES for row in digest(case, run(case, "cuda"))],
        sources=[RIGHT],
    )


# The broken ones


@dataclass(frozen=True)
class Expected:
    """What the host must say about a launcher of broken.cu.

    Attributes:
        cause: `EmulatorError.cause`; "unwritten" is told by a traced run.
        block, thread: whose fault, as (x, y, z).
        argument: the parameter or shared array.
        tool: the tool of compute-sanitizer that looks for such a fault.
        n: elements of the two tensors.
        outside: bytes outside.
    """

    cause: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    argument: str
    tool: str
    n: int = 1000
    outside: int = 0


EXPECTED = {
    "missing_guard": Expected("out of bounds", (3, 0, 0), (232, 0, 0), "out", "memcheck", outside=4),
    "off_by_one": Expected("out of bounds", (3, 0, 0), (232, 0, 0), "in", "memcheck", outside=4),
    "left_neighbour": Expected("out of bounds", (0, 0, 0), (0, 0, 0), "in", "memcheck", outside=4),
    "swapped_sizes": Expected("out of bounds", (0, 2, 0), (0, 4, 0), "out", "memcheck", n=960, outside=4),
    "misaligned": Expected("misaligned", (0, 0, 0), (0, 0, 0), "in", "memcheck"),
    "null_pointer": Expected("no tensor", (0, 0, 0), (0, 0, 0), "bias", "memcheck"),
    "barrier_in_branch": Expected("barrier", (0, 0, 0), (48, 0, 0), "", "synccheck"),
    "early_return": Expected("barrier", (7, 0, 0), (104, 0, 0), "", "synccheck"),
    "missing_barrier": Expected("race", (0, 0, 0), (64, 0, 0), "s", "racecheck"),
    "barrier_not_in_loop": Expected("race", (0, 0, 0), (1, 0, 0), "s", "racecheck"),
    "tile_overwritten": Expected("race", (0, 0, 0), (1, 0, 0), "tile", "racecheck"),
    "last_wins": Expected("race", (0, 0, 0), (1, 0, 0), "last", "racecheck"),
    "half_loaded": Expected("uninitialised", (0, 0, 0), (100, 0, 0), "s", "initcheck"),
    "bins_not_zeroed": Expected("uninitialised", (0, 0, 0), (0, 0, 0), "bins", "initcheck"),
    "shared_overrun": Expected("out of bounds", (0, 0, 0), (63, 0, 0), "s", "memcheck", outside=4),
    "shared_not_asked": Expected("out of bounds", (0, 0, 0), (32, 0, 0), "s", "memcheck", outside=4),
    "wrong_mask": Expected("warp", (0, 0, 0), (8, 0, 0), "", "synccheck"),
    "failing_assert": Expected("assert", (0, 0, 0), (0, 0, 0), "", "memcheck"),
    "tail_forgotten": Expected("unwritten", (0, 0, 0), (0, 0, 0), "out", "initcheck"),
}


def blamed_line(name: str) -> int:
    """The line of broken.cu that is marked for a launcher: the last mark above it."""
    lines = BROKEN.splitlines()
    end = lines.index(f"LAUNCHER({name}) {{")
    return max(i for i in range(end) if lines[i].endswith("// BROKEN")) + 1


def sanitized() -> list[dict]:
    """What compute-sanitizer says about each broken kernel on this GPU."""
    tool = device.find_tool("compute-sanitizer")
    if tool is None:
        raise records.CannotMeasure("compute-sanitizer is not here: it comes with the CUDA toolkit.")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        compiler = [
            str(device.find_tool("nvcc")),
            f"-arch={device.gpu_spec().target}",
            "-lineinfo",
            "-DBROKEN_MAIN",
        ]
        subprocess.run([*compiler, "-o", f"{folder}/broken", str(HERE / "broken.cu")], check=True)
        for name, expected in EXPECTED.items():
            command = [str(tool), "--tool", expected.tool]
            if expected.tool == "racecheck":
                command += ["--racecheck-report", "all"]
            command += [f"{folder}/broken", name, str(expected.n)]
            try:
                said = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
                text = "\n".join(re.findall(r"^========= ?(.*)$", said, re.M))
                verdicts = re.findall(
                    r"^(?:Error|Warning|Uninitialized|Invalid|Barrier|Race|Internal|Misaligned|Host "
                    r"API|Program hit|.*hazard|.*Divergent).*$",
                    text,
                    re.M,
                )
                line = re.search(r"broken\.cu:(\d+)", text)
                summary = re.search(r"^(?:ERROR|RACECHECK) SUMMARY: (.*)$", text, re.M)
                asserted = re.search(r"broken\.cu:(\d+): .*Assertion.*failed", said)
                row = {
                    "verdict": re.sub(r" (at|to) (host access to )?0x[0-9a-f]+", "", verdicts[0])
                    if verdicts
                    else "Assertion failed"
                    if asserted
                    else "nothing found",
                    "line": int(line[1]) if line else int(asserted[1]) if asserted else 0,
                    "summary": summary[1] if summary else "",
                }
            except subprocess.TimeoutExpired:
                row = {"verdict": "the kernel did not end within 30 s", "line": 0, "summary": ""}
            rows.append({"case": name, "tool": expected.tool, **row})
    return rows


def sanitizer():
    """compute-sanitizer's verdicts: measured where it is, replayed elsewhere."""
    return records.measured("host_cuda/sanitizer", sanitized, sources=[BROKEN])


def table() -> str:
    """What the host says about each broken kernel beside compute-sanitizer's verdict, as Markdown."""
    theirs = sanitizer()
    provenance = theirs.attrs["provenance"]
    lines = [
        "# Nineteen broken kernels, diagnosed twice",
        "",
        "For each kernel in `tests/cuda_corpus/broken.cu`, this table shows what the CUDA emulator reports",
        '(`cuda.load_cuda(..., device="emulator")`), and what compute-sanitizer reported for the same kernel',
        f"on an {provenance.gpu['name']} ({provenance.date}), with the tool that looks for such a fault.",
        "`initcheck` checks shared memory only with `--initcheck-address-space`, from CUDA 13.1 on.",
        "`synccheck` accepts a barrier that some threads never reach, if those threads have ended: the GPU",
        "tolerates that, although the CUDA guide forbids it.",
        "",
        "`python tests/cuda_corpus/corpus.py` writes this page.",
        "",
        "| kernel | the emulator: cause, thread, line | compute-sanitizer: verdict, line |",
        "|---|---|---|",
    ]
    for row in theirs.itertuples():
        e = EXPECTED[row.case]
        if e.cause == "unwritten":
            ours = "never written: elements 768 to 999 of `out` (a traced run)"
        else:
            ours = (
                f"{e.cause}{f' (`{e.argument}`)' if e.argument else ''}, block {e.block[:2]}, thread "
                f"{e.thread[:2]}, line {blamed_line(row.case)}"
            )
        line = f", line {row.line}" if row.line else ""
        lines.append(f"| {row.case} | {ours} | {row.tool}: {row.verdict.rstrip(' .:')}{line} |")
    return "\n".join(lines) + "\n"


TABLE = HERE.parents[1] / "docs" / "broken-kernels.md"

if __name__ == "__main__":
    print(recorded().drop(columns="samples").to_string())
    print(sanitizer().to_string())
    TABLE.write_text(table())
