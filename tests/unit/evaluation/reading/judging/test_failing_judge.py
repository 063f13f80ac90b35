"""One answer on which the judge's server fails is counted and asked again; a server that is down stops the scoring."""

import json
import threading

import pytest

from tiny_answers import option, say
from toy_server import completion, toy_server
from vcsd.errors import RunError
from vcsd.evaluation.asking.judge_client import JudgeClient
from vcsd.evaluation.reading.judging.judge import Judge, servers_in
from vcsd.evaluation.scoring.compare import compare
from vcsd.evaluation.scoring.score_predictions import score
from vcsd.evaluation.scoring.terminal_tables import comparison_remarks, remarks

OPEN = "Looking at it closely one would rather think of the colour of grass in spring, I suppose, says"
QUESTIONS = [option(f"q{n:02}", "B", category="x") for n in range(40)]
POISON = ("q07", "q23")
CRASH = (500, {"error": "CUDA error"})


def words(request):
    return request["messages"][0]["content"]


def is_about(request, names):
    return any(f"says {name}" in words(request) for name in names)


def fails_on(names):
    return lambda request: CRASH if is_about(request, names) else (200, completion("B"))


def judge_at(url, cache, model="reader"):
    return Judge(JudgeClient(url, num_tries=2, sleep=lambda seconds: None), model, cache=cache)


def scored(judge, questions=QUESTIONS):
    return score(questions, [say(q.id, f"{OPEN} {q.id}") for q in questions], mode="judge", judge=judge)


def test_answers_on_which_the_server_fails_are_counted_and_the_others_judged(tmp_path):
    cache = tmp_path / "judge.jsonl"
    with toy_server(fails_on(POISON)) as server:
        judge = judge_at(server.url, cache)
        counts = scored(judge).benchmarks["BLINK"].counts
    assert (counts.judged, counts.judge_failed, counts.unresolved) == (38, 2, 2)
    assert sorted(judge.failures) == [("BLINK", name) for name in POISON]
    records = [json.loads(line) for line in cache.read_text().splitlines()]
    failed = {record["question"]: record["said"] for record in records if "failure" in record}
    assert sorted(failed) == list(POISON)
    assert all(said.startswith('status 500: {"error": "CUDA error"}') for said in failed.values())


def test_failures_are_listed_by_reason(tmp_path):
    def reply(request):
        if is_about(request, ["q01"]):
            return 200, completion("")
        return CRASH if is_about(request, ["q07", "q08", "q09", "q10"]) else (200, completion("B"))

    with toy_server(reply) as server:
        judge = judge_at(server.url, tmp_path / "judge.jsonl")
        scored(judge)
    first, second = judge.failure_lines()
    assert first == "The judge failed on BLINK 'q01': empty"
    assert second.startswith("The judge failed on BLINK 'q07', BLINK 'q08', BLINK 'q09' and 1 more: status 500:")


def test_scoring_again_asks_only_the_failed_ones_even_if_all_of_these_fail_again(tmp_path):
    cache = tmp_path / "judge.jsonl"
    many = [question.id for question in QUESTIONS[::2]]
    with toy_server(fails_on(many)) as server:
        scored(judge_at(server.url, cache))
    for poison in (many, many[:2], ()):
        with toy_server(fails_on(poison)) as server:
            counts = scored(judge_at(server.url, cache)).benchmarks["BLINK"].counts
        assert (counts.judged, counts.judge_failed) == (40 - len(poison), len(poison))
        assert not [request for request in server.requests if is_about(request, [q.id for q in QUESTIONS[1::2]])]
    with toy_server(fails_on([q.id for q in QUESTIONS])) as server:
        assert scored(judge_at(server.url, cache)).acc == 100.0
    assert server.requests == []


@pytest.mark.parametrize("num", [2, 40])
def test_a_server_that_always_fails_stops_the_scoring_however_few_the_answers(tmp_path, num):
    with toy_server(lambda request: (503, "busy")) as server, pytest.raises(RunError, match=r"status 503: busy\."):
        scored(judge_at(server.url, tmp_path / "judge.jsonl"), QUESTIONS[:num])


def test_a_server_that_says_ok_but_judges_nothing_is_still_an_error(tmp_path):
    with toy_server(fails_on([q.id for q in QUESTIONS])) as server, pytest.raises(RunError) as raised:
        scored(judge_at(server.url, tmp_path / "judge.jsonl"))
    assert "gave no reply that can be read to the first 16 answers (refused: status 500" in str(raised.value)


def test_a_server_that_goes_down_stops_the_scoring_and_its_replies_are_kept(tmp_path):
    cache, lock, num_replies = tmp_path / "judge.jsonl", threading.Lock(), 0

    def reply(request):
        nonlocal num_replies
        with lock:
            num_replies += 1
            return (200, completion("B")) if num_replies <= 10 else (503, "down")

    with toy_server(reply) as server, pytest.raises(RunError, match=r"status 503: down\. .*the same command resumes"):
        scored(judge_at(server.url, cache))
    num_kept = cache.read_text().count('"reply"')
    assert 1 <= num_kept <= 10
    assert '"failure"' not in cache.read_text()
    with toy_server(fails_on(())) as server:
        assert scored(judge_at(server.url, cache)).acc == 100.0
    assert len(server.requests) == 40 - num_kept


def test_replies_are_shared_between_servers_and_the_summary_says_so(tmp_path):
    cache = tmp_path / "judge.jsonl"
    urls = []
    for num in (20, 40):
        with toy_server(fails_on(())) as server:
            card = scored(judge_at(server.url, cache), QUESTIONS[:num])
            assert len(server.requests) == 20
            urls.append(server.url)
    assert servers_in(cache, "reader") == card.made_with["judge"]["servers"] == sorted(urls)
    (line,) = [line for line in remarks(card) if "servers" in line]
    assert line.startswith(f"judge.jsonl holds replies of 2 servers, treated as one judge: {', '.join(sorted(urls))}.")


def test_replies_of_one_server_of_another_model_and_of_older_releases_are_not_mixed(tmp_path):
    cache = tmp_path / "judge.jsonl"
    with toy_server(fails_on(())) as server:
        scored(judge_at(server.url, cache), QUESTIONS[:20])
    records = [json.loads(line) for line in cache.read_text().splitlines()]
    assert {record.pop("server") for record in records} == {server.url}
    cache.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    with toy_server(fails_on(())) as server:
        card = scored(judge_at(server.url, cache))
        assert len(server.requests) == 20  # older records are read
        assert servers_in(cache, "reader") == [server.url]
        assert servers_in(cache, "other") == []
    assert "servers" not in card.made_with["judge"]
    assert not [line for line in remarks(card) if "servers" in line]


def test_a_comparison_says_that_the_judge_failed_on_some_answers(tmp_path):
    with toy_server(fails_on(POISON)) as server:
        first = scored(judge_at(server.url, tmp_path / "judge.jsonl"))
    with toy_server(fails_on(())) as server:
        second = scored(judge_at(server.url, tmp_path / "judge.jsonl"))
    comparison = compare(first, second)
    assert comparison.acc.difference == 5.0
    said = "The judge failed on some answers, which count as wrong: 2 of the first result, 0 of the second."
    assert [line for line in comparison_remarks(comparison) if line.startswith(said)]
    assert not [line for line in comparison_remarks(compare(second, second)) if "failed" in line]


def test_the_summary_counts_one_failed_answer_in_good_english(tmp_path):
    with toy_server(fails_on(POISON[:1])) as server:
        card = scored(judge_at(server.url, tmp_path / "judge.jsonl"))
    said = (
        "The judge failed on 1 answer (BLINK 1), counted as wrong; judge.jsonl has the reasons. The same command asks"
    )
    assert [line for line in remarks(card) if line.startswith(said)]
