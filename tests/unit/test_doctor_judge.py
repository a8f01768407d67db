"""Judgements on facts that no test machine has: GPUs, drivers, slow networks, clocks, other versions."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from tasks.doctor.finding import Finding, size, span
from tasks.doctor.judge.api import judge_api
from tasks.doctor.judge.device import judge_device
from tasks.doctor.judge.models import judge_model, judge_together
from tasks.doctor.judge.redis import judge_redis, persistence
from tasks.doctor.judge.settings import judge_settings
from tasks.doctor.judge.store import StoreJudge
from tasks.doctor.probe.api import ApiFacts, _token
from tasks.doctor.probe.models import Component, ModelFacts
from tasks.doctor.probe.redis import NoRedis, RedisAnswers
from tasks.doctor.probe.store import Credentials, FirstCall, InputAnswer, Opened
from tasks.model_room import Need
from tasks.models import ModelSpec
from tasks.redis_facts import facts_of
from tasks.s3_client import Endpoints
from tasks.settings import Settings

GB = 10**9
CARD = {"index": 0, "name": "NVIDIA L4", "free_bytes": 20 * GB, "total_bytes": 24 * GB, "has_bf16": True}
MACHINE: dict[str, Any] = {
    "packages": {"torch": "2.13.0", "diffusers": "0.42.1"},
    "driver": "550.54",
    "cuda_build": "12.8",
    "cuda_devices": [CARD],
    "cuda_visible": None,
    "cuda_trouble": None,
    "has_mps": False,
    "num_threads": 4,
    "memory_bytes": 60 * GB,
    "memory_total_bytes": 64 * GB,
    "classes": ["FluxPipeline"],
    "noise_schedulers": {"euler": "EulerDiscreteScheduler"},
    "models": {},
}


def told(finding: Finding, status: str, *words: str) -> None:
    assert finding.status == status, finding
    assert all(word in f"{finding.found} → {finding.remedy}" for word in words), finding


def device(**changes: Any) -> dict[str, Finding]:
    return {each.check: each for each in judge_device({**MACHINE, **changes})}


def test_a_sound_gpu() -> None:
    found = device()
    assert {each.status for each in found.values()} == {"ok"}
    told(found["device.cuda:0"], "ok", "NVIDIA L4", "20 GB of 24 GB free", "bfloat16")


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"cuda_build": None}, "FAIL", ("driver 550.54", "without CUDA", "TORCH=cuda")),
        ({"cuda_visible": ""}, "FAIL", ("CUDA_VISIBLE_DEVICES is ''", "unset CUDA_VISIBLE_DEVICES")),
        ({"cuda_trouble": "CUDA initialization: driver too old"}, "FAIL", ("too old", "550.54", "12.8", "update")),
        ({"driver": None}, "ok", ("none", "CPU with 4 threads")),
        ({"driver": None, "has_mps": True}, "ok", ("mps",)),
    ],
)
def test_no_gpu_to_be_seen(changes: dict[str, Any], status: str, words: tuple[str, ...]) -> None:
    told(device(cuda_devices=[], **changes)["device.cuda"], status, *words)


def test_a_gpu_that_is_full_or_sick() -> None:
    told(device(cuda_devices=[{**CARD, "free_bytes": GB}])["device.cuda:0"], "warn", "1.0 GB of 24 GB", "nvidia-smi")
    told(device(cuda_devices=[{"index": 0, "broken": "RuntimeError: ECC"}])["device.cuda:0"], "FAIL", "ECC", "reset")


def test_packages_that_are_missing_or_broken() -> None:
    told(device(packages={"torch": "2.13.0", "greenlet": None})["device.torch"], "FAIL", "greenlet", "[worker]")
    told(device(broken="OSError: libcudart.so")["device.torch"], "FAIL", "libcudart.so", "reinstall")
    assert [each.status for each in judge_device("torch is not installed here; a worker needs X")] == ["skipped"]


def model(spec: ModelSpec, num_params: int, **changes: Any) -> dict[str, Finding]:
    parts = (Component("transformer", num_params, has_safetensors=True), Component("vae", GB, has_safetensors=True))
    facts = ModelFacts("folder", "/models/flux", "FluxPipeline", parts)
    return {each.name: each for each in judge_model(spec, facts, {**MACHINE, **changes}, {})}


def test_weights_that_do_not_fit_the_gpu() -> None:
    spec = ModelSpec(name="flux", source="/models/flux", dtype="bfloat16", device="cuda")
    told(model(spec, 5 * GB)["flux.memory"], "ok", "12 GB of weights, 20 GB of 24 GB free")
    told(model(spec, 9 * GB)["flux.memory"], "warn", "20 GB of weights", "if a worker holds it already")
    told(model(spec, 12 * GB)["flux.memory"], "FAIL", "26 GB of weights, cuda has 24 GB", 'offload = "model"')
    told(model(spec.model_copy(update={"offload": "model"}), 10 * GB)["flux.memory"], "warn", "20 GB of weights")
    told(model(spec.model_copy(update={"dtype": "float32"}), 6 * GB)["flux.memory"], "FAIL", "28 GB of weights")


def test_a_dtype_that_the_device_lacks() -> None:
    spec = ModelSpec(name="flux", source="/models/flux", dtype="bfloat16", device="cuda")
    old = model(spec, GB, cuda_devices=[{**CARD, "name": "Tesla T4", "has_bf16": False}])
    told(old["flux.device"], "warn", "Tesla T4", 'dtype = "float16" in [flux]')
    told(
        model(spec.model_copy(update={"dtype": "float16", "device": "cpu"}), GB)["flux.device"],
        "warn",
        'dtype = "auto"',
    )
    told(model(spec, GB, cuda_devices=[])["flux.device"], "FAIL", "no CUDA devices", 'device = "auto" in [flux]')


def test_every_device_of_a_model_is_looked_for() -> None:
    spec = ModelSpec(name="flux", source="/models/flux", executor="process", devices=("cuda:0", "cuda:1"))
    told(model(spec, GB)["flux.device"], "FAIL", "device = 'cuda:1'", "torch sees 1 CUDA device")
    told(model(spec, GB, cuda_devices=[CARD, {**CARD, "index": 1}])["flux.device"], "ok", "on cuda:0, cuda:1")


def test_models_that_do_not_fit_together() -> None:
    def judged(*needs: Need, device: str = "cuda", bound_mb: int | None = None) -> Finding | None:
        return judge_together(needs, 24 * GB, device, bound_mb)

    two = (Need("a", 10 * GB), Need("b", 20 * GB))
    told(judged(*two), "warn", "2 models", "30 GB", "take turns", "safelight worker --model NAME")
    told(judged(*two, device="cpu"), "FAIL", "30 GB", "SAFELIGHT_MODEL_MEMORY_MB")
    told(judged(*two, device="cpu", bound_mb=24_000), "warn", "take turns")
    told(judged(*two, bound_mb=16_000), "FAIL", "model b takes 19074 MiB of 16000", "raise the bound")
    told(judged(Need("a", 10 * GB, keep=True), two[1]), "FAIL", "model b with a, which stays,")
    told(judged(two[0], two[0]), "ok", "20 GB")
    assert judged(two[1]) is None


def test_a_machine_without_torch_does_not_blame_the_files() -> None:
    spec = ModelSpec(name="flux", source="/models/flux")
    found = list(judge_model(spec, ModelFacts("nowhere", "/models/flux"), "torch is not installed here", {}))
    assert [each.status for each in found] == ["skipped"]


def redis_facts(info: dict[str, Any] | None = None, **changes: Any) -> dict[str, Finding]:
    facts = facts_of({"redis_version": "7.2.4"} if info is None else info, "h:6379")
    values = {"user": "default", "latency_s": 0.001, "clock_ahead_s": 0.0, "clock_error_s": 0.001}
    answers = RedisAnswers(**{"facts": facts, **values, "config": {}, "refused": (), **changes})
    return {each.name: each for each in judge_redis(answers, Settings(redis_url="redis://h:6379/0"), ())}


def test_a_redis_that_is_old_slow_late_or_shy() -> None:
    told(redis_facts(info={"redis_version": "6.0.16"})["version"], "FAIL", "6.0.16", "6.2 or newer")
    told(redis_facts(latency_s=0.08)["latency"], "warn", "80.0 ms a round trip", "nearer")
    told(redis_facts(clock_ahead_s=-30.0)["clock"], "warn", "30.0 s behind", "NTP")
    told(redis_facts(clock_ahead_s=3.0, clock_error_s=2.5)["clock"], "ok")  # a slow line is no clock
    told(redis_facts(info={"redis_version": "7.0.0", "cluster_enabled": 1})["role"], "FAIL", "Cluster")
    shy = redis_facts(info={})
    told(shy["eviction"], "skipped", "INFO is withheld", "ACL SETUSER default +info")


def test_a_disk_that_redis_cannot_write() -> None:
    def judged(info: dict[str, Any], config: dict[str, str]) -> Finding:
        return persistence(facts_of({"redis_version": "7.2.4", **info}, "h:6379"), config)

    told(judged({"aof_enabled": 1, "aof_last_write_status": "err"}, {}), "FAIL", "append-only", "free space")
    told(judged({"rdb_last_bgsave_status": "err"}, {"save": "60 1"}), "FAIL", "snapshot", "free space")
    told(judged({"aof_enabled": 1}, {"appendfsync": "no"}), "warn", "never synced", "appendfsync everysec")


def test_a_redis_that_speaks_tls() -> None:
    def judged(url: str, listener: Any, text: str) -> Finding:
        answers = NoRedis("h:6379", ConnectionError(text), listener)
        return next(iter(judge_redis(answers, Settings(redis_url=url), ())))

    told(judged("redis://h:6379/0", "tls", "closed"), "FAIL", "speaks TLS", "write rediss://")
    untrusted = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1)"
    told(judged("rediss://h:6379/0", "tls", untrusted), "FAIL", "not trusted", "self-signed", "ssl_ca_certs")
    told(judged("redis://10.9.9.9:6379/0", "no route", "timed out"), "FAIL", "does not answer", "firewall")


def store(own: str | None = "http://s3:8333", public: str | None = None) -> StoreJudge:
    return StoreJudge(Endpoints(own, public or own, "us-east-1"), "pictures")


def test_links_that_a_browser_may_not_open() -> None:
    told(store().presigned(Opened("http://s3:8333", 200, True)), "warn", "do not know", "S3_PUBLIC_ENDPOINT_URL")
    inside = store(public="http://localhost:8333").presigned(Opened("http://localhost:8333", error="refused"))
    told(inside, "skipped", "loopback", "where browsers are")
    odd = store(public="https://cdn.example").presigned(Opened("https://cdn.example", 404))
    told(odd, "FAIL", "answers 404", "S3_PUBLIC_ENDPOINT_URL")
    told(store("https://s3.example").presigned(Opened("https://s3.example", 200, True)), "ok", "https://s3.example")


class ClientError(Exception):
    """With an answer of S3, as boto3's."""

    def __init__(self, status: int, code: str, **fields: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code, **fields}, "ResponseMetadata": {"HTTPStatusCode": status}}


def test_a_region_that_is_another() -> None:
    error = ClientError(400, "AuthorizationHeaderMalformed", Region="eu-central-1")
    told(store().region(FirstCall(0.1, error, 0.0, None), None), "FAIL", "SAFELIGHT_S3_REGION=eu-central-1")
    told(store(None).region(FirstCall(0.1, None, 0.0, None), "eu-west-1"), "FAIL", "SAFELIGHT_S3_REGION=eu-west-1")
    told(store().region(FirstCall(0.1, None, 0.0, None), "eu-west-1"), "ok")  # such a store takes any


def test_clocks_that_drift() -> None:
    told(store().clock(FirstCall(0.1, None, 300.0, None)), "warn", "5 min ahead", "set-ntp")
    told(store().clock(FirstCall(0.1, None, -1200.0, None)), "FAIL", "20 min behind", "refuses signatures")


def test_credentials_that_may_not() -> None:
    key = Credentials("iam-role", "AKIAXYZ", True)
    denied = FirstCall(0.1, ClientError(403, "AccessDenied"), 0.0, None)
    told(store().credentials(denied, key), "FAIL", "AKIA…", "list bucket pictures", "grant s3:ListBucket")
    stale = FirstCall(0.1, ClientError(403, "ExpiredToken"), 0.0, None)
    told(store().credentials(stale, key), "FAIL", "AWS_SESSION_TOKEN")
    told(store().delete(ClientError(403, "AccessDenied")), "FAIL", "grant s3:DeleteObject")
    locked = ClientError(400, "InvalidRequest: Content-MD5 HTTP header is required for Put Object with Object Lock")
    told(store().put(locked), "FAIL", "Object Lock", "SAFELIGHT_S3_BUCKET")


def test_buckets_of_inputs() -> None:
    def judged(status: int, code: str) -> Finding:
        return store().inputs(InputAnswer("photos", "in/", ClientError(status, code)))

    told(judged(404, "NoSuchKey"), "ok", "s3://photos/in/ can be read")
    told(judged(404, "NoSuchBucket"), "FAIL", "no bucket photos", "SAFELIGHT_INPUT_BUCKETS")
    told(judged(403, "AccessDenied"), "warn", "s3://photos/in/", "grant s3:GetObject", "on photos")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate_limit": "60/minute"}, ("warn", "60/minute", "all callers together", "NAME:KEY")),
        ({"rate_limit": "60/minute", "api_keys": "ann:k"}, ("ok", "each name")),
        ({"input_buckets": "photos/in"}, ("ok", "s3://photos/in/ and ", "; outputs, in safelight, cannot")),
        ({"input_buckets": "photos,safelight"}, ("ok", "s3://photos/ and s3://safelight/")),
    ],
)
def test_settings_that_belong_together(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    [finding] = [each for each in judge_settings(Settings(**changes), {}) if each.check != "settings.values"]
    told(finding, *words)


def test_the_key_that_opens_the_api() -> None:
    for keys, token in (("k", "k"), ("ann:k,b", "k"), ("sha256:00,ann:sha256:00, bob:k2", "k2"), ("sha256:00", None)):
        assert _token(SecretStr(keys)) == token


def test_an_api_of_another_release_and_with_a_lock() -> None:
    facts = ApiFacts("http://a", is_ours=True, version="0.0.9", ready={"redis": "no answer", "s3": "ok"}, withheld=401)
    found = {each.name: each for each in judge_api(facts, "0.1.0", [], None, named_by="--api")}
    told(found["version"], "warn", "the API is 0.0.9, here is 0.1.0")
    told(found["ready"], "FAIL", "redis: no answer")
    told(found["models"], "FAIL", "(401)", "SAFELIGHT_API_KEYS")


def test_amounts_for_people() -> None:
    assert [size(each) for each in (12, 1_200, 3.4e6, 24e9)] == ["12 B", "1.2 KB", "3.4 MB", "24 GB"]
    assert [span(each) for each in (0.0004, 0.25, 3, 300, 7200)] == ["0.4 ms", "250 ms", "3.0 s", "5 min", "2 h"]
