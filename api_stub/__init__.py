"""The HTTP face of Safelight: jobs in, states and events out, and one web page. It renders and stores nothing."""

from api_stub.app import create_app
from api_stub.serve import serve

__all__ = ["create_app", "serve"]
