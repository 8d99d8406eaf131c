"""Clients in processes of their own, each with a few threads, so that they are not what is measured."""

import collections
import hashlib
import json
import random
import subprocess
import sys
import threading
import time

from . import processes, wire

# What the server may say no with (docs/protocol.md), but for what these clients never give it reason for: 401, 405, 415, 500.
REFUSALS = (400, 404, 408, 413, 422, 429, 503, 504, 507)


class Tally:
    """What came: how many answers of each status, what was wrong, how long they took, and digests of results."""

    def __init__(self):
        self.statuses, self.wrong, self.took, self.digests = collections.Counter(), [], [], {}

    def count(self, status, body, key):
        """Counts an answer; whether it is a result."""
        self.statuses[status] += 1
        if status == 200:
            return True
        try:
            sentence = status in REFUSALS and json.loads(bytes(body))["error"]
        except (ValueError, KeyError, TypeError):
            sentence = None
        if not (isinstance(sentence, str) and sentence):
            self.wrong.append(f"{key}: {status} {bytes(body[:200])!r}")
        return False

    def digest(self, key, body):
        """Equal questions must get equal answers, to the last bit."""
        digest = hashlib.blake2b(body, digest_size=16).hexdigest()
        if self.digests.setdefault(key, digest) != digest:
            self.wrong.append(f"{key}: another answer to the same question")

    def add(self, other):
        self.statuses.update(other.statuses)
        self.wrong += other.wrong
        self.took += other.took
        for key, digest in other.digests.items():
            if self.digests.setdefault(key, digest) != digest:
                self.wrong.append(f"{key}: clients have got different answers to the same question")


def turns(questions, source, wander):
    """One question after the other, for ever: in order, or staying at a model for a while, as a camera or a queue of
    documents would, before going to another."""
    models = collections.defaultdict(list)
    for at, each in enumerate(questions):
        models[each["model"]].append(at)
    start = source.randrange(len(questions))
    while True:
        if wander:
            rows = models[source.choice(list(models))]
            yield from (source.choice(rows) for _ in range(source.randint(1, 12)))
        else:
            yield start % len(questions)
            start += 1


def work(spec, requests, seed, tally):
    """One thread: asks until its time or its requests are over."""
    connection = wire.Connection(spec["port"])
    order = turns(spec["questions"], random.Random(seed), spec["wander"])
    end, left = time.perf_counter() + spec["seconds"], spec["requests"]
    while time.perf_counter() < end and left != 0:
        at = next(order)
        key, left = spec["questions"][at]["key"], left - 1
        begun = time.perf_counter()
        try:
            status, body = connection.ask(requests[at])
        except (OSError, ValueError) as error:
            tally.statuses[0] += 1
            tally.wrong.append(f"{key}: no answer: {error!r}")
            time.sleep(0.01)
            continue
        took = time.perf_counter() - begun
        if tally.count(status, body, key):
            tally.took.append(took)
            if spec["digest"]:
                tally.digest(key, body)
        else:
            time.sleep(0.002)
    connection.close()


def client():
    """What `gpu client` does: reads what to ask, makes the requests, says so, and asks once it is told to."""
    spec = json.loads(sys.stdin.readline())
    requests = [wire.asked(each) for each in spec["questions"]]
    print("made", flush=True)
    if not sys.stdin.readline():
        return
    tallies = [Tally() for _ in range(spec["threads"])]
    threads = [
        threading.Thread(target=work, args=(spec, requests, spec["seed"] * 1000 + at, tally), daemon=True)
        for at, tally in enumerate(tallies)
    ]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, whole = time.perf_counter() - begun, Tally()
    for tally in tallies:
        whole.add(tally)
    print(json.dumps({"seconds": took, "statuses": whole.statuses, "wrong": whole.wrong[:50], "took": whole.took,
                      "digests": whole.digests}), flush=True)  # fmt: skip


class Clients:
    """So many at once, over a few processes. Begins when it is made and returns what came at its `end`."""

    def __init__(self, port, questions, count, seconds, requests=-1, wander=False, digest=False, seed=1):
        number = min(count, 8)
        spec = {"port": port, "questions": questions, "seconds": seconds, "wander": wander, "digest": digest}
        self.seconds, self.processes = seconds, []
        for at in range(number):
            threads = count // number + (at < count % number)
            share = requests if requests < 0 else requests // count
            process = processes.popen(
                [sys.executable, processes.SELF, "client"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            process.stdin.write(json.dumps(spec | {"threads": threads, "requests": share, "seed": seed + at}) + "\n")
            process.stdin.flush()
            self.processes.append(process)
        for process in self.processes:
            if process.stdout.readline().strip() != "made":
                raise RuntimeError("a client ended before it began: see above")
        for process in self.processes:
            process.stdin.write("go\n")
            process.stdin.flush()

    def end(self):
        """The tally of all, and the seconds that they took."""
        whole, took = Tally(), 0
        for process in self.processes:
            out, _ = process.communicate(timeout=self.seconds + 45)
            if process.returncode != 0:
                raise RuntimeError(f"a client ended with {process.returncode}: see above")
            figures, tally = json.loads(out), Tally()
            tally.statuses = collections.Counter({int(key): value for key, value in figures["statuses"].items()})
            tally.wrong, tally.took, tally.digests = figures["wrong"], figures["took"], figures["digests"]
            whole.add(tally)
            took = max(took, figures["seconds"])
        return whole, took


def quantile_ms(took, share):
    return sorted(took)[round((len(took) - 1) * share)] * 1e3 if took else float("nan")
