"""Control bits: decoded as the sources say, and true of real machine code."""

import subprocess

import pytest

from helpers import ptx
from helpers.ptx.control import decode, split_encodings
from helpers.ptx.live import _effect

SUM = """
extern "C" __global__ void total(float4* y, const float4* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 a = x[i], b = x[i + n];
    for (int k = 0; k < n; ++k) { a.x += b.x * a.y; b.z = b.z * a.w + sinf(b.w); }
    y[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
"""


def encoded(stall, keep, write, read, waits, reuse) -> int:
    """An encoding with these fields, put together bit by bit as "Dissecting Volta" draws them."""
    fields = [(stall, 4), (keep, 1), (write, 3), (read, 3), (sum(1 << i for i in waits), 6), (reuse, 4)]
    bits = at = 0
    for value, width in fields:
        bits |= value << at
        at += width
    return bits << 105 | 0x7918  # the opcode below says nothing here


@pytest.mark.parametrize(
    ("fields", "notation"),
    [
        ((4, 1, 7, 7, (), 0), "B------:R-:W-:-:S04"),
        ((1, 0, 0, 7, (), 0), "B------:R-:W0:Y:S01"),
        ((2, 1, 7, 1, (0, 3), 0), "B0--3--:R1:W-:-:S02"),
        ((15, 0, 5, 0, (5,), 3), "B-----5:R0:W5:Y:S15"),
    ],
)
def test_fields_and_the_notation_of_the_assemblers(fields, notation):
    control = decode(encoded(*fields))
    assert str(control) == notation
    assert control.reuse == tuple(bool(fields[5] >> i & 1) for i in range(4))
    assert f"{fields[0]} cycle" in control.words


def test_an_instruction_as_nvdisasm_prints_it():
    # S2R R9, SR_TID.X of a kernel for sm_90: its result is waited for by barrier 1
    control = decode(0x000E6E0000002100 << 64 | 0x0000000000097919)
    assert (control.write_barrier, control.read_barrier, control.waits) == (1, None, ())
    with pytest.raises(ValueError, match="128 bits"):
        decode(1 << 128)


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_a_loads_barrier_is_waited_for_before_its_register_is_read(target):
    code = ptx.cuda_stages(SUM, target=target).sass_reading.instructions
    loads = [n for n, one in enumerate(code) if one.parts[0] in ("LDG", "S2R")]
    assert len(loads) >= 3 and all(code[n].control.write_barrier is not None for n in loads)
    for n in loads:
        barrier, written = code[n].control.write_barrier, _effect(code[n]).writes
        for later in code[n + 1 :]:
            if barrier in later.control.waits:
                break
            assert not written & _effect(later).reads, (str(code[n]), str(later))
        else:
            pytest.fail(f"nothing waits for {code[n]}")


def test_reuse_is_where_nvdisasm_writes_it():
    code = ptx.cuda_stages(SUM, target="sm_80").sass_reading.instructions
    written = [any(".reuse" in operand for operand in one.operands) for one in code]
    assert any(written) and written == [any(one.control.reuse) for one in code]


def test_without_the_encodings_the_text_is_nvdisasms_own(tmp_path):
    import triton

    made = ptx.cuda_stages(SUM, target="sm_90")
    path = tmp_path / "total.cubin"
    path.write_bytes(made.cubin)
    tool = triton.knobs.nvidia.nvdisasm.path
    done = subprocess.run(
        [tool, "--print-code", "--print-line-info", path], capture_output=True, text=True, check=True
    )
    assert made.sass.rstrip() in done.stdout
    assert "/* 0x" not in made.sass and len(split_encodings(made.encoded_sass)[1]) % 8 == 0
    kept = ptx.read_sass(made.sass)  # a text that was kept without them
    assert [str(i) for i in kept.instructions] == [str(i) for i in made.sass_reading.instructions]
    assert {i.control for i in kept.instructions} == {None}
