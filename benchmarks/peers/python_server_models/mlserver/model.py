"""A model of MLServer that doubles its input and counts its requests."""

from counted import count
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Doubling(MLModel):
    """y = 2 x."""

    async def load(self) -> bool:
        """Is ready at once."""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answers a request."""
        count()
        doubled = 2 * NumpyCodec.decode_input(payload.inputs[0])
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", doubled)])
