"""Chromium without a window, driven over two pipes in its DevTools protocol: as much of it as the page's tests need."""

import base64
import io
import json
import os
import select
import shutil
import subprocess
import sys
import time

from PIL import Image

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# The browser reads commands from descriptor 3 and writes answers to 4, whatever those are in this process.
ON_3_AND_4 = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One process with a profile of its own; as a context it ends with the block."""

    def __init__(self, folder):
        commands, self.send_to = os.pipe()
        self.read_from, answers = os.pipe()
        options = [
            "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en-GB", f"--user-data-dir={folder}/profile",
        ]  # fmt: skip
        launcher = [sys.executable, "-c", ON_3_AND_4, str(commands), str(answers)]
        self.log_path = folder / "browser.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*launcher, PROGRAM, *options], pass_fds=(commands, answers), env=os.environ | {"HOME": str(folder)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self.buffer, self.sent, self.events = b"", 0, []

    def call(self, method, session=None, **parameters):
        """Sends a command and waits for its result; what is told meanwhile is kept in `events`."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.send_to, json.dumps(message).encode() + b"\0")
        while True:
            came = self._receive(method)
            if came.get("id") == self.sent:
                assert "error" not in came, f"{method}: {came['error']}"
                return came["result"]
            self.events.append(came)

    def _receive(self, method, seconds=60):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_from], [], [], max(0, end - time.monotonic()))
            assert ready, f"no answer to {method} within {seconds} s:\n{self.log_path.read_text()[-2000:]}"
            read = os.read(self.read_from, 1 << 20)
            assert read, f"the browser has ended:\n{self.log_path.read_text()[-2000:]}"
            self.buffer += read
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def page(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, target, session)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.wait(10)
            os.close(self.send_to)
            os.close(self.read_from)


class Page:
    """One tab."""

    def __init__(self, browser, target, session):
        self.browser, self.target, self.session = browser, target, session
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.window(1280, 900)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def window(self, width, height, dark=False, phone=False):
        """Looks through a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url):
        self.call("Page.navigate", url=url)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def js(self, expression):
        """The value of an expression in the page, or of the promise that it is."""
        done = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def picture(self):
        """What is seen of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")

    def complaints(self):
        """What the page has thrown, logged as an error, or been refused by its policy."""
        self.js("0")
        of_page = [event for event in self.browser.events if event.get("sessionId") == self.session]
        loud = {"Runtime.exceptionThrown": lambda _: True, "Log.entryAdded": lambda told: told["entry"]["level"] == "error",
                "Runtime.consoleAPICalled": lambda told: told["type"] == "error"}  # fmt: skip
        return [event["params"] for event in of_page if loud.get(event["method"], lambda _: False)(event["params"])]
