"""System calls that a learner's process is refused: seccomp, a filter that Linux runs before each call.

Landlock knows files, TCP and signals. What it leaves open and a lab never needs is here: other sockets, and
memory that no process's size shows or that outlives its process. See
https://docs.kernel.org/userspace-api/seccomp_filter.html, whose structures are used, and the kernel's syscall
tables for the numbers.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct

_SET_SECCOMP, _FILTER = 22, 2
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
# The architecture as the kernel's audit calls it; then the numbers.
_SOCKET = {"x86_64": 41, "aarch64": 198}
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_REFUSED = {
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "semget": (64, 190),
    "msgget": (68, 186), "mq_open": (240, 180), "io_uring_setup": (425, 425), "perf_event_open": (298, 241),
    "bpf": (321, 280), "add_key": (248, 217), "keyctl": (250, 219),
}  # fmt: skip
_MACHINES = ("x86_64", "aarch64")


def refuse(*, unix_sockets: bool) -> bool:
    """Refuse them from now on, in this process and all that it starts. It must have PR_SET_NO_NEW_PRIVS.

    Args:
        unix_sockets: Whether sockets that are files stay allowed, as CUDA's driver makes one.

    Returns:
        Whether the kernel does; False on other machines than x86-64 and 64-bit ARM.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        return False
    program = _program(machine, unix_sockets)
    instructions = b"".join(struct.pack("=HBBI", *one) for one in program)
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    header = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    return ctypes.CDLL(None).prctl(_SET_SECCOMP, _FILTER, ctypes.c_char_p(header), 0, 0) == 0


def _program(machine: str, unix_sockets: bool) -> list[tuple[int, int, int, int]]:
    """Instructions: code, how many to skip where it holds, where it does not, and a value."""
    refusal = (_RETURN, 0, 0, _ERROR | errno.EACCES)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        refusal,  # the calls of another architecture have other numbers
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, 0x40000000),
        refusal,  # x32's
    ]
    for name, numbers in _REFUSED.items():
        # Who asks for a memfd goes on without one where the kernel has none.
        says = errno.ENOSYS if name.startswith("memfd") else errno.EACCES
        program += [(_EQUAL, 0, 1, numbers[_MACHINES.index(machine)]), (_RETURN, 0, 0, _ERROR | says)]
    if unix_sockets:
        program += [
            (_EQUAL, 0, 3, _SOCKET[machine]),
            (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
            (_EQUAL, 1, 0, socket.AF_UNIX),
        ]
    else:
        program += [(_EQUAL, 0, 1, _SOCKET[machine])]
    return [*program, refusal, (_RETURN, 0, 0, _ALLOW)]
