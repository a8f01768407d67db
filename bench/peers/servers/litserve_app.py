"""LitServe with batching on: `decode_request`, `predict` on a list, `encode_response`."""

from __future__ import annotations

import base64
import sys

import litserve

from bench.peers.model import MAX_ROWS, Model, Request

BATCH_TIMEOUT_S = 0.02


class Pictures(litserve.LitAPI):  # type: ignore[misc]
    def setup(self, device: str) -> None:
        self.model = Model()

    def decode_request(self, request):  # type: ignore[no-untyped-def] # a type would have LitServe check the body by it
        return request

    def predict(self, batch: list[Request]) -> list[bytes]:
        return self.model.render(batch)

    def encode_response(self, output: bytes) -> dict[str, str]:
        return {"png": base64.b64encode(output).decode()}


if __name__ == "__main__":
    api = Pictures(max_batch_size=MAX_ROWS, batch_timeout=BATCH_TIMEOUT_S, api_path="/render")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=False)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), num_api_servers=1, generate_client_file=False)
