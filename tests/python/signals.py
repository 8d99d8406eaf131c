"""Inputs that look like those the models were made for."""

import numpy as np

# Five columns of seven pixels a letter, the topmost pixel in the lowest bit.
FONT = {
    "L": (127, 64, 64, 64, 64), "O": (62, 65, 65, 65, 62), "A": (126, 9, 9, 9, 126), "D": (127, 65, 65, 65, 62),
    "I": (0, 65, 127, 65, 0), "N": (127, 4, 8, 16, 127), "E": (127, 73, 73, 73, 65), "4": (24, 20, 18, 127, 16),
    "2": (98, 81, 73, 73, 70), "T": (1, 1, 127, 1, 1), " ": (0, 0, 0, 0, 0),
}  # fmt: skip


def line_of_text(text, scale):
    """A picture [7 * scale, width] of the text, 1 where there is ink."""
    columns = [column for letter in text for column in (*FONT[letter], 0)]
    ink = np.array([[column >> row & 1 for column in columns] for row in range(7)], np.float32)
    return ink.repeat(scale, 0).repeat(scale, 1)


def page(height, width, texts, scale=3, seed=0):
    """A light page [3, height, width] with lines of dark text and a little noise, scaled to -1..1."""
    grey = np.full((height, width), 0.9, np.float32)
    grey += np.random.default_rng(seed).normal(0, 0.02, grey.shape).astype(np.float32)
    for at, text in enumerate(texts):
        ink = line_of_text(text, scale)
        top, left = 10 + at * 12 * scale, 8 + 11 * at
        rows, columns = min(ink.shape[0], height - top), min(ink.shape[1], width - left)
        if rows > 0 and columns > 0:
            grey[top : top + rows, left : left + columns] -= 0.8 * ink[:rows, :columns]
    colours = np.stack([grey, grey * 0.97, grey * 0.93])
    return (np.clip(colours, 0, 1) * 2 - 1).astype(np.float32)


def strip(width, text, seed=0):
    """A line of text 48 pixels high, as recognition takes it: [3, 48, width], -1..1."""
    return page(48, width, [text], scale=4, seed=seed)


def picture(height, width, seed=0):
    """A smooth scene with a few bright bodies in it: [3, height, width], 0..1."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32) / max(height, width)
    scene = np.stack([0.3 + 0.3 * x, 0.5 - 0.2 * y, 0.4 + 0.1 * x * y])
    for _ in range(6):
        (cx, cy), radius = random.uniform(0.1, 0.9, 2), random.uniform(0.05, 0.2)
        body = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / radius**2)
        scene += random.uniform(-0.5, 0.7, (3, 1, 1)) * body
    return np.clip(scene + random.normal(0, 0.02, scene.shape), 0, 1).astype(np.float32)


def voice(seconds, rate=16000, seed=0):
    """Syllables of a voice-like sound with pauses between them: harmonics under two formants, and breath."""
    random = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    pitch = 130 + 25 * np.sin(2 * np.pi * 0.8 * t) + 4 * np.sin(2 * np.pi * 5.5 * t)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    first, second = 600 + 200 * np.sin(2 * np.pi * 1.3 * t), 1500 + 500 * np.sin(2 * np.pi * 0.9 * t)
    sound = np.zeros_like(t)
    for harmonic in range(1, 31):
        at = harmonic * pitch
        loud = np.exp(-(((at - first) / 180) ** 2)) + 0.5 * np.exp(-(((at - second) / 250) ** 2)) + 0.05
        sound += loud / np.sqrt(harmonic) * np.sin(harmonic * phase)
    syllables = np.clip(np.sin(2 * np.pi * 3.5 * t) + 0.4, 0, 1)
    breath = random.normal(0, 0.004, t.shape)
    return (0.25 * sound / np.abs(sound).max() * syllables + breath).astype(np.float32)


def frames(sound, count, context=64, step=512):
    """The frames [1, 576] that silero takes: each begins with the end of the one before."""
    padded = np.concatenate([np.zeros(context, np.float32), sound])
    return [padded[np.newaxis, at * step : at * step + context + step] for at in range(count)]
