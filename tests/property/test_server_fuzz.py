"""Whatever bytes a server sends, a request ends as an answer or as a clear error, and without the key."""

import json
import random
from collections import Counter

import pytest

from toy_server import completion, raw_server
from vcsd.errors import RunError
from vcsd.evaluation.asking.chat import ChatClient, RefusedError

NUM_REPLIES = 400
KEY = "sk-test-0123456789abcdef"
VALUES = [None, True, 0, -1, 1e308, "", KEY, "x" * 3000, [], {}, [[]], {"a": KEY}, "\ud800", "\x1b[31m", 10**30]
STATUSES = [
    *["200 OK"] * 16,
    *["204 x", "206 x", "100 Continue", f"400 {KEY}", "413 x", f"500 \x1b{KEY}", "301 x", "302 x", "304 x", "401 x"],
    *["999 x", "abc x", "", "429 x", "-1 x", "200", "600 x"],
]
LOCATIONS = ["/x", "http://127.0.0.1:1/", "http://[::1", f"//other/{KEY}", "javascript:x", "", "\x1b", "http://h:99999"]


def mutated_reply(rng, value):
    if rng.random() < 0.1:
        return rng.choice(VALUES)
    if isinstance(value, dict):
        return {
            rng.choice([name, name, KEY]): mutated_reply(rng, item)
            for name, item in value.items()
            if rng.random() > 0.05
        }
    if isinstance(value, list):
        return [mutated_reply(rng, item) for item in value for _ in range(rng.choice([1, 1, 1, 0, 2]))]
    return value


def hostile_reply(rng):
    """A reply with a mutated body, and a status and headers that may not fit it."""
    body = json.dumps(mutated_reply(rng, completion(rng.choice(["A", KEY]), reasoning_content="so"))).encode()
    if rng.random() < 0.2:
        body = rng.randbytes(rng.randrange(200))
    head = [f"{rng.choice(['HTTP/1.1'] * 9 + ['HTTP/1.0', 'HTTP/9.9', 'ICY', ''])} {rng.choice(STATUSES)}"]
    if rng.random() < 0.6:
        head.append(f"Content-Length: {rng.choice([*[len(body)] * 5, 0, len(body) + 5, -3, 'x', 10**30])}")
    elif rng.random() < 0.4:
        head.append("Transfer-Encoding: chunked")
        whole = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        body = rng.choice([whole, b"zz\r\n", b"FFFFFFFFFF\r\n" + body, b"5\r\nab", b"-5\r\nabc\r\n", b"-1\r\n" + body])
    if rng.random() < 0.3:
        head.append(f"Location: {rng.choice(LOCATIONS)}")
    if rng.random() < 0.2:
        head.append(f"Retry-After: {rng.choice(['0', 'x', chr(0xB2), '9' * 5000, '-1', '1e5'])}")
    head += ["X: y"] * rng.choice([0] * 9 + [150])
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


@pytest.mark.parametrize("seed", [0, 1])
def test_any_reply_is_an_answer_or_a_clear_error_without_the_key(seed):
    rng, outcomes = random.Random(seed), Counter()
    reply = [b""]
    with raw_server(lambda connection, request: connection.sendall(reply[0])) as (url, _):
        client = ChatClient(url, api_key=KEY, num_tries=1, sleep=lambda seconds: None, timeout=60)
        for _ in range(NUM_REPLIES):
            reply[0] = hostile_reply(rng)
            try:
                shown = str(client.complete({"max_tokens": 10}))
                outcomes["answer"] += 1
            except (RunError, RefusedError) as error:
                shown = str(error)
                outcomes[type(error).__name__] += 1
            assert KEY not in shown
            assert len(shown) < 5000
    assert min(outcomes[name] for name in ("answer", "RunError", "RefusedError")) > 0
