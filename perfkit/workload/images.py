"""Images as input tensors, resized, laid out and scaled like those of Triton's image client."""

import pathlib
import warnings
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from perfkit.errors import ModelMismatchError, ScenarioError
from perfkit.protocol.tensor import Datatype, array_dtype

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
