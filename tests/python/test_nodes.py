"""The operator cases of the `onnx` package: what tract's own plan gets right, planned programs get right as well.

Every case runs twice, as it is and with all inputs but the first made constants, for weights are constants in real
models and take other ways. `plimsoll selftest --cases` runs them all in a few processes and leaves the outputs of both
programs beside each case; what is right is judged here.
"""

import collections
import json
import os
import subprocess
import time
import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from server import BIN, clean_environment

# What an .npy file and the server hold. Strings run whole always; sequences, maps and small floats are not served.
SERVED = {np.dtype(name) for name in "? u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8".split()}
CONSTANT = "+constants"
PROCESSES = 2

# Fewer than these would mean that something no longer runs or is no longer planned.
LEAST_RIGHT, LEAST_NATIVE = 1920, 1110


class Case:
    """A node's model with inputs and expected outputs."""

    def __init__(self, case, name, model, inputs):
        self.name, self.model, self.inputs = name, model, inputs
        self.expected = case.data_sets[0][1]
        self.rtol, self.atol = case.rtol, case.atol
        ops = [node.op_type for node in case.model.graph.node]
        self.op = ops[0] if len(ops) == 1 else case.name

    def write(self, folder):
        folder = folder / self.name
        (folder / "inputs").mkdir(parents=True)
        (folder / "model.onnx").write_bytes(self.model.SerializeToString())
        for at, array in enumerate(self.inputs):
            np.save(folder / f"inputs/{at}.npy", np.array(array, order="C"))
        self.folder = folder

    def outputs(self, which):
        return [np.load(self.folder / which / f"{at}.npy") for at in range(len(self.expected))]

    def wrong(self, which):
        """What is wrong with one program's outputs, if anything."""
        try:
            for got, wanted in zip(self.outputs(which), self.expected, strict=True):
                assert got.shape == wanted.shape and got.dtype == wanted.dtype, (got.shape, wanted.shape, got.dtype)
                np.testing.assert_allclose(got, wanted, rtol=self.rtol, atol=self.atol, equal_nan=True)
        except (AssertionError, FileNotFoundError) as error:
            return " ".join(str(error).split())[:200]
        return None


def is_served(arrays):
    return all(isinstance(array, (np.ndarray, np.generic)) and array.dtype in SERVED for array in arrays)


def collected():
    """The cases that can be written, and the names of those that cannot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        originals = collect_testcases(None)
    cases, unserved = [], []
    for original in originals:
        inputs, outputs = original.data_sets[0]
        if not is_served(inputs) or not is_served(outputs):
            unserved.append(original.name)
            continue
        cases.append(Case(original, original.name, original.model, inputs))
        names = [port.name for port in original.model.graph.input]
        if len(inputs) > 1 and len(names) == len(inputs):
            model = onnx.ModelProto()
            model.CopyFrom(original.model)
            constants = zip(names[1:], inputs[1:])
            model.graph.initializer.extend(numpy_helper.from_array(np.array(a), name) for name, a in constants)
            del model.graph.input[1:]
            cases.append(Case(original, original.name + CONSTANT, model, inputs[:1]))
    return cases, unserved


class Run:
    """Every case and what came of it."""

    def __init__(self, root, threads):
        self.cases, self.unserved = collected()
        folders = [root / str(at) for at in range(PROCESSES)]
        for at, case in enumerate(self.cases):
            case.write(folders[at % PROCESSES])
        begun = time.monotonic()
        running = [self._start(folder, threads) for folder in folders]
        rows = {}
        for process, out, err in running:
            process.wait(600)
            text, self.stderr = out.read_text(), err.read_text()
            assert process.returncode in (0, 1) and text, (process.returncode, self._last(), self.stderr[-3000:])
            rows |= {row["model"]: row for row in json.loads(text)["models"]}
        self.seconds = time.monotonic() - begun
        for case in self.cases:
            case.row = rows[case.name]
            case.verdict = case.row["verdict"]
            case.reference_wrong = case.wrong("reference")
        self.right = [case for case in self.cases if case.reference_wrong is None]

    @staticmethod
    def _start(folder, threads):
        out, err = folder / "out.json", folder / "err.txt"
        command = [BIN, "selftest", "--cases", folder, "--threads", str(threads), "--json"]
        with open(out, "w") as stdout, open(err, "w") as stderr:
            process = subprocess.Popen(command, cwd=folder, env=clean_environment(), stdout=stdout, stderr=stderr)
        return process, out, err

    def _last(self):
        """The case that was last written to: the one at which a process ended, if it did not end by itself."""
        done = [case for case in self.cases if (case.folder / "reference").exists()]
        return max(done, key=lambda case: os.stat(case.folder / "reference").st_mtime).name if done else None

    def failures(self):
        """Of the cases that tract gets right, those that planned programs do not."""
        for case in self.right:
            if case.verdict == "random":
                continue
            why = case.wrong("planned") if case.verdict == "equal" else case.row["reason"]
            if why is not None:
                yield f"{case.name}: {case.verdict}: {why}"

    def summary(self):
        planned = [case for case in self.right if case.row["planned"]]
        hosted = [case for case in planned if case.row["host_steps"]]
        whole = [case for case in self.right if case.row["unplanned"]]
        ops = collections.Counter(op for case in hosted for op in {step["op"] for step in case.row["host_steps"]})
        verdicts = collections.Counter(case.verdict for case in self.cases)
        lines = [
            f"{len(self.cases)} cases in {self.seconds:.0f} s, {len(self.unserved)} more have types that are not served",
            f"{len(self.right)} that tract gets right: {len(planned) - len(hosted)} planned natively, "
            f"{len(hosted)} with host steps, {len(whole)} run whole",
            f"verdicts: {dict(verdicts)}",
            "host steps (cases): " + ", ".join(f"{op} {count}" for op, count in ops.most_common()),
        ]
        return "\n".join(lines)


@pytest.fixture(scope="module", params=[1, 2], ids=["1 thread", "2 threads"])
def ran(request, tmp_path_factory):
    return Run(tmp_path_factory.mktemp("nodes"), request.param)


def test_planned_programs_pass_every_case_that_tract_passes(ran, capsys):
    with capsys.disabled():
        print(f"\n{ran.summary()}")
    failures = list(ran.failures())
    assert not failures, f"{len(failures)} of {len(ran.right)} fail:\n" + "\n".join(failures) + ran.stderr[-2000:]


def test_no_fewer_cases_are_right_and_native_than_were(ran):
    native = [case for case in ran.right if case.row["planned"] and not case.row["host_steps"]]
    assert len(ran.right) >= LEAST_RIGHT and len(native) >= LEAST_NATIVE, (len(ran.right), len(native))


def test_the_time_for_all_cases_is_bounded(ran):
    assert ran.seconds < 120
