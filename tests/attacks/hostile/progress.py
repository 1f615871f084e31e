"""Write the file in which a learner's own progress is kept, and a check of one's own."""

# %%
import json

from helpers import progress

folder = progress.folder()
folder.mkdir(parents=True, exist_ok=True)
done = {"count-blocks": {"passed": "2026-01-01 10:00", "tries": 1}}
(folder / "90_mini.json").write_text(json.dumps(done))
check = lambda name, obj: "passed"
