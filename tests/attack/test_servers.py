"""Replies of a hostile server: an answer or a clear error, of limited size and without the key."""

import math
from types import SimpleNamespace

import pytest
import torch
from test_server_fuzz import KEY, hostile_reply

from attacker import MAX_MESSAGE, mutated, rng_of, value
from toy_server import raw_server
from vcsd.errors import RunError
from vcsd.evaluation.asking.chat import ChatClient, RefusedError
from vcsd.rollout.vllm.server_target import to_reply
from vcsd.rollout.vllm.vllm_requests import refuse_other_prompt, refuse_unknown_tokens, to_rollout, token_log_probs

NUM_REPLIES = 1200
NUM_BATCHES = 3000


@pytest.mark.parametrize("num_tries", [1, 2])
def test_a_hostile_reply_leaks_no_key_and_follows_no_redirect(tally, num_tries):
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


END, IMAGE, VOCABULARY, MOST = 2, 9, 12, 4
PROMPT = SimpleNamespace(example_id="a", input_ids=torch.tensor([1, 3]))


def hostile_rollouts(rng):
    """The reply of a rollout server, with something changed or replaced."""
    length = rng.randint(1, MOST)
    ids = [rng.choice((3, 4, 5, 11)) for _ in range(length - 1)] + [END]
    if rng.random() < 0.3:
        ids[rng.randrange(length)] = rng.choice(
            (-1, IMAGE, VOCABULARY, 2**63, 10**400, 1.5, True, None, "4", value(rng))
        )
    logs = {"content": [{"logprob": rng.choice((-0.5, -0.5, 0, -1e30, "x", None, 10**400, math.nan))} for _ in ids]}
    choice = {"index": rng.choice((0, 0, 0, -1, "0", value(rng))), "token_ids": ids, "finish_reason": "stop"}
    choice |= {"logprobs": logs} if rng.random() < 0.5 else {}
    reply = {"prompt_token_ids": [1, 3], "choices": [choice]}
    return reply if rng.random() < 0.3 else mutated(rng, reply, 0.08)


def test_a_hostile_rollout_is_refused_or_made_of_known_tokens(tally):
    """What a rollout server sends is a rollout that the student could have drawn, or a clear error."""
    for number in range(NUM_BATCHES):
        given = hostile_rollouts(rng_of("rollouts", number))
        with tally.case(given):
            reply = to_reply(given)
            refuse_other_prompt(PROMPT, reply.prompt_token_ids)
            for index, output in enumerate(reply.outputs):
                rollout = to_rollout(output, "a", index, [END], [IMAGE], MOST)
                refuse_unknown_tokens(rollout, VOCABULARY)
                assert all(type(token) is int and 0 <= token < VOCABULARY for token in rollout.token_ids)
                assert IMAGE not in rollout.token_ids
                if output.logprobs is not None:
                    assert all(map(math.isfinite, token_log_probs(output)))
            tally.note("rollout")
    assert min(tally.counts[name] for name in ("rollout", "RunError")) > 0
