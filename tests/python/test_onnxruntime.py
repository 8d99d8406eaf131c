"""Outputs equal onnxruntime's, through the whole way of a request."""

import importlib.util
import pathlib

import numpy as np
import pytest

import reference
import signals
import v2
from server import FETCHED, MODELS, Server

LIGHT = ["resnet50", "squeezenet", "shufflenet", "densenet121"]
FRAMES = 20


def both(server, model, inputs):
    """Outputs of the server and of onnxruntime; where the two must be equal, they are."""
    folder = MODELS if model == "digits" else FETCHED
    wanted = reference.run(reference.session(folder / model / "model.onnx"), inputs)
    return v2.infer(server, model, inputs), wanted


@pytest.fixture(scope="session")
def split():
    spec = importlib.util.spec_from_file_location("digits_data", MODELS / "digits/digits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.split()


def test_digits_equal_onnxruntime_at_one_and_at_many(digits, split):
    for count in (1, len(split.held_out_images)):
        reference.assert_all_close(*both(digits, "digits", {"image": split.held_out_images[:count]}), f"{count} images")


def test_at_least_97_of_100_held_out_digits_are_read_through_the_server(digits, split):
    probabilities = v2.infer(digits, "digits", {"image": split.held_out_images})["probabilities"]
    right = (probabilities.argmax(1) == split.held_out_digits).mean()
    assert right >= 0.97, f"{right:.1%} right"


TEXTS = ["LOAD LINE", "OLD ONE 42", "A NEAT DEAL", "LINEN"]


@pytest.mark.parametrize(("height", "width"), [(320, 320), (160, 224)])
def test_text_detection_equals_onnxruntime(fetched, height, width):
    got, wanted = both(fetched, "ppocr-det", {"x": signals.page(height, width, TEXTS)[np.newaxis]})
    assert (next(iter(wanted.values())) > 0.6).any(), "the page has text that the detector should see"
    # A map of probabilities from 0 to 1, whose slopes multiply what rounding leaves: 1e-5 of full scale is let pass.
    reference.assert_all_close(got, wanted, floor=0.1)


@pytest.mark.parametrize(("batch", "width"), [(1, 320), (4, 100)])
def test_text_recognition_equals_onnxruntime(fetched, batch, width):
    lines = np.stack([signals.strip(width, TEXTS[at], seed=at) for at in range(batch)])
    reference.assert_all_close(*both(fetched, "ppocr-rec", {"x": lines}))


@pytest.mark.parametrize("batch", [1, 6])
def test_text_direction_equals_onnxruntime(fetched, batch):
    lines = [signals.strip(192, TEXTS[at % 4], seed=at) for at in range(batch)]
    turned = [line[:, ::-1, ::-1] if at % 2 else line for at, line in enumerate(lines)]
    reference.assert_all_close(*both(fetched, "ppocr-cls", {"x": np.stack(turned)}))


def file_beginning_and_end(data):
    """What magika looks at: the first and the last 1024 bytes, 256 where there are none."""
    pad = lambda part: list(part) + [256] * (1024 - len(part))
    return pad(data[:1024]) + list(reversed(pad(bytes(reversed(data[-1024:])))))


def test_file_types_equal_onnxruntime(fetched):
    files = [pathlib.Path(__file__), MODELS / "digits/model.onnx", pathlib.Path("/proc/self/exe")]
    rows = np.array([file_beginning_and_end(file.read_bytes()) for file in files], np.int32)
    for chosen in (rows[:1], rows):
        got, wanted = both(fetched, "magika", {"bytes": chosen})
        reference.assert_all_close(got, wanted, f"{len(chosen)} files")


def test_the_type_of_a_short_file_is_the_one_that_onnxruntime_finds(fetched):
    # Of padding the net takes a variance that cancels to nothing: onnxruntime's own scores for such a file change
    # by 1e-3 with the size of the batch that it comes in, so only the order of the scores can be compared.
    rows = np.array([file_beginning_and_end(b"key = 1\n")], np.int32)
    got, wanted = both(fetched, "magika", {"bytes": rows})
    assert got["target_label"].argmax() == wanted["target_label"].argmax()


def test_detection_equals_onnxruntime_in_boxes_and_in_scores(fetched):
    got, wanted = both(fetched, "nudenet", {"images": signals.picture(320, 320)[np.newaxis]})
    # Boxes are in pixels and scores below one: each is judged against the largest of its own kind.
    for name, kind in {"boxes": slice(0, 4), "scores": slice(4, None)}.items():
        reference.assert_close(got["output0"][:, kind], wanted["output0"][:, kind], name)


RATE = np.array(16000, np.int64)
SILERO = {
    "silero-vad": {"sr": RATE},
    "silero-vad-16k": {"sr": RATE},
    "silero-vad-ifless": {"sr": RATE},
    "silero-vad-half": {},
    "silero-vad-fixed": {},
}


@pytest.mark.parametrize("model", SILERO)
def test_speech_equals_onnxruntime_over_20_frames_with_its_state_fed_back(fetched, model):
    session = reference.session(FETCHED / model / "model.onnx")
    state = wanted_state = np.zeros((2, 1, 128), np.float32)
    speech = []
    for at, frame in enumerate(signals.frames(signals.voice(2), FRAMES)):
        got = v2.infer(fetched, model, {"input": frame, "state": state})
        wanted = reference.run(session, {"input": frame, "state": wanted_state} | SILERO[model])
        reference.assert_all_close(got, wanted, f"frame {at}")
        state, wanted_state = got["stateN"], wanted["stateN"]
        speech.append(float(got["output"][0, 0]))
    assert max(speech) - min(speech) > 0.01, f"the sound should make a difference: {speech}"


def test_speech_in_sequences_equals_onnxruntime_with_its_state_fed_back(fetched):
    session = reference.session(FETCHED / "silero-vad-sequence" / "model.onnx")
    ours = theirs = {"h": np.zeros((1, 1, 128), np.float32), "c": np.zeros((1, 1, 128), np.float32)}
    rows = np.concatenate(signals.frames(signals.voice(2), FRAMES))
    for at in range(0, FRAMES, 5):
        frames = {"input": rows[at : at + 5]}
        got = v2.infer(fetched, "silero-vad-sequence", frames | ours)
        wanted = reference.run(session, frames | theirs)
        reference.assert_all_close(got, wanted, f"frames from {at}")
        ours, theirs = ({"h": end["hn"], "c": end["cn"]} for end in (got, wanted))


def test_a_recurrent_model_remembers_nothing_of_the_request_before(fetched):
    frames = np.concatenate(signals.frames(signals.voice(1), 4))
    random = np.random.default_rng(3)
    requests = [
        {"input": frames, "h": random.normal(0, 0.3, (1, 1, 128)), "c": random.normal(0, 0.3, (1, 1, 128))}
        for _ in range(2)
    ]
    requests = [{name: array.astype(np.float32) for name, array in request.items()} for request in requests]
    session = reference.session(FETCHED / "silero-vad-sequence" / "model.onnx")
    # More rounds than there are lanes, so that each lane runs both.
    for at in range(16):
        got = v2.infer(fetched, "silero-vad-sequence", requests[at % 2])
        reference.assert_all_close(got, reference.run(session, requests[at % 2]), f"request {at}")


@pytest.fixture(scope="session")
def random_nets(tmp_path_factory):
    """The light nets with random weights: as they come every weight is the same, and any mix-up of them goes unseen."""
    folder = tmp_path_factory.mktemp("random-nets")
    for seed, name in enumerate(LIGHT):
        reference.randomized(FETCHED / name / "model.onnx", folder / name / "model.onnx", seed)
    config = {"memory": {"ceiling": "4GiB"}, "models": {"load": "on_demand"}}
    with Server(tmp_path_factory.mktemp("random-server"), folder, config) as server:
        yield server, folder


@pytest.mark.parametrize("model", LIGHT)
def test_an_image_net_with_random_weights_equals_onnxruntime(random_nets, model):
    server, folder = random_nets
    session = reference.session(folder / model / "model.onnx")
    name = session.get_inputs()[0].name
    for seed in range(2):
        inputs = {name: (signals.picture(224, 224, seed)[np.newaxis] - 0.45) / 0.225}
        wanted = reference.run(session, inputs)
        scores = next(iter(wanted.values())).ravel()
        assert len(np.unique(scores)) > 500 and np.sort(scores)[-2] > 1e-6, "the net should not be sure of one class"
        reference.assert_all_close(v2.infer(server, model, inputs), wanted, f"picture {seed}")


@pytest.mark.parametrize("model", LIGHT)
def test_an_image_net_with_constant_weights_equals_onnxruntime(fetched, model):
    session = reference.session(FETCHED / model / "model.onnx")
    inputs = {session.get_inputs()[0].name: signals.picture(224, 224)[np.newaxis]}
    reference.assert_all_close(v2.infer(fetched, model, inputs), reference.run(session, inputs))
