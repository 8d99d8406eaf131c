"""onnxruntime as the reference, and what counts as equal to it."""

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

RELATIVE = 1e-4

# A hundredth of that of an output's largest value is allowed everywhere. What is much smaller than the largest is left
# of a sum of terms as large, so its last digits depend on the order of the additions, which float32 leaves open: with
# its own optimizations off, onnxruntime differs from itself there by half of this bound and more.
FLOOR = 1e-2


def session(model):
    """A session on a file or on the bytes of one."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    model = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(session, inputs):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs)))


def assert_close(got, wanted, what="", floor=FLOOR):
    """|a - b| <= 1e-4 * (|b| + floor * max|b|), shape and dtype equal; floor is 1e-2 unless told otherwise."""
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, (what, got.shape, wanted.shape)
    assert np.isfinite(wanted).all(), f"{what}: the reference itself is not finite"
    bound = RELATIVE * (np.abs(wanted) + floor * np.abs(wanted).max(initial=0))
    excess = np.abs(got.astype(np.float64) - wanted) / np.maximum(bound, np.finfo(np.float32).tiny)
    worst = np.unravel_index(np.argmax(excess), excess.shape) if excess.size else ()
    assert not (excess > 1).any() and np.isfinite(got).all(), (
        f"{what}: {(excess > 1).sum()} of {excess.size} values differ by more than the bound, most at {worst}: "
        f"got {got[worst]!r}, expected {wanted[worst]!r}, {excess[worst]:.1f} times the bound"
    )


def assert_all_close(got, wanted, what="", floor=FLOOR):
    assert got.keys() == wanted.keys(), (what, got.keys(), wanted.keys())
    for name in wanted:
        assert_close(got[name], wanted[name], f"{what} {name}".strip(), floor)


def randomized(source, target, seed):
    """A copy of a net whose constant weights are random ones of the same shape, at the scale of a trained net."""
    random = np.random.default_rng(seed)
    model = onnx.load(source)
    graph = model.graph
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    made = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    roles = _roles(graph)
    for node in made:
        shape = tuple(int(size) for size in shapes[node.input[0]])
        values = _values(random, roles[node.output[0]], shape)
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
        graph.node.remove(node)
    _calm(model, random)
    target.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, target)
    return target


def _calm(model, random):
    """Scales the classifier's weights so that its scores spread as a trained net's do: untrained residual blocks add
    up, and a softmax of their scores would be a one and zeros whatever came before."""
    classifier = next((node for node in model.graph.node if node.op_type == "Gemm"), None)
    if classifier is None:
        return
    probe = onnx.ModelProto.FromString(model.SerializeToString())
    del probe.graph.output[:]
    probe.graph.output.append(onnx.helper.make_tensor_value_info(classifier.output[0], onnx.TensorProto.FLOAT, None))
    ran = session(probe.SerializeToString())
    port = ran.get_inputs()[0]
    spread = ran.run(None, {port.name: random.normal(0, 1, port.shape).astype(np.float32)})[0].std()
    name = classifier.input[1]
    name = next((node.input[0] for node in model.graph.node if name in node.output and node.op_type == "Reshape"), name)
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(2 / spread), weight.name))


def _roles(graph):
    """Which input of which op each value is; a view is what its own reader takes it for."""
    roles = {value: (node.op_type, at) for node in graph.node for at, value in enumerate(node.input)}
    views = {node.input[0]: node.output[0] for node in graph.node if node.op_type in ("Unsqueeze", "Reshape")}
    return {value: roles.get(views.get(value), role) for value, role in roles.items()}


def _values(random, role, shape):
    match role:
        case ("Conv", 1) | ("Gemm", 1):
            return random.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape)
        case ("BatchNormalization", 1) | ("Mul", _):
            return random.uniform(0.8, 1.2, shape)
        case ("BatchNormalization", 4):
            return random.uniform(0.5, 1.5, shape)
        case _:
            return random.normal(0, 0.1, shape)
