"""Generated tensors: values from a seed, made in pieces, so that large ones can be interrupted and need little besides themselves."""

import math
import pathlib
import string
import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from perfkit.errors import ModelMismatchError, ScenarioError
from perfkit.protocol.tensor import Datatype, Tensor, array_dtype, tensor_from_array

Scaling: TypeAlias = Literal["none", "inception", "vgg"]
Layout: TypeAlias = Literal["auto", "nchw", "nhwc"]
_VGG_MEANS = (123.0, 117.0, 104.0)  # of red, green and blue in ImageNet; 128 for grey


def read_image(
    key: str, file: pathlib.Path, shape: tuple[int, ...], datatype: Datatype, *, scaling: Scaling, layout: Layout
) -> npt.NDArray[Any]:
    """An image as an array of `shape`: [C, H, W] or [H, W, C], possibly after dimensions of 1, with C = 1 (grey) or 3 (RGB).

    It is resized bilinearly without keeping its proportions. Scaling `inception` is x / 127.5 - 1, `vgg` subtracts the
    channels' means, `none` keeps 0 to 255. Raises ScenarioError if the file is not an image, ModelMismatchError if the
    model's input cannot hold one.
    """
    channels_first, (channels, height, width) = _geometry(key, shape, layout)
    if datatype is Datatype.BYTES or datatype is Datatype.BOOL:
        raise ModelMismatchError(f"{key}.image: the model takes {datatype.value}, which cannot hold an image")
    if scaling != "none" and not datatype.is_float:
        raise ModelMismatchError(f"{key}.scaling: {scaling} yields fractions, but the model takes {datatype.value}: use none")
    pixels = _pixels(key, file, channels, height, width)
    match scaling:
        case "inception":
            pixels = pixels / np.float32(127.5) - np.float32(1)
        case "vgg":
            pixels = pixels - np.array(_VGG_MEANS if channels == 3 else (128.0,), np.float32)
    if datatype is Datatype.INT8 and pixels.max(initial=0) > 127:
        raise ModelMismatchError(f"{key}.image: the model takes INT8, which cannot hold brightness values up to 255")
    if channels_first:
        pixels = pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(pixels.astype(array_dtype(datatype))).reshape(shape)


def _geometry(key: str, shape: tuple[int, ...], layout: Layout) -> tuple[bool, tuple[int, int, int]]:
    """Whether the channels come first, and (channels, height, width)."""
    sizes = shape
    while len(sizes) > 3 and sizes[0] == 1:
        sizes = sizes[1:]
    if len(sizes) != 3:
        raise ModelMismatchError(
            f"{key}.image: the model takes shape {list(shape)}, which is not that of an image: expected [C, H, W] or [H, W, C]"
        )
    # colours before grey: [3, 1, 1] is an image of one pixel
    first_by_channels = [sizes[0] == channels for channels in (3, 1) if (sizes[0] == channels) != (sizes[-1] == channels)]
    if layout == "auto" and not first_by_channels:
        raise ModelMismatchError(f"{key}.layout: the shape {list(shape)} is ambiguous: give nchw or nhwc")
    channels_first = layout == "nchw" or (layout == "auto" and first_by_channels[0])
    channels, height, width = sizes if channels_first else (sizes[2], *sizes[:2])
    if channels not in (1, 3):
        place = "first" if channels_first else "last"
        raise ModelMismatchError(f"{key}.layout: {layout} needs 1 or 3 channels {place}, found {list(shape)}")
    return channels_first, (channels, height, width)


def _pixels(key: str, file: pathlib.Path, channels: int, height: int, width: int) -> npt.NDArray[np.float32]:
    from PIL import Image, UnidentifiedImageError

    if not (height and width):
        raise ModelMismatchError(f"{key}.image: an image of {width} x {height} pixels is empty")
    try:
        with warnings.catch_warnings(), Image.open(file) as image:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if image.mode[0] in "IF":
                raise ScenarioError(
                    f"{key}.image: {file} holds {image.mode} pixels, not brightness values from 0 to 255: convert it, or use a .npy file"
                )
            resized = image.convert("L" if channels == 1 else "RGB").resize((width, height), Image.Resampling.BILINEAR)
    except FileNotFoundError:
        raise ScenarioError(f"{key}.image: no such file: {file}") from None
    except UnidentifiedImageError:
        raise ScenarioError(f"{key}.image: {file} is not an image that Pillow can read") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ScenarioError(f"{key}.image: {file} cannot be read: {error}") from None
    return np.asarray(resized, np.float32).reshape(height, width, channels)


Checkpoint: TypeAlias = Callable[[], None]
"""Called between two pieces; it ends the work by raising an exception."""

_PIECE = 2**20
# random integers fit every integer type
_INTEGERS_BELOW = 128
# below these numbers every integer has an exact representation
_COUNTED_BELOW = {Datatype.BF16: 2**8, Datatype.FP16: 2**11, Datatype.FP32: 2**24}
_LENGTH_BYTES = 4  # before each element of BYTES
_LETTERS = np.frombuffer((string.ascii_letters + string.digits).encode(), dtype=np.uint8)


def generate_tensor(
    name: str,
    kind: str,
    datatype: Datatype,
    shape: tuple[int, ...],
    random: np.random.Generator,
    checkpoint: Checkpoint,
    *,
    text_length: int | None = None,
) -> Tensor:
    """A tensor of the values of `generate_values`; `checkpoint` is called before each piece of 2^20 values."""
    count = math.prod(shape)
    if count <= _PIECE:
        checkpoint()
        values = generate_values(kind, datatype, (count,), random, text_length=text_length)
        return Tensor(name, datatype, shape, tensor_from_array(name, datatype, values).raw)
    raw = bytearray()
    for first in range(0, count, _PIECE):
        checkpoint()
        values = generate_values(kind, datatype, (min(_PIECE, count - first),), random, first, text_length=text_length)
        raw += tensor_from_array(name, datatype, values).raw
    return Tensor(name, datatype, shape, raw)


def element_bytes(kind: str, datatype: Datatype, count: int, text_length: int | None = None) -> int:
    """The encoded size of one of `count` generated values, at most."""
    if (fixed_bytes := datatype.size_bytes(1)) is not None:
        return fixed_bytes
    if text_length is not None:
        return _LENGTH_BYTES + text_length
    largest = {"zeros": "", "ones": "1", "random": str(_INTEGERS_BELOW - 1)}
    return _LENGTH_BYTES + len(largest.get(kind, str(count)))


def generate_values(
    kind: str,
    datatype: Datatype,
    shape: tuple[int, ...],
    random: np.random.Generator,
    first: int = 0,
    *,
    text_length: int | None = None,
) -> npt.NDArray[Any]:
    """Generated values: `random` (floats in [0, 1), integers in [0, 128)), `zeros`, `ones` or `arange`.

    `arange` counts on from `first` in row-major order, and restarts where a float type can no longer represent every integer.
    BYTES elements are the integers as decimal text, or `text_length` random letters and digits; for `zeros` they are empty.
    """
    count = math.prod(shape)
    if datatype is Datatype.BYTES:
        if text_length is not None:
            letters = _LETTERS[random.integers(0, len(_LETTERS), (count, text_length))]
            return np.array([row.tobytes() for row in letters], dtype=object).reshape(shape)
        if kind == "zeros":
            return np.full(shape, b"", dtype=object)
        numbers = generate_values(kind, Datatype.INT32, (count,), random, first)
        return np.array([b"%d" % number for number in numbers], dtype=object).reshape(shape)
    dtype = array_dtype(datatype)
    match kind:
        case "zeros":
            return np.zeros(shape, dtype)
        case "ones":
            return np.ones(shape, dtype)
        case "arange":
            counted = np.arange(first, first + count)
            return (counted % _COUNTED_BELOW[datatype] if datatype in _COUNTED_BELOW else counted).astype(dtype).reshape(shape)
        case _ if datatype is Datatype.BOOL:
            return random.integers(0, 2, shape).astype(dtype)
        case _ if datatype.is_float:
            return random.random(shape, dtype=np.float32).astype(dtype)
        case _:
            return random.integers(0, _INTEGERS_BELOW, shape).astype(dtype)
