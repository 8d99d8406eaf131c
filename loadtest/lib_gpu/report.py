"""What a sub-command found: a table for people, JSON for the rest, and what was not as it is promised."""

import json
import pathlib

MIB = 1 << 20


class Report:
    def __init__(self, name, arguments):
        self.name, self.out, self.rows, self.wrong = name, arguments.out, [], []
        self.figures = {"name": name, "device": arguments.device}

    def row(self, name, value, **figures):
        """A line of the table, printed at once, and what of it belongs into the JSON."""
        print(f"  {name:16} {value}", flush=True)
        self.figures |= figures

    def missed(self, what):
        self.wrong.append(what)

    def expect(self, good, what):
        """`what` is said where it is not so."""
        if not good:
            self.missed(what)

    def end(self):
        """The exit code."""
        for what in self.wrong[:20]:
            print(f"  {'WRONG':16} {what}")
        if not self.wrong:
            print(f"  {'wrong':16} nothing")
        if self.out:
            pathlib.Path(self.out).parent.mkdir(parents=True, exist_ok=True)
            document = self.figures | {"wrong": self.wrong}
            pathlib.Path(self.out).write_text(json.dumps(document, indent=2) + "\n")
        return 1 if self.wrong else 0


def mib(size):
    return "unknown" if size is None else f"{size / MIB:.1f} MiB"
