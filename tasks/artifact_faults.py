"""What an error of boto3 means: whether it may pass, and one line for a person (what, where, what to try)."""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime
from typing import Any

_BUSY_CODES = frozenset(
    {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "BadDigest", "Throttling", "OperationAborted"}
)
_REGION_CODES = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
_KEY_CODES = frozenset({"SignatureDoesNotMatch", "InvalidAccessKeyId", "InvalidToken", "ExpiredToken"})

#: Stores allow 15 minutes between the clock that signed and their own.
_MAX_SKEW_S = 600.0


def explain(error: Exception, where: str, bucket: str, region: str) -> str:
    """One line without line breaks; `where` names the endpoint."""
    return _unreachable(error, where) or _refused(error, where, bucket, region)


def to_ascii(text: str) -> str:
    """One line of printable ASCII; other characters become escapes."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f]", " ", text).encode("ascii", "backslashreplace").decode("ascii").split())


def http_status(error: Exception) -> int:
    response: Any = getattr(error, "response", None) or {}
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def s3_code(error: Exception) -> str:
    response: Any = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def lacks_credentials(error: Exception) -> bool:
    from botocore import exceptions as boto

    return isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError | boto.ProfileNotFound)


def is_clock_wrong(error: Exception) -> bool:
    """Whether a refusal is this machine's clock's doing: no fault of the request, and gone once the clock is set.

    The answer to a HEAD has no code; the time in its header tells.
    """
    if s3_code(error) == "RequestTimeTooSkewed":
        return True
    response: Any = getattr(error, "response", None) or {}
    date = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if http_status(error) != 403 or not date:
        return False
    try:
        return abs(parsedate_to_datetime(date).timestamp() - time.time()) > _MAX_SKEW_S
    except ValueError:
        return False


def is_transient(error: Exception) -> bool:
    from botocore import exceptions as boto

    if isinstance(error, boto.ClientError):
        is_busy = http_status(error) >= 500 or http_status(error) in (408, 429) or s3_code(error) in _BUSY_CODES
        return is_busy or is_clock_wrong(error)
    return isinstance(
        error, boto.ConnectionError | boto.HTTPClientError | boto.IncompleteReadError | boto.CredentialRetrievalError
    )


def _unreachable(error: Exception, where: str) -> str | None:
    """For errors without an answer from a server."""
    from botocore import exceptions as boto

    if lacks_credentials(error):
        return (
            f"no credentials for {where}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or another source of boto3)"
        )
    if isinstance(error, boto.SSLError):
        return f"no TLS with {where}; is it https, and is its certificate trusted (AWS_CA_BUNDLE)?"
    if isinstance(error, boto.ConnectTimeoutError | boto.ReadTimeoutError):
        return f"{where} does not answer in time; is SAFELIGHT_S3_ENDPOINT_URL right, and is a firewall between?"
    if isinstance(error, boto.EndpointConnectionError):
        if "resolve" in str(error.kwargs.get("error", "")).lower():
            return f"the host name of {where} does not resolve; check SAFELIGHT_S3_ENDPOINT_URL"
        return f"{where} refuses connections; is the store running, and is SAFELIGHT_S3_ENDPOINT_URL right?"
    if isinstance(error, boto.HTTPClientError):
        return f"the connection to {where} broke ({to_ascii(str(error))[:200]}); a restart, or http instead of https?"
    return None


def _refused(error: Exception, where: str, bucket: str, region: str) -> str:
    """For errors that a server, or boto3 itself, answered with."""
    status, code = http_status(error), s3_code(error)
    # boto3 looks for a bucket's region with a request that is redirected as well, until Python ends the recursion.
    if status in (301, 302, 307, 308) or isinstance(error, RecursionError):
        return f"{where} redirects; is bucket {bucket} in another region (SAFELIGHT_S3_REGION), or is https wanted?"
    if code in _REGION_CODES:
        return f"bucket {bucket} at {where} is in another region than {region}; set SAFELIGHT_S3_REGION"
    if code == "NoSuchBucket":
        return f"no bucket {bucket} at {where}; create it or correct SAFELIGHT_S3_BUCKET"
    if code == "NoSuchKey" or (status == 404 and code == "404"):
        return f"no such object or bucket at {where} ({code}); if bucket {bucket} exists, is this an S3 endpoint?"
    if is_clock_wrong(error):
        return f"{where} says that this machine's clock is wrong; set it (NTP)"
    if code in _KEY_CODES:
        return f"{where} does not accept the credentials ({code}); check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if status in (401, 403):
        wanted = "grant list, get, put and delete to these credentials"
        return f"{where} denies access to bucket {bucket} ({code}, {status}); {wanted}"
    if status >= 500 or code in _BUSY_CODES or status == 429:
        return f"{where} is busy or broken ({code}, {status}); it may pass, else see the store's log"
    if type(error).__name__ == "ResponseParserError" or status in (405, 501):
        return f"{where} does not speak S3; check SAFELIGHT_S3_ENDPOINT_URL"
    return f"{where} answered {code or type(error).__name__} ({status or 'no status'}): {to_ascii(str(error))[:300]}"
