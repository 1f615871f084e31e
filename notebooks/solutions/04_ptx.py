from helpers.lab import check


# %% count-multiplications
def multiplications(ptx_text: str) -> int:
    """Count the fp32 multiplications in PTX: opcodes that begin with `mul` and end with `f32`."""
    # BEGIN SOLUTION: find the opcode of each line, then look at its first and last part
    found = 0
    for line in ptx_text.splitlines():
        words = [word for word in line.split("//")[0].split() if not word.startswith("@")]
        parts = words[0].split(".") if words else [""]
        found += parts[0] == "mul" and parts[-1] == "f32"
    return found
    # END SOLUTION


check("count-multiplications", multiplications)


# %% columns-of-a-thread
def columns_of(thread: int, block_size: int, num_warps: int, neighbors: int) -> list[int]:
    """List the columns that one thread holds, in ascending order. In each round, every thread of the block
    gets `neighbors` adjacent columns; rounds repeat until all block_size columns are assigned. Assume that
    block_size is at least one full round.
    """
    # BEGIN SOLUTION: which thread gets column c?
    n_threads = 32 * num_warps
    return [c for c in range(block_size) if c // neighbors % n_threads == thread]
    # END SOLUTION


check("columns-of-a-thread", columns_of)


# %% sort-sass
def purpose(instruction: str) -> str:
    """Return what a SASS instruction is for: "load", "multiply", "store", "mask", "end" or "other"."""
    # BEGIN SOLUTION: skip the guard, drop the suffixes, then decide by the opcode
    words = instruction.split()
    opcode = words[1] if words[0].startswith("@") else words[0]
    kinds = {"LDG": "load", "FMUL": "multiply", "STG": "store", "ISETP": "mask", "P2R": "mask", "EXIT": "end"}
    return kinds.get(opcode.split(".")[0], "other")
    # END SOLUTION


check("sort-sass", purpose)


# %% widest-load
def load_bytes(n_cols: int, block_size: int, num_warps: int) -> int:
    """Return how many bytes one load of the row kernel moves, for contiguous fp32 rows of n_cols columns.
    If there are more threads than columns in the block, each thread loads one element.
    """
    # BEGIN SOLUTION: what may the compiler assume about n_cols, and how many elements does a thread have?
    if n_cols % 16:
        return 4
    elements = max(1, block_size // (32 * num_warps))
    return 4 * min(4, elements)
    # END SOLUTION


check("widest-load", load_bytes)
