"""How soon is a server ready, with a cold cache folder and with a warm one?"""

import statistics

from . import driver, one
from .server import Server

MIB = 1 << 20


def run(arguments, report, scratch, meter):
    models = one.repository(scratch / "models", arguments, 1, [1])
    seen = {"context": [], "cold": [], "warm": []}
    for round in range(arguments.rounds):
        config = {
            "memory": {"ceiling": 2048 * MIB if arguments.device == "cuda" else 768 * MIB},
            "models": {"load": "all"},
            "cache": {"dir": str(scratch / f"cache{round}")},
        }
        for cache in ("cold", "warm"):
            # The context first and not between: each of the three finds the driver as it was left.
            bare = driver.bare_context()[0] if arguments.device == "cuda" else {"init_ms": 0, "retain_ms": 0}
            seen["context"].append((bare["init_ms"] + bare["retain_ms"]) / 1e3)
            server = Server(scratch / f"{cache}{round}", models, config, arguments.device)
            try:
                seen[cache].append(server.start(90))
                report.expect(server.get(f"/v2/models/{one.NAME}/ready")[0] == 200, "ready, and the model is not")
                report.wrong += server.stop()
            finally:
                server.process.kill()
    for name, times in seen.items():
        report.row(name, " ".join(f"{took:.3f}" for took in times) + " s", **{f"{name}_seconds": times})
    context = statistics.median(seen["context"])
    for name in ("cold", "warm"):
        beyond = statistics.median(seen[name]) - context
        report.row(f"{name} - context", f"{beyond:.3f} s, medians", **{f"{name}_beyond_context_seconds": beyond})
    report.expect(beyond <= arguments.most, f"warm: {beyond:.3f} s beyond a context, at most {arguments.most} are promised")
