#!/usr/bin/env python3
"""Trains the digits model and writes model.onnx and one.json beside this script.

    pip install numpy scikit-learn onnx
    python3 models/digits/train.py

The seed is fixed, so a second run on the same machine writes the same bytes.
"""

import json
import os
import pathlib
import sys

# One thread: the products are too small to share, and their sums then always add up in one order.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from scipy import ndimage

import net
from digits import SEED, split

HERE = pathlib.Path(__file__).parent
EPOCHS = 40
BATCH = 64
PEAK_RATE = 3e-3
LABEL_SMOOTHING = 0.05
LEAST_ACCURACY = 0.97
SAMPLE_DIGIT = 7


def augmented(images, rng):
    """Each image turned, scaled and moved a little, as handwriting varies."""
    out = np.empty_like(images)
    for image, target in zip(images[..., 0], out[..., 0]):
        angle = np.deg2rad(rng.uniform(-12, 12))
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        matrix = turn / rng.uniform(0.9, 1.1)
        offset = 3.5 - matrix @ (3.5 + rng.uniform(-0.7, 0.7, 2))
        ndimage.affine_transform(image, matrix, offset, output=target, order=1)
    return out


def train(images, digits, rng):
    images = images.transpose(0, 2, 3, 1)
    weights = net.initial_weights(rng)
    adam = net.Adam(weights)
    targets = np.eye(net.CLASSES, dtype=np.float32)[digits]
    targets = targets * (1 - LABEL_SMOOTHING) + LABEL_SMOOTHING / net.CLASSES
    steps = EPOCHS * -(-len(images) // BATCH)
    for epoch in range(EPOCHS):
        order = rng.permutation(len(images))
        varied = augmented(images, rng)
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            rate = PEAK_RATE * 0.5 * (1 + np.cos(np.pi * adam.steps / steps))
            adam.step(weights, net.gradients(weights, varied[batch], targets[batch]), rate)
        if sys.stderr.isatty():
            print(f"\repoch {epoch + 1} of {EPOCHS}", end="", file=sys.stderr)
    return weights


def to_onnx(weights):
    """The net as ONNX: raw pixel values in, probabilities out, any batch."""

    def conv(i, x, y):
        return [
            helper.make_node(
                "Conv", [x, f"conv{i}.weight", f"conv{i}.bias"], [f"conv{i}"], f"conv{i}",
                kernel_shape=[3, 3], pads=[1, 1, 1, 1],
            ),
            helper.make_node("Relu", [f"conv{i}"], [y], f"relu{i}"),
        ]  # fmt: skip

    def pool(x, y):
        return [helper.make_node("MaxPool", [x], [y], y, kernel_shape=[2, 2], strides=[2, 2])]

    nodes = [
        helper.make_node("Mul", ["image", "scale"], ["scaled"], "scale_pixels"),
        *conv(1, "scaled", "relu1"),
        *conv(2, "relu1", "relu2"),
        *pool("relu2", "pool2"),
        *conv(3, "pool2", "relu3"),
        *pool("relu3", "pool3"),
        helper.make_node("Flatten", ["pool3"], ["features"], "flatten"),
        helper.make_node("Gemm", ["features", "dense.weight", "dense.bias"], ["scores"], "dense", transB=1),
        helper.make_node("Softmax", ["scores"], ["probabilities"], "softmax", axis=1),
    ]
    constants = {"scale": np.array(1 / 16, np.float32), **net.onnx_weights(weights)}
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", net.CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
        doc_string="Handwritten digits, 8x8 pixels with values 0..16 (the images of scikit-learn).",
    )
    model = helper.make_model(
        graph, producer_name="plimsoll", ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def request_body(image, digit):
    """A whole infer request in JSON for one image, one row of pixels a line."""
    rows = ",\n    ".join(", ".join(f"{value:g}" for value in row) for row in image[0])
    tensor = f'"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "data": [\n    {rows}\n  ]'
    body = f'{{\n  "id": "a handwritten {digit}",\n  "inputs": [{{{tensor}}}]\n}}\n'
    assert json.loads(body)["inputs"][0]["data"] == image.flatten().tolist()
    return body


def main():
    data = split()
    weights = train(data.train_images, data.train_digits, np.random.default_rng(SEED))
    model = to_onnx(weights)

    # Judged through the graph as written, not through the arrays it was made from.
    (probabilities,) = ReferenceEvaluator(model).run(None, {"image": data.held_out_images})
    answers = probabilities.argmax(axis=1)
    right = int((answers == data.held_out_digits).sum())
    total = len(answers)
    print(f"held-out images: {right} of {total} right, {right / total:.2%}")
    if right / total < LEAST_ACCURACY:
        sys.exit(f"expected at least {LEAST_ACCURACY:.0%}: nothing written")

    sample = int(np.flatnonzero((data.held_out_digits == SAMPLE_DIGIT) & (answers == SAMPLE_DIGIT))[0])
    (HERE / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    (HERE / "one.json").write_text(request_body(data.held_out_images[sample], SAMPLE_DIGIT))
    print(f"wrote model.onnx ({(HERE / 'model.onnx').stat().st_size} bytes) and one.json")


if __name__ == "__main__":
    main()
