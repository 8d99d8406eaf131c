"""Watches the memory of a server while something happens to it."""

import threading
import time

MIB = 1 << 20


class Watch:
    """Samples resident memory and the ledger until the block is left, and keeps what is wrong with either."""

    def __init__(self, server, every=0.05):
        self.server, self.every = server, every
        self.wrong, self.resident, self.events = [], [], {}
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        begun = due = time.monotonic()
        # A sample that took long must not make the next ones later.
        while not self.stop.wait(max(0, (due := due + self.every) - time.monotonic())):
            resident, memory = self.server.resident_bytes(), self.server.memory()
            self.resident.append(resident)
            wrong = problems(memory)
            if resident > memory["ceiling_bytes"]:
                wrong.append(f"{resident / MIB:.1f} MiB resident")
            self.wrong += [f"after {time.monotonic() - begun:.1f} s: {what}" for what in wrong]
            # The ledger tells the latest 256 alone.
            self.events |= {event["sequence"]: event["what"] for event in memory["events"]}

    @property
    def samples(self):
        return len(self.resident)

    @property
    def peak(self):
        return max(self.resident)

    def happened(self, what):
        """How often that was seen to happen to the memory: a load, an eviction, a move."""
        return sum(seen == what for seen in self.events.values())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def problems(memory):
    """What does not add up in a ledger."""
    regions = [memory[name] for name in ("weights", "lanes", "reserve")]
    wrong = []
    if sum(region["bytes"] for region in regions) + memory["tail_bytes"] != memory["slab_bytes"]:
        wrong.append("the regions are not the slab")
    lines = ("driver_bytes", "process_bytes", "bodies_bytes", "headroom_bytes", "slab_bytes")
    if sum(memory[line] for line in lines) > memory["ceiling_bytes"]:
        wrong.append("the lines pass the ceiling")
    weights = [extent for extent in memory["extents"] if extent["kind"] == "weights"]
    held, used = sum(extent["bytes"] for extent in weights), memory["weights"]["used_bytes"]
    if held != used:
        wrong.append(f"the extents are {held} bytes, {used} are in use")
    if memory["weights"]["used_bytes"] + memory["free_bytes"] != memory["weights"]["bytes"]:
        wrong.append("what is in use and what is free are not the region")
    ends = sorted((extent["offset_bytes"], extent["offset_bytes"] + extent["bytes"]) for extent in weights)
    if any(before[1] > after[0] for before, after in zip(ends, ends[1:])):
        wrong.append("extents overlap")
    return wrong
