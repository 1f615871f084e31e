"""Get out by namespaces, mounts and settings of the kernel."""

# %%
NEWUSER, NEWNS, REMOUNT, BIND = 0x10000000, 0x20000, 32, 4096
import helpers

package = os.path.dirname(helpers.__file__).encode()
settings = ["kernel/core_pattern", "kernel/modprobe", "vm/drop_caches", "kernel/hostname"]
attack(
    lambda: made(libc.unshare(NEWUSER)),
    lambda: made(libc.unshare(NEWNS)),
    lambda: made(libc.mount(None, package, None, REMOUNT | BIND, None)),
    lambda: made(libc.umount2(package, 2)),
    lambda: os.setuid(0),
    lambda: os.chroot("/tmp"),
    lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0)),
    *[lambda path=f"/proc/sys/{name}": open(path, "w") for name in settings],
    lambda: open("/proc/sysrq-trigger", "w"),
    *[lambda path=path: open(path, "w") for path in glob.glob("/sys/devices/system/cpu/*/online")[:2]],
)
