"""`/docs`: Swagger UI from an installed package, so that the page needs no network and runs nobody else's script."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, HTMLResponse

_ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css", "favicon-32x32.png": "image/png"}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: the API</title>
<link rel="icon" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<noscript>This page needs JavaScript; what it shows is <a href="openapi.json">openapi.json</a>.</noscript>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="page/docs.js"></script>
</body>
</html>
"""


def install(app: FastAPI) -> None:
    """Add the page and its three files. Paths are relative: the API may live below another one."""

    async def page(request: Request) -> Response:
        headers: dict[str, str] = request.app.state.page_headers
        policy = headers["Content-Security-Policy"].replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
        return HTMLResponse(_PAGE.format(title=app.title), headers={**headers, "Content-Security-Policy": policy})

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            raise HTTPException(404)
        return FileResponse(str(files("fastapi_swagger.resources") / name), media_type=_ASSETS[name])

    app.add_route("/docs", page, methods=["GET"], include_in_schema=False)
    app.add_route("/docs/{name}", asset, methods=["GET"], include_in_schema=False)
