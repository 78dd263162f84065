"""How long can one body keep everybody else waiting?

Each body is within the size that is taken, and made to be slow to look at: more values, unknown
keys, bad items or dependencies than anybody needs. Beside it /health/live is asked all the time;
the figure is its longest wait.
"""

import contextlib
import time

import orjson
from common import RawClient, request_bytes, rota_server, temp_folder
from watch import stalls

STALL_MS_MAX = 100
AGENT = b'{"agentId":"a","action":"waits",'
TIMES = 3


def _status_of(port, request):
    """Send a request on a connection of its own; the server may hang up before all of it came."""
    client = RawClient(port)
    with contextlib.suppress(OSError):
        client.sock.sendall(request)
    answer = b""
    with contextlib.suppress(OSError):
        answer = client.sock.recv(1 << 16)
    client.close()
    return int(answer[9:12] or 0)


def _text(path, raw):
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n"
        f"Idempotency-Key: k{len(raw)}\r\n\r\n"
    )
    return head.encode() + raw


def _keys(count):
    return b",".join(b'"k%d":1' % n for n in range(count))


def _batch(tasks):
    return orjson.dumps({"agentId": "a", "tasks": tasks})


def bodies():
    """Give each body by what it is."""
    odd = {"action": "waits", **{f"k{n}": 1 for n in range(300)}}
    edges = [
        {"action": "waits", "dependsOn": [f"x{i}-{j}" for j in range(1000)]} for i in range(20)
    ]
    yield "380,000 unknown keys", "/v1/tasks", AGENT + _keys(380_000) + b"}"
    yield "90,000 unknown keys", "/v1/tasks", AGENT + _keys(90_000) + b"}"
    yield "90,000 unknown keys of retry", "/v1/tasks", AGENT + b'"retry":{' + _keys(90_000) + b"}}"
    yield "1,000 x 300 unknown keys", "/v1/batches", _batch([odd] * 1000)
    yield "300 x 300 unknown keys", "/v1/batches", _batch([odd] * 300)
    yield "1.3 million bad items", "/v1/batches", b'{"tasks":[' + b"1," * 1_300_000 + b"1]}"
    yield "90,000 bad items", "/v1/batches", b'{"tasks":[' + b"1," * 90_000 + b"1]}"
    yield "90,000 bad items, bare", "/tasks/batch", b'{"tasks":[' + b"1," * 90_000 + b"1]}"
    lists = b'"params":{"x":[' + b"[]," * 1_300_000 + b"1]}}"
    yield "1.3 million empty lists", "/v1/tasks", AGENT + lists
    lists = b'"params":{"x":[' + b"[]," * 45_000 + b"1]}}"
    yield "45,000 empty lists", "/v1/tasks", AGENT + lists
    yield "4 MB of commas", "/v1/tasks", AGENT + b'"params":{"x":"' + b"," * 4_000_000 + b'"}}'
    yield "20,000 unknown dependencies", "/v1/batches", _batch(edges)
    job = b'{"jobType":"x","payload":{' + _keys(90_000) + b"}}"
    yield "90,000 keys of a job", "/api/jobs", job
    many = b'{"instruction":"x","llmConfig":{' + _keys(90_000) + b"}}"
    yield "90,000 keys of a chat", "/tasks", many


def cases():
    with temp_folder() as folder, rota_server(folder) as (port, _):
        for what, path, raw in bodies():
            request = _text(path, raw)
            with stalls(port) as waits:
                time.sleep(0.2)
                for _ in range(TIMES):
                    status = _status_of(port, request)
                    time.sleep(0.1)
            yield f"{what} ({len(raw) / 1e6:.1f} MB, {status})", max(waits), "ms", STALL_MS_MAX
        ended = _ended(port, 5000)
        request = request_bytes("/v1/batches", orjson.loads(_batch(ended)))
        client = RawClient(port)
        with stalls(port) as waits:
            time.sleep(0.2)
            status, _ = client.call(request)
            time.sleep(0.1)
        client.close()
        yield f"5,000 dependencies on ended tasks ({status})", max(waits), "ms", STALL_MS_MAX
        for count in (2500, 9800):
            yield f"{count:,} placeholders of 398 dots", _dots(port, count), "ms", STALL_MS_MAX


def _dots(port, count):
    """Have placeholders that are long paths filled in; give the longest wait of others."""
    filled = {"action": "echo", "params": {"x": ["{{" + "." * 398 + "}}"] * count}}
    tasks = [{"action": "echo", "ref": "a"}, {**filled, "dependsOn": ["ref:a"]}]
    request = request_bytes("/v1/batches", {"agentId": "c", "tasks": tasks})
    client = RawClient(port)
    with stalls(port) as waits:
        for _ in range(TIMES):
            status, answer = client.call(request)
            assert status == 202, answer
            last = orjson.loads(answer)["tasks"][1]["taskId"]
            task = client.get(f"/v1/tasks/{last}?waitMs=10000")
            assert task["state"] in ("succeeded", "failed"), task["state"]
    client.close()
    return max(waits)


def _ended(port, count):
    """Have many tasks that ended, and give others that depend on them."""
    client = RawClient(port)
    ids = []
    for _ in range(count // 500):
        body = {"agentId": "b", "tasks": [{"action": "echo"}] * 500}
        status, answer = client.call(request_bytes("/v1/batches", body))
        assert status == 202, answer
        ids += [task["taskId"] for task in orjson.loads(answer)["tasks"]]
    client.close()
    time.sleep(2)
    return [
        {"action": "waits", "dependsOn": ids[at : at + 1000]} for at in range(0, len(ids), 1000)
    ]
