"""Questions that a lesson asks before it answers them: `ask`, `reveal`, and `review` of a whole lesson.

`questions` says what may be asked, reads answers and compares them with what came out; `answers` keeps them, beside the
labs' progress; `views` writes HTML and text, `summary` counts a lesson's, `field` is the live form with ipywidgets; `session` holds the three
functions and what a kernel has asked so far.
"""

from helpers.predict.session import ask, reveal, review

__all__ = ["ask", "reveal", "review"]
