"""The images of digits that the model is trained on, and those it is judged by.

Training and tests share this one function, so that a test never judges the model by an image that
the model has seen.
"""

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 20
HELD_OUT_SHARE = 0.2


class Split(NamedTuple):
    """Images are float32 [n, 1, 8, 8] with values 0..16 as the dataset gives them; digits are int64 [n]."""

    train_images: np.ndarray
    train_digits: np.ndarray
    held_out_images: np.ndarray
    held_out_digits: np.ndarray


def split() -> Split:
    """1437 images to train on and 360 held out, each digit with the same share in both."""
    data = load_digits()
    images = data.images.astype(np.float32)[:, np.newaxis]
    digits = data.target.astype(np.int64)
    train_images, held_out_images, train_digits, held_out_digits = train_test_split(
        images, digits, test_size=HELD_OUT_SHARE, stratify=digits, random_state=SEED
    )
    return Split(train_images, train_digits, held_out_images, held_out_digits)
