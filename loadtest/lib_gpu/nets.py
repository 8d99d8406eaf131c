"""The models that are asked: some are made here, others lie in a folder, of which those without weights get random ones."""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = [helper.make_opsetid("", 17)]
DATATYPES = {TensorProto.FLOAT: "FP32", TensorProto.FLOAT16: "FP16", TensorProto.INT32: "INT32", TensorProto.INT64: "INT64"}


def save(path, nodes, inputs, outputs, weights):
    floats = lambda ports: [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports]
    named = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", floats(inputs), floats(outputs), named)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=OPSET, ir_version=8), path)
    return path


def large(path, mebibytes, seed=1):
    """y ["batch", n] = x ["batch", 1024] @ w: a matrix of so many MiB."""
    columns = mebibytes * 1024 * 1024 // 4 // 1024
    weights = {"w": np.random.default_rng(seed).standard_normal((1024, columns), np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    return save(path, nodes, [("x", ["batch", 1024])], [("y", ["batch", columns])], weights)


def picture(path, channels=64, layers=4, seed=1):
    """scores ["batch", 10] of image ["batch", 3, "height", "width"]: convolutions of 3 x 3, and a product at the end."""
    random, nodes, weights, before, value = np.random.default_rng(seed), [], {}, 3, "image"
    for at in range(layers):
        scale = np.float32(np.sqrt(2 / (9 * before)))
        weights[f"w{at}"] = random.standard_normal((channels, before, 3, 3), np.float32) * scale
        nodes.append(helper.make_node("Conv", [value, f"w{at}"], [f"c{at}"], pads=[1, 1, 1, 1], strides=[2, 2]))
        nodes.append(helper.make_node("Relu", [f"c{at}"], [f"r{at}"]))
        before, value = channels, f"r{at}"
    weights["last"] = random.standard_normal((channels, 10), np.float32)
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    nodes.append(helper.make_node("MatMul", ["flat", "last"], ["scores"]))
    return save(path, nodes, [("image", ["batch", 3, "height", "width"])], [("scores", ["batch", 10])], weights)


def ports(path):
    """Name, datatype and shape of each input, sizes that are left open as -1."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    found = []
    for port in graph.input:
        if port.name not in weights:
            kind = port.type.tensor_type
            shape = [size.dim_value if size.HasField("dim_value") and size.dim_value > 0 else -1 for size in kind.shape.dim]
            found.append((port.name, DATATYPES[kind.elem_type], shape))
    return found


def shaped(ports, rows):
    """The inputs with so many rows; any other size that is left open is a mistake of whoever asks."""
    sized = [(name, datatype, [rows if size < 0 and at == 0 else size for at, size in enumerate(shape)])
             for name, datatype, shape in ports]  # fmt: skip
    if open_sizes := [name for name, _, shape in sized if -1 in shape]:
        raise RuntimeError(f"{', '.join(open_sizes)} leaves more than the first size open: export it with the others fixed")
    return sized


def with_weights(source, target, seed):
    """A copy of a net; where its weights ship as one number repeated, with random ones at the scale of a trained net's."""
    model = onnx.load(source)
    graph, random = model.graph, np.random.default_rng(seed)
    made = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    sizes = {node.output[0]: tuple(map(int, shapes[node.input[0]])) for node in made if node.input[0] in shapes}
    target.parent.mkdir(parents=True, exist_ok=True)
    if sum(int(np.prod(size)) for size in sizes.values()) < 100_000:
        target.write_bytes(pathlib.Path(source).read_bytes())
        return target
    roles = {value: (node.op_type, at) for node in graph.node for at, value in enumerate(node.input)}
    for node in made:
        value = node.output[0]
        if value in sizes:
            values = drawn(random, roles.get(value), sizes[value]).astype(np.float32)
            graph.initializer.append(numpy_helper.from_array(values, value))
            graph.node.remove(node)
    # Untrained scores are so far apart that a softmax of them is a one and zeros: what it is made of is asked for too.
    scores = [node.input[0] for node in graph.node if node.op_type == "Softmax" and node.output[0] == graph.output[0].name]
    graph.output.extend(helper.make_tensor_value_info(value, TensorProto.FLOAT, None) for value in scores)
    onnx.save(model, target)
    return target


def drawn(random, role, shape):
    match role:
        case ("Conv", 1) | ("Gemm", 1) | ("Reshape", 0):
            return random.standard_normal(shape) * np.sqrt(2 / max(1, np.prod(shape[1:])))
        case ("BatchNormalization", 1) | ("Mul", _) | ("Unsqueeze", 0):
            return random.uniform(0.8, 1.2, shape)
        case ("BatchNormalization", 4):
            return random.uniform(0.5, 1.5, shape)
        case _:
            return random.standard_normal(shape) * 0.1
