"""Start 2,000 threads."""

# %%
import threading

for _ in range(2000):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
time.sleep(60)
