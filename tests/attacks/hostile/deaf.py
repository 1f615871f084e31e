"""A cell that hangs in C code and lets no interrupt through."""

# %%
import ctypes
import signal

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
ctypes.PyDLL(None).sleep(600)
