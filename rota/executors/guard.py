"""Decide which addresses a callback may go to.

A URL comes in as text; out comes a `CallbackTarget` and the addresses it may be connected to,
or `CallbackRefused` with a sentence. Names are never judged by how they look, only by what they
resolve to: every answer has to pass, and the caller connects to those answers and no others.
Verdicts are remembered for submissions alone; a delivery always resolves anew. Connecting,
signing and retrying are left to others.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from yarl import URL

from rota.clock import monotonic_s
from rota.errors import CallbackRefused, ConfigError

URL_CHARS_MAX = 2048
PORT_MAX = 65_535
HOST_CHARS_MAX = 253
RESOLVER_THREADS_MAX = 32
"""For names that resolved lately, and as many for all others: those cannot hold up these."""
NAMES_KNOWN_MAX = 4096
VERDICT_TTL_S = 30.0
VERDICTS_MAX = 1024

Resolver = Callable[[str, int], Sequence[str]]
"""Give all addresses of a host name; may block, as it runs on a thread of the guard."""

Address = IPv4Address | IPv6Address

_HINT = "add the host or network to webhooks.allowHosts if it is meant to be called"
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_PORT = re.compile(r":([^:\]]*)$")
_PORT_NUMBER = re.compile(r"[0-9]{1,5}")
_HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")

_DENIED = tuple(
    (ip_network(network), reason)
    for reason, networks in {
        "an unspecified address": "0.0.0.0/8 ::/128",
        "a loopback address": "127.0.0.0/8 ::1/128",
        "a cloud metadata address": "168.63.129.16/32 169.254.169.254/32 fd00:ec2::254/128",
        "a private address": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7",
        "a carrier-grade NAT address": "100.64.0.0/10",
        "a link-local address": "169.254.0.0/16 fe80::/10",
        "a site-local address": "fec0::/10",
        "a multicast address": "224.0.0.0/4 ff00::/8",
        "a documentation address": (
            "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"
        ),
        "a benchmarking address": "198.18.0.0/15",
        "an IPv4 address in an old IPv6 form": "::/96 ::ffff:0:0:0/96",
        "a local NAT64 address": "64:ff9b:1::/48",
        "a reserved address": (
            "192.0.0.0/24 192.88.99.0/24 240.0.0.0/4 100::/64 2001::/23 3ffe::/16 5f00::/16"
        ),
    }.items()
    for network in networks.split()
)
_NAT64 = ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ip_network("2000::/3")


class CallbackUnresolved(CallbackRefused):
    """The callback's host has no address at the moment."""

    code = "callback_unresolved"


class CallbackTarget(NamedTuple):
    """A callback URL that is well formed; whether it may be called is not yet known."""

    scheme: str
    host: str
    port: int
    path_qs: str
    url: str


class _Allowed(NamedTuple):
    """One entry of the list of allowed hosts: a name or a network, on one port or on all."""

    name: str
    network: IPv4Network | IPv6Network | None
    port: int | None


def resolve_with_system(host: str, port: int) -> list[str]:
    """Ask the system's resolver for all addresses; blocks."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in answers]


def plain_address(text: str) -> Address:
    """Read an address without its scope, an IPv4-mapped one as IPv4. Raises ValueError."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def judge_address(text: str) -> str | None:
    """Say what is wrong with calling an address, or None if nothing is."""
    try:
        address = plain_address(text)
    except ValueError:
        return "not an IP address"
    if isinstance(address, IPv6Address):
        for inner in _embedded(address):
            if reason := judge_address(str(inner)):
                return f"{reason} inside an IPv6 one"
        if address in _NAT64:
            return None
    for network, reason in _DENIED:
        if address in network:
            return reason
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "a reserved address"
    # The table above is the rule; the library's own opinion can only make it stricter.
    return None if address.is_global and not address.is_multicast else "not a public address"


def _embedded(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Unwrap the IPv4 addresses that a NAT64, 6to4 or Teredo address leads to."""
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    return address.teredo or ()


class CallbackGuard:
    """The one judge of callback URLs, for submissions and for deliveries."""

    def __init__(
        self,
        allow_hosts: Sequence[str] = (),
        *,
        resolve_timeout_s: float = 3.0,
        resolver: Resolver | None = None,
    ) -> None:
        """Open `allow_hosts` (names, addresses, networks) besides all public addresses."""
        self._allowed = tuple(_read_allowed(entry) for entry in allow_hosts)
        self._resolve_timeout_s = resolve_timeout_s
        self._resolver = resolver or resolve_with_system
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS_MAX, "rota-resolve")
        self._threads_known = ThreadPoolExecutor(RESOLVER_THREADS_MAX, "rota-resolve-known")
        self._known: dict[str, None] = {}
        self._closed = False
        self._verdicts: dict[str, tuple[float, str]] = {}
        self._checks: dict[str, asyncio.Task[str]] = {}

    @staticmethod
    def parse(url: str) -> CallbackTarget:
        """Check the syntax of a URL, and bring its host into its one plain form."""
        if len(url) > URL_CHARS_MAX:
            msg = f"the callback URL is longer than {URL_CHARS_MAX} characters"
            raise CallbackRefused(msg)
        if not url.isprintable() or " " in url:
            msg = "the callback URL contains whitespace or control characters"
            raise CallbackRefused(msg)
        if not url.lower().startswith(("http://", "https://")):
            msg = "the callback URL must begin with http:// or https://"
            raise CallbackRefused(msg)
        match = _AUTHORITY.match(url)
        authority = match[1] if match else ""
        if "@" in authority:
            msg = "the callback URL must not contain credentials"
            raise CallbackRefused(msg)
        port = _PORT.search(authority)
        if port and port[1] and not _is_port(port[1]):
            msg = f"the callback URL's port must be a number from 1 to {PORT_MAX}"
            raise CallbackRefused(msg)
        try:
            parsed = URL(url).with_fragment(None)
            host = _plain_host(parsed.raw_host or "", bracketed=authority.startswith("["))
            parsed = parsed.with_host(host)
        except ValueError as exc:
            msg = f"the callback URL has {'an invalid host' if authority else 'no host'}"
            raise CallbackRefused(msg) from exc
        return CallbackTarget(
            scheme=parsed.scheme,
            host=host,
            port=parsed.port or 0,
            path_qs=parsed.raw_path_qs,
            url=str(parsed),
        )

    async def resolve(self, target: CallbackTarget) -> tuple[str, ...]:
        """Give the addresses that `target` may be connected to at this moment."""
        if (literal := _literal(target.host)) is not None:
            answers: tuple[str, ...] = (literal,)
        else:
            answers = await self._look_up(target)
        if problem := self._judge(target, answers):
            raise CallbackRefused(problem, hint=_HINT)
        return answers

    def check_cached(self, url: str) -> bool:
        """Judge a submitted URL without waiting: True accepts it, a refusal is raised.

        False means that its name has to be looked up: await `check_at_submission`.
        """
        known = self._verdicts.get(url)
        if known is not None and known[0] > monotonic_s():
            if known[1]:
                raise CallbackRefused(known[1], hint=_HINT)
            return True
        target = self.parse(url)
        literal = _literal(target.host)
        if literal is None and not self._is_allowed_name(target):
            return False
        problem = self._judge(target, (literal or "",))
        self._remember(url, problem)
        if problem:
            raise CallbackRefused(problem, hint=_HINT)
        return True

    async def check_at_submission(self, url: str) -> None:
        """Refuse a URL that leads to a denied address; a name without an address may pass.

        Delivery resolves anew, so what is accepted here is a courtesy, not a permit.
        """
        if self.check_cached(url):
            return
        check = self._checks.get(url)
        if check is None or check.done():
            check = asyncio.create_task(self._look_and_remember(url))
            self._checks[url] = check
        # Shielded: others may wait for the same answer.
        if problem := await asyncio.shield(check):
            raise CallbackRefused(problem, hint=_HINT)

    def close(self) -> None:
        """Give up lookups under way and let the threads end."""
        self._closed = True
        for threads in (self._threads, self._threads_known):
            threads.shutdown(wait=False, cancel_futures=True)
        self._verdicts.clear()

    async def _look_up(self, target: CallbackTarget) -> tuple[str, ...]:
        """Run the resolver on a thread of ours, within the time limit."""
        if self._closed:
            msg = f"the callback host {target.host} cannot be resolved during shutdown"
            raise CallbackUnresolved(msg)
        is_known = target.host in self._known
        self._known.pop(target.host, None)  # until it resolves again
        threads = self._threads_known if is_known else self._threads
        lookup = asyncio.wrap_future(threads.submit(self._resolver, target.host, target.port))
        try:
            await asyncio.wait((lookup,), timeout=self._resolve_timeout_s)
        finally:
            lookup.cancel()  # does nothing to an answer that is there
        if lookup.cancelled():
            msg = f"the callback host {target.host} did not resolve in time"
            raise CallbackUnresolved(msg)
        try:
            answers = tuple(dict.fromkeys(lookup.result()))
        except (OSError, ValueError) as exc:
            msg = f"the callback host {target.host} does not resolve"
            raise CallbackUnresolved(msg) from exc
        if not answers:
            msg = f"the callback host {target.host} has no address"
            raise CallbackUnresolved(msg)
        self._know(target.host)
        return answers

    def _know(self, name: str) -> None:
        """Remember that a name resolves, until it does not."""
        self._known[name] = None
        if len(self._known) > NAMES_KNOWN_MAX:
            del self._known[next(iter(self._known))]

    async def _look_and_remember(self, url: str) -> str:
        """Give the reason for a refusal, or an empty text, and keep it for a while."""
        try:
            await self.resolve(self.parse(url))
            problem = ""
        except CallbackUnresolved:
            problem = ""
        except CallbackRefused as refusal:
            problem = refusal.message
        finally:
            self._checks.pop(url, None)
        self._remember(url, problem)
        return problem

    def _remember(self, url: str, problem: str) -> None:
        self._verdicts.pop(url, None)
        if len(self._verdicts) >= VERDICTS_MAX:
            del self._verdicts[next(iter(self._verdicts))]
        self._verdicts[url] = (monotonic_s() + VERDICT_TTL_S, problem)

    def _judge(self, target: CallbackTarget, answers: Sequence[str]) -> str:
        """Name the first answer's fault; the address itself is not told to the submitter."""
        if self._is_allowed_name(target):
            return ""
        for answer in answers:
            reason = judge_address(answer)
            if reason and not self._is_allowed_address(answer, target.port):
                return f"the callback host {target.host} leads to {reason}"
        return ""

    def _is_allowed_name(self, target: CallbackTarget) -> bool:
        name = target.host.rstrip(".")
        return any(rule.name == name and rule.port in (None, target.port) for rule in self._allowed)

    def _is_allowed_address(self, text: str, port: int) -> bool:
        try:
            address = plain_address(text)
        except ValueError:
            return False
        return any(
            rule.network is not None and address in rule.network and rule.port in (None, port)
            for rule in self._allowed
        )


def _is_port(text: str) -> bool:
    return _PORT_NUMBER.fullmatch(text) is not None and 1 <= int(text) <= PORT_MAX


def _literal(host: str) -> str | None:
    """Give the address that a host spells out, None for a name."""
    try:
        return str(ip_address(host))
    except ValueError:
        return None


def _plain_host(host: str, *, bracketed: bool) -> str:
    """Bring a host into one form, as browsers do: 127.1 and 0x7f000001 become 127.0.0.1."""
    if bracketed:
        return str(IPv6Address(host)) if "%" not in host else _bad_host(host)
    name = host.lower()
    if not _HOST_NAME.fullmatch(name) or len(name) > HOST_CHARS_MAX:
        return _bad_host(host)
    if _NUMERIC_LABEL.fullmatch(name.rstrip(".").rpartition(".")[2]):
        try:
            return socket.inet_ntoa(socket.inet_aton(name.rstrip(".")))
        except OSError:
            return _bad_host(host)
    return name


def _bad_host(host: str) -> str:
    msg = f"{host!r} is not a host name"
    raise ValueError(msg)


def _read_allowed(entry: str) -> _Allowed:
    """Read one entry: a name, an address or a network; the first two may carry a port."""
    try:
        if "/" in entry:
            network = ip_network(entry)
            if network.prefixlen > 0:
                return _Allowed("", network, None)
        if (literal := _literal(entry)) is not None:
            return _Allowed("", ip_network(plain_address(literal)), None)
        target = CallbackGuard.parse(f"http://{entry}")
        if target.path_qs == "/" and not set(entry) & set("/?#"):
            port = target.port if _PORT.search(entry) else None
            if (literal := _literal(target.host)) is not None:
                return _Allowed("", ip_network(plain_address(literal)), port)
            return _Allowed(target.host.rstrip("."), None, port)
    except (ValueError, CallbackRefused):
        pass
    msg = f"webhooks.allowHosts: {entry!r} is not a host name, an address or a network"
    raise ConfigError(msg, hint='write "localhost", "10.1.2.3:8080" or "10.0.0.0/8"')
