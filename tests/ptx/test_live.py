"""Live registers: of snippets that can be counted by hand, and against nvdisasm's own count."""

import re
import subprocess

import pytest

from helpers import ptx
from helpers.ptx.live import live, widths
from helpers.ptx.sass import memory_bytes, read_sass


def sass(*lines: str) -> str:
    """nvdisasm's text of some instructions; a line that ends in a colon is a label."""
    rows, offset = [], 0
    for line in lines:
        if line.endswith(":"):
            rows.append(line)
        else:
            rows.append(f"        /*{offset:04x}*/                   {line} ;")
            offset += 16
    return "\n".join(rows)


def held(*lines: str) -> list[set[int]]:
    """The live registers at each instruction, without the stack pointer."""
    return [set(at.registers) - {1} for at in live(read_sass(sass(*lines)))]


def test_a_straight_piece():
    found = held(
        "S2R R0, SR_TID.X", "IMAD.WIDE R2, R0, 0x4, R4", "LDG.E.128 R8, [R2.64]", "FADD R8, R9, R10", "STG.E [R4.64], R8",
        "EXIT",
    )  # fmt: skip
    assert found == [
        {0, 4, 5},
        {0, 2, 3, 4, 5},
        {2, 3, 4, 5, 8, 9, 10, 11},
        {4, 5, 8, 9, 10},
        {4, 5, 8},
        set(),
    ]


def test_a_loop_carries_what_its_next_round_reads():
    found = held(
        "MOV R2, RZ", ".L_x_0:", "FADD R3, R3, R2", "IADD3 R2, R2, 0x1, RZ", "ISETP.LT.AND P0, PT, R2, R4, PT",
        "@P0 BRA `(.L_x_0)", "STG.E [R6.64], R3", "EXIT",
    )  # fmt: skip
    assert found[1] == {2, 3, 4, 6, 7} and found[4] == {2, 3, 4, 6, 7} and found[5] == {3, 6, 7}


def test_two_ways_and_a_predicate():
    # R5 is written under P0 and read under P0 only: before that it holds nothing
    found = held("ISETP.LT.AND P0, PT, R2, R4, PT", "@P0 MOV R5, R2", "@P0 STG.E [R6.64], R5", "EXIT")
    assert found[0] == {2, 4, 6, 7} and found[1] == {2, 5, 6, 7}
    # written under P0, read in any case: what it held under !P0 is still wanted
    assert held("ISETP.LT.AND P0, PT, R2, R4, PT", "@P0 MOV R5, R2", "STG.E [R6.64], R5", "EXIT")[0] == {
        2,
        4,
        5,
        6,
        7,
    }
    found = held(
        "@P0 BRA `(.L_x_1)",
        "MOV R5, R2",
        "BRA `(.L_x_2)",
        ".L_x_1:",
        "MOV R5, R3",
        ".L_x_2:",
        "STG.E [R6.64], R5",
        "EXIT",
    )
    assert found[0] == {2, 3, 6, 7} and found[1] == {2, 5, 6, 7} and found[3] == {3, 5, 6, 7}


def test_a_routine_returns_behind_its_own_calls_only():
    found = held(
        "MOV R20, 0x20", "CALL.REL.NOINC `(slow)", "FADD R9, R9, R3", "MOV R20, 0x50", "CALL.REL.NOINC `(slow)",
        "STG.E [R6.64], R3", "EXIT", "slow:", "MUFU.RCP R3, R4", "MOV R21, RZ", "RET.REL.NODEC R20 `(k)",
    )  # fmt: skip
    assert found[1] == {4, 6, 7, 9, 20} and found[4] == {4, 6, 7, 20}  # R3 comes from the routine


@pytest.mark.parametrize(
    ("instruction", "wide"),
    [
        ("DFMA R2, R4, R6, R8", {0: 2, 1: 2, 2: 2, 3: 2}),
        ("F2F.F64.F32 R2, R4", {0: 2}),
        ("F2F.F32.F64 R2, R4", {1: 2}),
        ("I2F.F64.S64 R2, R4", {0: 2, 1: 2}),
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4", {0: 4, 1: 4, 2: 2, 3: 4}),
        ("HMMA.1688.F32.TF32 R4, R8, R12, R4", {0: 4, 1: 4, 2: 2, 3: 4}),
        ("IMMA.16832.S8.S8 R4, R8, R12, R4", {0: 4, 1: 4, 2: 2, 3: 4}),
        ("HGMMA.64x64x16.F32 R24, gdesc[UR4], R24", {0: 32, 2: 32}),
        ("LDSM.16.M88.4 R4, [R2]", {0: 4}),
        ("FADD R2, R3, R4", {}),
    ],
)
def test_how_many_registers_an_operand_takes(instruction, wide):
    (one,) = read_sass(sass(instruction)).instructions
    found = widths(one)
    assert {place: n for place, n in found.items() if n > 1 and "[" not in one.operands[place]} == wide


@pytest.mark.parametrize(
    ("instruction", "n_bytes"),
    [
        ("LDG.E.128 R4, [R2.64]", 16), ("LDG.E.U16 R4, [R2.64]", 2), ("STS.U8 [R2], R4", 1), ("STG.E.64 [R2.64], R4", 8),
        ("LDL R4, [R1]", 4), ("LDSM.16.M88.4 R4, [R2]", 16), ("LDC.64 R4, c[0x0][0x10]", None), ("FADD R4, R4, R4", None),
    ],
)  # fmt: skip
def test_bytes_of_a_lane(instruction, n_bytes):
    assert memory_bytes(read_sass(sass(instruction)).instructions[0]) == n_bytes


KERNELS = {
    "vectors and doubles": """extern "C" __global__ void k(double* y, const double2* x, const float* f, long long* q, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
        double2 v = x[i]; double s = v.x * v.y + 2.0; if (s > 3.0) s = s - v.x;
        y[i] = s + (double)f[i]; q[i] = (long long)s + q[i] * 3; atomicAdd(y, s); }""",
    "a tile": """extern "C" __global__ void k(float* c, const float* a, const float* b, int n) {
        __shared__ float p[16][16], q[16][16]; float s = 0; int r = blockIdx.y * 16 + threadIdx.y, col = threadIdx.x;
        for (int t = 0; t < n; t += 16) { p[threadIdx.y][threadIdx.x] = a[r * n + t + threadIdx.x];
            q[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + col]; __syncthreads();
            for (int k = 0; k < 16; ++k) s += p[threadIdx.y][k] * q[k][threadIdx.x]; __syncthreads(); }
        c[r * n + col] = s; }""",
    "a matrix product": """extern "C" __global__ void k(float* d, const unsigned* a, const unsigned* b) {
        unsigned A[4], B[2]; float C[4] = {0, 0, 0, 0}; int l = threadIdx.x;
        for (int k = 0; k < 8; ++k) { for (int i = 0; i < 4; ++i) A[i] = a[(k * 4 + i) * 32 + l];
            for (int i = 0; i < 2; ++i) B[i] = b[(k * 2 + i) * 32 + l];
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3])
                : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1])); }
        for (int i = 0; i < 4; ++i) d[i * 32 + l] = C[i]; }""",
    "a histogram": """extern "C" __global__ void k(unsigned long long* h, const unsigned char* x, int n) {
        __shared__ unsigned s[256]; s[threadIdx.x] = 0; __syncthreads();
        for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&s[x[i]], 1); __syncthreads();
        if (s[threadIdx.x]) atomicAdd(&h[threadIdx.x], (unsigned long long)s[threadIdx.x]); }""",
}


def nvdisasms_count(stages: ptx.Stages, path) -> dict[int, int]:
    """The live registers at each offset, by `nvdisasm --print-life-ranges`."""
    import triton

    path.write_bytes(stages.cubin)
    tool = triton.knobs.nvidia.nvdisasm.path
    done = subprocess.run(
        [tool, "--print-code", "--life-range-mode", "count", path], capture_output=True, text=True, check=True
    )
    text = done.stdout[done.stdout.index(f".text.{stages.kernel}:") :]
    rows = re.findall(r"^\s*/\*([0-9a-f]{4,})\*/.*?// \|\s*(\d*)", text, flags=re.M)
    return {int(offset, 16): int(n or 0) for offset, n in rows}


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", KERNELS)
def test_nvdisasm_counts_the_same(name, target, tmp_path):
    made = ptx.cuda_stages(KERNELS[name], target=target)
    theirs = nvdisasms_count(made, tmp_path / "k.cubin")
    code = made.sass_reading.instructions
    ours = {one.offset: len(at.registers) for one, at in zip(code, live(made.sass_reading), strict=True)}
    assert ours == {offset: theirs[offset] for offset in ours}
    assert 4 < max(ours.values()) <= made.n_registers


def test_no_more_are_live_than_the_assembler_gave():
    divides = """extern "C" __global__ void k(float* y, const float* x, int n) {
        for (int i = threadIdx.x; i < n; i += 256) y[i] = sinf(x[i]) / sqrtf(x[i] + y[i]); }"""
    made = [ptx.cuda_stages(divides, target=target) for target in ("sm_75", "sm_80", "sm_90")]
    assert any(one.sass_reading.find("CALL") for one in made)
    for one in made:
        numbers = {n for at in live(one.sass_reading) for n in at.registers}
        assert max(len(at.registers) for at in live(one.sass_reading)) <= one.n_registers > max(numbers)
