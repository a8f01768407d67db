"""A Django backend that has pictures made: it enqueues, polls, aborts, and hears of the end by a signed webhook.

    pip install safelight django standardwebhooks
    export SAFELIGHT_REDIS_URL=… SAFELIGHT_WEBHOOK_SECRET=whsec_… BACKEND_URL=https://backend.example.com
    python examples/django_backend.py runserver 9000

A project of one file; in yours, `urlpatterns` and the views go where they belong. The worker has the same
SAFELIGHT_WEBHOOK_SECRET. BACKEND_URL is this program as the worker reaches it; on one machine the worker needs
SAFELIGHT_ALLOW_PRIVATE_URLS=true for that.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import cache, wraps

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from standardwebhooks import Webhook, WebhookVerificationError

from tasks import Client
from tasks.errors import InvalidRequest, QueueFull, SafelightError, UnknownJob

View = Callable[..., HttpResponse]
settings.configure(
    ROOT_URLCONF=__name__,
    SECRET_KEY=os.environ.get("DJANGO_SECRET_KEY", "for development only"),
    ALLOWED_HOSTS=os.environ.get("ALLOWED_HOSTS", "127.0.0.1,localhost").split(","),
)
#: What a database would hold: the jobs that we were told about, and the messages that told us.
finished: dict[str, str] = {}
messages: set[str] = set()


@cache
def client() -> Client:
    """One for all threads of the process, made at the first call: after the server has forked."""
    return Client()


def refusals(view: View) -> View:
    @wraps(view)
    def answer(request: HttpRequest, **parts: str) -> HttpResponse:
        try:
            return view(request, **parts)
        except SafelightError as error:
            status = {UnknownJob: 404, InvalidRequest: 422, QueueFull: 429}.get(type(error), 503)
            return JsonResponse({"detail": str(error)}, status=status)

    return answer


@csrf_exempt  # callers of an API send a token of yours, not a cookie
@require_POST
@refusals
def enqueue(request: HttpRequest) -> HttpResponse:
    """Sending the same again with the same key gives the same job: safe to repeat after a lost answer."""
    wish = json.loads(request.body)
    job = client().submit(
        prompt=wish.get("prompt", ""),
        seed=wish.get("seed"),
        webhook_url=os.environ["BACKEND_URL"] + "/hooks/safelight",
        idempotency_key=request.headers.get("Idempotency-Key"),
    )
    return JsonResponse({"id": job.id, "status": job.status}, status=202)


@require_GET
@refusals
def poll(request: HttpRequest, job_id: str) -> HttpResponse:
    job, urls = client().get(job_id), client().result_urls(job_id)
    told = finished.get(job_id)
    return JsonResponse({"status": job.status, "fraction": job.progress.fraction, "urls": urls, "told": told})


@csrf_exempt
@require_POST
@refusals
def abort(request: HttpRequest, job_id: str) -> HttpResponse:
    return JsonResponse({"status": client().abort(job_id).status}, status=202)


@csrf_exempt
@require_POST
def hook(request: HttpRequest) -> HttpResponse:
    """A message may come twice, with the same `webhook-id`; one that we did not sign is nobody's business."""
    try:
        secret = os.environ["SAFELIGHT_WEBHOOK_SECRET"]
        message = Webhook(secret).verify(request.body, dict(request.headers))
    except WebhookVerificationError:
        return JsonResponse({"detail": "not signed by our worker"}, status=401)
    if request.headers["webhook-id"] not in messages:
        messages.add(request.headers["webhook-id"])
        finished[message["data"]["id"]] = message["type"]
    return HttpResponse(status=204)


urlpatterns = [
    path("pictures", enqueue),
    path("pictures/<str:job_id>", poll),
    path("pictures/<str:job_id>/abort", abort),
    path("hooks/safelight", hook),
]
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
