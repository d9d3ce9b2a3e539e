"""One allocator for all: fresh large buffers cost page faults, which would be charged to whoever allocates more."""

import ctypes
import platform

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # glibc's malloc.h


def tune() -> str:
    """Let glibc keep freed memory instead of giving it back to the system. Returns what is in force, for the record."""
    if platform.libc_ver()[0] != "glibc":
        return "system default"
    libc = ctypes.CDLL(None)
    tuned = libc.mallopt(_MMAP_MAX, 0) and libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    return "glibc M_MMAP_MAX=0 M_TRIM_THRESHOLD=2GiB" if tuned else "glibc default"
