"""The page at `/`, in a browser: it draws what the server tells, in proportion, and says what it cannot tell."""

import http.server
import json
import re
import threading
import time

import nets
import numpy as np
import pytest
import v2
from browser import PROGRAM, Browser
from server import ROOT, Server, until

MIB = 1 << 20
JSON = "application/json"
SOURCE = ROOT / "server/src/http/page"
ROW = {"x": np.ones((1, 1024), np.float32)}
ONE = {"x": np.ones(1, np.float32)}
# The lines from the keel upwards, and where `/v2/memory` has them.
LINES = {
    "driver": "driver_bytes", "process": "process_bytes", "bodies": "bodies_bytes", "weights": "weights", "lanes": "lanes",
    "reserve": "reserve", "tail": "tail_bytes", "headroom": "headroom_bytes",
}  # fmt: skip
# Other colours that a line may have, where it is in use.
BUSY = {"bodies": ["bodies-used"], "lanes": ["lanes-busy"], "reserve": ["reserve-busy"], "headroom": ["headroom-used"]}
CONFIG = {
    "memory": {"ceiling": "192MiB", "headroom": "60MiB"},
    "server": {"body_budget": "16MiB", "max_body": "4MiB"},
    "lanes": {"steady": 1, "workspace": "8MiB"},
    "models": {"load": "on_demand", "watch": False},
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if PROGRAM is None:
        pytest.skip("there is no Chromium (apt-get install chromium)")
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def page(browser):
    page = browser.page()
    yield page
    page.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Four of which three fit together, one that never does, one that is none, and one that takes its time."""
    folder = tmp_path_factory.mktemp("models")
    for name, mebibytes in {"small": 6, "middle": 14, "wide": 20, "tall": 30, "huge": 90}.items():
        nets.large(folder / f"{name}.onnx", mebibytes)
    nets.slow(folder / "slow.onnx", 8)
    (folder / "broken.onnx").write_bytes(b"this is no model")
    return folder


def look(page, server):
    """Opens the page and waits until it has drawn an answer."""
    page.open(f"{server.url}/")
    until(lambda: page.js("document.getElementById('status')?.dataset.state") == "live", 20)


def text(page, selector):
    return page.js(f"document.querySelector({json.dumps(selector)}).innerText")


def rows(page, table):
    """The texts of a table's cells, a list a row."""
    cells = "[...row.cells].map((cell) => cell.innerText)"
    return page.js(f"[...document.getElementById('{table}').tBodies[0].rows].map((row) => {cells})")


def box(page, selector):
    """Left, top, width and height of an element within the whole page."""
    place = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
    return page.js(f"(({{x, y, width, height}}) => [x, y + scrollY, width, height])({place})")


def colours(page):
    """What the style sheet calls its colours, as red, green and blue."""
    names = [*LINES, *(name for more in BUSY.values() for name in more), "weights-a", "weights-b", "free", "sea", "card"]
    names.remove("weights")
    names.remove("tail")
    values = page.js(f"{json.dumps(names)}.map((name) => getComputedStyle(document.body).getPropertyValue('--' + name))")
    return {name: tuple(bytes.fromhex((value.strip()[1:]))) for name, value in zip(names, values, strict=True)}


def is_like(one, other):
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 2


def faults(page, memory, picture):
    """Where the picture is not in proportion to what `/v2/memory` tells, in words."""
    found, paint = [], colours(page)
    left, top, width, height = box(page, "#hull")
    is_one_of = lambda at, names: any(is_like(picture.getpixel(at), paint[name]) for name in names)
    bottom = 0
    column = round(left + 0.93 * width)  # right of labels, left of the rounded corner
    for name, member in LINES.items():
        told = memory[member]
        tall = (told["bytes"] if isinstance(told, dict) else told) / memory["ceiling_bytes"] * height
        names = ["free", "weights-a", "weights-b"] if name == "weights" else [name, *BUSY.get(name, [])]
        if name != "tail" and tall >= 1:
            ys = range(round(top), round(top + height))
            painted = sum(is_one_of((column, y), names) for y in ys)
            # Each line has a rule at its top, and one has the waterline.
            if not tall - 5 <= painted <= tall + 2:
                found.append(f"{name}: {painted} pixels and not {tall:.1f}")
            middle = (column, round(top + height - bottom - tall / 2 + 3))
            if tall >= 10 and not is_one_of(middle, names):
                found.append(f"{name} is not at {middle}: {picture.getpixel(middle)}")
        if name == "weights":
            y = round(top + height - bottom - tall * 0.45)
            found += weights(memory, lambda part: (round(left + part * width), y), is_one_of)
        bottom += tall
    sea = sum(is_one_of((round(left - 8), y), ["sea"]) for y in range(round(top), round(top + height)))
    level = memory["process_resident_bytes"] / memory["ceiling_bytes"] * height
    if not level - 8 <= sea <= level + 8:
        found.append(f"sea: {sea} pixels and not {level:.1f}")
    return found


def weights(memory, at, is_one_of):
    """Where the models are not drawn in the weights' line as they lie, in words."""
    found, whole, begin = [], memory["weights"]["bytes"], 0
    extents = [extent for extent in memory["extents"] if extent["kind"] == "weights"]
    for extent in sorted(extents, key=lambda extent: extent["offset_bytes"]):
        offset, size = extent["offset_bytes"], extent["bytes"]
        for part, names in [((begin + offset) / 2, ["free"]), (offset + size / 2, ["weights-a", "weights-b"])]:
            wide = offset - begin if names == ["free"] else size
            if wide / whole > 0.02 and not is_one_of(at(part / whole), names):
                found.append(f"{extent['owner']}: no {names} at {at(part / whole)}")
        begin = offset + size
    if (whole - begin) / whole > 0.02 and not is_one_of(at((begin + whole) / 2 / whole), ["free"]):
        found.append("what is free behind the last model is not")
    return found


@pytest.mark.parametrize("look_of", ["light", "dark", "phone"])
def test_the_picture_has_the_lines_that_the_ledger_tells_in_proportion(serve, models, page, look_of):
    server = serve(models, CONFIG)
    for name in ["small", "middle", "wide"]:
        v2.infer(server, name, ROW)
    assert server.unload("middle").status == 200
    page.window(*((390, 844) if look_of == "phone" else (1280, 900)), dark=look_of == "dark", phone=look_of == "phone")
    look(page, server)
    holds = lambda: server.memory()["extents"]
    assert {extent["owner"] for extent in holds()} == {"small:1", "wide:1"}, "there is a gap between two"
    until(lambda: len(page.js("[...document.querySelectorAll('.weights .part')].map((part) => part.title)")) == 2)
    paint = colours(page)
    pairs = [(a, b) for a in paint for b in paint if a < b]
    assert not [(a, b) for a, b in pairs if is_like(paint[a], paint[b])], "no two lines look alike"
    memory, picture = server.memory(), page.picture()
    assert faults(page, memory, picture) == []
    # The same judge must find fault with a picture of anything else.
    placed = [extent for extent in memory["extents"] if extent["kind"] == "weights"]
    for change in [
        {"headroom_bytes": memory["headroom_bytes"] + 8 * MIB},
        {"process_bytes": memory["bodies_bytes"], "bodies_bytes": memory["process_bytes"]},
        {"reserve": memory["lanes"], "lanes": memory["reserve"]},
        {"extents": [extent | {"offset_bytes": extent["offset_bytes"] + 9 * MIB} for extent in placed]},
        {"extents": placed[:1]},
        {"process_resident_bytes": memory["ceiling_bytes"]},
    ]:
        assert faults(page, memory | change, picture), change
    assert page.js("document.documentElement.scrollWidth") <= (390 if look_of == "phone" else 1280), "nothing sticks out"
    assert not page.complaints()


def test_the_figures_beside_the_picture_are_those_of_the_ledger(serve, models, page):
    server = serve(models, CONFIG)
    v2.infer(server, "wide", ROW)
    look(page, server)
    memory = server.memory()
    shown = {cells[0]: cells[1:] for cells in rows(page, "regions")}
    mebibytes = lambda cell: float(cell.split()[0]) / {"bytes": MIB, "KiB": 1024, "MiB": 1, "GiB": 1 / 1024}[cell.split()[1]]
    for title, told in {
        "headroom": memory["headroom_bytes"], "process": memory["process_bytes"], "request bodies": memory["bodies_bytes"],
        "free for weights": memory["free_bytes"], "weights": memory["weights"]["bytes"],
        "steady lanes": memory["lanes"]["bytes"], "reserve for bursts": memory["reserve"]["bytes"], "driver": 0,
    }.items():  # fmt: skip
        assert mebibytes(shown[title][0]) == pytest.approx(told / MIB, abs=0.6), title
    assert mebibytes(shown["weights"][1]) == pytest.approx(memory["weights"]["used_bytes"] / MIB, abs=0.6)
    assert "never over the ceiling" in text(page, "#now") and "192 MiB" in text(page, "#ceiling")
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    named = [node["name"]["value"] for node in tree if node.get("role", {}).get("value") == "image"]
    assert any(name.startswith("Under the ceiling of 192 MiB") and "headroom 60 MiB" in name for name in named), named


def test_models_times_lanes_and_events_are_shown_as_they_are(serve, models, page):
    server = serve(models, CONFIG)
    assert server.load("broken").status == 400 and server.load("huge").status == 507
    for name in ["tall", "wide", "middle"]:
        v2.infer(server, name, ROW)
    look(page, server)
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            v2.try_infer(server, "slow", ONE)

    askers = [threading.Thread(target=ask) for _ in range(4)]
    try:
        for asker in askers:
            asker.start()
        until(lambda: re.search(r"steady: 1 of 1 busy", text(page, "#lanes")), 20)
        until(lambda: re.search(r"burst: [1-9] of \d+ busy", text(page, "#lanes")), 20)
        until(lambda: "–" not in dict((cells[0], cells[3:]) for cells in rows(page, "models"))["slow:1"], 20)
        figures = dict(line.split("\n") for line in re.findall(r"[^\n]+\n[^\n]+", text(page, "#figures")))
        busy = page.js("getComputedStyle(document.querySelector('.steady .cell.busy')).backgroundColor")
    finally:
        stop.set()
        for asker in askers:
            asker.join()
    assert busy == "rgb(91, 139, 214)", busy
    assert float(figures["requests/s"]) > 0 and figures["pressure"] in ("none", "bursts"), figures
    assert seconds(figures["p50"]) <= seconds(figures["p99"]) and seconds(figures["mean"]) > 0, figures
    until(lambda: not re.search(r"[1-9] of \d+ busy", text(page, "#lanes")), 10)
    states = {cells[0]: cells[1] for cells in rows(page, "models")}
    assert "failed" in states["broken:1"] and "not an ONNX model" in states["broken:1"], states
    assert "failed" in states["huge:1"] and "needs" in states["huge:1"], states
    assert states["slow:1"].strip() == "loaded" and states["small:1"].strip() == "unloaded", states
    left = [event["owner"] for event in server.memory()["events"] if event["what"] == "evict"]
    assert left and states[left[-1]].strip() == "unloaded", (left, states)
    events = {(cells[1].split(" (")[0], cells[2]) for cells in rows(page, "events")}
    assert {("evicted to make room", left[0]), ("refused: no room", "huge:1"), ("loaded", "slow:1")} <= events, events
    assert any(what == "burst lanes in use" for what, _ in events), events
    assert not page.complaints()


def seconds(shown):
    number, unit = shown.split()
    return float(number) * {"µs": 1e-6, "ms": 1e-3, "s": 1}[unit]


def test_a_page_that_nobody_sees_asks_nothing(serve, models, page):
    server = serve(models, CONFIG)
    look(page, server)
    asked = lambda: server.metric("plimsoll_http_answers_total")
    before = asked()
    until(lambda: asked() > before + 8, 20)
    hide = """Object.defineProperty(document, "hidden", {get: () => %s, configurable: true});
              document.dispatchEvent(new Event("visibilitychange"))"""
    page.js(hide % "true")
    until(lambda: text(page, "#status") == "paused while hidden")
    time.sleep(0.5)  # a round that was under way ends
    before = asked()
    time.sleep(3)
    assert asked() == before + 1, "only this test has asked"
    page.js(hide % "false")
    until(lambda: text(page, "#status") == "live")
    until(lambda: asked() > before + 8, 20)


def test_a_server_that_is_gone_is_told_and_one_that_is_back_is_shown(serve, models, page):
    server = serve(models, CONFIG)
    look(page, server)
    server.stop()
    until(lambda: text(page, "#status").startswith("the server does not answer since "), 20)
    assert page.js("document.body.className") == "stale"
    back = CONFIG | {"server": CONFIG["server"] | {"listen": server.address}}
    serve(models, back)
    until(lambda: text(page, "#status") == "live", 20)
    assert page.js("document.body.className") == ""


def test_it_needs_no_token(serve, models, page, tmp_path):
    (tmp_path / "token").write_text("open sesame")
    (tmp_path / "token").chmod(0o600)
    server = serve(models, CONFIG | {"server": CONFIG["server"] | {"admin_token_file": str(tmp_path / "token")}})
    look(page, server)
    assert [cells[0] for cells in rows(page, "models")] == [
        f"{name}:1" for name in ["broken", "huge", "middle", "slow", "small", "tall", "wide"]
    ]
    assert page.js("[...document.querySelectorAll('.note')].filter((note) => note.innerText.includes('answer is'))") == []


def test_a_folder_without_models_says_so(serve, page, tmp_path):
    (tmp_path / "none").mkdir()
    look(page, serve(tmp_path / "none", CONFIG))
    assert text(page, "#models-note") == "There is no model in the folder."
    assert text(page, "#events-note") == "Nothing yet." and text(page, "#models-count") == "0 of 0 loaded"


class Between(http.server.ThreadingHTTPServer):
    """What stands between the page and a server and answers some paths itself."""

    daemon_threads = True

    def __init__(self, server):
        self.server, self.instead = server, {}
        super().__init__(("127.0.0.1", 0), Passed)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/below/a/path"


class Passed(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.removeprefix("/below/a/path")
        if path in self.server.instead:
            status, content = self.server.instead[path]
            headers, body = {"content-type": JSON}, json.dumps(content).encode()
        else:
            answer = self.server.server.request(self.command, path)
            status, headers, body = answer.status, dict(answer.headers), answer.body
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "content-length" not in headers:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def between(serve, models):
    server = serve(models, CONFIG)
    v2.infer(server, "wide", ROW)
    between = Between(server)
    yield between
    between.shutdown()
    between.server_close()


def test_what_a_proxy_does_not_let_through_is_named_and_the_rest_is_shown(between, page):
    no = {"error": "no"}
    between.instead = {"/v2/repository/index": (403, no), "/metrics": (404, no)}
    look(page, between)
    assert text(page, "#models-note").startswith("POST /v2/repository/index: the answer is 403 Forbidden. Models that are")
    assert rows(page, "models")[0][0] == "wide:1" and text(page, "#models-count") == "1 loaded"
    assert text(page, "#figures-note").startswith("GET /metrics: the answer is 404 Not Found, so p50, p99,")
    assert rows(page, "models")[0][4:] == ["–", "–"] and "192 MiB" in text(page, "#ceiling")
    between.instead = {"/v2/memory": (401, no), "/v2/models/stats": (502, no)}
    look(page, between)
    until(lambda: "GET /v2/memory: the answer is 401 Unauthorized" in text(page, "#load-line-note"))
    assert box(page, "#picture") == [0, 0, 0, 0] and "wide:1" in [cells[0] for cells in rows(page, "models")]


def test_a_gpu_with_memory_of_its_own_has_a_ceiling_of_its_own(between, page):
    memory = between.server.memory()
    more = memory["process_bytes"] + memory["bodies_bytes"]
    gpu = {"driver_bytes": more, "process_bytes": 0, "bodies_bytes": 0, "process_resident_bytes": 10**10, "pinned_refusals": 0}
    between.instead = {"/v2/memory": (200, memory | gpu)}
    look(page, between)
    assert "on this GPU that is not under the ceiling" in text(page, "#now")
    assert text(page, "#waterline").endswith("taken"), "host memory is not compared with it"
    hull, driver = box(page, "#hull"), box(page, ".line.driver")
    assert driver[3] / hull[3] == pytest.approx(more / memory["ceiling_bytes"], abs=0.005)
    assert page.js("document.querySelector('.line.process')") is None


def test_a_process_over_its_ceiling_stands_above_the_mark(between, page):
    memory = between.server.memory()
    now = memory["ceiling_bytes"] * 5 // 4
    between.instead = {"/v2/memory": (200, memory | {"process_resident_bytes": now, "ceiling_breaches": 2})}
    look(page, between)
    hull, mark, water = box(page, "#hull"), box(page, "#ceiling"), box(page, "#waterline")
    assert mark[1] - water[1] == pytest.approx(hull[3] / 5, abs=3), "a fifth of what is drawn is over the mark"
    assert page.js("document.getElementById('sea').className") == "over" and "over the ceiling 2 times" in text(page, "#now")


def test_forty_models_fit_and_a_name_is_never_markup(between, page):
    memory, evil = between.server.memory(), "<img src=x onerror=alert(1)>"
    each = memory["weights"]["bytes"] // 40
    names = [f"a-model-with-a-long-name-{at}" for at in range(39)] + [evil]
    extents = [
        {"owner": f"{name}:1", "kind": "weights", "bytes": each, "offset_bytes": at * each, "in_use": False, "pinned": False}
        for at, name in enumerate(names)
    ]
    event = {"sequence": 1, "what": "evict", "owner": evil, "bytes": 1, "times": 3, "at_ms": 1}
    index = [{"name": name, "version": "1", "state": "READY", "reason": evil} for name in names]
    between.instead = {
        "/v2/memory": (200, memory | {"extents": extents, "events": [event]}),
        "/v2/repository/index": (200, index),
    }
    page.window(390, 844, phone=True)
    look(page, between)
    shown = rows(page, "models")
    assert len(shown) == 40 and shown[-1][0] == f"{evil}:1" and evil in shown[-1][1]
    assert rows(page, "events")[0][1:3] == ["evicted to make room (3 times)", evil]
    assert page.js("document.querySelectorAll('main img').length") == 1, "the mark is the only picture"
    parts = page.js("[...document.querySelectorAll('.weights .part')].map((part) => part.getBoundingClientRect().width)")
    assert len(parts) == 40 and parts == pytest.approx([box(page, "#hull")[2] / 40] * 40, abs=0.5)
    assert page.js("document.documentElement.scrollWidth") <= 390
    assert not page.complaints()


def test_quantiles_are_those_of_the_histogram(serve, models, page):
    look(page, serve(models, CONFIG))
    given = "[[0.001, 10], [0.002, 60], [0.005, 99], [Infinity, 100]]"
    told = page.js(f"import('./page/recent.js').then(({{ quantile }}) => [0.5, 0.99, 1].map((part) => quantile({given}, part)))")
    assert told == pytest.approx([0.0018, 0.005, 0.005])
    assert page.js("import('./page/recent.js').then(({ quantile }) => quantile([[1, 0], [Infinity, 0]], 0.5))") is None


def test_the_page_is_of_this_server_alone(serve, models):
    server = serve(models, CONFIG)
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
    for file in sorted(SOURCE.iterdir()):
        answer = server.get("/" if file.name == "index.html" else f"/page/{file.name}")
        assert answer.status == 200 and answer.body == file.read_bytes(), file
        assert answer.headers["content-type"].split(";")[0] == types[file.suffix], answer
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';") and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        source = file.read_text()
        assert set(re.findall(r"https?://[^\"]+", source)) <= {"http://www.w3.org/2000/svg"}, file
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", source), file
    for path in ("/page/none.js", "/page/", "/page/%FF", "/page/..%2froutes.rs", "/index.html"):
        answer = server.get(path)
        assert answer.status == 404 and answer.error, path
    assert server.post("/").status == 405
