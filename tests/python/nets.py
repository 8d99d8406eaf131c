"""Small ONNX models made for one purpose each: slow, large, told apart by their answer, or broken."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = [helper.make_opsetid("", 17)]


def _model(nodes, inputs, outputs, weights):
    named = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, named)
    model = helper.make_model(graph, opset_imports=OPSET, ir_version=8)
    onnx.checker.check_model(model)
    return model


def _float(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _write(path, model):
    """A reader sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(model.SerializeToString())
    part.replace(path)
    return path


def times(path, factor, shape=("batch", 4)):
    """y = x * factor: the answer tells which model gave it."""
    nodes = [helper.make_node("Mul", ["x", "factor"], ["y"], name="times")]
    weights = {"factor": np.array(factor, np.float32)}
    return _write(path, _model(nodes, [_float("x", shape)], [_float("y", shape)], weights))


def identity(path, elem_type):
    """y = x, one axis of any length."""
    ports = [helper.make_tensor_value_info(name, elem_type, ["n"]) for name in ("x", "y")]
    return _write(path, _model([helper.make_node("Identity", ["x"], ["y"])], ports[:1], ports[1:], {}))


def triangle(path):
    """y = x with nothing but its diagonal, any square: two steps that have no kernel on any device."""
    nodes = [
        helper.make_node("Trilu", ["x"], ["upper"], upper=1),
        helper.make_node("Trilu", ["upper"], ["y"], upper=0),
    ]
    return _write(path, _model(nodes, [_float("x", ["n", "n"])], [_float("y", ["n", "n"])], {}))


def slow(path, steps):
    """y [1] = x [1] for x > 0: by way of `steps` products of 512x512 matrices, which take milliseconds each.

    They only permute, so nothing grows or vanishes; and both sides depend on x, so nothing is done ahead of time.
    """
    size = 512
    permutation = np.eye(size, dtype=np.float32)[np.random.default_rng(1).permutation(size)]
    weights = {"ones": np.ones((size, size), np.float32), "p": permutation, "one": np.array([1], np.int64)}
    nodes = [
        helper.make_node("Mul", ["x", "ones"], ["v0"]),
        helper.make_node("Sign", ["x"], ["plus"]),
        helper.make_node("Mul", ["p", "plus"], ["q"]),
        *(helper.make_node("MatMul", [f"v{i}", "q"], [f"v{i + 1}"], name=f"step{i}") for i in range(steps)),
        helper.make_node("ReduceMax", [f"v{steps}"], ["m"], keepdims=0),
        helper.make_node("Reshape", ["m", "one"], ["y"]),
    ]
    return _write(path, _model(nodes, [_float("x", [1])], [_float("y", [1])], weights))


def rows(path, steps, size=512):
    """y ["batch", size]: the rows of x with their elements in another order, by way of `steps` products of one matrix.

    A run of several rows takes little longer than one of one, and gives each row to the last bit what it gets alone.
    """
    order = np.random.default_rng(2).permutation(size)
    nodes = [helper.make_node("MatMul", [f"v{i}", "p"], [f"v{i + 1}"], name=f"step{i}") for i in range(steps)]
    nodes[0].input[0], nodes[-1].output[0] = "x", "y"
    ports = [_float("x", ["batch", size])], [_float("y", ["batch", size])]
    return _write(path, _model(nodes, *ports, {"p": np.eye(size, dtype=np.float32)[order]}))


def lookup(path, steps, size=512):
    """y ["batch", size] = row x of a table of ten, by way of `steps` products: an index of 10 is no row."""
    table = np.arange(10, dtype=np.float32)[:, None].repeat(size, 1)
    chain = [helper.make_node("MatMul", [f"v{i}", "p"], [f"v{i + 1}"], name=f"step{i}") for i in range(steps)]
    nodes = [helper.make_node("Gather", ["table", "x"], ["v0"], name="look"), *chain]
    nodes[-1].output[0] = "y"
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, ["batch"])]
    weights = {"table": table, "p": np.eye(size, dtype=np.float32)}
    return _write(path, _model(nodes, inputs, [_float("y", ["batch", size])], weights))


def total(path):
    """y [1, 4] = the sum of all rows of x: no row of it belongs to one of x."""
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="sum", keepdims=1)]
    ports = [_float("x", ["batch", 4])], [_float("y", [1, 4])]
    return _write(path, _model(nodes, *ports, {"axes": np.array([0], np.int64)}))


def outer(path, size):
    """y [size, size] = x [size, 1] * w [1, size]: a small question with a large answer."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"], name="outer")]
    weights = {"w": np.ones((1, size), np.float32)}
    return _write(path, _model(nodes, [_float("x", [size, 1])], [_float("y", [size, size])], weights))


def large(path, mebibytes, seed=1, batch=1):
    """y [batch, n] = x [batch, 1024] @ w: a matrix of so many MiB that does not compress."""
    columns = mebibytes * 1024 * 1024 // 4 // 1024
    weights = {"w": np.random.default_rng(seed).standard_normal((1024, columns), np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    return _write(path, _model(nodes, [_float("x", [batch, 1024])], [_float("y", [batch, columns])], weights))


def external(path, location, values, batch=()):
    """y = x + w where w lies in another file; writes the model only, whatever the location is."""
    model = _model(
        [helper.make_node("Add", ["x", "w"], ["y"], name="plus")],
        [_float("x", [*batch, len(values)])],
        [_float("y", [*batch, len(values)])],
        {"w": np.asarray(values, np.float32)},
    )
    _elsewhere(model.graph.initializer[0], location)
    return _write(path, model)


def external_fill(path, location):
    """y [4] = x + four times one element, which is an attribute and lies in another file."""
    element = helper.make_tensor("element", TensorProto.FLOAT, [1], np.ones(1, np.float32).tobytes(), raw=True)
    nodes = [
        helper.make_node("ConstantOfShape", ["four"], ["w"], value=element),
        helper.make_node("Add", ["x", "w"], ["y"], name="plus"),
    ]
    model = _model(nodes, [_float("x", [4])], [_float("y", [4])], {"four": np.array([4])})
    _elsewhere(model.graph.node[0].attribute[0].t, location)
    return _write(path, model)


def _elsewhere(tensor, location):
    """Leaves the tensor's bytes to another file."""
    length = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": str(location), "offset": "0", "length": str(length)}.items():
        tensor.external_data.add(key=key, value=value)


def made_of_nothing(path, op, mebibytes):
    """y = x + the largest element of a value of so many MiB, which `op` makes of constants of a few bytes.

    Its shape is computed, so that it is nowhere in the file.
    """
    rows = mebibytes * 4
    side = [helper.make_node("Mul", ["quarter", "four"], ["rows"]), helper.make_node("Mul", ["columns", "one"], ["wide"])]
    shape = helper.make_node("Concat", ["rows", "wide"], ["shape"], axis=0)
    made = {
        "ConstantOfShape": [shape, helper.make_node("ConstantOfShape", ["shape"], ["huge"])],
        "Expand": [shape, helper.make_node("Expand", ["unit", "shape"], ["huge"])],
        "Tile": [shape, helper.make_node("Tile", ["unit", "shape"], ["huge"])],
        "Range": [
            helper.make_node("Mul", ["rows", "half"], ["many"]),
            helper.make_node("Squeeze", ["many"], ["limit"]),
            helper.make_node("Range", ["zero", "limit", "step"], ["longs"]),
            helper.make_node("Cast", ["longs"], ["huge"], to=TensorProto.FLOAT),
        ],
        "Add": [
            helper.make_node("Concat", ["rows", "one"], ["tall"], axis=0),
            helper.make_node("Concat", ["one", "wide"], ["flat"], axis=0),
            helper.make_node("Expand", ["unit", "tall"], ["column"]),
            helper.make_node("Expand", ["unit", "flat"], ["row"]),
            helper.make_node("Add", ["column", "row"], ["huge"]),
        ],
    }[op]
    most = [helper.make_node("ReduceMax", ["huge"], ["most"], keepdims=0), helper.make_node("Add", ["x", "most"], ["y"])]
    weights = {
        "quarter": np.array([rows // 4]),
        "four": np.array([4]),
        "columns": np.array([65536]),
        "one": np.array([1]),
        "half": np.array([32768]),
        "zero": np.array(0),
        "step": np.array(1),
        "unit": np.ones((1, 1), np.float32),
    }
    return _write(path, _model([*side, *made, *most], [_float("x", [1])], [_float("y", [1])], weights))
