"""Where the arguments of a candidate are: frauds recognize tensors by their addresses."""

from __future__ import annotations

import torch

from workbook.verify.slots import Slots


def put(slots, name, n=1000):
    """Put new numbers into a slot: what was put, and the tensor that the candidate gets."""
    numbers = torch.rand(n)
    slots.put(name, (numbers.clone(),))
    return numbers, slots[name][0]


def test_each_slot_has_memory_that_held_no_argument_before():
    slots, seen = Slots(on_gpu=False), set()
    for number in range(50):
        _, got = put(slots, f"case {number}")
        assert got.data_ptr() not in seen
        seen.add(got.data_ptr())
        slots.put(f"case {number}", ())


def test_the_next_arguments_of_a_slot_are_new_tensors_in_the_same_memory():
    slots = Slots(on_gpu=False)
    _, first = put(slots, "same")
    for _ in range(3):
        numbers, got = put(slots, "same")
        assert got.data_ptr() == first.data_ptr() and got is not first and got._version == first._version == 0
        assert torch.equal(got, numbers)


def test_arguments_that_do_not_fit_or_were_changed_get_other_memory():
    slots = Slots(on_gpu=False)
    _, first = put(slots, "same")
    numbers, larger = put(slots, "same", n=2000)
    assert torch.equal(larger, numbers) and larger.data_ptr() != first.data_ptr()
    larger.resize_(10)
    numbers, got = put(slots, "same", n=2000)
    assert torch.equal(got, numbers) and got.shape == (2000,)
