"""Does the load line hold on the device? Models on demand, of which about four fit, under clients, an operator and a
vandal."""

import pathlib
import random
import time

from . import nets, wire
from .clients import Clients, Tally
from .device import resident_bytes
from .report import mib
from .server import Server, checked
from .watch import Threads, Watch

MIB = 1 << 20
fp32 = lambda name, *shapes: [[[name, "FP32", shape]] for shape in shapes]
speech = [["input", "FP32", [1, 576]], ["state", "FP32", [2, 1, 128]]]
# What each model is asked, names, datatypes and shapes; eight of those that are there are taken, in this order.
ASKED = {
    "resnet50": fp32("gpu_0/data_0", [1, 3, 224, 224]),
    "inception-v2": fp32("data_0", [1, 3, 224, 224]),
    "densenet121": fp32("data_0", [1, 3, 224, 224]),
    "nudenet": fp32("images", [1, 3, 320, 320], [1, 3, 160, 160], [2, 3, 160, 160], [1, 3, 96, 320]),
    "ppocr-rec": fp32("x", [1, 3, 48, 320], [4, 3, 48, 100], [1, 3, 48, 160], [2, 3, 48, 80]),
    "ppocr-det": fp32("x", [1, 3, 320, 320], [1, 3, 160, 160], [2, 3, 160, 320], [1, 3, 96, 640]),
    "squeezenet": fp32("data_0", [1, 3, 224, 224]),
    "magika": [[["bytes", "INT32", [rows, 2048]]] for rows in (1, 2, 4)],
    "shufflenet": fp32("gpu_0/data_0", [1, 3, 224, 224]),
    "silero-vad": [speech],
    "silero-vad-ifless": [speech],
    "ppocr-cls": fp32("x", [1, 3, 48, 192], [6, 3, 48, 192], [3, 3, 48, 192]),
    "digits": fp32("image", [1, 1, 8, 8], [16, 1, 8, 8]),
}
MATRICES = {"matrix-16": 16, "matrix-24": 24, "matrix-32": 32, "matrix-40": 40}


def repository(folder, arguments):
    """The models as they lie in --models, and matrices until there are ten; returns what each is asked."""
    shelf, questions = pathlib.Path(arguments.models), {}
    there = [name for name in ASKED if (shelf / name / "model.onnx").is_file()]
    wanted = arguments.names.split(",") if arguments.names else there[:8]
    for seed, name in enumerate(wanted):
        if name not in there:
            known = ", ".join(there) or "none"
            raise RuntimeError(f"{shelf / name} is missing, or nobody knows what to ask it; there are {known}")
        source = shelf / name
        nets.with_weights(source / "model.onnx", folder / name / "model.onnx", seed)
        settings = source / "model.toml"
        lines = settings.read_text().splitlines(keepends=True) if settings.is_file() else []
        # What runs with others may be rounded in another way, so that no answer could be compared to the last bit.
        alone = [line for line in lines if not line.startswith(("max_batch", "precision"))]
        (folder / name / "model.toml").write_text("".join(alone))
        questions[name] = ASKED[name]
    for seed, (name, size) in enumerate(MATRICES.items()):
        if len(questions) < 10 or seed < 2:
            nets.large(folder / f"{name}.onnx", size, seed)
            questions[name] = fp32("x", [1, 1024], [7, 1024])
    nets.large(folder / "whale.onnx", arguments.room + 16)  # fits never
    return [wire.question(name, ports, row) for name, rows in questions.items() for row, ports in enumerate(rows)]


def configuration(scratch, models, arguments):
    """A ceiling that leaves --room MiB for weights, whatever the driver or the process take."""
    workspace = 24 if arguments.device == "cuda" else 8
    config = {
        "memory": {"headroom": "64MiB", "reserve": f"{workspace}MiB", "ceiling": 4096 * MIB},
        "server": {"max_body": "8MiB", "body_budget": "32MiB", "request_timeout": "10s"},
        "lanes": {"steady": 2, "workspace": f"{workspace}MiB"},
        "models": {"load": "on_demand"},
    }
    if arguments.device == "cpu":
        config["memory"]["ceiling"] = 512 * MIB
    memory = checked(scratch / "check", models, config, arguments.device)
    lines = sum(memory[line] for line in ("driver_bytes", "process_bytes", "bodies_bytes", "headroom_bytes"))
    config["memory"]["ceiling"] = lines + (arguments.room + 3 * workspace) * MIB
    return config


class Meddlers(Threads):
    """An operator who loads and unloads under the clients' feet, and a vandal who asks for what cannot be."""

    patience = 45

    def __init__(self, server, questions):
        self.server = server
        self.models = sorted({each["model"] for each in questions})
        self.tallies = {"operator": Tally(), "vandal": Tally()}
        super().__init__(self.meddle, self.tallies)
        picture = [["x", "FP32", [1, 1024]]]
        self.bad = [
            (400, wire.post("/v2/models/whale/infer", b'{"inputs": [')),
            (400, wire.infer("matrix-16", {"y": wire.numbers("FP32", [1, 1024])})),
            (404, wire.infer("no-such-model", {"x": wire.numbers("FP32", [1, 4])})),
            (404, wire.post("/v2/repository/models/no-such-model/load", b"")),
            (413, wire.post("/v2/models/matrix-16/infer", bytes(9 * MIB))),
            (422, wire.infer("matrix-16", {"x": wire.numbers("FP32", [1900, 1024])})),
            (504, wire.asked(wire.question("matrix-16", picture), {"timeout": 1})),
            (507, wire.post("/v2/repository/models/whale/load", b"")),
            (503, wire.asked(wire.question("whale", picture))),
        ]

    def meddle(self, who):
        source, tally = random.Random(who), self.tallies[who]
        while not self.stop.wait(source.random() * 0.4):
            # A connection each: some of these are closed by the server.
            connection = wire.Connection(self.server.port)
            if who == "operator":
                what, model = source.choice(("load", "unload", "unload")), source.choice(self.models)
                wanted, request = 200, wire.post(f"/v2/repository/models/{model}/{what}", b"")
            else:
                wanted, request = source.choice(self.bad)
            try:
                status, body = connection.ask(request)
            except (OSError, ValueError) as error:
                # Who sends a body that is too large may be cut off while sending it.
                if wanted != 413:
                    tally.wrong.append(f"{who}: no answer: {error!r}")
                continue
            finally:
                connection.close()
            tally.count(status, body, f"{who}, {request[:60]!r}")
            # Under such a load a refusal for want of room may always come first.
            if who == "vandal" and status not in (wanted, 422, 429, 503, 504, 507):
                tally.wrong.append(f"vandal: expected {wanted}, got {status} {bytes(body[:200])!r}")


def run(arguments, report, scratch, meter):
    questions = repository(scratch / "models", arguments)
    config = configuration(scratch, scratch / "models", arguments)
    with Server(scratch / "server", scratch / "models", config, arguments.device, meter) as server:
        begun = time.monotonic()
        with Watch(server) as watch, Meddlers(server, questions) as meddlers:
            clients = Clients(server.port, questions, arguments.clients, arguments.seconds, wander=True, digest=True)
            asked, _ = clients.end()
        took, memory = time.monotonic() - begun, server.memory()
        peak = resident_bytes(server.process.pid, "VmHWM")
        loads = server.metric("plimsoll_model_loads_total")
    most, models = max(watch.device, default=0), len({each["model"] for each in questions})
    loaded = sum(watch.owners) / max(1, len(watch.owners))
    report.row("models", f"{models}, of which {loaded:.1f} were loaded on average", models=models, loaded=loaded)
    report.row("samples", f"{len(watch.device)} of the device ({meter.source}), {watch.ledgers} of the ledger, longest gap "
               f"{watch.longest_gap * 1e3:.0f} ms", samples=len(watch.device), ledgers=watch.ledgers, source=meter.source)  # fmt: skip
    report.row("on the device", f"{mib(most)} at most, ceiling {mib(watch.ceiling)}",
               device_max_bytes=most, ceiling_bytes=watch.ceiling)  # fmt: skip
    if meter.by_process:
        report.row("whole device", f"{mib(watch.most_more)} more than before, at most", whole_device_more_bytes=watch.most_more)
    tenths = watch.tenths()
    report.row("by tenth", " ".join(f"{held / MIB:.0f}" for held in tenths), device_by_tenth_bytes=tenths)
    report.row("resident", f"{mib(peak)} at most", resident_max_bytes=peak)
    report.row("slab", f"{mib(memory['slab_bytes'])}, {mib(memory['weights']['bytes'])} of it for weights, driver "
               f"{mib(memory['driver_bytes'])}", slab_bytes=memory["slab_bytes"], driver_bytes=memory["driver_bytes"])  # fmt: skip
    report.row("loads", f"{loads:.0f}, {watch.happened('evict')} evictions, {watch.happened('move')} moves",
               loads=loads, evictions=watch.happened("evict"), moves=watch.happened("move"))  # fmt: skip
    for who, tally in {"clients": asked, **meddlers.tallies}.items():
        seen = dict(sorted(tally.statuses.items()))
        report.row(who, ", ".join(f"{times} x {status}" for status, times in seen.items()), **{who: seen})
        report.wrong += tally.wrong
    report.wrong += watch.wrong
    if arguments.device == "cpu":
        report.expect(peak <= watch.ceiling, f"between samples: {mib(peak)} resident")
    for name, count in (("the device", len(watch.device)), ("the ledger", watch.ledgers)):
        report.expect(count > took / 0.05 / 2, f"only {count} samples of {name} in {took:.0f} s")
    report.expect(watch.happened("evict"), "nobody was evicted")
    never = sorted({each["model"] for each in questions} - {key.split()[0] for key in asked.digests})
    report.row("never answered", ", ".join(never) or "none", never_answered=never)
    report.expect(asked.statuses[200] and not (never and took > 60), "some models never gave a result")
    report.expect(memory["device_allocations"] == 1, "the slab is not one allocation")
