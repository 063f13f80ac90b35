"""`vcsd eval` on a tiny model and stand-ins for the seven benchmarks, from files to files; and inside `vcsd train`."""

import json
import sys

import pytest

from tiny_examples import picture
from tiny_models import build_model
from tiny_processor import write_processor_files
from tiny_step import make_trainer
from toy_benchmarks import ROWS, coded, write_parquets, write_tsv, write_tsvs
from toy_server import completion, toy_server
from vcsd.cli import app
from vcsd.evaluation.scoring.scorecard import load_scorecard

pytestmark = pytest.mark.e2e

SHORT = ("--sampling", "paper,max_new_tokens=6", "--mode", "exact", "--allow-unknown-data")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two models, and the data in both kinds of files."""
    folder = tmp_path_factory.mktemp("e2e")
    for name, seed in (("model", 0), ("other", 1)):
        build_model(seed=seed).save_pretrained(folder / name)
        write_processor_files(folder / name)
    write_tsvs(folder / "data")
    return folder


def vcsd(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["vcsd", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        app.main()
    shown = capsys.readouterr()
    return stop.value.code, shown.out, shown.err


def test_all_seven_give_a_table_row_and_nothing_is_asked_twice(folder, monkeypatch, capsys):
    command = ("eval", folder / "model", "--data", folder / "data", "--out", folder / "a", *SHORT)
    code, out, err = vcsd(monkeypatch, capsys, *command)
    assert code == 0, err
    assert all(f"{len(rows)}/" in out for rows in ROWS.values())
    assert "Acc" in out
    predictions = (folder / "a" / "predictions.jsonl").read_bytes()
    assert len(predictions.splitlines()) == sum(map(len, ROWS.values()))
    (folder / "a" / "predictions.jsonl").write_bytes(predictions[:-40])
    code, again, err = vcsd(monkeypatch, capsys, *command)
    assert code == 0, err
    assert again == out
    assert (folder / "a" / "predictions.jsonl").read_bytes() == predictions
    card = load_scorecard(folder / "a" / "scorecard.json")
    assert list(card.benchmarks) == list(ROWS)


def test_two_models_are_compared(folder, monkeypatch, capsys):
    for name in ("model", "other"):
        command = ("eval", folder / name, "--data", folder / "data", "--out", folder / f"{name}-v")
        code, _, err = vcsd(monkeypatch, capsys, *command, "--benchmarks", "VStarBench", *SHORT)
        assert code == 0, err
    pair = (folder / "model-v", folder / "other-v" / "scorecard.json")
    code, out, err = vcsd(monkeypatch, capsys, "eval", "--compare", *pair, "--out", folder / "compared")
    assert code == 0, err
    assert "model-v" in out
    assert "change" in out
    assert "All settings are the same; only the model differs." in " ".join(out.split())
    assert "{" not in out
    assert max(len(line.rstrip()) for line in out.splitlines() if str(folder) not in line) <= 80
    found = json.loads((folder / "compared" / "comparison.json").read_text())
    assert found["acc"]["difference"] == found["acc"]["b"] - found["acc"]["a"]


def test_parquet_files_and_a_limit(folder, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    write_parquets(folder / "parquet")
    command = ("eval", folder / "model", "--data", folder / "parquet", "--out", folder / "p", "--limit", 2)
    code, out, err = vcsd(monkeypatch, capsys, *command, *SHORT)
    assert code == 0, err
    assert len((folder / "p" / "predictions.jsonl").read_text().splitlines()) == 18  # pairs are asked whole
    assert "2/1901" in out


def test_a_server_is_asked_in_the_same_way(folder, monkeypatch, capsys):
    monkeypatch.setenv("VCSD_API_KEY", "key")
    with toy_server(lambda request: (200, completion("A")), models={"toy": {}}) as server:
        command = ("eval", "toy", "--server", server.url, "--data", folder / "data", "--out", folder / "s")
        code, _, err = vcsd(monkeypatch, capsys, *command, "--benchmarks", "BLINK", "--no-thinking", *SHORT)
        assert code == 0, err
        request = server.requests[0]
        assert (request["max_tokens"], request["presence_penalty"], request["top_k"]) == (6, 1.5, 20)
        assert request["chat_template_kwargs"] == {"enable_thinking": False}
        assert server.headers[0]["Authorization"] == "Bearer key"
        code, _, err = vcsd(monkeypatch, capsys, *command, "--max-pixels", 9, *SHORT)
        assert code == 2
        assert "has no effect on a server" in err
    golds = [row["answer"] for row in ROWS["BLINK"]]
    assert load_scorecard(folder / "s" / "scorecard.json").acc == 100 * golds.count("A") / len(golds)


def test_a_hostile_server_neither_learns_nor_shows_a_key_nor_writes_to_the_terminal(folder, monkeypatch, capsys):
    key, hostile = "sk-echo-0123456789", "\x1b[31m\u202e\x9b"
    monkeypatch.setenv("VCSD_API_KEY", key)
    monkeypatch.setenv("VCSD_JUDGE_KEY", key)

    def reply(request):
        if len(server.requests) == 1:
            return 400, f"no: {key}{hostile}"
        is_judge = isinstance(request["messages"][-1]["content"], str)
        return 200, completion("A" if is_judge else f"The first one fits. {key}{hostile}", reasoning_content=key)

    out = folder / "x[/red][bold]"
    with toy_server(reply, models={"toy": {"root": f"{key}{hostile}"}}) as server:
        url = f"{server.url}?api_key={key}"
        command = ("eval", "toy", "--server", url, "--data", folder / "data", "--out", out, "--benchmarks", "BLINK")
        judged = ("--mode", "judge", "--judge", "toy", "--judge-server", url, "--allow-failed", "--allow-unknown-data")
        code, shown, err = vcsd(monkeypatch, capsys, *command, *judged)
    assert code == 0, err
    assert f"are in {out}." in shown
    files = {
        path: path.read_text(encoding="latin-1" if path.suffix == ".jpg" else "utf-8")
        for path in out.rglob("*")
        if path.is_file()
    }
    assert {"scorecard.json", "predictions.jsonl", "report.html", "judge.jsonl"} <= {path.name for path in files}
    assert [path for path, content in files.items() if key in content] == []
    assert key not in shown + err
    assert not set(hostile[0] + hostile[5:]) & set(shown + err + files[out / "report.html"])


def test_a_judge_reads_what_the_rules_leave_open_and_is_asked_once(folder, monkeypatch, capsys):
    def reply(request):
        asked = request["messages"][-1]["content"]
        return 200, completion("I think the first one fits." if not isinstance(asked, str) else "A")

    with toy_server(reply) as server:
        command = ("eval", "toy", "--server", server.url, "--data", folder / "data", "--out", folder / "j")
        judged = ("--mode", "judge", "--judge", "wise", "--judge-server", server.url, "--allow-unknown-data")
        code, _, err = vcsd(monkeypatch, capsys, *command, "--benchmarks", "BLINK", *judged)
        assert code == 0, err
        assert len(server.requests) == 8
        code, _, err = vcsd(monkeypatch, capsys, *command, "--benchmarks", "BLINK", *judged)
        assert code == 0, err
        assert len(server.requests) == 8
    card = load_scorecard(folder / "j" / "scorecard.json")
    golds = [row["answer"] for row in ROWS["BLINK"]]
    assert card.acc == 100 * golds.count("A") / len(golds)
    assert card.made_with["judge"]["model"] == "wise"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "MODEL is missing"),
        (("m", "--compare", "a", "b"), "does not ask 'm'"),
        (("--compare", "a", "b", "--mode", "exact"), "--mode would be ignored. Omit it, or score"),
        (("--compare", "a", "b"), "there is no scorecard at a"),
        (("m", "--decode", "beam", "--data", "."), "Choose plain or contrast"),
        (("m", "--decode", "contrast", "--server", "http://localhost:1/v1", "--data", "."), "Omit --server"),
        (("m", "--engine", "jax", "--data", "."), "Choose transformers or vllm"),
        (("m", "--engine", "vllm", "--server", "http://localhost:1/v1", "--data", "."), "is not an address such as"),
        (("m", "--benchmarks", "BLNK", "--data", "."), "Did you mean 'BLINK'"),
        (("m", "--data", "/nowhere/at/all"), "does not exist"),
        (("m", "--data", "."), "BLINK is not in ."),
        (("m", "--mode", "exakt"), "mode = 'exakt' is not a way to score"),
        (("m", "--mode", "judge"), "--mode judge needs --judge MODEL and --judge-server URL"),
        (("m", "--judge", "j"), "are for --mode judge, but the mode is 'exact'"),
        (("m", "--seeds", "0,x"), "seeds = '0,x' is not a list of numbers"),
        (("m", "--sampling", "papr"), "Did you mean 'paper'"),
        (("m", "--server", "localhost"), "server = 'localhost' is not an address"),
        (("m", "--batch-size", "0"), "--batch-size"),
        (("/nowhere/at/all",), "model = '/nowhere/at/all': there is no such folder. Give one, or a hub id"),
    ],
)
def test_what_cannot_be_done_is_said_without_a_traceback(folder, monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    given = [str(word) for word in arguments]
    if given and not given[0].startswith("--") and "--data" not in given and "--compare" not in given:
        given += ["--data", str(folder / "data"), "--allow-unknown-data"]
    if "--mode" not in given and "--compare" not in given:
        given += ["--mode", "exact"]
    code, _, err = vcsd(monkeypatch, capsys, "eval", *given)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_mistyped_model_is_told_before_questions_are_loaded(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    monkeypatch.setattr("vcsd.cli.eval_command._questions", lambda *_: pytest.fail("questions were loaded"))
    code, _, err = vcsd(monkeypatch, capsys, "eval", "runs/frist", "--benchmarks", "world")
    assert code == 2
    assert "model = 'runs/frist': there is no such folder in 'runs'" in err


def test_a_comparison_that_cannot_be_written_is_told(folder, monkeypatch, capsys, tmp_path):
    command = ("eval", folder / "model", "--data", folder / "data", "--out", tmp_path / "a", "--limit", 1)
    code, _, err = vcsd(monkeypatch, capsys, *command, "--benchmarks", "MMStar", *SHORT)
    assert code == 0, err
    (tmp_path / "file").write_text("")
    code, out, err = vcsd(
        *(monkeypatch, capsys, "eval", "--compare", tmp_path / "a", tmp_path / "a", "--out", tmp_path / "file")
    )
    assert code == 2
    assert "change" in out
    assert "the comparison cannot be written" in err


def test_ctrl_c_says_that_answers_are_kept(folder, monkeypatch, capsys, tmp_path):
    def interrupt(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("vcsd.evaluation.evaluate.ask", interrupt)
    command = ("eval", folder / "model", "--data", folder / "data", "--out", tmp_path / "c")
    code, _, err = vcsd(monkeypatch, capsys, *command, *SHORT)
    assert code not in (0, None)
    assert "Answers so far are kept; the same command resumes" in err
    assert "Traceback" not in err


def test_a_folder_without_weights_says_what_to_give_instead(folder, monkeypatch, capsys, tmp_path):
    write_processor_files(tmp_path)
    (tmp_path / "config.json").write_text((folder / "model" / "config.json").read_text())
    command = ("eval", tmp_path, "--data", folder / "data", "--mode", "exact", "--allow-unknown-data")
    code, _, err = vcsd(monkeypatch, capsys, *command)
    assert code == 2
    assert "cannot be loaded" in err
    assert "pass the folder from vcsd export" in err


def test_unknown_data_is_refused_by_default(folder, monkeypatch, capsys):
    code, _, err = vcsd(monkeypatch, capsys, "eval", folder / "model", "--data", folder / "data", "--mode", "exact")
    assert code == 2
    assert "published is d5e8af148b10ac69f535ff7b23f3f989" in err
    assert "--allow-unknown-data" in err


def test_a_recipe_examines_the_student_while_it_is_trained(folder, monkeypatch, capsys):
    picture(64, 64).save(folder / "0.png")
    rows = [{"id": f"row-{n}", "question": f"how many, {n}?", "image": "0.png"} for n in range(4)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "recipe.yaml").write_text(
        f"""
model: {{path: {folder}/model}}
data: {{path: {folder}/train.jsonl}}
rollout: {{num_per_prompt: 2, max_new_tokens: 6}}
prompts_per_step: 2
token_budget: 4000
evaluation: {{every: 2, benchmarks: [VStarBench, HallusionBench], data: {folder}/data, limit: 3, mode: exact,
             sampling: "paper,max_new_tokens=6", allow_unknown_data: true}}
trainer: {{max_steps: 3, save_steps: 2, learning_rate: 1e-3, use_cpu: true, bf16: false, output_dir: {folder}/run}}
"""
    )
    code, out, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml", "--dry-run")
    assert code == 0, err
    assert "5 questions before the first step, every 2 steps and at the end" in " ".join(out.split())
    code, _, err = vcsd(monkeypatch, capsys, "train", folder / "recipe.yaml")
    assert code == 0, err
    lines = [json.loads(line) for line in (folder / "run" / "evaluation.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 2, 3]
    assert list(lines[0]["benchmarks"]) == ["VStarBench", "HallusionBench"]
    metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert ["evaluation/acc" in line for line in metrics] == [False, True, True]
    assert metrics[1]["evaluation/VStarBench"] == lines[1]["benchmarks"]["VStarBench"]["entry"]
    assert {path.name for path in (folder / "run" / "evaluation").iterdir()} == {f"step-{n}.jsonl" for n in (0, 2, 3)}


def test_a_recipe_asks_own_questions_too(folder, tmp_path, monkeypatch, capsys):
    """Greedy answers before the first step are known, so that three of four golds are made right by hand."""
    monkeypatch.chdir(tmp_path)
    rows = [{"index": str(number), "image": coded(number), "question": f"What, {number}?"} for number in range(4)]
    write_tsv(tmp_path / "mine.tsv", [{**row, "answer": "red"} for row in rows])
    greedy = "greedy,max_new_tokens=6"
    command = ("eval", folder / "model", "--tsv", "mine.tsv", "--sampling", greedy, "--out", "before")
    code, _, err = vcsd(monkeypatch, capsys, *command)
    assert code == 0, err
    said = [json.loads(line)["text"] for line in (tmp_path / "before" / "predictions.jsonl").read_text().splitlines()]
    golds = [*said[:3], "red"]
    write_tsv(tmp_path / "mine.tsv", [{**row, "answer": gold} for row, gold in zip(rows, golds, strict=True)])

    picture(64, 64).save(tmp_path / "0.png")
    prompts = [{"id": f"row-{n}", "question": f"how many, {n}?", "image": "0.png"} for n in range(4)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts))
    (tmp_path / "recipe.yaml").write_text(
        f"""
model: {{path: {folder}/model}}
data: {{path: train.jsonl}}
rollout: {{num_per_prompt: 2, max_new_tokens: 6}}
prompts_per_step: 2
token_budget: 4000
trainer: {{max_steps: 2, save_steps: 1, learning_rate: 1e-3, use_cpu: true, bf16: false, output_dir: run}}
"""
    )
    own = ("train", "recipe.yaml", "evaluation.every=1", "evaluation.tsv=mine.tsv", f"evaluation.sampling={greedy}")
    for keys, num in (((), 4), (("evaluation.limit=2",), 2), (("evaluation.benchmarks=world/attributes",), 4 + 512)):
        code, out, err = vcsd(monkeypatch, capsys, *own, *keys, "--dry-run")
        assert code == 0, err
        assert f"{num} questions before the first step, every 1 steps and at the end" in " ".join(out.split())
    code, out, err = vcsd(monkeypatch, capsys, *own)
    assert code == 0, err
    assert "Next: `vcsd eval run --tsv mine.tsv` measures the student" in out
    lines = [json.loads(line) for line in (tmp_path / "run" / "evaluation.jsonl").read_text().splitlines()]
    assert [(line["step"], list(line["benchmarks"])) for line in lines] == [(n, ["mine"]) for n in range(3)]
    assert (lines[0]["acc"], lines[0]["benchmarks"]["mine"]["entry"]) == (75.0, 75.0)
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["evaluation/mine"] for line in metrics] == [line["acc"] for line in lines[1:]]
    assert "mine" in (tmp_path / "run" / "report.html").read_text()


def test_own_questions_are_asked_of_a_model_and_of_a_run_and_compared_on_a_page(
    folder, tmp_path, monkeypatch, capsys, caplog
):
    rows = [
        {"index": str(number), "image": coded(number), "question": "Is it red?", "answer": "Yes"} for number in range(3)
    ]
    file = write_tsv(tmp_path / "mine.tsv", rows)
    make_trainer(tmp_path / "run", arguments={"max_steps": 1, "save_strategy": "steps", "save_steps": 1}).train()
    capsys.readouterr()
    for model, out in ((folder / "model", "a"), (tmp_path / "run", "b")):
        command = ("eval", model, "--tsv", file, "--out", tmp_path / out, "--sampling", "greedy,max_new_tokens=4")
        code, shown, err = vcsd(monkeypatch, capsys, *command)
        assert code == 0, err
        assert "mine" in shown
        assert max(len(line.rstrip()) for line in shown.splitlines() if line.startswith(" ")) <= 80
        assert ("Rounding to bfloat16 may lose small updates" in caplog.text) == (
            out == "b"
        )  # the run computed in float32
    monkeypatch.chdir(tmp_path)
    code, _, err = vcsd(monkeypatch, capsys, "eval", "--compare", tmp_path / "a", tmp_path / "b")
    assert code == 0, err
    page = (tmp_path / "b-against-a" / "report.html").read_text()
    assert "b against a" in page
    assert "gained: " in page
