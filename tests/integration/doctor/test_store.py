"""A real SeaweedFS with wrong keys, bucket, host or clock, and behind proxies: each names its cause and setting."""

from __future__ import annotations

import datetime
import re
import socket
from collections.abc import Mapping
from typing import Any

import pytest
from botocore import auth as botocore_auth

from tasks.artifacts import ArtifactStore
from tasks.local.process import free_port
from tasks.local.servers import RedisServer, S3Server
from tasks.settings import Settings
from tests.integration.doctor.conftest import Doctor
from tests.integration.doctor.fronts import front_of


@pytest.fixture
def bucket(settings: Settings) -> Any:
    """boto3's client, for a look at what is there; the test's bucket exists."""
    artifacts = ArtifactStore(settings)
    artifacts.ensure_bucket()
    return artifacts.client


def contents(client: Any, settings: Settings) -> tuple[list[str], list[str]]:
    """Objects, and uploads that were never finished."""
    objects = client.list_objects_v2(Bucket=settings.s3_bucket).get("Contents", [])
    uploads = client.list_multipart_uploads(Bucket=settings.s3_bucket).get("Uploads", [])
    return [each["Key"] for each in objects], [each["Key"] for each in uploads]


def test_a_healthy_store_is_left_as_it_was(doctor: Doctor, bucket: Any, settings: Settings) -> None:
    bucket.put_object(Bucket=settings.s3_bucket, Key="somebody's", Body=b"")
    report = doctor("store", SAFELIGHT_S3_PREFIX="a/ü b/")
    assert (report.code, report.bad) == (0, {})
    assert len(report.findings) == 12
    assert contents(bucket, settings) == (["somebody's"], [])


def test_a_bucket_that_is_not_there_yet(doctor: Doctor, settings: Settings) -> None:
    report = doctor("store")
    assert (report.code, report.bad) == (0, {})
    report.says("store.bucket", "ok", settings.s3_bucket, "can be created")
    buckets = ArtifactStore(settings).client.list_buckets()["Buckets"]
    assert settings.s3_bucket not in [each.get("Name") for each in buckets]


def test_a_bucket_name_that_cannot_be(doctor: Doctor) -> None:
    report = doctor("store", SAFELIGHT_S3_BUCKET="Not_A_Bucket")
    assert report.code == 1
    report.says("store.bucket", "FAIL", "Not_A_Bucket", "SAFELIGHT_S3_BUCKET")


def test_a_wrong_secret_and_an_unknown_key(doctor: Doctor, bucket: Any) -> None:
    secret = doctor("store", AWS_SECRET_ACCESS_KEY="wrong")
    assert secret.code == 1  # it was reached
    secret.says("store.credentials", "FAIL", "does not belong to key safe…", "correct AWS_SECRET_ACCESS_KEY")
    key = doctor("store", AWS_ACCESS_KEY_ID="stranger")
    key.says("store.credentials", "FAIL", "knows no key stra…", "correct AWS_ACCESS_KEY_ID")
    assert key.bad == {"store.credentials": "FAIL", "store.objects": "skipped"}


def test_no_credentials(doctor: Doctor, tmp_path: Any) -> None:
    nowhere = str(tmp_path / "none")
    files = {"AWS_SHARED_CREDENTIALS_FILE": nowhere, "AWS_CONFIG_FILE": nowhere, "AWS_EC2_METADATA_DISABLED": "true"}
    report = doctor("store", AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None, **files)
    assert report.code == 1
    report.says("store.credentials", "FAIL", "there are none", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")


def test_nobody_there(doctor: Doctor) -> None:
    port = free_port()
    report = doctor("store", SAFELIGHT_S3_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    assert report.code == 4
    report.says("store.reach", "FAIL", f"nothing listens at http://127.0.0.1:{port}", "SAFELIGHT_S3_ENDPOINT_URL")


def test_a_black_hole(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        report = doctor("store", "--timeout", "0.2", SAFELIGHT_S3_ENDPOINT_URL=url)
    assert report.code == 4
    report.says("store.reach", "FAIL", "says nothing", "SAFELIGHT_S3_ENDPOINT_URL")


def test_redis_instead_of_a_store(doctor: Doctor, redis_server: RedisServer) -> None:
    url = f"http://127.0.0.1:{redis_server.port}"
    report = doctor("store", "--timeout", "0.5", SAFELIGHT_S3_ENDPOINT_URL=url)
    assert report.code == 4
    report.says("store.reach", "FAIL", "speaks no HTTP", "SAFELIGHT_S3_ENDPOINT_URL")


def test_https_where_there_is_none(doctor: Doctor, s3_server: S3Server) -> None:
    url = s3_server.url.replace("http://", "https://")
    report = doctor("store", "--timeout", "0.5", SAFELIGHT_S3_ENDPOINT_URL=url)
    report.says("store.reach", "FAIL", "speaks no TLS", "write http://")


def test_an_endpoint_that_is_none(doctor: Doctor) -> None:
    report = doctor("store", SAFELIGHT_S3_ENDPOINT_URL="s3:8333")
    assert report.code == 4
    report.says("store.reach", "FAIL", "SAFELIGHT_S3_ENDPOINT_URL", "http://HOST:PORT")


def test_this_machine_s_clock_is_off(doctor: Doctor, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 signs for a time an hour ago, as on a machine whose clock is late; the real store refuses."""
    now = botocore_auth.get_current_datetime
    late = datetime.timedelta(hours=1)
    monkeypatch.setattr(botocore_auth, "get_current_datetime", lambda *a, **k: now(*a, **k) - late)
    report = doctor("store")
    assert report.code == 1
    report.says("store.clock", "FAIL", "refuses signatures", "set this machine's clock")
    assert "store.credentials" not in {each.check for each in report.findings if each.status == "FAIL"}


def test_links_that_lead_nowhere(doctor: Doctor, bucket: Any, settings: Settings) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    report = doctor("store", SAFELIGHT_S3_PUBLIC_ENDPOINT_URL=url)
    assert report.bad == {"store.presigned": "FAIL"}
    report.says("store.presigned", "FAIL", f"nothing listens at {url}", "SAFELIGHT_S3_PUBLIC_ENDPOINT_URL")
    assert contents(bucket, settings) == ([], [])


def test_links_through_a_proxy_that_changes_the_host(doctor: Doctor, bucket: Any, s3_server: S3Server) -> None:
    with front_of(s3_server.port, lambda *_: None, host="other.example") as url:
        report = doctor("store", SAFELIGHT_S3_PUBLIC_ENDPOINT_URL=url)
    assert report.bad == {"store.presigned": "FAIL"}
    report.says("store.presigned", "FAIL", "changes the Host", "pass Host and path on unchanged")


def has_checksum(method: str, path: str, headers: Mapping[str, str]) -> str | None:
    """As stores that know no checksums of S3, in a trailer or in a header."""
    new = re.compile("x-amz-(checksum-.*|trailer|sdk-checksum-algorithm)", re.IGNORECASE)
    is_new = any(new.fullmatch(name) for name in headers)
    return "NotImplemented" if method == "PUT" and is_new else None


def test_a_store_that_refuses_checksums(doctor: Doctor, bucket: Any, s3_server: S3Server) -> None:
    with front_of(s3_server.port, has_checksum) as url:
        report = doctor("store", SAFELIGHT_S3_ENDPOINT_URL=url)
    assert (report.code, report.bad) == (0, {"store.checksums": "warn"})
    report.says("store.checksums", "warn", "refuses checksums", "AWS_REQUEST_CHECKSUM_CALCULATION=when_required")


def test_a_store_without_parts_and_conditions(
    doctor: Doctor, bucket: Any, settings: Settings, s3_server: S3Server
) -> None:
    def refuses(method: str, path: str, headers: Mapping[str, str]) -> str | None:
        is_last_part = "partNumber=2" in path
        return "NotImplemented" if is_last_part or headers.get("If-None-Match") else None

    with front_of(s3_server.port, refuses) as url:
        report = doctor("store", SAFELIGHT_S3_ENDPOINT_URL=url)
    assert report.bad == {"store.multipart": "FAIL"}
    report.says("store.conditional", "ok", "refused", "does not need it")
    assert contents(bucket, settings) == ([], [])  # the upload that failed half way is gone too


def test_objects_go_even_if_they_cannot_be_deleted_together(
    doctor: Doctor, bucket: Any, settings: Settings, s3_server: S3Server
) -> None:
    with front_of(s3_server.port, lambda method, path, _: "NotImplemented" if "?delete" in path else None) as url:
        report = doctor("store", SAFELIGHT_S3_ENDPOINT_URL=url)
    assert report.bad == {}  # one by one is as good
    assert contents(bucket, settings) == ([], [])


def test_buckets_of_inputs(doctor: Doctor, bucket: Any, settings: Settings) -> None:
    other = f"{settings.s3_bucket}-in"
    bucket.create_bucket(Bucket=other)
    report = doctor("store,settings", SAFELIGHT_INPUT_BUCKETS=f"{settings.s3_bucket},{other}/a b/,{other}-gone")
    bucket.delete_bucket(Bucket=other)
    inputs = [each for each in report.findings if each.check == "store.inputs"]
    assert [(each.status, each.found) for each in inputs] == [
        ("ok", f"s3://{other}/a b/ can be read"),
        ("FAIL", f"no bucket {other}-gone, from which inputs are to be read"),
    ]
    assert report.bad == {"store.inputs": "FAIL"}  # the rest is looked at all the same
    report.says("settings.inputs", "ok", f"s3://{other}/a b/")
