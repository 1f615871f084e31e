"""Questions that a lesson asks before it gives the answer: `ask`, `reveal`, and `review` for a whole lesson.

The modules: `questions` defines questions, parses answers and checks them against the truth; `answers` stores
the answers next to the lab progress; `views` renders HTML and text; `summary` counts the answers of a lesson;
`field` is the widget that takes an answer, and `question.js` its half in the browser; and `session` contains
the three functions and the questions that the kernel has asked so far.
"""

from helpers.predict.session import ask, reveal, review

__all__ = ["ask", "reveal", "review"]
