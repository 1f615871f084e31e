"""How many blocks of a launch fit on a GPU at once, from its limits, also for a GPU that isn't here."""

from __future__ import annotations

import math

from helpers import device, records

# What an SM has, by compute capability: threads, blocks, KiB of shared memory ("Technical Specifications per
# Compute Capability" in the CUDA C++ Programming Guide); 65,536 registers everywhere.
_SM = {
    75: (1024, 16, 64),
    80: (2048, 32, 164),
    86: (1536, 16, 100),
    87: (1536, 16, 164),
    89: (1536, 24, 100),
    90: (2048, 32, 228),
    100: (2048, 32, 228),
    103: (2048, 32, 228),
    120: (1536, 24, 100),
    121: (1536, 24, 100),
}


def spec_for(target: str | int | None) -> device.GpuSpec:
    """A GPU to compile for on a machine without one.

    Args:
        target: such as "sm_80"; None for the GPU whose record is replayed.

    Returns:
        The newest recorded GPU of that target; if there is none, what all GPUs of the target have in common,
        with an `sm_count` of 0.

    Raises:
        ValueError: this release doesn't compile for the target.
    """
    from helpers.ptx.compile import parse_target

    if target is None:
        return records.gpu_spec()
    capability = parse_target(target)
    for spec in records.gpu_specs():
        if spec.target == f"sm_{capability}":
            return spec
    threads, blocks, shared = _SM[capability]
    name, version = f"a GPU of sm_{capability}", divmod(capability, 10)
    return device.GpuSpec(name, version, 0, 32, threads, blocks, 65536, shared << 10, 0, 0, None, None)


def occupancy(spec: device.GpuSpec, threads: int, registers: int, shared_bytes: int) -> tuple[int, str]:
    """How many blocks fit on an SM at once, and which resource limits them.

    A warp gets its registers in units of 256 (CUDA Occupancy Calculator, compute capability 7.0 to 9.0).
    """
    warps = math.ceil(threads / spec.warp_size)
    per_warp = math.ceil(registers * spec.warp_size / 256) * 256
    limits = {
        "threads": spec.max_threads_per_sm // (warps * spec.warp_size),
        "blocks": spec.max_blocks_per_sm,
        "registers": spec.registers_per_sm // (per_warp * warps) if per_warp else 10**6,
    }
    if shared_bytes:
        system = 1024 if spec.compute_capability >= (8, 0) else 0
        limits["shared memory"] = spec.shared_bytes_per_sm // (shared_bytes + system)
    tightest = min(limits, key=limits.get)
    return limits[tightest], tightest


def percent_held(spec: device.GpuSpec, blocks: int, threads: int) -> int:
    """The share of an SM's threads that these blocks use, in whole percent; halves are rounded up."""
    return math.floor(100 * blocks * threads / spec.max_threads_per_sm + 0.5)
