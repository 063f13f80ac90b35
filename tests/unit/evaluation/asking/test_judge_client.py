"""A request that alone fails is told from a server that is down."""

import pytest

from toy_server import completion, raw_server, toy_server
from vcsd.errors import RunError
from vcsd.evaluation.asking.chat import NoAnswerError
from vcsd.evaluation.asking.judge_client import NUM_PROBES, PROBE, JudgeClient

REQUEST = {"model": "reader", "max_tokens": 7, "messages": [{"role": "user", "content": "poison"}]}


def client(url, **settings):
    return JudgeClient(url, **{"num_tries": 4, "sleep": lambda seconds: None, **settings})


def words(request):
    return request["messages"][0]["content"]


def fails_on_poison(failure):
    return lambda request: failure if words(request) == "poison" else (200, completion("OK"))


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ((500, {"error": "CUDA error"}), 'status 500: {"error": "CUDA error"}'),
        ((502, "<html>"), "status 502"),
        ((429, "slow down"), "status 429"),
        ((200, "<html>"), "not JSON"),
        ((200, None), "cannot be reached"),  # the server hangs up
    ],
)
def test_a_request_that_alone_fails_is_no_failure_of_the_server(failure, said):
    with toy_server(fails_on_poison(failure)) as server, pytest.raises(NoAnswerError) as raised:
        client(server.url).complete(REQUEST)
    assert said in str(raised.value)
    assert "Every try failed, but the server answers other questions." in str(raised.value)
    assert "resumes" not in str(raised.value)
    assert [words(request) for request in server.requests] == ["poison"] * 4 + [PROBE]


def test_the_probe_is_sent_with_the_settings_of_the_request():
    with toy_server(fails_on_poison((500, {}))) as server, pytest.raises(NoAnswerError):
        client(server.url, api_key="secret").complete(REQUEST)
    assert {**server.requests[-1], "messages": None} == {**REQUEST, "messages": None}
    assert server.headers[-1]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("probe", [(500, {}), (400, {}), (401, {}), (200, {"error": "overloaded"})])
def test_a_server_that_does_not_answer_the_probe_is_down(probe):
    with (
        toy_server(lambda request: (503, "busy") if words(request) == "poison" else probe) as server,
        pytest.raises(RunError, match=r"status 503: busy\. That was try 4 of 4\. Answers so far are kept") as raised,
    ):
        client(server.url).complete(REQUEST)
    assert not isinstance(raised.value, NoAnswerError)
    assert len(server.requests) <= 4 + NUM_PROBES


def test_a_server_that_is_gone_is_down():
    with toy_server(fails_on_poison((500, {}))) as server:
        pass
    with pytest.raises(RunError, match="cannot be reached") as raised:
        client(server.url).complete(REQUEST)
    assert not isinstance(raised.value, NoAnswerError)


def test_a_wrong_key_stops_at_once():
    with toy_server(lambda request: (401, "no")) as server, pytest.raises(RunError, match="status 401"):
        client(server.url).complete(REQUEST)
    assert len(server.requests) == 1


def test_a_server_that_is_too_slow_is_not_probed():
    def never_answers(connection, request):
        while connection.recv(2**16):
            pass

    with (
        raw_server(never_answers) as (url, requests),
        pytest.raises(RunError, match=r"no complete answer within 0\.2 seconds") as raised,
    ):
        client(url, timeout=0.2).complete(REQUEST)
    assert not isinstance(raised.value, NoAnswerError)
    assert len(requests) == 2
