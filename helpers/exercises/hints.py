"""What each kind of mistake is called, and the one sentence that is said about it."""

from __future__ import annotations

HINTS = {
    "missing-mask": "Looks like a missing mask or guard: programs or threads past the end must neither read nor write.",
    "only-first-block": "Looks like a fixed block or a grid of one: does anything compute what lies behind the first block?",
    "missing-tail": "Looks like a grid that is rounded down: the last block is only partly full, and it needs a program too.",
    "fast-but-partial": "Part of the output is never computed; a kernel is only fast if it does all of the work.",
    "uninitialised-output": "The output still holds what was in its memory: is every element written, or set to zero before something is added to it?",
    "transposed": "Looks like rows and columns are exchanged: check which index goes with which stride.",
    "wrong-axis": "Looks like the work is done along the other dimension: check which axis one program walks.",
    "wrong-stride": "Neighbours in a row or column need not be neighbours in memory: use the strides of the tensor you are given.",
    "contiguous-only": "It must work for views too: take the strides as they are, or make a contiguous copy first.",
    "off-by-one": "Looks shifted by one, or one short: check the first and the last index.",
    "int32-overflow": "Offsets beyond 2**31 do not fit into 32 bits: make the index 64 bits wide before you multiply it by a stride.",
    "race": "The same input gives different results: two threads write the same place, or one reads before another has written.",
    "in-place": "The input must stay as it was: write into a tensor of your own.",
    "half-precision": "The error has the size of half precision: is something converted to float16 or bfloat16 on the way?",
    "inaccurate": "The values are near but not near enough: which step loses digits?",
    "stale-answer": "That is the answer for an earlier input: nothing may be remembered from call to call.",
    "shared-output": "Each call needs an output of its own: an earlier result must not change.",
    "returns-input": "The values are the input's own: does the kernel write its result, and is that what you return?",
    "constant": "The answer does not depend on the input: compute it from what the function is given.",
    "power-of-two-only": "It works for powers of two only: the block may be one, the tensor need not be.",
    "nan-blind": "NaN must stay NaN: a comparison with NaN is always false, so see what your maximum or `where` does with it.",
    "no-maximum": "Large values overflow in exp: subtract the maximum of the row first.",
    "overflow": "Large values overflow on the way: which intermediate value is larger than its type can hold?",
    "special-values": "NaN, infinities and zeros must come out as the reference has them.",
    "wrong-padding": "The padding takes part in the result: which value leaves a maximum or a sum as it is?",
    "misaligned": "The base of a tensor need not be a multiple of 16 bytes: a vectorised access must check that first.",
    "wrong-dtype": "The result must have the dtype that the task names: allocate the output with it.",
    "wrong-shape": "The result must have the shape that the task names.",
    "wrong-device": "Allocate the output where the input is.",
    "no-tensor": "The function must return the output tensor.",
    "no-launch": "Here the point is the kernel: launch yours, and let it write the result.",
    "empty-fails": "A tensor without elements is fine: return an empty result before anything is launched.",
    "single-element": "One element, or a tensor without dimensions, is a case too.",
    "dtype-fails": "It must work for this dtype too: which conversion or literal fixes another one?",
    "raises": "Call it on such an input in a cell of your own: there you see the whole traceback.",
    "illegal-access": "A thread reached memory that is not the tensor's. The GPU is of no use to this process now: restart the kernel, then look at your guard.",
    "barrier": "All threads of a block must reach the same barrier: no __syncthreads() in a branch that only some of them take.",
    "uninitialised-shared": "Shared memory holds nothing of use until a thread writes it: write it, then __syncthreads(), then read.",
    "no-gpu": "There is no GPU here: restart the kernel and run the first cells, which set TRITON_INTERPRET=1 before Triton is imported.",
    "does-not-build": "Mend the first error first; the others often follow from it.",
    "not-callable": "Give the check the function itself, without calling it.",
    "wrong-answer": "",
    "wrong-values": "Take the first wrong element and compute it by hand: which inputs would give the value that came out?",
    "above-ceiling": "Faster than the memory is a measurement of something else: look for elements that are never touched.",
    "accepts-wrong-input": "Look at the input before you launch, and raise an exception that says what is wrong.",
    "wrong-exception": "Raise it yourself, before anything else fails.",
    "unclear-message": "The message should name what was wrong with what you were given.",
}

# Kinds of wrong values that a second call with the same input may explain better.
MAY_BE_A_RACE = frozenset(
    {"wrong-values", "fast-but-partial", "wrong-stride", "inaccurate", "special-values", "power-of-two-only"}
)
