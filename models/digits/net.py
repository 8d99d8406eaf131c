"""A small convolutional net in plain numpy: forward, backward and the Adam step.

It is written out so that training needs no framework. Arrays are float32 and images lie as [n, h, w, c],
which keeps the nine neighbours of a pixel in long contiguous runs; a convolution's weight is [9 * c, outputs].
"""

import numpy as np

CHANNELS = (1, 16, 32, 32)
CLASSES = 10
FEATURES = (2, 2, CHANNELS[-1])  # what two pools leave of 8x8
NEIGHBOURS = [(i, j) for i in range(3) for j in range(3)]


def initial_weights(rng):
    """He initialisation."""
    weights = {}
    for i, (inputs, outputs) in enumerate(zip(CHANNELS, CHANNELS[1:]), start=1):
        scale = np.sqrt(2.0 / (9 * inputs))
        weights[f"conv{i}.weight"] = rng.normal(0, scale, (9 * inputs, outputs)).astype(np.float32)
        weights[f"conv{i}.bias"] = np.zeros(outputs, np.float32)
    inputs = int(np.prod(FEATURES))
    weights["dense.weight"] = rng.normal(0, np.sqrt(1.0 / inputs), (inputs, CLASSES)).astype(np.float32)
    weights["dense.bias"] = np.zeros(CLASSES, np.float32)
    return weights


def conv_relu(x, weight, bias):
    """3x3, stride 1, padded by 1. Returns the output and the patches, which backward needs again."""
    n, h, w, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    patches = np.concatenate([padded[:, i : i + h, j : j + w] for i, j in NEIGHBOURS], axis=3)
    patches = patches.reshape(n * h * w, -1)
    return np.maximum(patches @ weight + bias, 0).reshape(n, h, w, -1), patches


def conv_relu_backward(grad, y, patches):
    """Gradients of the weight, of the bias and of the product, the last for `conv_input_grad`."""
    flat = (grad * (y > 0)).reshape(-1, y.shape[3])
    return patches.T @ flat, flat.sum(axis=0), flat


def conv_input_grad(flat, weight, like):
    n, h, w, c = like.shape
    spread = (flat @ weight.T).reshape(n, h, w, 9, c)
    grad = np.zeros((n, h + 2, w + 2, c), np.float32)
    for k, (i, j) in enumerate(NEIGHBOURS):
        grad[:, i : i + h, j : j + w] += spread[:, :, :, k]
    return grad[:, 1:-1, 1:-1]


def quarters(x):
    """The four pixels of each 2x2 block, as views."""
    return [x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]


def pool(x):
    """The maximum of each 2x2 block."""
    a, b, c, d = quarters(x)
    return np.maximum(np.maximum(a, b), np.maximum(c, d))


def pool_backward(grad, x, y):
    """The gradient goes to the maximum; equal maxima share it."""
    share = grad / sum((quarter == y).astype(np.float32) for quarter in quarters(x))
    out = np.zeros_like(x)
    for target, quarter in zip(quarters(out), quarters(x)):
        target[...] = share * (quarter == y)
    return out


def forward(weights, images):
    """Class probabilities [n, 10] of images with values 0..16, and what backward needs."""
    a1, p1 = conv_relu(images / np.float32(16), weights["conv1.weight"], weights["conv1.bias"])
    a2, p2 = conv_relu(a1, weights["conv2.weight"], weights["conv2.bias"])
    m2 = pool(a2)
    a3, p3 = conv_relu(m2, weights["conv3.weight"], weights["conv3.bias"])
    m3 = pool(a3)
    features = m3.reshape(len(m3), -1)
    scores = features @ weights["dense.weight"] + weights["dense.bias"]
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True), (a1, p1, a2, p2, m2, a3, p3, m3, features)


def gradients(weights, images, targets):
    """Gradients of the mean cross-entropy between the answer and the target distributions [n, 10]."""
    probabilities, (a1, p1, a2, p2, m2, a3, p3, m3, features) = forward(weights, images)
    scores = (probabilities - targets) / np.float32(len(images))
    grads = {"dense.weight": features.T @ scores, "dense.bias": scores.sum(axis=0)}
    grad = (scores @ weights["dense.weight"].T).reshape(m3.shape)
    for i, x, before_pool, pooled, patches in ((3, m2, a3, m3, p3), (2, a1, a2, m2, p2)):
        grad = pool_backward(grad, before_pool, pooled)
        grads[f"conv{i}.weight"], grads[f"conv{i}.bias"], flat = conv_relu_backward(grad, before_pool, patches)
        grad = conv_input_grad(flat, weights[f"conv{i}.weight"], x)
    grads["conv1.weight"], grads["conv1.bias"], _ = conv_relu_backward(grad, a1, p1)
    return grads


def onnx_weights(weights):
    """The same weights in ONNX's order: [outputs, c, 3, 3] for Conv, and features counted as [c, h, w]."""
    out = dict(weights)
    for name in ("conv1.weight", "conv2.weight", "conv3.weight"):
        outputs = weights[name].shape[1]
        out[name] = weights[name].reshape(3, 3, -1, outputs).transpose(3, 2, 0, 1)
    dense = weights["dense.weight"].reshape(*FEATURES, CLASSES)
    out["dense.weight"] = dense.transpose(3, 2, 0, 1).reshape(CLASSES, -1)
    return {name: np.ascontiguousarray(value) for name, value in out.items()}


class Adam:
    """Kingma and Ba 2014, with decoupled weight decay (Loshchilov and Hutter 2017)."""

    def __init__(self, weights, decay=1e-4):
        self.decay = decay
        self.steps = 0
        self.mean = {name: np.zeros_like(w) for name, w in weights.items()}
        self.square = {name: np.zeros_like(w) for name, w in weights.items()}

    def step(self, weights, grads, rate):
        self.steps += 1
        for name, grad in grads.items():
            self.mean[name] += 0.1 * (grad - self.mean[name])
            self.square[name] += 0.001 * (grad**2 - self.square[name])
            mean = self.mean[name] / (1 - 0.9**self.steps)
            square = self.square[name] / (1 - 0.999**self.steps)
            weights[name] -= np.float32(rate) * (mean / (np.sqrt(square) + 1e-8) + self.decay * weights[name])
