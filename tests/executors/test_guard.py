"""Which callback URLs are refused, and how often the resolver is asked."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from rota.errors import CallbackRefused, ConfigError
from rota.executors import guard as guard_module
from rota.executors.guard import CallbackGuard, CallbackUnresolved, judge_address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PUBLIC = "93.184.215.14"

DENIED = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200",
    "100.127.255.255", "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.169.254",
    "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1",
    "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::2", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8", "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::1", "64:ff9b:1::8.8.8.8",
    "64:ff9b:2::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1",
    "2002:a9fe:a9fe::1", "2002:c0a8:101::", "3ffe::1", "3fff::1", "3fff:fff::1", "4000::1",
    "5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
    "ff0e::1", "", "localhost", "127.1", "0x7f000001", "1.2.3.4.5",
]  # fmt: skip

PERMITTED = [
    PUBLIC, "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.255.255", "172.32.0.1",
    "168.63.129.17", "198.17.255.255", "223.255.255.255", "2606:4700:4700::1111",
    "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1", "2a00::1",
]  # fmt: skip

# Ways to write 127.0.0.1 and ::1 that some parser somewhere lets through.
LOOPBACK_HOSTS = [
    "127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "0x7f000001", "0x7f.1", "0x7F.0.0.1", "2130706433",
    "017700000001", "0177.0.0.1", "0177.0.0x0.1", "0", "0.0.0.0", "127.127.127.127",
    "\uff11\uff12\uff17.\uff10.\uff10.\uff11", "\u2460\u2461\u2466.0.0.1", "127\u30020\u30020\u30021",
    "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
    "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::ffff:0:127.0.0.1]",
]  # fmt: skip

MALFORMED = {
    "ftp://hooks.example/": "must begin with http:// or https://",
    "file:///etc/passwd": "must begin with http:// or https://",
    "gopher://hooks.example/": "must begin with http:// or https://",
    "//hooks.example/": "must begin with http:// or https://",
    "http:/hooks.example/": "must begin with http:// or https://",
    "hooks.example": "must begin with http:// or https://",
    "": "must begin with http:// or https://",
    "http://": "has no host",
    "http:///path": "has no host",
    "http://?x": "has no host",
    "http://user:pass@hooks.example/": "must not contain credentials",
    "http://user@hooks.example/": "must not contain credentials",
    "http://@hooks.example/": "must not contain credentials",
    "http://hooks.example\\@127.0.0.1/": "must not contain credentials",
    "http://hooks.example:0/": "port must be a number from 1 to 65535",
    "http://hooks.example:65536/": "port must be a number from 1 to 65535",
    "http://hooks.example:+80/": "port must be a number from 1 to 65535",
    "http://hooks.example:8_0/": "port must be a number from 1 to 65535",
    "http://hooks.example:\uff18\uff10/": "port must be a number from 1 to 65535",
    "http://hooks.example:http/": "port must be a number from 1 to 65535",
    "http://hooks.example/" + "a" * 2048: "longer than 2048 characters",
    "http://hooks.example/a b": "whitespace or control characters",
    " http://hooks.example/": "whitespace or control characters",
    "http://hooks.example/\r\nX: y": "whitespace or control characters",
    "http://hooks.example/\t": "whitespace or control characters",
    "http://hooks.example/\x00": "whitespace or control characters",
    "http://hooks\u200b.example/": "whitespace or control characters",
    "http://hooks\u3000.example/": "whitespace or control characters",
    "http://hooks.example/\ud800": "whitespace or control characters",
    "http://%31%32%37.0.0.1/": "invalid host",
    "http://hooks..example/": "invalid host",
    "http://.hooks.example/": "invalid host",
    "http://-hooks.example/": "invalid host",
    "http://" + "a" * 64 + ".example/": "invalid host",
    "http://" + "a." * 150 + "example/": "invalid host",
    "http://hooks.*/": "invalid host",
    "http://1.2.3.4.5/": "invalid host",
    "http://256.0.0.1/": "invalid host",
    "http://08.8.8.8/": "invalid host",
    "http://[::1/": "invalid host",
    "http://[::1]x/": "invalid host",
    "http://[127.0.0.1]/": "invalid host",
    "http://[v1.localhost]/": "invalid host",
    "http://[fe80::1%25eth0]/": "invalid host",
}


class FakeResolver:
    """Answer from a script; the last answers stay."""

    def __init__(self, *script: Sequence[str] | Exception) -> None:
        self._script = list(script)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> Sequence[str]:
        assert port > 0
        self.asked.append(host)
        answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Hold the guard's clock, which moves by `now_s[0] += ...`."""
    now = [1000.0]
    monkeypatch.setattr(guard_module, "monotonic_s", lambda: now[0])
    return now


def resolved(guard: CallbackGuard, url: str) -> tuple[str, ...]:
    """Parse and resolve, as a delivery does."""

    async def run() -> tuple[str, ...]:
        try:
            return await guard.resolve(guard.parse(url))
        finally:
            guard.close()

    return asyncio.run(run())


def submit(guard: CallbackGuard, *urls: str) -> None:
    async def run() -> None:
        for url in urls:
            await guard.check_at_submission(url)

    asyncio.run(run())


@pytest.mark.parametrize("address", DENIED)
def test_address_that_is_not_public_is_denied(address: str) -> None:
    assert judge_address(address)


@pytest.mark.parametrize("address", PERMITTED)
def test_public_address_is_permitted(address: str) -> None:
    assert judge_address(address) is None


def test_reason_names_the_kind_of_address() -> None:
    assert judge_address("127.0.0.1") == "a loopback address"
    assert judge_address("169.254.169.254") == "a cloud metadata address"
    assert judge_address("fd00:ec2::254") == "a cloud metadata address"
    assert judge_address("64:ff9b::10.0.0.1") == "a private address inside an IPv6 one"


@pytest.mark.parametrize(("url", "problem"), MALFORMED.items())
def test_malformed_url_is_refused_with_its_problem(url: str, problem: str) -> None:
    with pytest.raises(CallbackRefused, match=problem) as refused:
        CallbackGuard().parse(url)
    assert refused.value.status == 400
    assert refused.value.code == "callback_refused"


def test_parsed_url_has_an_ascii_host_and_no_fragment() -> None:
    target = CallbackGuard().parse("HTTPS://B\u00fccher.Example/\u00e4?q=1#part")
    assert target == (
        "https", "xn--bcher-kva.example", 443, "/%C3%A4?q=1", "https://xn--bcher-kva.example/%C3%A4?q=1",
    )  # fmt: skip


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
def test_odd_spelling_of_a_local_address_is_refused(host: str) -> None:
    guard = CallbackGuard()
    with pytest.raises(CallbackRefused, match="leads to an? ") as refused:
        resolved(guard, f"http://{host}:8080/")
    assert not isinstance(refused.value, CallbackUnresolved)


@pytest.mark.parametrize("address", [a for a in DENIED if a])
def test_name_that_resolves_to_a_denied_address_is_refused(address: str) -> None:
    with pytest.raises(CallbackRefused, match="hooks.example leads to"):
        resolved(CallbackGuard(resolver=FakeResolver([address])), "http://hooks.example/")


@pytest.mark.parametrize("answers", [[PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC], [PUBLIC, "::1"]])
def test_one_denied_answer_among_good_ones_refuses_all(answers: list[str]) -> None:
    with pytest.raises(CallbackRefused):
        resolved(CallbackGuard(resolver=FakeResolver(answers)), "http://hooks.example/")


def test_public_answers_are_given_back_once_each() -> None:
    resolver = FakeResolver([PUBLIC, "2606:4700::1", PUBLIC])
    assert resolved(CallbackGuard(resolver=resolver), "http://h.example/") == (
        PUBLIC,
        "2606:4700::1",
    )


@pytest.mark.parametrize("answer", [OSError("no such host"), UnicodeError("bad label"), []])
def test_failed_or_empty_resolution_refuses(answer: Sequence[str] | Exception) -> None:
    with pytest.raises(CallbackUnresolved) as refused:
        resolved(CallbackGuard(resolver=FakeResolver(answer)), "http://hooks.example/")
    assert refused.value.code == "callback_unresolved"


def test_slow_resolution_is_given_up() -> None:
    release = threading.Event()

    def slow(_host: str, _port: int) -> list[str]:
        release.wait(10)
        return [PUBLIC]

    try:
        with pytest.raises(CallbackUnresolved, match="in time"):
            resolved(CallbackGuard(resolver=slow, resolve_timeout_s=0.02), "http://hooks.example/")
    finally:
        release.set()


def test_names_that_do_not_resolve_do_not_hold_up_those_that_did() -> None:
    release = threading.Event()

    def slow(host: str, _port: int) -> list[str]:
        if host != "good.example":
            release.wait(10)
        return [PUBLIC]

    async def run() -> None:
        guard = CallbackGuard(resolver=slow, resolve_timeout_s=9)
        good = guard.parse("http://good.example/")
        await guard.resolve(good)
        count = guard_module.RESOLVER_THREADS_MAX + 1
        targets = [guard.parse(f"http://h{n}.example/") for n in range(count)]
        lookups = [asyncio.create_task(guard.resolve(target)) for target in targets]
        await asyncio.sleep(0)
        assert [await guard.resolve(good) for _ in range(3)] == [(PUBLIC,)] * 3
        assert not any(lookup.done() for lookup in lookups)
        release.set()
        await asyncio.gather(*lookups)
        guard.close()

    asyncio.run(run())


def test_close_turns_waiting_lookups_into_refusals() -> None:
    release = threading.Event()

    def slow(_host: str, _port: int) -> list[str]:
        release.wait(10)
        return [PUBLIC]

    async def run() -> None:
        guard = CallbackGuard(resolver=slow, resolve_timeout_s=5)
        count = guard_module.RESOLVER_THREADS_MAX * 2
        targets = [guard.parse(f"http://h{n}.example/") for n in range(count)]
        lookups = [asyncio.create_task(guard.resolve(target)) for target in targets]
        await asyncio.sleep(0)
        guard.close()
        release.set()
        results = await asyncio.gather(*lookups, return_exceptions=True)
        assert [r for r in results if isinstance(r, CallbackUnresolved)]
        assert all(r == (PUBLIC,) or isinstance(r, CallbackUnresolved) for r in results)
        with pytest.raises(CallbackUnresolved):
            await guard.resolve(targets[0])

    asyncio.run(run())


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("hooks.internal", "http://hooks.internal/"),
        ("Hooks.Internal:8080", "http://hooks.INTERNAL.:8080/"),
        ("10.0.0.5", "http://hooks.internal/"),
        ("10.0.0.5", "http://10.0.0.5/"),
        ("10.0.0.5:8080", "http://10.0.0.5:8080/"),
        ("10.0.0.0/8", "http://10.5/"),
        ("10.0.0.0/8", "http://[::ffff:10.0.0.5]/"),
        ("::1", "http://[::1]/"),
        ("[::1]:8080", "http://[::1]:8080/"),
        ("fd00::/8", "http://[fd00::5]/"),
        ("b\u00fccher.internal", "http://xn--bcher-kva.internal/"),
    ],
)
def test_allowed_host_may_be_local(entry: str, url: str) -> None:
    guard = CallbackGuard([entry], resolver=FakeResolver(["10.0.0.5"]))
    assert resolved(guard, url)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("hooks.internal:8080", "http://hooks.internal/"),
        ("hooks.internal", "http://a.hooks.internal/"),
        ("hooks.internal", "http://hooks.internal.example/"),
        ("10.0.0.5:8080", "http://10.0.0.5/"),
        ("10.0.0.6", "http://hooks.internal/"),
        ("192.168.0.0/16", "http://hooks.internal/"),
    ],
)
def test_allowed_host_opens_nothing_else(entry: str, url: str) -> None:
    with pytest.raises(CallbackRefused):
        resolved(CallbackGuard([entry], resolver=FakeResolver(["10.0.0.5"])), url)


def test_allowed_network_does_not_cover_a_second_answer_outside_it() -> None:
    guard = CallbackGuard(["10.0.0.0/8"], resolver=FakeResolver(["10.0.0.5", "127.0.0.1"]))
    with pytest.raises(CallbackRefused):
        resolved(guard, "http://hooks.internal/")


@pytest.mark.parametrize(
    "entry",
    ["*", "*.internal", "", " ", "0.0.0.0/0", "::/0", "10.1.1.1/8", "a/b", "a:b", "a:0", "http://a", "u@a", "a?b"],
)  # fmt: skip
def test_unusable_entry_in_allow_hosts_is_a_config_error(entry: str) -> None:
    with pytest.raises(ConfigError, match="allowHosts"):
        CallbackGuard([entry])


def test_unresolvable_name_is_accepted_at_submission() -> None:
    guard = CallbackGuard(resolver=FakeResolver(OSError("no such host")))
    submit(guard, "http://hooks.example/")
    guard.close()


def test_stream_of_submissions_costs_one_lookup() -> None:
    resolver = FakeResolver([PUBLIC])
    guard = CallbackGuard(resolver=resolver)

    async def run() -> None:
        url = "http://hooks.example/a"
        assert guard.check_cached(url) is False
        await asyncio.gather(*(guard.check_at_submission(url) for _ in range(50)))
        assert guard.check_cached(url) is True
        await guard.check_at_submission(url)

    asyncio.run(run())
    guard.close()
    assert resolver.asked == ["hooks.example"]


def test_refusal_is_remembered_and_raised_without_waiting() -> None:
    resolver = FakeResolver(["127.0.0.1"])
    guard = CallbackGuard(resolver=resolver)
    with pytest.raises(CallbackRefused):
        submit(guard, "http://hooks.example/")
    with pytest.raises(CallbackRefused, match="loopback"):
        guard.check_cached("http://hooks.example/")
    guard.close()
    assert len(resolver.asked) == 1


def test_verdict_is_forgotten_after_half_a_minute(now_s: list[float]) -> None:
    resolver = FakeResolver([PUBLIC], ["127.0.0.1"])
    guard = CallbackGuard(resolver=resolver)
    submit(guard, "http://hooks.example/")
    now_s[0] += 29.9
    submit(guard, "http://hooks.example/")
    now_s[0] += 0.2
    with pytest.raises(CallbackRefused):
        submit(guard, "http://hooks.example/")
    guard.close()
    assert len(resolver.asked) == 2


def test_verdicts_are_bounded() -> None:
    guard = CallbackGuard(["hooks.internal"], resolver=FakeResolver([PUBLIC]))
    for n in range(guard_module.VERDICTS_MAX + 10):
        assert guard.check_cached(f"http://hooks.internal/{n}")
    assert len(guard._verdicts) == guard_module.VERDICTS_MAX
    guard.close()


def test_delivery_does_not_trust_the_verdict_of_a_submission() -> None:
    resolver = FakeResolver([PUBLIC], ["127.0.0.1"])
    guard = CallbackGuard(resolver=resolver)
    submit(guard, "http://hooks.example/")
    with pytest.raises(CallbackRefused):
        resolved(guard, "http://hooks.example/")


def test_literals_and_allowed_names_need_no_lookup_at_submission() -> None:
    resolver = FakeResolver(OSError("not to be asked"))
    guard = CallbackGuard(["localhost", "127.0.0.0/8"], resolver=resolver)
    assert guard.check_cached("http://localhost:9000/")
    assert guard.check_cached("http://127.1:9000/")
    assert guard.check_cached("http://8.8.8.8/")
    with pytest.raises(CallbackRefused):
        guard.check_cached("http://10.0.0.1/")
    guard.close()
    assert resolver.asked == []


def test_cancelled_submission_leaves_the_lookup_to_the_others() -> None:
    release = threading.Event()

    def slow(_host: str, _port: int) -> list[str]:
        release.wait(10)
        return ["127.0.0.1"]

    async def run() -> None:
        guard = CallbackGuard(resolver=slow)
        first, second = (
            asyncio.create_task(guard.check_at_submission("http://hooks.example/"))
            for _ in range(2)
        )
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        release.set()
        with pytest.raises(CallbackRefused):
            await second
        assert first.cancelled()
        guard.close()

    asyncio.run(run())
