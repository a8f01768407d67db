"""What the answers of the object store mean. Each check is one call that Safelight makes; each remedy a setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tasks.artifact_faults import explain, http_status, lacks_credentials, s3_code
from tasks.doctor.finding import Finding, fail, ok, skipped, span, warn
from tasks.doctor.probe.listener import Listener
from tasks.doctor.probe.store import Credentials, FirstCall, InputAnswer, Opened
from tasks.s3_client import Endpoints

_SKEWED = "RequestTimeTooSkewed"
#: What S3 tolerates in a signature.
_MAX_SKEW_S = 900.0
_SKEW_S = 60.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # nosec B104 # compared, not bound
_ENDPOINT = "SAFELIGHT_S3_ENDPOINT_URL"
_PUBLIC = "set SAFELIGHT_S3_PUBLIC_ENDPOINT_URL to the address at which clients reach the store"


@dataclass(frozen=True, slots=True)
class StoreJudge:
    place: Endpoints
    bucket: str

    def reach(self, first: FirstCall) -> Finding:
        check, error = "store.reach", first.error
        if error is not None and (_is_foreign(error) or not (http_status(error) or lacks_credentials(error))):
            elsewhere = _elsewhere(first.listener, self.place.where) if first.listener else None
            return fail(check, *(elsewhere or self._explained(error)))
        if error is not None and lacks_credentials(error):
            return skipped(check, "nothing can be asked without credentials")
        return ok(check, f"{self.place.where} answers in {span(first.taken_s)}")

    def credentials(self, first: FirstCall, found: Credentials | None) -> Finding:
        check, code = "store.credentials", s3_code(first.error) if first.error else ""
        if found is None:
            advice = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another source of boto3"
            return fail(check, "there are none", advice)
        key = f"{found.key_id[:4]}… from {_source(found.source)}"
        if code == "InvalidAccessKeyId":
            return fail(check, f"the store knows no key {key}", f"correct AWS_ACCESS_KEY_ID{_elsewhere_from(found)}")
        if code == "SignatureDoesNotMatch":
            mismatch = f"the secret key does not belong to key {key}"
            return fail(check, mismatch, f"correct AWS_SECRET_ACCESS_KEY{_elsewhere_from(found)}")
        if code in ("ExpiredToken", "InvalidToken"):
            return fail(
                check, f"the session token of key {key} is not valid ({code})", "renew or unset AWS_SESSION_TOKEN"
            )
        if code == _SKEWED:
            return skipped(check, "not judged while the clocks differ")
        if first.error is not None and http_status(first.error) in (401, 403):
            return fail(check, f"key {key} may not list bucket {self.bucket} ({code})", _granted("s3:ListBucket"))
        return ok(check, f"key {key}")

    def clock(self, first: FirstCall) -> Finding:
        check, ahead = "store.clock", first.clock_ahead_s
        remedy = "set this machine's clock (timedatectl set-ntp true), or the store's"
        if ahead is None:
            if first.error is not None and s3_code(first.error) == _SKEWED:
                return fail(check, "the store says that this machine's clock is wrong", remedy)
            return skipped(check, "the store does not say its time")
        found = f"the store's clock is {span(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} this machine's"
        refused = first.error is not None and s3_code(first.error) == _SKEWED
        if refused or abs(ahead) > _MAX_SKEW_S:
            return fail(check, f"{found}: it refuses signatures", remedy)
        if abs(ahead) > _SKEW_S:
            return warn(check, f"{found}; signatures fail from 15 min on", remedy)
        return ok(check, "agrees with ours to the second" if abs(ahead) <= 2 else found)

    def bucket_there(self, first: FirstCall, created: Exception | None, *, was_missing: bool) -> Finding:
        check = "store.bucket"
        if was_missing and created is None:
            return ok(check, f"{self.bucket} is not there yet; it can be created, as the first worker will")
        if was_missing and created is not None:
            found = f"no bucket {self.bucket}, and it cannot be created ({_code(created)})"
            return fail(check, found, f"create it, correct SAFELIGHT_S3_BUCKET, or {_granted('s3:CreateBucket')}")
        if first.error is not None:
            return fail(check, *self._explained(first.error))
        style = "path style" if self.place.ours else "boto3's choice of style"
        return ok(check, f"{self.bucket} is there ({style})")

    def region(self, first: FirstCall, found: str | None) -> Finding:
        check, ours = "store.region", self.place.region
        wanted = _wanted_region(first.error) or found
        if wanted is None:
            return skipped(check, f"the store does not tell; requests are signed for {ours}")
        if wanted != ours and (first.error is not None or not self.place.ours):
            return fail(check, f"the bucket is in {wanted}, we sign for {ours}", f"SAFELIGHT_S3_REGION={wanted}")
        return ok(check, f"requests are signed for {ours}")

    def inputs(self, answer: InputAnswer) -> Finding:
        """The object that was asked for is not there, and a store that lets us read says so."""
        check, place, code = "store.inputs", f"s3://{answer.bucket}/{answer.folder}", s3_code(answer.error)
        if code == "NoSuchKey":
            return ok(check, f"{place} can be read")
        if code == "NoSuchBucket":
            remedy = "correct SAFELIGHT_INPUT_BUCKETS, or create it"
            return fail(check, f"no bucket {answer.bucket}, from which inputs are to be read", remedy)
        if http_status(answer.error) in (401, 403):
            found = f"{place} refuses a read ({code}): inputs from there may fail"
            return warn(check, found, f"{_granted('s3:GetObject and s3:ListBucket')} on {answer.bucket}")
        return fail(check, *self._explained(answer.error, answer.bucket))

    def put(self, error: Exception | None) -> Finding:
        if error is not None and "Object Lock" in str(error):
            found = f"bucket {self.bucket} has Object Lock with a default retention, which wants checksums"
            return fail("store.put", found, "take a bucket without a default retention (SAFELIGHT_S3_BUCKET)")
        if error is None:
            return ok("store.put", "an object with blanks, + and ü in its key is stored as sent")
        return self._call("store.put", error, "", "s3:PutObject")

    def get(self, error: Exception | None) -> Finding:
        return self._call("store.get", error, "the same bytes come back", "s3:GetObject")

    def delete(self, error: Exception | None) -> Finding:
        return self._call("store.delete", error, "several objects in one call", "s3:DeleteObject")

    def multipart(self, error: Exception | None) -> Finding:
        grants = "s3:PutObject and s3:AbortMultipartUpload"
        return self._call("store.multipart", error, "an object in two parts", grants)

    def conditional(self, answer: bool | Exception) -> Finding:
        if answer is True:
            return ok("store.conditional", "a second put with If-None-Match is refused")
        detail = "ignored" if answer is False else f"refused ({_code(answer)})" if isinstance(answer, Exception) else ""
        return ok("store.conditional", f"If-None-Match is {detail}; Safelight does not need it")

    def checksums(self, error: Exception | None) -> Finding:
        check = "store.checksums"
        if error is None:
            return ok(check, "taken; Safelight sends none of boto3's own")
        found = f"the store refuses checksums, boto3's default ({_code(error)}); Safelight sends none and works"
        remedy = "for your other boto3 clients: AWS_REQUEST_CHECKSUM_CALCULATION=when_required"
        return warn(check, found, remedy)

    def presigned(self, opened: Opened) -> Finding:
        check = "store.presigned"
        host = urlsplit(opened.host).hostname or ""
        own = urlsplit(self.place.ours or "").hostname
        if opened.is_object:
            return self._presigned_works(check, opened.host, host)
        if host in _LOOPBACK and own not in _LOOPBACK:
            return skipped(check, f"{opened.host} is another machine's loopback: run the doctor where browsers are")
        if opened.status == 403:
            found = f"{opened.host} refuses our signature: something on the way changes the Host or the path"
            return fail(check, found, f"let the proxy pass Host and path on unchanged, or {_PUBLIC}")
        if opened.status:
            return fail(check, f"{opened.host} answers {opened.status}, not with the object", _PUBLIC)
        what = _elsewhere(opened.listener, opened.host) if opened.listener else None
        return fail(check, f"links do not open: {what[0] if what else f'{opened.host}: {opened.error}'}", _PUBLIC)

    def _presigned_works(self, check: str, url: str, host: str) -> Finding:
        if "." not in host and host != "localhost" and ":" not in host:
            return warn(check, f"links lead to {url}, a name that browsers elsewhere do not know", _PUBLIC)
        note = ", which opens on this machine only" if host in _LOOPBACK else ""
        return ok(check, f"links lead to {url}{note}")

    def _call(self, check: str, error: Exception | None, found: str, grants: str) -> Finding:
        if error is None:
            return ok(check, found)
        said, remedy = self._explained(error)
        if http_status(error) in (401, 403) and s3_code(error) not in ("SignatureDoesNotMatch", "InvalidAccessKeyId"):
            return fail(check, said, _granted(grants))
        return fail(check, said, remedy)

    def _explained(self, error: Exception, bucket: str | None = None) -> tuple[str, str]:
        text = explain(error, self.place.where, bucket or self.bucket, self.place.region)
        found, _, remedy = text.partition("; ")
        return found, remedy or f"check {_ENDPOINT} and the store's log"


def _is_foreign(error: Exception) -> bool:
    """An answer of something that is no S3."""
    is_odd = http_status(error) in (404, 405, 501) and not s3_code(error).startswith("NoSuch")
    return is_odd or type(error).__name__ == "ResponseParserError"


def _elsewhere(listener: Listener | None, where: str) -> tuple[str, str] | None:
    texts: Mapping[Listener, tuple[str, str]] = {
        "nobody": (f"nothing listens at {where}", f"start the store, or correct {_ENDPOINT}"),
        "unresolved": (f"the host name of {where} does not resolve", f"correct the host in {_ENDPOINT}"),
        "no route": (f"{where} does not answer", f"open the port in the firewall, or correct {_ENDPOINT}"),
        "silent": (f"{where} accepts connections and says nothing", f"correct {_ENDPOINT}, or see the store's log"),
        "plain": (f"{where} speaks no HTTP", f"correct the port in {_ENDPOINT}"),
    }
    if listener == "tls" and where.startswith("http://"):
        return f"{where} speaks TLS", f"write https:// in {_ENDPOINT}"
    if listener == "http" and where.startswith("https://"):
        return f"{where} speaks no TLS", f"write http:// in {_ENDPOINT}"
    return texts.get(listener) if listener else None


def _source(method: str) -> str:
    return {"env": "the environment", "shared-credentials-file": "~/.aws/credentials", "explicit": "the code"}.get(
        method, method
    )


def _elsewhere_from(found: Credentials) -> str:
    token = "; AWS_SESSION_TOKEN is set too: does it belong to this key?" if found.has_token else ""
    return token if found.source == "env" else f" (boto3 took it from {_source(found.source)}){token}"


def _granted(action: str) -> str:
    return f"grant {action} to these credentials"


def _code(error: Exception) -> str:
    return f"{s3_code(error) or type(error).__name__}{f', {http_status(error)}' if http_status(error) else ''}"


def _wanted_region(error: Exception | None) -> str | None:
    response: Any = getattr(error, "response", None) or {}
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = response.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region")
    return str(region) if region else None
