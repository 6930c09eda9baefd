"""Pictures as inputs, against colours and arithmetic that can be checked by hand."""

import re

import numpy as np
import pytest
from PIL import Image

from perfkit.errors import ModelMismatchError, ScenarioError
from perfkit.protocol.tensor import Datatype, array_dtype, tensor_to_array
from perfkit.scenario.workload import ImageInput
from perfkit.workload.inputs import TensorSource

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


@pytest.fixture
def make(tmp_path):
    """The values of an image input of the model; `seen` makes the request of that number."""

    def make_values(model_shape, datatype=Datatype.FP32, batch_size=None, request=0, image="x.png", **keys):
        given = ImageInput.model_validate({"image": image, **keys})
        tensor = TensorSource("A", datatype, given, model_shape, batch_size, tmp_path).tensor(request, np.random.default_rng(0))
        return tensor_to_array(tensor)

    return make_values


@pytest.fixture
def draw(tmp_path):
    """Saves a picture of these rows of colours."""

    def save(rows, name="x.png", mode="RGB"):
        image = Image.new(mode, (len(rows[0]), len(rows)))
        image.putdata([pixel for row in rows for pixel in row])
        image.save(tmp_path / name)

    return save


def test_the_shape_decides_whether_channels_come_first(make, draw):
    draw([[RED, GREEN], [BLUE, WHITE]])
    red, green, blue = [[255, 0], [0, 255]], [[0, 255], [0, 255]], [[0, 0], [255, 255]]
    assert make((3, 2, 2)).tolist() == [red, green, blue]
    assert make((1, 3, 2, 2)).tolist() == [[red, green, blue]]
    assert make((2, 2, 3)).tolist() == [[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 255]]]


def test_one_channel_is_grey_as_the_eye_weighs_colours(make, draw):
    draw([[RED, WHITE], [(0, 0, 0), BLUE]])
    # ITU-R 601: 299/1000 R + 587/1000 G + 114/1000 B
    assert make((1, 2, 2)).tolist() == [[[76, 255], [0, 29]]]
    assert make((2, 2, 1)).tolist() == [[[76], [255]], [[0], [29]]]


def test_scaling_is_that_of_tritons_image_client(make, draw):
    draw([[(0, 51, 255)]])
    assert make((3, 1, 1)).ravel().tolist() == [0, 51, 255]
    np.testing.assert_allclose(make((3, 1, 1), scaling="inception").ravel(), [-1, 51 / 127.5 - 1, 1], rtol=1e-6)
    assert make((3, 1, 1), scaling="vgg").ravel().tolist() == [0 - 123, 51 - 117, 255 - 104]
    assert make((1, 1, 1), scaling="vgg", layout="nchw").ravel().tolist() == [59 - 128]  # 0.587 * 51 + 0.114 * 255


def test_an_image_is_resized_bilinearly(make, draw):
    draw([[(0, 0, 0), (100, 100, 100)]] * 2)
    wide = make((3, 2, 4))[0]
    assert wide.tolist() == [[0, 25, 75, 100]] * 2, "a bilinear step at a quarter and three quarters of the way"
    assert make((3, 1, 1)).ravel().tolist() == [50, 50, 50]


def test_the_scenario_gives_the_size_of_open_dimensions(make, draw):
    draw([[RED]])
    assert make((3, -1, -1), shape=[3, 2, 5]).shape == (3, 2, 5)
    with pytest.raises(ModelMismatchError, match=re.escape("workload.inputs.A: the model's shape is [3, -1, -1]: give a size")):
        make((3, -1, -1))


@pytest.mark.parametrize("datatype", [Datatype.UINT8, Datatype.INT32, Datatype.FP16, Datatype.BF16, Datatype.FP64])
def test_an_image_has_the_datatype_of_the_model(make, draw, datatype):
    draw([[(1, 2, 250)]])
    values = make((3, 1, 1), datatype)
    assert values.dtype == array_dtype(datatype)
    assert values.ravel().tolist() == [1, 2, 250]


@pytest.mark.parametrize(("mode", "pixel", "values"), [("L", 7, [7, 7, 7]), ("RGBA", (1, 2, 3, 0), [1, 2, 3]), ("1", 1, [255, 255, 255])])
def test_pictures_of_other_modes_are_read_as_colours(make, draw, mode, pixel, values):
    draw([[pixel]], mode=mode)
    assert make((3, 1, 1)).ravel().tolist() == values


@pytest.mark.parametrize(("mode", "pixel"), [("I;16", 30_000), ("I", 70_000), ("F", 0.5)])
def test_images_with_more_than_256_levels_are_refused(make, tmp_path, mode, pixel):
    Image.new(mode, (2, 2), pixel).save(tmp_path / "x.tiff")
    with pytest.raises(ScenarioError, match=r"holds (I|I;16|F) pixels, not brightness values from 0 to 255"):
        make((3, 2, 2), image="x.tiff")


def test_several_pictures_are_sent_in_turn_and_fill_a_batch(make, draw):
    for name, colour in (("1.png", RED), ("2.png", GREEN), ("3.png", BLUE)):
        draw([[colour]], name)
    names = ["3.png", "1.png", "2.png"]
    for image, colours in ((names, [BLUE, RED, GREEN, BLUE]), ("*.png", [RED, GREEN, BLUE])):
        assert [tuple(make((3, 1, 1), request=number, image=image).ravel()) for number in range(len(colours))] == colours
    assert make((3, 1, 1), batch_size=2, request=1, image="*.png").reshape(2, 3).tolist() == [list(BLUE), list(RED)]


@pytest.mark.parametrize(
    ("shape", "datatype", "keys", "message"),
    [
        ((10,), Datatype.FP32, {}, "workload.inputs.A.image: the model takes shape [10], which is not that of an image: expected [C, H, W] or [H, W, C]"),
        ((3, 5, 3), Datatype.FP32, {}, "workload.inputs.A.layout: the shape [3, 5, 3] is ambiguous: give nchw or nhwc"),
        ((4, 5, 6), Datatype.FP32, {}, "workload.inputs.A.layout: the shape [4, 5, 6] is ambiguous: give nchw or nhwc"),
        ((5, 5, 3), Datatype.FP32, {"layout": "nchw"}, "workload.inputs.A.layout: nchw needs 1 or 3 channels first, found [5, 5, 3]"),
        ((3, 5, 5), Datatype.BYTES, {}, "workload.inputs.A.image: the model takes BYTES, which cannot hold an image"),
        ((3, 5, 5), Datatype.INT8, {}, "workload.inputs.A.image: the model takes INT8, which cannot hold brightness values up to 255"),
        ((3, 5, 5), Datatype.UINT8, {"scaling": "vgg"}, "workload.inputs.A.scaling: vgg yields fractions, but the model takes UINT8: use none"),
        ((3, 0, 5), Datatype.FP32, {}, "workload.inputs.A.image: an image of 5 x 0 pixels is empty"),
    ],
)  # fmt: skip
def test_an_image_that_does_not_fit_the_model_is_an_error(make, draw, shape, datatype, keys, message):
    draw([[WHITE]])
    with pytest.raises(ModelMismatchError) as caught:
        make(shape, datatype, **keys)
    assert str(caught.value) == message


def test_a_file_that_is_no_picture_is_named(make, draw, tmp_path):
    (tmp_path / "text.png").write_text("no picture")
    draw([[RED] * 50] * 50, "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:-60])
    (tmp_path / "folder").mkdir()
    for image, message in (
        ("none.png", f"no such file: {tmp_path}/none.png"),
        ("*.jpg", f"no file matches {tmp_path}/*.jpg"),
        ("text.png", f"{tmp_path}/text.png is not an image that Pillow can read"),
        ("cut.png", f"{tmp_path}/cut.png cannot be read: "),
        ("folder", f"{tmp_path}/folder is a folder: give its files, such as folder/*"),
    ):
        with pytest.raises(ScenarioError, match=rf"^workload\.inputs\.A\.image: {re.escape(message)}"):
            make((3, 2, 2), image=image)
