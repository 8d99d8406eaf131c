"""What NVIDIA's own libraries say of a GPU, through ctypes. Nothing here is loaded before it is asked for."""

import ctypes as c
import pathlib
import re
import time

MIB = 1 << 20
UNKNOWN = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE
TOO_SMALL = 7  # NVML_ERROR_INSUFFICIENT_SIZE


class Failed(Exception):
    """A library or a call of it that did not do."""


class MemoryInfo(c.Structure):
    """nvmlMemory_t"""

    _fields_ = [("total", c.c_ulonglong), ("free", c.c_ulonglong), ("used", c.c_ulonglong)]


class ProcessInfo(c.Structure):
    """nvmlProcessInfo_v2_t, which both _v2 and _v3 of the call fill in."""

    _fields_ = [
        ("pid", c.c_uint),
        ("used", c.c_ulonglong),
        ("gpu_instance", c.c_uint),
        ("compute_instance", c.c_uint),
    ]


def library(name, functions):
    """The library with the types of what is called of it."""
    try:
        loaded = c.CDLL(name)
    except OSError as error:
        raise Failed(f"{name} cannot be loaded: {error}") from None
    for function, arguments in functions.items():
        if not hasattr(loaded, function):
            raise Failed(f"{name} lacks {function}")
        found = getattr(loaded, function)
        found.argtypes, found.restype = arguments, c.c_int
    return loaded


class Nvml:
    """One GPU, found by its place on the bus; else the first."""

    def __init__(self, bus=None):
        self.library = library("libnvidia-ml.so.1", {
            "nvmlInit_v2": [],
            "nvmlDeviceGetHandleByIndex_v2": [c.c_uint, c.POINTER(c.c_void_p)],
            "nvmlDeviceGetHandleByPciBusId_v2": [c.c_char_p, c.POINTER(c.c_void_p)],
            "nvmlDeviceGetMemoryInfo": [c.c_void_p, c.POINTER(MemoryInfo)],
        })  # fmt: skip
        self.running = None
        for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"):
            if hasattr(self.library, name):
                self.running = getattr(self.library, name)
                self.running.argtypes = [c.c_void_p, c.POINTER(c.c_uint), c.POINTER(ProcessInfo)]
                self.running.restype = c.c_int
                break
        self.call("nvmlInit_v2")
        self.handle = c.c_void_p()
        if bus:
            self.call("nvmlDeviceGetHandleByPciBusId_v2", bus.encode(), c.byref(self.handle))
        else:
            self.call("nvmlDeviceGetHandleByIndex_v2", 0, c.byref(self.handle))

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise Failed(f"{name} failed with code {code}")

    def used_bytes(self):
        """In use on the whole device."""
        memory = MemoryInfo()
        self.call("nvmlDeviceGetMemoryInfo", self.handle, c.byref(memory))
        return memory.used

    def process_bytes(self, pid):
        """In use by one process; `None` where NVML does not tell, as in many containers and virtual machines."""
        if self.running is None:
            return None
        room = 64
        while True:
            count, found = c.c_uint(room), (ProcessInfo * room)()
            code = self.running(self.handle, c.byref(count), found)
            if code != TOO_SMALL or room > 1 << 16:
                break
            room = max(2 * room, count.value)
        if code != 0:
            return None
        own = [entry.used for entry in found[: min(count.value, room)] if entry.pid == pid]
        # A context alone takes hundreds of MiB: less is no answer.
        told = [used for used in own if used != UNKNOWN and used >= MIB]
        return sum(told) or None


class Meter:
    """Bytes that a process holds on the device: NVML's figure for it, else what the whole device has more in use than
    before. On the CPU, its resident memory."""

    def __init__(self, kind, bus=None):
        self.kind, self.by_process, self.before = kind, False, 0
        self.nvml = Nvml(bus) if kind == "cuda" else None

    def begin(self):
        """To be called before the process is started, when those before it have let go."""
        if self.nvml is None:
            return
        self.before, end = self.nvml.used_bytes(), time.monotonic() + 3
        while time.monotonic() < end:
            time.sleep(0.1)
            before, self.before = self.before, self.nvml.used_bytes()
            if before == self.before:
                break

    def settle(self, pid):
        """Chooses which of the two figures counts; to be called once the process has its context."""
        self.by_process = self.nvml is not None and self.nvml.process_bytes(pid) is not None

    def read(self, pid):
        if self.nvml is None:
            return resident_bytes(pid)
        if self.by_process:
            # It may leave the list for a moment: then what the device has in use is the better answer than 0.
            return self.nvml.process_bytes(pid) or self.more_bytes()
        return self.more_bytes()

    def more_bytes(self):
        return max(0, self.nvml.used_bytes() - self.before)

    @property
    def source(self):
        if self.nvml is None:
            return "resident memory"
        return "NVML, of the process" if self.by_process else "NVML, of the whole device, less what it had before"


def resident_bytes(pid, line="VmRSS"):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{line}:\s+(\d+) kB", status)[1]) * 1024
