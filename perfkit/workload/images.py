"""Pictures as input tensors: resized, laid out and scaled as Triton's image client does."""

import pathlib
import warnings
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from perfkit.errors import ModelMismatchError, ScenarioError
from perfkit.protocol.tensor import Datatype, array_dtype

Scaling: TypeAlias = Literal["none", "inception", "vgg"]
Layout: TypeAlias = Literal["auto", "nchw", "nhwc"]
_VGG_MEANS = (123.0, 117.0, 104.0)  # of red, green and blue over ImageNet; 128 for grey


def read_image(
    key: str, file: pathlib.Path, shape: tuple[int, ...], datatype: Datatype, *, scaling: Scaling, layout: Layout
) -> npt.NDArray[Any]:
    """A picture as the model takes it: `shape` is [C, H, W] or [H, W, C], perhaps behind dimensions of 1; C is 1 (grey) or 3 (RGB).

    Resized bilinearly without keeping its proportions. Scaling `inception` gives x / 127.5 - 1, `vgg` takes the
    channels' means away, `none` leaves 0 to 255. Raises ScenarioError for a file that is no picture, ModelMismatchError
    where the model takes none.
    """
    channels_first, (channels, height, width) = _geometry(key, shape, layout)
    if datatype is Datatype.BYTES or datatype is Datatype.BOOL:
        raise ModelMismatchError(f"{key}.image: the model takes {datatype.value}, not the numbers of a picture")
    if scaling != "none" and not datatype.is_float:
        raise ModelMismatchError(f"{key}.scaling: {scaling} gives fractions, but the model takes {datatype.value}: use none")
    pixels = _pixels(key, file, channels, height, width)
    match scaling:
        case "inception":
            pixels = pixels / np.float32(127.5) - np.float32(1)
        case "vgg":
            pixels = pixels - np.array(_VGG_MEANS if channels == 3 else (128.0,), np.float32)
        case "none":
            pass
    if datatype is Datatype.INT8 and pixels.max(initial=0) > 127:
        raise ModelMismatchError(f"{key}.image: the model takes INT8, which does not hold brightness up to 255")
    if channels_first:
        pixels = pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(pixels.astype(array_dtype(datatype))).reshape(shape)


def _geometry(key: str, shape: tuple[int, ...], layout: Layout) -> tuple[bool, tuple[int, int, int]]:
    """Whether channels come first, and (channels, height, width)."""
    sizes = shape
    while len(sizes) > 3 and sizes[0] == 1:
        sizes = sizes[1:]
    if len(sizes) != 3:
        raise ModelMismatchError(
            f"{key}.image: the model takes shape {list(shape)}, which is no picture's: expected [C, H, W] or [H, W, C]"
        )
    # colours before grey: [3, 1, 1] is a picture of one pixel
    told = [sizes[0] == channels for channels in (3, 1) if (sizes[0] == channels) != (sizes[-1] == channels)]
    if layout == "auto" and not told:
        raise ModelMismatchError(f"{key}.layout: the shape {list(shape)} does not tell where the 1 or 3 channels are: give nchw or nhwc")
    channels_first = layout == "nchw" or (layout == "auto" and told[0])
    if sizes[0 if channels_first else -1] not in (1, 3):
        raise ModelMismatchError(
            f"{key}.layout: {layout} needs 1 or 3 channels {'first' if channels_first else 'last'}, found {list(shape)}"
        )
    return channels_first, (sizes[0], sizes[1], sizes[2]) if channels_first else (sizes[2], sizes[0], sizes[1])


def _pixels(key: str, file: pathlib.Path, channels: int, height: int, width: int) -> npt.NDArray[np.float32]:
    from PIL import Image, UnidentifiedImageError

    if not (height and width):
        raise ModelMismatchError(f"{key}.image: a picture of {width} x {height} pixels has none")
    try:
        with warnings.catch_warnings(), Image.open(file) as image:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if image.mode[0] in "IF":
                raise ScenarioError(
                    f"{key}.image: {file} holds {image.mode} pixels, not brightness of 0 to 255: convert it, or send it as .npy"
                )
            resized = image.convert("L" if channels == 1 else "RGB").resize((width, height), Image.Resampling.BILINEAR)
    except FileNotFoundError:
        raise ScenarioError(f"{key}.image: there is no file {file}") from None
    except UnidentifiedImageError:
        raise ScenarioError(f"{key}.image: {file} is no picture that Pillow can read") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ScenarioError(f"{key}.image: {file} cannot be read: {error}") from None
    return np.asarray(resized, np.float32).reshape(height, width, channels)
