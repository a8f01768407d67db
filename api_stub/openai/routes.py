"""What the app takes from here: the routes, and who answers which error in whose words."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from api_stub import problems
from api_stub.openai import errors, images, videos

routers = (images.router, videos.router)


def render(request: Request, error: problems.ProblemError) -> Response:
    """A problem in the words that the caller of this address expects."""
    return errors.respond(errors.translate(error)) if errors.speaks(_path(request)) else problems.respond(error)


def _path(request: Request) -> str:
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))


def install(app: FastAPI) -> None:
    """Answer the errors that these routes raise themselves."""

    async def handle(_request: Request, error: errors.OpenAIError) -> Response:
        return errors.respond(error)

    app.add_exception_handler(errors.OpenAIError, handle)  # type: ignore[arg-type]


__all__ = ["install", "render", "routers"]
