"""Workers that are not to be relied on, and strangers: each is answered by a code, in words.

Who comes too late, twice, or for another's lease changes nothing; who asks for too much is told
which field; who leaves while it waits, or before its answer, loses no task.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
from support.http_server import ended, look, read_all, until
from support.leasing import WAIT_MS, Waiting, is_waiting, say, take, take_one, workers
from support.tokens import Guarded

from rota.actors.runtime import body_of

if TYPE_CHECKING:
    from support.http_server import Rota, Servers

    from rota.server import Server

POST = (
    "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Content-Length: {length}\r\n\r\n"
)


def request(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return POST.format(path=path, length=len(data)).encode() + data


# -- too late, twice, another's ------------------------------------------------------------------


def test_a_task_is_completed_once(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota)
    assert say(rota, lease, "complete", result=1).status == 200
    for other in (2, None):
        answer = say(rota, lease, "complete", result=other)
        assert (answer.status, answer.code) == (409, "stale_attempt")
        assert answer.json["details"]["taskId"] == task_id
    assert say(rota, lease, "fail", error="no").code == "stale_attempt"
    assert say(rota, lease, "release").code == "stale_attempt"
    assert look(rota, task_id)["result"] == 1
    refused = rota.events(task=task_id, kind="result_refused")
    assert [event["data"]["outcome"] for event in refused] == [
        "succeeded", "succeeded", "failed", "released",
    ]  # fmt: skip
    assert {event["data"]["token"] for event in refused} == {lease["token"]}
    assert rota.digests()[0] == rota.digests()[1]


@pytest.mark.parametrize(
    ("what", "said", "then"),
    [
        ("complete", {"result": {"n": [1]}}, "succeeded"),
        ("complete", {}, "succeeded"),
        ("fail", {"error": "no", "code": "mine", "details": {"n": 1}}, "failed"),
        ("fail", {"error": "no", "retryable": True, "retryAfterMs": 60_000}, "scheduled"),
        ("release", {}, "ready"),
    ],
)
def test_the_same_outcome_said_again_was_accepted(
    rota: Rota, what: str, said: dict[str, Any], then: str
) -> None:
    retry = {"retry": {"maxAttempts": 2, "kind": "fixed"}} if then == "scheduled" else {}
    task_id = rota.submit_native("ann", "fit", **retry)
    lease = take_one(rota)
    first = say(rota, lease, what, workerId="ada", **said)
    assert (first.status, first.json["state"]) == (200, then)
    rota.restart()
    for more in ({}, {"workerId": "ada"}):
        again = say(rota, lease, what, **said, **more)
        assert (again.status, again.json) == (200, {**first.json, "idempotent": True})
    item = {"leaseId": lease["leaseId"], "token": lease["token"], "outcome": what, **said}
    answer = rota.post("/v1/leases/settle", {"workerId": "ada", "outcomes": [item, item]})
    assert [each["idempotent"] for each in answer.json["outcomes"]] == [True, True]
    assert rota.events(task=task_id, kind="result_refused") == []
    for other, more in (("fail", {"error": "another"}), ("complete", {"result": "another"})):
        assert say(rota, lease, other, **more).code == "stale_attempt"
    assert say(rota, lease, what, workerId="eve", **said).code == "stale_attempt"


def test_an_outcome_of_an_earlier_attempt_said_again_was_accepted(rota: Rota) -> None:
    rota.submit_native("ann", "fit")
    first = take_one(rota)
    assert say(rota, first, "release").status == 200
    second = take_one(rota, "ben")
    again = say(rota, first, "release")
    assert (again.status, again.json["state"]) == (200, "assigned")
    assert say(rota, second, "complete").status == 200
    assert say(rota, first, "complete").code == "stale_attempt"


def test_what_ended_an_attempt_for_its_worker_is_no_outcome_of_it(rota: Rota) -> None:
    rota.submit_native("ann", "fit", timeoutMs=1)
    lease = take_one(rota)
    task = ended(rota, lease["taskId"])
    code, error = task["error"]["code"], task["error"]["message"]
    assert say(rota, lease, "fail", code=code, error=error).code == "stale_attempt"
    assert say(rota, lease, "release").code == "stale_attempt"


def test_a_refused_wish_for_more_hides_no_outcome(rota: Rota) -> None:
    may_wait(rota, requests=1)
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota)
    waiting = Waiting(rota, "ben")
    item = {"leaseId": lease["leaseId"], "token": lease["token"], "outcome": "complete"}
    body = {"workerId": "ada", "outcomes": [item], "lease": {"waitMs": WAIT_MS}}
    answer = rota.post("/v1/leases/settle", body)
    assert (answer.status, answer.json["leases"]) == (200, [])
    assert answer.json["outcomes"][0]["state"] == "succeeded"
    error = answer.json["leaseError"]
    assert (error["code"], error["retryable"]) == ("too_many_waiting", True)
    assert look(rota, task_id)["state"] == "succeeded"
    rota.submit_native("ann", "fit")
    assert len(waiting.given()) == 1


def test_an_outcome_after_the_expiry_is_recorded_and_changes_nothing(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    late = take_one(rota, leaseMs=1000)
    again = take_one(rota, "ben", waitMs=WAIT_MS)
    answer = say(rota, late, "complete", result="late")
    assert (answer.status, answer.code) == (409, "stale_attempt")
    assert "it has expired" in answer.json["error"]
    [refused] = rota.events(task=task_id, kind="result_refused")
    assert refused["data"]["token"] == late["token"]
    assert look(rota, task_id)["state"] == "assigned"
    assert say(rota, again, "complete", result="in time").status == 200
    assert look(rota, task_id)["result"] == "in time"


def test_a_worker_speaks_for_its_own_leases_only(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota, "ada")
    for what, more in (
        ("complete", {}),
        ("fail", {"error": "x"}),
        ("release", {}),
        ("heartbeat", {}),
    ):
        answer = say(rota, lease, what, workerId="eve", **more)
        assert (answer.status, answer.code) == (409, "stale_attempt")
        assert "another worker's" in answer.json["error"]
    outcome = {"leaseId": lease["leaseId"], "token": lease["token"], "outcome": "complete"}
    answer = rota.post("/v1/leases/settle", {"workerId": "eve", "outcomes": [outcome]})
    assert answer.json["outcomes"][0]["code"] == "stale_attempt"
    assert look(rota, task_id)["state"] == "assigned"
    assert say(rota, lease, "complete", workerId="ada").status == 200


def test_a_token_must_be_the_leases_own(rota: Rota) -> None:
    rota.submit_native("ann", "fit")
    lease = take_one(rota)
    for token in (lease["token"] - 1, lease["token"] + 1, 1, 2**53 - 1):
        answer = say(rota, {**lease, "token": token}, "complete")
        assert (answer.status, answer.code) == (409, "stale_attempt"), token
    assert say(rota, lease, "complete").status == 200


@pytest.mark.parametrize("what", ["complete", "fail", "release", "heartbeat"])
def test_an_unknown_lease_is_404(rota: Rota, what: str) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota)
    own, more = rota.submit_native("ann", "echo"), {"error": "x"} if what == "fail" else {}
    until(lambda: look(rota, own)["state"] == "succeeded")
    [assigned] = rota.events(task=own, kind="task_assigned")
    ahead, mine = lease["token"] + 1000, assigned["seq"]
    names = {"nonsense": 1, "lse_": 1, "lse_1_": 1, "lse_0_x": 1, "lse_9_tsk_nobody": 9}
    names |= {f"lse_{ahead}_{task_id}": ahead, f"lse_{mine}_{own}": mine, f"lse_{10**20}_x": 1}
    names |= {"%00": 1, "lse_1_%F0%9F%92%A9": 1, "x" * 2000: 1}
    for name, token in names.items():
        answer = rota.post(f"/v1/leases/{name}/{what}", {"token": token, **more})
        assert (answer.status, answer.code) == (404, "not_found"), (name, answer)
    assert say(rota, lease, "complete").status == 200


# -- too much ------------------------------------------------------------------------------------

WRONG: list[tuple[str, Any]] = [
    ("max", 10**9),
    ("max", 0),
    ("max", -1),
    ("max", 1.5),
    ("max", "many"),
    ("leaseMs", 365 * 24 * 3600 * 1000),
    ("leaseMs", 999),
    ("leaseMs", 10**30),
    ("waitMs", 10**9),
    ("waitMs", -1),
    ("agents", []),
    ("agents", ["x"] * 101),
    ("agents", "ann"),
    ("agents", ["a\nb"]),
    ("types", []),
    ("types", [f"t{n}" for n in range(101)]),
    ("types", [""]),
    ("labels", ["x"] * 33),
    ("labels", ["a\nb"]),
    ("labels", ["x" * 10_000]),
    ("start", "yes"),
    ("workerId", ""),
    ("workerId", "x" * 201),
    ("workerId", None),
    ("workerId", "a\x1b[31m"),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_what_is_out_of_reason_is_400_and_names_its_field(
    rota: Rota, field: str, value: Any
) -> None:
    task_id = rota.submit_native("ann", "fit")
    answer = rota.post("/v1/leases", {"workerId": "ada", field: value})
    assert answer.status == 400, answer
    assert field in answer.json["error"]
    if field != "workerId":
        body = {"workerId": "ada", "outcomes": [], "lease": {field: value}}
        assert field in rota.post("/v1/leases/settle", body).json["error"]
    assert (look(rota, task_id)["state"], workers(rota)) == ("ready", {})


def test_a_worker_that_names_too_many_agents_and_types_is_told_so(rota: Rota) -> None:
    wants = {"agents": [f"a{n}" for n in range(100)], "types": [f"t{n}" for n in range(11)]}
    answer = rota.post("/v1/leases", {"workerId": "ada", **wants})
    assert (answer.status, "agents times types" in answer.json["error"]) == (400, True)
    several = {"wants": [{"agents": wants["agents"], "types": [name]} for name in wants["types"]]}
    answer = rota.post("/v1/leases", {"workerId": "ada", **several})
    assert (answer.status, "agents times types" in answer.json["error"]) == (400, True)
    rota.submit_native("ann", "fit")
    lease = take_one(rota)
    done = {"leaseId": lease["leaseId"], "token": lease["token"], "outcome": "complete"}
    body = {"workerId": "ada", "outcomes": [done], "lease": several}
    assert rota.post("/v1/leases/settle", body).status == 400
    assert look(rota, lease["taskId"])["state"] == "assigned"  # a refused call settles nothing


@pytest.mark.parametrize("name", ["rota", "local"])
def test_a_worker_has_a_name_of_its_own(rota: Rota, name: str) -> None:
    answer = rota.post("/v1/leases", {"workerId": name})
    assert (answer.status, "workerId" in answer.json["error"]) == (400, True)
    answer = rota.post("/v1/leases/settle", {"workerId": name, "outcomes": []})
    assert answer.status == 400


def test_filters_are_said_one_way_or_the_other(rota: Rota) -> None:
    for wrong, why in (
        ({"wants": [{}], "types": ["fit"]}, "either 'wants'"),
        ({"wants": []}, "wants"),
        ({"wants": [{"types": []}]}, "wants"),
        ({"wants": [{"labels": ["gpu"]}]}, "labels"),
        ({"wants": [{}] * 1001}, "wants"),
    ):
        answer = rota.post("/v1/leases", {"workerId": "ada", **wrong})
        assert (answer.status, why in answer.json["error"]) == (400, True), answer


@pytest.mark.parametrize(
    ("what", "body", "field"),
    [
        ("complete", {}, "token"),
        ("complete", {"token": "1"}, "token"),
        ("complete", {"token": 1, "colour": 1}, "colour"),
        ("fail", {"token": 1}, "error"),
        ("fail", {"token": 1, "error": "x" * 4001}, "error"),
        ("fail", {"token": 1, "error": "x", "retryAfterMs": 10**12}, "retryAfterMs"),
        ("fail", {"token": 1, "error": "x", "retryable": "no"}, "retryable"),
        ("fail", {"token": 1, "error": "x", "details": {"x": "y" * 100_000}}, "details"),
        ("heartbeat", {"token": 1, "lines": ["x"] * 10_000}, "lines"),
        ("heartbeat", {"token": 1, "lines": ["x" * 100_000]}, "lines"),
        ("heartbeat", {"token": 1, "leaseMs": 10**12}, "leaseMs"),
        ("heartbeat", {"token": 1, "level": "shout"}, "level"),
        ("heartbeat", {"token": 1, "progress": {"x": "y" * 100_000}}, "progress"),
        ("release", {"token": 1, "why": "x"}, "why"),
    ],
)
def test_a_wrong_body_is_400_and_names_its_field(
    rota: Rota, what: str, body: dict[str, Any], field: str
) -> None:
    answer = rota.post(f"/v1/leases/lse_1_x/{what}", body)
    assert (answer.status, field in answer.json["error"]) == (400, True), answer


@pytest.mark.parametrize(
    ("outcome", "field"),
    [
        ({"outcome": "explode"}, "outcome"),
        ({"outcome": "fail"}, "error"),
        ({"outcome": "complete", "token": None}, "token"),
        ({"outcome": "complete", "leaseId": 5}, "leaseId"),
    ],
)
def test_a_wrong_outcome_is_400_and_settles_nothing(
    rota: Rota, outcome: dict[str, Any], field: str
) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota)
    good = {"leaseId": lease["leaseId"], "token": lease["token"], "outcome": "complete"}
    outcomes = [good, {**good, **outcome}]
    answer = rota.post("/v1/leases/settle", {"workerId": "ada", "outcomes": outcomes})
    assert (answer.status, f"outcomes.1.{field}" in answer.json["error"]) == (400, True), answer
    assert look(rota, task_id)["state"] == "assigned"


def test_more_than_a_thousand_outcomes_are_refused(rota: Rota) -> None:
    outcome = {"leaseId": "lse_1_x", "token": 1, "outcome": "complete"}
    answer = rota.post("/v1/leases/settle", {"workerId": "ada", "outcomes": [outcome] * 1001})
    assert (answer.status, answer.json["details"]) == (400, {"field": "outcomes"})


def test_a_result_of_a_hundred_megabytes_is_413_and_the_lease_lives_on(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota)
    path = f"/v1/leases/{lease['leaseId']}/complete"
    with rota.connected() as sock:
        sock.sendall(POST.format(path=path, length=100 << 20).encode() + b'{"token":')
        assert b" 413 " in sock.recv(1 << 16).split(b"\r\n")[0]
    assert look(rota, task_id)["state"] == "assigned"
    assert say(rota, lease, "complete").status == 200


def test_a_result_as_large_as_a_body_may_be_is_kept(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    assert say(rota, take_one(rota), "complete", result="x" * 3_000_000).status == 200
    assert len(look(rota, task_id)["result"]) == 3_000_000


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'{"workerId":"a","workerId"'])
def test_what_is_no_object_is_400(rota: Rota, raw: bytes) -> None:
    for path in ("/v1/leases", "/v1/leases/settle", "/v1/leases/lse_1_x/complete"):
        assert rota.request("POST", path, raw=raw).status == 400


def may_wait(rota: Rota, *, requests: int = 10_000, places: int = 100_000) -> None:
    """Let fewer wait than usual."""

    def change(server: Server) -> None:
        lending = body_of(server.shard.dispatcher)._lending
        lending._requests.most, lending._taken.most = requests, places

    rota.inside(change)


def test_only_so_many_requests_may_wait(rota: Rota) -> None:
    may_wait(rota, requests=1)
    waiting = Waiting(rota)
    answer = rota.post("/v1/leases", {"workerId": "ben", "waitMs": WAIT_MS})
    assert (answer.status, answer.code) == (429, "too_many_waiting")
    assert take(rota, "ben") == []  # who does not wait needs no line
    rota.submit_native("ann", "fit")
    assert len(waiting.given()) == 1
    assert take(rota, "ben") == []


def test_only_so_many_places_there_are_in_all_lines(rota: Rota) -> None:
    may_wait(rota, places=10)
    first = Waiting(rota, "ada", types=["a", "b", "c", "d"], labels=["gpu", "big"])
    second = Waiting(rota, "ben", types=["a", "b", "c", "d"])
    wants = {"workerId": "cid", "types": ["a", "b", "c"]}
    answer = rota.post("/v1/leases", {**wants, "waitMs": WAIT_MS})
    assert (answer.status, answer.code) == (429, "too_many_waiting")
    assert rota.post("/v1/leases", wants).status == 200
    task_id = rota.submit_native("ann", "a", requires=["gpu"])
    assert first.given() == []  # it would stand in four lines more, and has to come again
    assert look(rota, task_id)["state"] == "ready"
    rota.submit_native("ann", "b")
    assert len(second.given()) == 1
    assert take_one(rota, "ada", types=["a"], labels=["gpu"])["taskId"] == task_id


def test_a_token_that_takes_every_line_it_can_leaves_room_for_another(serve: Servers) -> None:
    guarded = Guarded(serve)
    for name in ("greedy", "modest"):
        guarded.make(name, "admin")
    may_wait(guarded.rota, places=10)
    greedy = guarded.client("greedy")
    first = Waiting(greedy, "g1", types=["a", "b", "c", "d", "e"])
    wants = {"workerId": "g2", "types": ["a"], "waitMs": WAIT_MS}
    answer = greedy.post("/v1/leases", wants)
    assert (answer.status, answer.code) == (429, "too_many_waiting")
    modest = Waiting(guarded.client("modest"), "m", types=["x", "y"])
    guarded.rota.submit_native("ann", "x")
    guarded.rota.submit_native("ann", "a")
    assert (len(modest.given()), len(first.given())) == (1, 1)


def test_one_request_stands_in_only_so_many_lines(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.domain.lending.PLACES_EACH_MAX", 6)
    wants = {"types": ["a", "b", "c"], "labels": ["gpu", "big"]}
    waiting = Waiting(rota, "ada", **wants)
    rota.submit_native("ann", "z", requires=["gpu"])  # three lines more
    rota.submit_native("ann", "z", requires=["big"])  # and three too many
    assert waiting.given() == []
    answer = rota.post("/v1/leases", {"workerId": "ada", **wants, "waitMs": WAIT_MS})
    assert (answer.status, answer.code) == (429, "too_many_waiting")
    assert "labels" in answer.json["error"]
    assert take(rota, "ada", types=["a"], labels=["gpu", "big"]) == []


def test_who_does_not_wait_gets_to_every_line_in_time(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.domain.lending.PLACES_EACH_MAX", 6)
    for label in ("gpu", "big"):
        rota.submit_native("ann", "a", requires=[label])
    wants = {"types": ["a", "b", "c"], "labels": ["gpu", "big"], "max": 2}
    assert sum(len(take(rota, "ada", **wants)) for _ in range(3)) == 2


def test_an_answer_has_params_of_so_many_bytes(rota: Rota, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.domain.lending.LENT_BYTES_MAX", 10_000)
    monkeypatch.setattr("rota.actors.leases.LENT_BYTES_MAX", 10_000)
    for _ in range(3):
        rota.submit_native("ann", "large", params={"text": "x" * 6000})
    assert [len(take(rota, types=["large"], max=10)) for _ in range(3)] == [2, 1, 0]
    parent = rota.submit_native("ann", "parent")
    say(rota, take_one(rota, types=["parent"]), "complete", result="y" * 3000)
    ids = [
        rota.submit_native(
            "ann", "child", dependsOn=[parent], params={"x": [f"{{{{{parent}}}}}"] * 2}
        )
        for _ in range(5)
    ]
    first, rest = take(rota, types=["child"], max=10), take(rota, types=["child"], max=10)
    assert [len(first), len(rest)] == [2, 2]
    assert first[0]["params"] == {"x": ["y" * 3000] * 2}
    assert rota.kinds(ids[4]) == ["task_submitted"]  # it was not lent and taken back


def test_what_turns_out_larger_than_it_seemed_goes_back(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.actors.leases.LENT_BYTES_MAX", 10_000)
    ids = [rota.submit_native("ann", "fit", params={"text": "x" * 6000}) for _ in range(3)]
    assert [lease["taskId"] for lease in take(rota, max=10)] == ids[:2]
    task = look(rota, ids[2])
    assert (task["state"], task["attempt"]) == ("ready", 0)


def test_workers_with_long_names_for_what_they_take_are_bounded_in_bytes(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.actors.workers.WORKERS_BYTES_MAX", 15_000)
    for n in range(20):
        take(rota, f"w{n}", types=["t" * 190 + str(at) for at in range(5)])
    assert list(workers(rota)) == ["w19", "w18", "w17"]
    monkeypatch.setattr("rota.http.v1.leases.PAGE_BYTES_MAX", 1000)
    page = rota.get("/v1/workers").json
    assert (page["count"], page["nextCursor"]) == (1, "1")
    page = rota.get("/v1/workers?cursor=2").json
    assert (page["workers"][0]["workerId"], page.get("nextCursor")) == ("w17", None)


def test_stale_outcomes_fill_no_log(rota: Rota) -> None:
    """A worker that is late for ever is refused for ever, and written down now and then."""
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota)
    say(rota, lease, "complete", result="in time")
    outcome = {"leaseId": lease["leaseId"], "token": lease["token"], "outcome": "complete"}
    body = {"workerId": "ada", "outcomes": [outcome] * 1000}
    for _ in range(3):
        said = rota.post("/v1/leases/settle", body).json["outcomes"]
        assert {row["code"] for row in said} == {"stale_attempt"}
    assert len(rota.events(task=task_id, kind="result_refused")) < 1000


# -- leaving -------------------------------------------------------------------------------------


def test_a_worker_that_leaves_while_it_waits_is_forgotten_and_takes_nothing(rota: Rota) -> None:
    with rota.connected() as sock:
        sock.sendall(request("/v1/leases", {"workerId": "ada", "waitMs": WAIT_MS}))
        until(is_waiting(rota, "ada"))
    until(lambda: not workers(rota)["ada"]["waiting"], what="it is forgotten")
    task_id = rota.submit_native("ann", "fit")
    assert take_one(rota, "ben")["taskId"] == task_id
    assert len(rota.events(task=task_id, kind="task_assigned")) == 1


def test_a_worker_that_hangs_up_hard_is_forgotten_as_well(rota: Rota) -> None:
    with rota.connected() as sock:
        sock.sendall(request("/v1/leases", {"workerId": "ada", "waitMs": WAIT_MS}))
        until(is_waiting(rota, "ada"))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    until(lambda: not workers(rota)["ada"]["waiting"], what="it is forgotten")


def test_a_task_whose_worker_left_before_its_answer_goes_back_at_once(rota: Rota) -> None:
    """It hangs up while the server is busy, so that the server hears of both at once."""
    tasks = [rota.submit_native("ann", "fit") for _ in range(3)]
    said = request("/v1/leases", {"workerId": "eve", "max": 3, "leaseMs": 3_600_000})

    def come_and_go(_: Any) -> None:
        with rota.connected() as sock:
            sock.sendall(said)

    rota.inside(come_and_go)
    until(lambda: "eve" in workers(rota) and not workers(rota)["eve"]["holds"])
    found = take(rota, "ada", max=20)
    assert [(lease["taskId"], lease["attempt"]) for lease in found] == [(t, 1) for t in tasks]


def test_a_worker_that_has_closed_its_half_is_lent_nothing(rota: Rota) -> None:
    task_id = rota.submit_native("ann", "fit")
    said = request("/v1/leases", {"workerId": "eve"})
    with rota.connected() as sock:

        def send(_: Any) -> None:
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)

        rota.inside(send)
        assert b'{"leases":[]}' in read_all(sock)
    assert take_one(rota, waitMs=WAIT_MS)["taskId"] == task_id


@pytest.mark.parametrize("behind", ["requests", "a body"])
def test_a_worker_whose_leave_could_not_be_heard_is_not_waited_for(rota: Rota, behind: str) -> None:
    """So much lies behind its request that the server reads no further, and sees no end."""
    said = request("/v1/leases", {"workerId": "eve", "waitMs": WAIT_MS, "leaseMs": 3_600_000})
    more = said * 50 if behind == "requests" else request("/v1/tasks", {"x": "y" * 1_000_000})
    with rota.connected() as sock:
        sock.sendall(said)
        until(is_waiting(rota, "eve"))
        sock.sendall(more)
        assert b'{"leases":[]}' in sock.recv(10_000)
    until(lambda: not workers(rota)["eve"]["waiting"], what="it is forgotten")
    task_id = rota.submit_native("ann", "fit")
    assert take_one(rota, "ben", waitMs=WAIT_MS)["taskId"] == task_id


def test_a_stopping_server_answers_waiting_workers_at_once(serve: Servers) -> None:
    rota = serve()
    waiting = [Waiting(rota, f"w{n}") for n in range(3)]
    rota.stop()
    assert [each.given() for each in waiting] == [[], [], []]
    rota.start()


def test_a_server_that_stops_in_order_leaves_leases_alone(serve: Servers) -> None:
    rota = serve()
    task_id = rota.submit_native("ann", "fit")
    lease = take_one(rota, start=True)
    rota.restart()
    assert look(rota, task_id)["state"] == "running"
    assert say(rota, lease, "heartbeat").status == 200
    assert say(rota, lease, "complete").status == 200
    assert "attempt_interrupted" not in rota.kinds(task_id)


def test_many_that_ask_and_leave_leave_nothing_behind(rota: Rota) -> None:
    for n in range(50):
        with contextlib.suppress(OSError), rota.connected() as sock:
            wants = {"agents": [f"a{n}"], "types": ["x", "y"], "waitMs": WAIT_MS}
            sock.sendall(request("/v1/leases", {"workerId": f"w{n}", **wants}))
            until(is_waiting(rota, f"w{n}"))
    until(lambda: not any(row["waiting"] for row in workers(rota).values()))

    def left(server: Any) -> tuple[int, int, int]:
        lending = body_of(server.shard.dispatcher)._lending
        return len(lending._lines), len(lending._by_worker), len(lending)

    assert rota.inside(left) == (0, 0, 0)
