"""The table of capabilities says what compiled code and simulated GPUs confirm."""

from __future__ import annotations

import re
from types import SimpleNamespace

import commands
import nbformat
import pytest
import torch
import triton
import triton.language as tl
from commands import ROOT, cells
from nbclient import NotebookClient

from helpers import capabilities, device, ptx, records
from helpers.capabilities import COMPILE, GPUS, KINDS, REPLAY, RUN, decide, decide_for
from helpers.kernels.matmul import matmul_tiles_kernel
from helpers.lessons import products

TENSOR = ("wgmma.mma_async", "tcgen05.mma", "mma.sync")
H100 = device.GpuSpec("NVIDIA H100", (9, 0), 132, 32, 2048, 32, 65536, 233472, 1, 1, 3352.0, 3000.0)


def simulate(monkeypatch, target: str | None) -> None:
    """Have torch and the workbook report a GPU of this target, or none."""
    gpu = GPUS[target] if target else None
    monkeypatch.setattr(device, "has_gpu", lambda: gpu is not None)
    if gpu is not None:
        (major, minor), shared = gpu.capability, gpu.shared_bytes
        found = SimpleNamespace(major=major, minor=minor, shared_memory_per_block_optin=shared)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found)


def product(target: str, dtype: str, tile: int = 32, precision: str = "ieee") -> ptx.Stages:
    """`matmul_tiles_kernel`, compiled for a target."""
    names = ("c_ptr", "a_ptr", "b_ptr", "scale_a_ptr", "scale_b_ptr", "bias_ptr")
    pointers = dict.fromkeys(names, f"*{dtype}")
    integers = ("m", "n", "k", "k_per_part", "stride_am", "stride_bk", "stride_cp", "stride_cm")
    ones = dict.fromkeys(("stride_ak", "stride_bn", "stride_cn"), 1)
    sizes = {"BLOCK_M": 64, "BLOCK_N": tile, "BLOCK_K": 32, "GROUP_M": 8}
    after = {"PRECISION": precision, "IMPRECISE": None, "SCALED": False, "BIAS": False, "GELU": False}
    return ptx.stages(
        matmul_tiles_kernel, signature=pointers | dict.fromkeys(integers, "i32"),
        constexprs=ones | sizes | after, target=target, num_stages=2, divisible_by_16=[*pointers, *integers],
    )  # fmt: skip


@triton.jit
def attention_tile_kernel(o_ptr, q_ptr, k_ptr, v_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    p = tl.exp2(tl.dot(tl.load(q_ptr + at), tl.load(k_ptr + at).T)).to(tl.float16)
    tl.store(o_ptr + at, tl.dot(p, tl.load(v_ptr + at)))


@triton.jit
def descriptor_kernel(c_ptr, a_ptr, n, SIZE: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [n, n], [n, 1], [SIZE, SIZE])
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(c_ptr + at, a.load([0, 0]))


# ------------------------------------------------------------------------------------- what compilers confirm


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("target", [name for name in GPUS if name != "no GPU"])
def test_tensor_cores_are_used_where_the_table_says(target, dtype):
    made = product(target, dtype)
    used = any(word in made.ptx for word in TENSOR)
    assert used == (GPUS[target].capability >= capabilities.TENSOR_CORES)
    assert used == (decide_for(KINDS["tiles and stages"], GPUS[target]).why != _lacks(target))
    if not used:
        assert "fma.rn.f32" in made.ptx


def _lacks(target: str) -> str:
    return f"{target} {KINDS['tiles and stages'].lacking}."


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90"])
def test_tf32_is_a_precision_from_sm_80_on(target):
    rounded = "tf32" in product(target, "fp32", precision="tf32").ptx
    assert rounded == (decide_for(KINDS["tf32"], GPUS[target]).action == RUN)


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_fp8_is_a_type_from_sm_89_on(target):
    decision = decide_for(KINDS["fp8 speed"], GPUS[target])
    if decision.action == RUN:
        assert any(word in product(target, "fp8e4nv").ptx for word in TENSOR)
    else:
        with pytest.raises(ptx.CompileError, match="fp8e4nv not supported"):
            product(target, "fp8e4nv")


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90"])
def test_descriptors_compile_everywhere_and_use_tma_from_sm_90_on(target):
    types = {"c_ptr": "*fp16", "a_ptr": "*fp16", "n": "i32"}
    made = ptx.stages(descriptor_kernel, signature=types, constexprs={"SIZE": 32}, target=target)
    by_tma = "cp.async.bulk.tensor" in made.ptx
    assert by_tma == (decide_for(KINDS["descriptors speed"], GPUS[target]).action == RUN)
    assert decide_for(KINDS["small descriptors"], GPUS[target]).action == RUN


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90"])
def test_the_products_of_attention_use_what_other_products_use(target):
    types = dict.fromkeys(("o_ptr", "q_ptr", "k_ptr", "v_ptr"), "*fp16")
    made = ptx.stages(attention_tile_kernel, signature=types, constexprs={"SIZE": 32}, target=target)
    used = any(word in made.ptx for word in TENSOR)
    for kind in ("attention forward", "attention decode"):
        assert used == (decide_for(KINDS[kind], GPUS[target]).action == RUN)


# The stages of a tile of 128 × 256; one of 256 × 256 in three stages takes no more than this one in four.
STAGES = {"order of programs": 3, "tiles and stages": 4}


@pytest.mark.parametrize("kind", STAGES)
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_the_shared_memory_of_the_largest_tile(kind, target, lesson_kernel):
    made = products.compile_product(
        lesson_kernel, target, BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, GROUP_M=8, num_warps=8,
        num_stages=STAGES[kind],
    )  # fmt: skip
    table = KINDS[kind].shared_bytes
    stated = max(need for need in table if need[0] <= GPUS[target].capability)[1]
    assert made.shared_bytes == pytest.approx(stated, rel=0.02)  # versions of Triton add a few barriers
    fits = made.shared_bytes <= GPUS[target].shared_bytes
    assert fits == (decide_for(KINDS[kind], GPUS[target]).action == RUN)


@pytest.fixture(scope="module")
def lesson_kernel(tmp_path_factory):
    """`matmul_kernel`, as lesson 11 defines it."""
    import importlib.util

    names = ("def tile_of(", "def matmul_kernel(")
    source = [
        text for text in cells("notebooks/11_matmul.ipynb").values() if any(name in text for name in names)
    ]
    path = tmp_path_factory.mktemp("lesson") / "lesson_11_kernel.py"
    path.write_text("import triton\nimport triton.language as tl\n" + "\n\n".join(source))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.matmul_kernel


# ------------------------------------------------------------------------------------- what cells then do


def recorded_in(notebook: str) -> set[str]:
    """The records that the cells of a notebook measure."""
    code = "\n".join(cells(notebook).values())
    by_ncu = re.findall(r"^%%ncu .*--record (\S+)", code, re.MULTILINE)
    return {*by_ncu, *re.findall(r'records\.measured\(\s*"([^"]+)"', code)}


def test_every_measuring_cell_of_lesson_11_is_in_the_table():
    names = recorded_in("notebooks/11_matmul.ipynb")
    assert len(names) == 8 and all(capabilities.kind_of(name) for name in names)


def test_every_measuring_cell_of_lesson_12_is_in_the_table():
    names = recorded_in("notebooks/12_attention.ipynb")
    assert len(names) == 5 and all(capabilities.kind_of(name) for name in names)


@pytest.mark.parametrize("target", [None, "sm_75", "sm_80", "sm_89", "sm_90"])
@pytest.mark.parametrize("name", sorted(recorded_in("notebooks/11_matmul.ipynb") - {"matmul/traffic"}))
def test_lesson_11s_cells_do_what_the_table_says(name, target, monkeypatch, tmp_path, capsys):
    """A cell that can't run replays its record, and never starts to measure."""
    simulate(monkeypatch, target)
    monkeypatch.setenv("WORKBOOK_CACHE", str(tmp_path))
    provenance = records.Provenance(
        H100.as_dict(), "580", "13.0", "2.11.0", "3.6.0", 1980, 2619, "2026-11-25"
    )
    monkeypatch.setattr("helpers.records.replay.live_provenance", lambda: provenance)
    measured = []

    def live():
        measured.append(name)
        return [{"kernel": "made up", "median_us": 1.0}]

    frame = records.measured(name, live, optional=True)
    expected = decide_for(capabilities.kind_of(name), GPUS[target] if target else None)
    assert bool(measured) == (expected.action == RUN) == (list(frame.get("kernel", ())) == ["made up"])
    if target and expected.action == REPLAY:
        assert expected.why and expected.why in capsys.readouterr().out


# Runs before lesson 11's cells: torch reports the GPU, and kernels that really run do so on the CPU.
SIMULATED = """
def simulate():
    import json
    from types import SimpleNamespace
    import torch
    from helpers import capabilities, device, records
    from helpers.cuda import extension
    from helpers.lessons import products
    from helpers.records import replay

    gpu = capabilities.GPUS[{target!r}]
    major, minor = gpu.capability
    spec = device.GpuSpec("Simulated", gpu.capability, 40, 32, 1024, 16, 65536, 65536, 1, 1, 320.0, 240.0)
    found = SimpleNamespace(major=major, minor=minor, shared_memory_per_block_optin=gpu.shared_bytes)
    device.has_gpu, device.gpu_spec = lambda: True, lambda: spec
    torch.cuda.current_device, torch.cuda.get_device_properties = lambda: 0, lambda index: found
    extension.resolve_device = lambda asked: "emulator"
    here = records.Provenance(spec.as_dict(), "580", "13.0", "2.11.0", "3.6.0", 1590, 5001, "2026-11-25")
    replay.live_provenance = lambda: here
    measured = []

    def from_record(name):
        measured.append(name)
        path = next(records.folder().glob(f"*/{{name}}.json"))
        return json.loads(path.read_text())["cases"][0]["rows"]

    by_first = {{"naive": "matmul/cuda", "1": "matmul/order", "torch": "matmul/tiles"}}
    products.time_products = lambda functions, *_, **__: from_record(by_first[next(iter(functions))])
    products.time_contents = lambda *_: from_record("matmul/contents")
    products.time_epilogue = lambda *_: measured.append("matmul/epilogue") or []
    return measured

measured_here = simulate()
"""


@pytest.mark.parametrize(
    ("target", "timed"),
    [
        ("sm_75", ["matmul/cuda", "matmul/contents"]),
        ("sm_89", ["matmul/cuda", "matmul/order", "matmul/contents", "matmul/epilogue"]),
    ],
)
def test_lesson_11_runs_on_a_simulated_gpu(target, timed):
    """No cell raises: those that the table says replay, and the others measure."""
    notebook = nbformat.read(ROOT / "notebooks/11_matmul.ipynb", as_version=4)
    first = [cell.id for cell in notebook.cells].index("setup") + 1
    notebook.cells.insert(first, nbformat.v4.new_code_cell(SIMULATED.format(target=target)))
    notebook.cells.append(nbformat.v4.new_code_cell("print(*measured_here)"))
    environment = commands.environment() | {"TRITON_INTERPRET": "1", "WORKBOOK_WIDGETS": "plain"}
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": ROOT / "notebooks"}})
    client.execute(env=environment)
    printed = "".join(one.text for one in notebook.cells[-1].outputs)  # a busy kernel sends a line in parts
    assert printed.split() == timed


def test_a_t4_replays_what_needs_tensor_cores_and_times_the_rest(monkeypatch):
    simulate(monkeypatch, "sm_75")
    actions = {name: decide(name).action for name in recorded_in("notebooks/11_matmul.ipynb")}
    assert {name for name, action in actions.items() if action == RUN} == {
        "matmul/cuda", "matmul/traffic", "matmul/contents",
    }  # fmt: skip
    assert decide("small fp8 product").action == COMPILE and decide("small product").action == RUN
    assert decide("lesson/of-another-lesson").action == RUN


def test_without_a_gpu_nothing_is_timed(monkeypatch):
    simulate(monkeypatch, None)
    assert all(decide(name).action != RUN for kind in KINDS.values() for name in kind.records)
    assert decide("small product").action == RUN and decide("code").action == COMPILE
    assert decide("lesson/of-another-lesson").action == REPLAY


def test_the_guide_shows_the_table():
    text = (ROOT / "docs/guide/capabilities.md").read_text("utf-8")
    assert capabilities.as_markdown() in text
