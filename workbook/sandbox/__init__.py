"""Run code that nobody trusts: in a process of its own, in a sandbox, within limits of time and memory.

`bubblewrap` has the sandbox's command, `cgroup` its memory limit, and `process` starts such a process and
asks it questions. `inside` is what runs first in there, `serving` answers, `messages` are what the two
exchange, and `texts` cleans what arrives.
"""
