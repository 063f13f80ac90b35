"""Replies of a hostile server: an answer or a clear error, of limited size and without the key."""

import pytest
from test_server_fuzz import KEY, hostile_reply

from attacker import MAX_MESSAGE, rng_of
from toy_server import raw_server
from vcsd.errors import RunError
from vcsd.evaluation.asking.chat import ChatClient, RefusedError

NUM_REPLIES = 1200


@pytest.mark.parametrize("num_tries", [1, 2])
def test_replies(tally, num_tries):
    reply = [b""]
    with raw_server(lambda connection, request: connection.sendall(reply[0])) as (url, requests):
        client = ChatClient(url, api_key=KEY, num_tries=num_tries, sleep=lambda seconds: None, timeout=60)
        for number in range(NUM_REPLIES):
            reply[0] = hostile_reply(rng_of(f"replies {num_tries}", number))
            before = len(requests)
            with tally.case(reply[0]):
                try:
                    shown = str(client.complete({"max_tokens": 10}))
                    tally.note("answer")
                except (RunError, RefusedError) as error:
                    shown = str(error)
                    raise
                finally:
                    # A redirect is never followed with a key, so no reply causes more requests than tries.
                    assert len(requests) - before <= num_tries
            assert KEY not in shown
            assert len(shown) < MAX_MESSAGE
    assert min(tally.counts[name] for name in ("answer", "RunError", "RefusedError")) > 0
