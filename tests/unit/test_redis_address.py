"""`SAFELIGHT_REDIS_URL`: one grammar for our connection and for Celery's."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st
from kombu import Connection

from tasks.broker_url import broker_tls, broker_url, transport_options
from tasks.connection import connect, readable
from tasks.errors import ConfigError
from tasks.redis_address import parse_address
from tasks.settings import Settings

LOGIN = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=20)
RESERVED = "p@:/#[%]é?;&=+ ,!$'()*\\\"<>^`{|}~"


@settings(deadline=None, max_examples=50)
@given(LOGIN, LOGIN)
def test_an_encoded_login_reaches_both(user: str, password: str) -> None:
    url = f"redis://{quote(user, safe='')}:{quote(password, safe='')}@h:1/2"
    address = parse_address(url)
    assert (address.username, address.password, address.hosts, address.db) == (user, password, (("h", 1),), 2)
    broker = Connection(broker_url(url))
    assert (broker.userid, broker.password, broker.hostname, broker.virtual_host) == (user, password, "h", "2")


@pytest.mark.parametrize("url", ["redis://u:{}@h:1/2", "unix://u:{}@/tmp/x.sock", "sentinel://u:{}@h?master_name=m"])
def test_a_password_may_be_pasted_raw(url: str) -> None:
    address = parse_address(url.format(RESERVED))
    assert (address.username, address.password) == ("u", RESERVED)
    assert RESERVED not in repr(address)


def test_a_user_is_encoded_apart_from_its_password() -> None:
    address = parse_address("redis://us%3Aer:p@ss@h/0")
    assert (address.username, address.password) == ("us:er", "p@ss")


def test_a_socket_has_a_login_and_a_database_for_both() -> None:
    url = "unix://u:p%40@/run/my redis/x.sock?db=4"
    address = parse_address(url)
    assert (address.path, address.db, address.password) == ("/run/my redis/x.sock", 4, "p@")
    channel = Connection(broker_url(url), transport_options=transport_options(url)).transport.Channel
    options = _connection_options(channel, url)
    assert (options["path"], options["db"], options["username"], options["password"]) == (address.path, 4, "u", "p@")


def _connection_options(channel: type, url: str) -> dict[str, object]:
    """What kombu makes of our URL, without a server."""
    made = object.__new__(channel)
    made.connection = type("Transport", (), {"client": Connection(broker_url(url)), "default_port": 6379})()
    for name, value in transport_options(url).items():
        setattr(made, name, value)
    return dict(made._connparams())


def test_sentinels_have_a_login_of_their_own_and_tls() -> None:
    url = (
        "sentinel://u:p;@@s1:1;sentinel://u:p;@@s2;sentinel://[::1]:3/5"
        "?master_name=m&sentinel_username=w&sentinel_password=q%40&ssl_cert_reqs=none"
    )
    address = parse_address(url)
    assert address.hosts == (("s1", 1), ("s2", 26_379), ("::1", 3))
    assert (address.password, address.db, address.master) == ("p;@", 5, "m")
    broker = Connection(broker_url(url), ssl=broker_tls(url) or False)
    assert [part.rpartition("@")[2] for part in broker.alt] == ["s1:1/5", "s2:26379/5", "[::1]:3/5"]
    options = transport_options(url)
    assert options["master_name"] == "m"
    asked = options["sentinel_kwargs"]
    assert (asked["username"], asked["password"], asked["ssl"], asked["ssl_cert_reqs"]) == ("w", "q@", True, "none")


def test_tls_is_strict_unless_told_otherwise() -> None:
    assert parse_address("redis://h").tls is None
    assert broker_tls("redis://h") is None
    assert broker_tls("rediss://h") == {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
    lax = broker_tls("rediss://h?ssl_cert_reqs=CERT_NONE&ssl_ca_certs=/a%20b.pem")
    assert lax == {"ssl_cert_reqs": "none", "ssl_check_hostname": False, "ssl_ca_certs": "/a b.pem"}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sentinel://h:1", "master_name"),
        ("redis://h/first", "database"),
        ("redis://h?db=-1", "database"),
        ("redis://h:0x1/0", "port"),
        ("redis://h?ssl_ca_certs=/x", "rediss://"),
        ("rediss://h?ssl_ca=/x", "ssl_ca is no parameter"),
        ("rediss://h?ssl_cert_reqs=maybe", "ssl_cert_reqs"),
        ("http://h", "redis://"),
    ],
)
def test_a_wrong_url_names_the_part_and_not_the_password(url: str, words: str) -> None:
    scheme, _, rest = url.partition("://")
    with pytest.raises(ConfigError, match=words) as caught:
        parse_address(f"{scheme}://u:hunter2@{rest}")
    assert "SAFELIGHT_REDIS_URL" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_certificate_that_cannot_be_read_is_named_before_the_first_use(tmp_path: Path) -> None:
    folder = tmp_path / "cas"
    folder.mkdir()
    assert readable(parse_address(f"rediss://h?ssl_ca_path={folder}")).tls
    for name in ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_ca_path"):
        with pytest.raises(ConfigError, match=rf"{name}: .*nowhere: No such file"):
            connect(Settings(redis_url=f"rediss://h?{name}={tmp_path}/nowhere"))


def test_the_client_of_a_sentinel_url_follows_its_primary() -> None:
    client = connect(Settings(redis_url="sentinel://s1;sentinel://s2?master_name=m"))
    assert isinstance(client.connection_pool, redis.sentinel.SentinelConnectionPool)
    assert client.connection_pool.service_name == "m"
