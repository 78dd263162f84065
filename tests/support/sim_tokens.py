"""Tokens in the simulation: made, revoked, expired, and used by agents for what is another's.

`Tokens` is the rule, worked out from the records alone. `Holders` are clients that hold tokens of
some agents and try whatever they like: they come in by what the door of the HTTP server looks at,
the projection and `Caller`, so that what is recorded under a token's name is its agents' alone. A
token whose revocation was acknowledged is never found again, one that was acknowledged always is,
whatever crashes.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from support.sim_outside import SimReply
from support.sim_rules import Rule

from rota.actors import messages as m
from rota.actors.failover import Phase
from rota.domain import events as e
from rota.domain.declared import EVERY_AGENT, Declared
from rota.domain.intake import Request
from rota.domain.tokens import NewToken, hash_of
from rota.http.access import Caller
from rota.http.problems import HttpProblem

if TYPE_CHECKING:
    from support.sim_model import Model
    from support.simulation import World

    from rota.domain.events import Record
    from rota.domain.tokens import Token
    from rota.projections.state import State

NAMES = ("tok-a", "tok-b", "tok-c", "tok-d")
S = 1_000_000


class Tokens(Rule):
    """Tokens: a name is one live token's, and what it does is its agents'."""

    def __init__(self, model: Model) -> None:
        """Start with none."""
        super().__init__(model)
        self.held: dict[str, e.TokenCreated] = {}
        self.scopes: dict[str, set[str]] = {}
        self.names: set[str] = set()

    def is_live(self, name: str, at: int) -> bool:
        held = self.held.get(name)
        return held is not None and (held.expires_at is None or at < held.expires_at)

    def on_token_created(self, record: Record) -> None:
        event: Any = record.event
        if self.is_live(event.name, record.at):
            self.violated(f"a second token {event.name} was made while one is good")
        self.held[event.name] = event
        self.names.add(event.name)
        if event.principal != f"{event.name}#{record.seq}":
            self.violated(f"the token {event.name} acts as {event.principal}")
        self.scopes[event.principal] = set(event.agents or ("*",))

    def on_token_revoked(self, record: Record) -> None:
        event: Any = record.event
        if self.held.pop(event.name, None) is None:
            self.violated(f"a token {event.name} was revoked that nobody has")


class Holders:
    """Those who hold tokens, and who gives them out."""

    def __init__(self, world: World) -> None:
        """Belong to a world; in most there are no tokens, and nothing is drawn."""
        self._world = world
        self._rng = Random(f"tokens {world.seed}")
        self._odds = self._rng.choice((0.0, 0.0, 0.0, 0.1))
        self._drawn = self._declared = 0
        self._given: dict[str, str] = {}
        self._revoked: set[str] = set()

    def act(self) -> None:
        """Now and then do something with a token."""
        world, rng = self._world, self._rng
        if world.calm or world.draining or not self._odds or rng.random() >= self._odds:
            return
        what = rng.random()
        if what < 0.3:
            self._create()
        elif what < 0.45:
            self._revoke()
        else:
            self._use()

    def _create(self) -> None:
        world, rng = self._world, self._rng
        name, role = rng.choice(NAMES), rng.choice(("submit", "submit", "work", "audit", "admin"))
        agents = tuple(rng.sample(world.work.agents, rng.randint(1, len(world.work.agents))))
        if role in ("audit", "admin"):
            agents = ()
        elif rng.random() < 0.1:
            agents = ("*",)
        self._drawn += 1
        digest = hash_of(f"{world.seed} {self._drawn}".encode())
        wanted = NewToken(name, role, digest, agents, rng.choice((None, None, 5 * S, 3600 * S)))
        world.trace("create %s", wanted)

        def check(made: e.TokenCreated) -> None:
            self._check_kept("token_created", digest)
            self._given[digest] = made.name

        def check_refusal(code: str, error: Any) -> None:
            world.counts[code] += 1
            if code != "name_taken" or name not in world.model.tokens.names:
                world.violated(f"there was no reason for {code}: {error} of {wanted}")

        reply = SimReply(world, "token", check, check_refusal)
        world.shard.admission.tell(m.CreateToken(wanted, frozenset(), "sim", reply))

    def _revoke(self) -> None:
        world, name = self._world, self._rng.choice(NAMES)
        world.trace("revoke %s", name)
        given = {digest for digest, whose in self._given.items() if whose == name}

        def check(revoked: str) -> None:
            self._check_kept("token_revoked", f'"name":"{revoked}"')
            self._revoked |= given  # those that were good before it was asked for

        reply = SimReply(world, "revoke", check, lambda code, _: world.counts.update([code]))
        world.shard.admission.tell(m.RevokeToken(name, "sim", reply))

    def _check_kept(self, kind: str, detail: str) -> None:
        needles = (f'"kind":"{kind}"'.encode(), detail.encode())
        records = self._world.log.read(0, 1 << 30)
        if not any(all(n in item.body for n in needles) for item in records):
            self._world.violated(f"{kind} {detail} was acknowledged and is not in the log")

    def _use(self) -> None:
        """Come with a token, good or not, and ask for some agent."""
        world, rng = self._world, self._rng
        if world.shard.failover.phase is Phase.REBUILDING or not self._given:
            return
        digest = rng.choice(list(self._given))
        token = world.shard.state.tokens.find(digest, world.shard.journal.now())
        self._check_found(digest, token)
        if token is None:
            world.counts["unwelcome"] += 1
            return
        caller = Caller(token.name, "default", token.role, token.agents, digest, token.principal)
        agent = rng.choice(world.work.agents)
        try:
            caller.check_agents([agent])
        except HttpProblem as problem:
            world.counts[f"token {problem.code}"] += 1
            return
        if token.role == "submit":
            self._submit(token, agent)
        elif token.role == "work":
            self._declare(token)

    def _declare(self, token: Token) -> None:
        """Declare a type that nobody submits, for the agents of a token."""
        world, by = self._world, token.principal
        self._declared += 1
        wanted = Declared(by, timeout_ms=self._declared)
        said = {(agent, "fitted"): wanted for agent in sorted(token.agents or {EVERY_AGENT})}
        world.trace("declare %s", said)

        def check(holds: list[bool]) -> None:
            if any(holds):
                self._check_kept("type_declared", f'"timeout_ms":{wanted.timeout_ms}')

        reply = SimReply(world, "declare", check)
        world.shard.admission.tell(m.DeclareTypes(said, frozenset(), by, reply))

    def _submit(self, token: Token, agent: str) -> None:
        world = self._world
        by = token.principal
        request = Request(agent, "echo", "builtin", by=by)
        world.trace("submit %s by %s", request, by)

        def check(answers: list[Any]) -> None:
            if type(answers[0]) is m.Refused and answers[0].counted:
                world.counted += 1
            elif type(answers[0]) is m.Admitted:
                world.acknowledged(answers[0].task, "task_submitted")
                if world.model.tasks[answers[0].task].by != by:
                    world.violated(f"{answers[0].task} is not by {by}, who submitted it")

        reply = SimReply(world, "submit", check)
        world.shard.admission.tell(m.SubmitTasks((request,), reply))

    def _check_found(self, digest: str, token: Token | None) -> None:
        world = self._world
        if token is not None and digest in self._revoked:
            world.violated(f"{token.name} was revoked, which was acknowledged, and is good again")
        if token is not None and token.hash != digest:
            world.violated(f"{token.name} is found by another's hash")

    def judge(self, record: Any, state: State) -> None:
        """Hold the projection against the model, and what was recorded against its author."""
        world, rule = self._world, self._world.model.tokens
        if isinstance(record.event, e.TokenCreated | e.TokenRevoked):
            known = {token.name: token.hash for token in state.tokens.by_name.values()}
            if known != {name: held.hash for name, held in rule.held.items()}:
                world.violated("the tokens that are known are not those that were made")
        elif record.by.partition("#")[0] in NAMES:
            agent = getattr(record.event, "agent", None)
            if not {agent, "*"} & rule.scopes.get(record.by, set()):
                world.violated(f"{record.by} did something for {agent}, which is not its own")

    def judge_at_rest(self) -> None:
        """See that whatever was given out is found, unless it was taken back or has expired."""
        state, held = self._world.shard.state, self._world.model.tokens.held
        for event in held.values():
            if state.tokens.find(event.hash, 0) is None:
                self._world.violated(f"the token {event.name} is lost")
        for digest in self._revoked:
            if state.tokens.find(digest, 0) is not None:
                self._world.violated("a token that was revoked is good at the end")
