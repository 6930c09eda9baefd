"""A model of KServe that doubles its input and counts its requests; started as `python model.py HTTP_PORT GRPC_PORT`."""

import sys

from counted import count
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer


class Doubling(Model):
    """y = 2 x; it does not describe its inputs, as most such classes do not."""

    def __init__(self) -> None:
        super().__init__("doubling")
        self.ready = True

    async def predict(self, payload: InferRequest, headers: object = None, response_headers: object = None) -> InferResponse:
        """Answers a request."""
        count()
        x = payload.inputs[0].as_numpy()
        output = InferOutput("y", list(x.shape), "FP32")
        output.set_data_from_numpy(2 * x, binary_data=False)
        return InferResponse(response_id=payload.id or "1", model_name=self.name, infer_outputs=[output])


if __name__ == "__main__":
    ModelServer(http_port=int(sys.argv[1]), grpc_port=int(sys.argv[2]), workers=1).start([Doubling()])
