"""Watches a server's bytes on the device, and its ledger, while something happens to it."""

import json
import threading
import time

from . import wire
from .report import mib

EVERY = 0.05
LINES = ("driver_bytes", "process_bytes", "bodies_bytes", "headroom_bytes", "slab_bytes")


class Threads:
    """Threads that work until the block that they are around ends. `stop` tells them; `patience` is how long the end waits."""

    patience = 60

    def __init__(self, target, each):
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=target, args=(one,), daemon=True) for one in each]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(self.patience)


class Watch(Threads):
    """Two threads, so that a slow answer of the server delays no look at the device."""

    def __init__(self, server):
        super().__init__(self.guard, (self.look_at_the_device, self.look_at_the_ledger))
        self.server, self.wrong, self.device, self.owners, self.ledgers = server, [], [], [], 0
        self.most_more = 0
        self.events, self.longest_gap = {}, 0.0
        self.ceiling = server.memory()["ceiling_bytes"]

    def guard(self, look):
        try:
            self.every(look)
        except Exception as error:  # a watch that has ended must not look like one that saw nothing
            self.wrong.append(f"the watch broke off: {error!r}")

    def every(self, look):
        begun = due = last = time.monotonic()
        # A sample that took long must not make the next ones later.
        while not self.stop.wait(max(0, (due := due + EVERY) - time.monotonic())):
            now = time.monotonic()
            if look == self.look_at_the_device:
                self.longest_gap, last = max(self.longest_gap, now - last), now
            due = max(due, now - 1)
            self.wrong += [f"after {now - begun:.1f} s: {what}" for what in look()]

    def look_at_the_device(self):
        held = self.server.device_bytes()
        self.device.append(held)
        if self.server.meter.by_process:
            self.most_more = max(self.most_more, self.server.meter.more_bytes())
        return [f"{mib(held)} on the device, ceiling {mib(self.ceiling)}"] if held > self.ceiling else []

    def look_at_the_ledger(self):
        if not hasattr(self, "connection"):
            self.connection = wire.Connection(self.server.port)
        status, body = self.connection.ask(b"GET /v2/memory HTTP/1.1\r\nHost: plimsoll\r\n\r\n")
        if status != 200:
            return [f"/v2/memory is {status}"]
        memory = json.loads(bytes(body))
        self.ledgers += 1
        self.owners.append(len({extent["owner"] for extent in weights(memory)}))
        # The ledger tells the latest 256 alone.
        self.events |= {event["sequence"]: event["what"] for event in memory["events"]}
        return problems(memory)

    def happened(self, what):
        return sum(seen == what for seen in self.events.values())

    def tenths(self):
        """The most of each tenth of the time: a leak would show as a rise."""
        length = max(1, len(self.device) // 10)
        return [max(self.device[at : at + length]) for at in range(0, len(self.device), length)]


def weights(memory):
    return [extent for extent in memory["extents"] if extent["kind"] == "weights"]


def problems(memory):
    """What does not add up in a ledger."""
    wrong = []
    regions = sum(memory[name]["bytes"] for name in ("weights", "lanes", "reserve"))
    if regions + memory["tail_bytes"] != memory["slab_bytes"]:
        wrong.append("the regions are not the slab")
    if sum(memory[line] for line in LINES) > memory["ceiling_bytes"]:
        wrong.append("the lines pass the ceiling")
    held, used = sum(extent["bytes"] for extent in weights(memory)), memory["weights"]["used_bytes"]
    if held != used:
        wrong.append(f"the extents are {held} bytes, {used} are in use")
    if used + memory["free_bytes"] != memory["weights"]["bytes"]:
        wrong.append("what is in use and what is free are not the region")
    ends = sorted((extent["offset_bytes"], extent["offset_bytes"] + extent["bytes"]) for extent in weights(memory))
    if any(before[1] > after[0] for before, after in zip(ends, ends[1:])):
        wrong.append("extents overlap")
    return wrong + (["device memory was allocated after the start"] if memory["device_allocations_after_ready"] else [])
