"""The GPU's driver, through ctypes: a context of one's own, and memory that is taken away from others."""

import ctypes as c
import json
import os
import subprocess
import sys
import time

from . import processes
from .device import MIB, Failed, Nvml, library


class Cuda:
    """The driver, as far as a context of one's own and a block of memory go."""

    def __init__(self, index=0):
        pointer = c.POINTER
        self.library = library("libcuda.so.1", {
            "cuInit": [c.c_uint],
            "cuDeviceGet": [pointer(c.c_int), c.c_int],
            "cuDeviceGetPCIBusId": [c.c_char_p, c.c_int, c.c_int],
            "cuDevicePrimaryCtxRetain": [pointer(c.c_void_p), c.c_int],
            "cuCtxSetCurrent": [c.c_void_p],
            "cuMemGetInfo_v2": [pointer(c.c_size_t), pointer(c.c_size_t)],
            "cuMemAlloc_v2": [pointer(c.c_ulonglong), c.c_size_t],
        })  # fmt: skip
        self.index, self.device, self.context = index, c.c_int(), c.c_void_p()

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise Failed(f"{name} failed with code {code}")

    def init(self):
        self.call("cuInit", 0)
        self.call("cuDeviceGet", c.byref(self.device), self.index)

    def bus(self):
        text = c.create_string_buffer(32)
        self.call("cuDeviceGetPCIBusId", text, len(text), self.device)
        return text.value.decode()

    def retain(self):
        self.call("cuDevicePrimaryCtxRetain", c.byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)

    def free_bytes(self):
        free, total = c.c_size_t(), c.c_size_t()
        self.call("cuMemGetInfo_v2", c.byref(free), c.byref(total))
        return free.value

    def take(self, size):
        self.call("cuMemAlloc_v2", c.byref(c.c_ulonglong()), size)


def device_index():
    return int(os.environ.get("PLIMSOLL_DEVICE__INDEX", 0))


def context():
    """What `gpu context` does in a process of its own: makes a context and prints how long it took and what it holds."""
    cuda = Cuda(device_index())
    begun = time.perf_counter()
    cuda.init()
    initialized = time.perf_counter()
    bus = cuda.bus()
    try:
        nvml = Nvml(bus)
        before = nvml.used_bytes()
    except Failed:
        nvml, before = None, None
    retaining = time.perf_counter()
    cuda.retain()
    retained = time.perf_counter()
    figures = {
        "bus": bus,
        "init_ms": (initialized - begun) * 1e3,
        "retain_ms": (retained - retaining) * 1e3,
        "process_bytes": nvml and nvml.process_bytes(os.getpid()),
        "more_bytes": nvml and nvml.used_bytes() - before,
    }
    print(json.dumps(figures), flush=True)


def hold():
    """What `gpu hold MIB` does: takes all but so many MiB of the device, says so and keeps them until stdin closes."""
    cuda = Cuda(device_index())
    cuda.init()
    cuda.retain()
    cuda.take(cuda.free_bytes() - int(sys.argv[2]) * MIB)
    print(json.dumps({"free_bytes": cuda.free_bytes()}), flush=True)
    sys.stdin.read()


def bare_context(times=1):
    """The figures of so many bare contexts, one after the other."""
    return [json.loads(processes.run([sys.executable, processes.SELF, "context"], 60).stdout) for _ in range(times)]


def name():
    """The GPU's name and the driver's version, where nvidia-smi is there to tell them."""
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(ask, capture_output=True, text=True, timeout=20).stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None
