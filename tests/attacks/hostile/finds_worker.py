"""Find the process's own parts where nothing hides them; the forgers below begin with it."""

# %%
import gc
import types

from helpers.exercises.model import Outcome

worker = next(o for o in gc.get_objects() if type(o).__name__ == "_Worker")
