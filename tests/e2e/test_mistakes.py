"""Mistakes that people make: each ends the command with one sentence and a fix, before weights are loaded.

Those of Python callers are in tests/unit/trainer/test_vcsd_trainer.py and tests/unit/data/test_accept.py.
"""

import base64
import json
import sys

import pytest

from tiny_examples import picture
from vcsd.bases.shipped_bases import shipped_base
from vcsd.cli import app

pytestmark = pytest.mark.e2e

BASE = str(shipped_base("qwen3_vl"))
RECIPE = f"""\
model: {{path: {BASE}}}
data: {{path: train.jsonl}}
prompts_per_step: 2
rollout: {{num_per_prompt: 2, max_new_tokens: 4}}
trainer: {{output_dir: runs/a, max_steps: 1, bf16: false, use_cpu: true}}
"""
QUESTION = "What color is the circle?"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with pictures, a good recipe, and files with one mistake each."""
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "images").mkdir()
    picture(32, 32).save(folder / "images" / "a.png")
    picture(32, 32).save(folder.parent / "outside.png")
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "tab.yaml").write_text("model:\n\tpath: x\n")
    (folder / "list.yaml").write_text("- model\n- data\n")
    (folder / "twice.yaml").write_text(RECIPE + "prompts_per_step: 3\n")
    (folder / "text.txt").write_text("hello")
    (folder / "empty.jsonl").write_text("")
    (folder / "broken.jsonl").write_text("{'prompt': 1}\n" * 3)
    (folder / "object.json").write_text('{"prompt": "?"}')
    (folder / "runs").mkdir()
    (folder / "runs" / "file").write_text("")
    (folder / "only_text").mkdir()
    (folder / "only_text" / "config.json").write_text('{"model_type": "qwen3"}')
    (folder / "nothing").mkdir()
    (folder / "checkpoint-3").mkdir()
    (folder / "checkpoint-3" / "run_state.json").write_text("{}")
    write(folder, "train", image="images/a.png")
    write(folder, "missing", image="img/a.png")
    write(folder, "web", image="https://example.org/a.png")
    write(folder, "outside", image=str(folder.parent / "outside.png"))
    write(folder, "cut", image=base64.b64encode(b"\xff\xd8\xff" + bytes(300)).decode()[:-3])
    write(folder, "number", image=7)
    write(folder, "no_image")
    write(folder, "promt", promt="?", question=None, image="images/a.png")
    write(folder, "twice", id="a", image="images/a.png")
    write(folder, "gold", question=None, messages=[{"role": "assistant", "content": "red"}], image="images/a.png")
    write(folder, "tool", question=None, messages=[{"role": "tool", "content": "red"}], image="images/a.png")
    write(folder, "marks", question="<image><image>?", image="images/a.png")
    write(folder, "both", question=None, image="images/a.png", messages=[
        {"role": "user", "content": [{"type": "image", "image": "images/a.png"}, {"type": "text", "text": "?"}]}
    ])  # fmt: skip
    for name in ("questions", "BLINK"):
        (folder / f"{name}.tsv").write_text("index\tquestion\n1\t?\n")
    add_other_files(folder)
    return folder


def add_other_files(folder):
    """Files that other programs write, or that are taken for something else."""
    (folder / "level.yaml").write_text(RECIPE + "learning_rate: 1e-5\n")
    (folder / "pretty.jsonl").write_text(json.dumps({"question": QUESTION, "image": "images/a.png"}, indent=1) * 3)
    (folder / "wide.jsonl").write_bytes((folder / "train.jsonl").read_text().encode("utf-16"))
    (folder / "latin.jsonl").write_bytes('{"question": "Größe?", "image": "images/a.png"}\n'.encode("cp1252") * 3)
    (folder / "semicolons.csv").write_text("question;image\n" + "What?;images/a.png\n" * 3)
    for name in ("packed.jsonl.gz", "sheet.xlsx"):
        (folder / name).write_bytes(b"PK")
    write(folder, "empty_prompt", question="", image="images/a.png")
    write(folder, "movie", image="movie.mp4")
    (folder / "movie.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(100))
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text("{}")
    header, coded = "index\timage\tquestion\tA\tB\tanswer\n", base64.b64encode((folder / "images/a.png").read_bytes())
    (folder / "letter.tsv").write_text(f"{header}1\t{coded.decode()}\t?\tx\ty\tE\n")
    (folder / "paths.tsv").write_text(f"{header}1\timages/a.png\t?\tx\ty\tA\n")
    (folder / "wide.tsv").write_bytes(f"{header}1\t{coded.decode()}\t?\tx\ty\tA\n".encode("utf-16"))


def write(folder, name, **cells):
    cells = {key: cell for key, cell in {"question": QUESTION, **cells}.items() if cell is not None}
    (folder / f"{name}.jsonl").write_text((json.dumps(cells) + "\n") * 3)


def data(name):
    return ("train", "recipe.yaml", f"data.path={name}.jsonl")


def train(*overrides):
    return ("train", "recipe.yaml", *overrides)


MISTAKES = [
    # the recipe
    (("train", "nowhere.yaml"), "neither such a file nor a shipped recipe"),
    (("train", "runs"), "is a folder. Give the YAML file of the run"),
    (("train", "papre/qwen3_vl_2b"), "Did you mean 'paper/qwen3_vl_2b'?"),
    (("train", "tab.yaml"), "line 2"),
    (("train", "list.yaml"), "a recipe has sections"),
    (("train", "train.jsonl"), "holds data, not a recipe. Write one that trains on it: vcsd init --model MODEL --data"),
    (("train", "images/a.png"), "it is not text. Give a YAML file."),
    (("train", "recipe"), "Did you mean 'recipe.yaml'?"),
    (("train", "something"), "`vcsd recipes` lists them."),
    (("train", "level.yaml"), "learning_rate is not a key. Did you mean 'trainer.learning_rate'?"),
    (train("trainer.max_steps", "5"), "override 'trainer.max_steps' is not of the form key.key=value, without spaces."),
    (("train", "twice.yaml"), "the key 'prompts_per_step' is repeated"),
    (train("trainer.lr=1e-5"), "Did you mean 'trainer.learning_rate'?"),
    (train("lr=1e-5"), "Did you mean 'trainer.learning_rate'?"),
    (train("epochs=3"), "Did you mean 'trainer.max_steps'?"),
    (train("batch_size=8"), "Did you mean 'prompts_per_step'?"),
    (train("num_generations=8"), "Did you mean 'rollout.num_per_prompt'?"),
    (train("rollout.max_completion_length=8"), "Did you mean 'rollout.max_new_tokens'?"),
    (train("model_name_or_path=x"), "Did you mean 'model.path'?"),
    (train("method=vscd"), "Did you mean 'vcsd'?"),
    (train("method.alhpa=1"), "Did you mean 'alpha'?"),
    (train("method.beta=2"), "method.beta = 2 is outside [0, 1]"),
    (train("method.alpha"), "is not of the form key.key=value"),
    (train("prompts_per_step=2", "prompts_per_step=3"), "is overridden twice"),
    (train("guard=stopp"), "guard = 'stopp' is not a choice"),
    (train("resume=yes"), "is neither a step, counted from 1, nor a choice. Allowed: auto, never, last_good."),
    (train("resume=5"), "has no checkpoint-5. Its checkpoints are of steps: none."),
    (train("--from-last-good"), "has no checkpoint at or before step 0"),
    # arguments of the trainer
    (train("trainer.max_steps=0"), "must be at least 1; a run is not counted in epochs"),
    (train("trainer.max_steps=many"), "trainer.max_steps = 'many' is not a whole number."),
    (train("trainer.learning_rate=fast"), "trainer.learning_rate = 'fast' is not a number."),
    (train("trainer.num_train_epochs=3"), "Set trainer.max_steps"),
    (train("trainer.fp16=true"), "Use bf16"),
    (train("trainer.gradient_accumulation_steps=4"), "Set prompts_per_step"),
    (train("trainer.per_device_train_batch_size=2"), "Set prompts_per_step"),
    (train("trainer.push_to_hub=true"), "use `vcsd export RUN --push ORG/NAME`"),
    (train("--dry-run", "--card", "h300"), "card 'h300' is not known. Did you mean 'h200'"),
    (train("--dry-run", "--card", "16GB"), "card '16GB' is not known. Allowed: rtx4090, "),
    (train("--dry-run", "--card", "0xh100"), "has 0 GPUs. Allowed: 1 to 1024."),
    (train("--card", "24GB"), "--card plans a run. Add --dry-run."),
    (train("trainer.dataloader_num_workers=4"), "It would have no effect: rows are read by the run itself"),
    (train("trainer.hub_model_id=me/x"), "use `vcsd export RUN --push ORG/NAME`"),
    (("export", "nothing", "--push", "mine"), "--push 'mine' is not a repository of the hub. Write ORG/NAME"),
    (("export", "nothing", "--public"), "--public has no effect without --push ORG/NAME"),
    (("export", "nothing", "--scores", "nothing"), "there is no scorecard at nothing/scorecard.json"),
    (train("trainer.load_best_model_at_end=true"), "export the checkpoint you want"),
    (train("trainer.eval_strategy=steps"), "Set evaluation.every"),
    (train("trainer.optim=sgd"), "Allowed: adamw_torch"),
    (train("trainer.output_dir=runs/file"), "is not a folder. Choose another trainer.output_dir"),
    (train("trainer.seed=-1"), "trainer.seed = -1 is not a seed. Give a number from 0 to 2**32 - 1."),
    (train("trainer.save_total_limit=0"), "trainer.save_total_limit = 0 must be at least 1. Leave it out to keep all."),
    (train("trainer.max_grad_norm=-1"), "trainer.max_grad_norm = -1 must be at least 0, which clips nothing."),
    (train("trainer.lr_scheduler_type=cosin"), "Did you mean 'cosine'?"),
    (train("evaluation.every=10", "evaluation.data=nowhere"), "does not exist. Pass the folder with the benchmark"),
    (train("evaluation.every=10", "evaluation.tsv=question.tsv"), "'question.tsv'. Did you mean 'questions.tsv'?"),
    (
        train("evaluation.every=10", "evaluation.tsv=questions.tsv"),
        "evaluation.tsv: questions.tsv has neither a column",
    ),
    (train("evaluation.every=10", "evaluation.tsv=BLINK.tsv", "--dry-run"), "BLINK is a published benchmark."),
    (train("evaluation.tsv=questions.tsv"), "has no effect without evaluation.every. Set it, such as 30."),
    # the model
    (train("model.path=~/no/such/model"), "there is no such folder. Give one, or a hub id such as ORG/NAME."),
    (train(f"model.path={BASE}/config.json"), "is a file. Give the folder of the model, which holds config.json."),
    (train("model.path=adapter"), "holds adapter weights without their base"),
    (train("model.path=Qwen3-VL-2B-Instruct"), "such as ORG/NAME. Did you mean 'Qwen/Qwen3-VL-2B-Instruct'?"),
    (train("model.path=nowhere/model"), "Check the name (a hub id is ORG/NAME), the network"),
    (train("model.path=world"), "For the shipped base, vcsd init --model world writes a recipe."),
    (train("model.path=./adaptor"), "there is no such folder. Give one, or a hub id such as ORG/NAME. Did you mean"),
    (train("model.path=images/model"), "no such folder in 'images', which exists, so the hub was not asked."),
    (train("model.path=only_text"), "has no vision tower"),
    (train("model.path=checkpoint-3", "--dry-run"), "of a whole model: vcsd export checkpoint-3 writes one."),
    (train("model.path=nothing"), "holds no config.json. Give the folder of a whole model"),
    (train("model.max_pixels=10", "model.min_pixels=20"), "model.min_pixels = 20 exceeds model.max_pixels = 10"),
    # the data
    (data("nowhere"), "there is no data at 'nowhere.jsonl'. Give a file"),
    ((*data("trian"), "--dry-run"), "there is no data at 'trian.jsonl'. Did you mean 'train.jsonl'? To plan for a"),
    (data("trian"), "or the id of a hub dataset. Did you mean 'train.jsonl'?"),
    (train("data.path=images"), "holds no data. It needs a file that ends in one of .jsonl"),
    (train("data.path=text.txt"), ".txt is not a format. Allowed: .jsonl"),
    (train("data.path=object.json"), "is not a list of objects"),
    (data("empty"), "is empty. Write one JSON object per line."),
    (data("broken"), "is not JSON Lines"),
    (data("promt"), "Did you mean 'promt'? Set data.columns.prompt"),
    (data("no_image"), "For data without images, set data.columns.images to null"),
    (data("twice"), "repeat the id of an earlier one: 'a', 'a'. Make ids unique"),
    (data("missing"), "img/a.png'. All are listed in runs/a/skipped.jsonl. Correct the paths, or set data.images"),
    (data("web"), "Nothing is downloaded: save it to disk and give its path."),
    (data("outside"), "is outside the data folder '.'. Set data.images"),
    (data("cut"), "broken base64"),
    (data("number"), "an image is int. Give a path, a PIL image"),
    (data("gold"), "a user must ask last"),
    (data("tool"), "the role 'tool' is not known. Allowed: system, user"),
    (data("marks"), "its prompt has 2 places for images, but it has 1 images"),
    (data("both"), "Keep them in one place"),
    (data("pretty"), "Write one JSON object per line, in UTF-8."),
    (
        data("wide"),
        "it is not UTF-8: invalid start byte at byte 0. If Windows wrote the file: iconv -f UTF-16",
    ),
    (data("latin"), "If Windows wrote the file: iconv -f WINDOWS-1252 -t UTF-8"),
    (data("movie"), "cannot identify image file 'movie.mp4'"),
    (data("empty_prompt"), "its prompt is empty. Give a text or a list of messages."),
    (train("data.path=semicolons.csv"), "In a CSV file it must be ','. Choose this separator"),
    (train("data.path=packed.jsonl.gz"), "Unpack it first."),
    (train("data.path=sheet.xlsx"), "Save it as CSV."),
    (train("data.images=nowhere"), "data.images = 'nowhere' is not a folder"),
    (train("data.split=train"), "is a single file, but data.split = 'train'. Leave it out."),
    (train("data.columns.prompt=quest"), "Did you mean 'question'?"),
    (train("data.max_prompt_tokens=3"), "Raise data.max_prompt_tokens, or lower model.max_pixels."),
    (train("prompts_per_step=100"), "the data has only 3 rows, and a step uses each at most once. Lower it"),
    (train("method=opsd"), "shows the column 'answer', but train.jsonl lacks it. Add it"),
    # other commands
    (("init", "--out", "b.yaml"), "--model is missing. Pass it"),
    (("init", "--model", BASE, "--out", "b.yaml"), "--data is missing. Pass it"),
    (("init", "--model", BASE, "--data", "train.jsonl", "--out", "recipe.yaml"), "exists already. Choose another name"),
    (
        ("init", "--model", BASE, "--data", "train.jsonl", "--device", "tpu", "--out", "b.yaml"),
        "Did you mean 'gpu'?",
    ),
    (("init", "--model", "qwen", "--data", "train.jsonl", "--out", "b.yaml"), "there is no such folder. Give one"),
    (("init", "--model", BASE, "--data", "nowhere.jsonl", "--out", "b.yaml"), "there is no data at"),
    (("eval",), "MODEL is missing. Pass a folder"),
    (("eval", BASE, "--tsv", "nowhere.tsv"), "there is no file 'nowhere.tsv'"),
    (("eval", BASE, "--tsv", "train.jsonl"), "does not end in .tsv"),
    (("eval", BASE, "--tsv", "questions.tsv"), "neither a column 'image' nor 'image_path'"),
    (("eval", BASE, "--benchmarks", "BLNK", "--data", "."), "Did you mean 'BLINK'?"),
    (("eval", BASE, "--mode", "exakt", "--tsv", "a.tsv"), "Did you mean 'exact'?"),
    (("eval", BASE, "--seeds", "a", "--tsv", "a.tsv"), "is not a list of numbers such as 0,1,2"),
    (
        ("eval", BASE, "--tsv", "letter.tsv"),
        "the answer 'E' is none of its options A, B. Correct it, or add the option.",
    ),
    (("eval", BASE, "--tsv", "paths.tsv"), "Put paths into a column image_path."),
    (("eval", BASE, "--tsv", "wide.tsv"), "is not UTF-8. Save it as UTF-8."),
    (("contrast", BASE, "--image", "no.png", "--question", "?"), "there is no such file. Give the path of a picture."),
    (("contrast", "nothing", "--image", "images/a.png", "--question", "?"), "nothing holds no config.json."),
    (("eval", "--compare", "nothing", "nothing"), "scorecard.json"),
    (("export", "nothing"), "holds no checkpoint. Pass the folder of a run"),
    (("export", "runs/b"), "there is no folder 'runs/b'. 'runs' holds"),
    (("score", "nothin"), "there is no folder 'nothin'. Did you mean 'nothing'?"),
    (("report", "nothin"), "there is no folder 'nothin'. Did you mean 'nothing'?"),
    (("watch", "nothin"), "there is no folder 'nothin'. Did you mean 'nothing'?"),
    (("capsule", "nothin"), "there is no folder 'nothin'. Did you mean 'nothing'?"),
    (("contrast", "world", "--image", "images/a.png"), "--question is missing: what to ask about the image."),
    (("contrast", BASE, "--question", "?"), "--image is missing. Only the model 'world' has"),
    (("eval", BASE, "--benchmarks", "worlds"), "benchmark 'worlds' is not known. Did you mean 'world'?"),
    (("eval", BASE, "--benchmarks", "world/smal"), "Did you mean 'world/small'?"),
    (("train", "recipe.yml"), "Did you mean 'recipe.yaml'?"),
    (("train", "recipes.yaml"), "Did you mean 'recipe.yaml'?"),
    (train("seed=1"), "seed is not a key. Did you mean 'trainer.seed'?"),
    (train("trainer.use_cpu=yes"), "trainer.use_cpu = 'yes' is neither true nor false."),
    (train("data=train.jsonl"), "data = 'train.jsonl' is not a section. Its keys: data.path, data.images,"),
    (train("method.alpha=.nan"), "method.alpha = nan is outside [0, 100]."),
    (("export", "nothing", "--what", "studnet"), "Did you mean 'student'?"),
    (("config", "nowhere.yaml"), "neither such a file nor a shipped recipe"),
]


@pytest.mark.parametrize(("words", "advice"), MISTAKES, ids=[" ".join(words)[-60:] for words, _ in MISTAKES])
def test_a_mistake_is_explained_before_weights_are_loaded(place, monkeypatch, capsys, words, advice):
    monkeypatch.chdir(place)
    monkeypatch.setattr("vcsd.run.load_model", lambda *_: pytest.fail("weights were loaded"))
    monkeypatch.setattr("huggingface_hub.snapshot_download", _offline)
    monkeypatch.setattr(sys, "argv", ["vcsd", *words])
    with pytest.raises(SystemExit) as stop:
        app.main()
    shown = capsys.readouterr().err
    assert stop.value.code == 2, shown
    assert advice in " ".join(shown.split()), shown
    assert "Traceback" not in shown
    assert shown.count("error: ") == 1


def test_a_dry_run_writes_nothing_even_if_no_row_can_be_used(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["vcsd", *data("missing"), "--dry-run", "trainer.output_dir=runs/dry"])
    with pytest.raises(SystemExit):
        app.main()
    assert "none of the first 3 rows" in capsys.readouterr().err
    assert not (place / "runs" / "dry").exists()


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("train",), "Write one with vcsd init, or name one of those that vcsd recipes lists."),
        (("trian", "recipe.yaml"), "Did you mean 'train'?"),
        (("train", "recipe.yaml", "--trainer.max_steps", "5"), "Settings have no dashes: trainer.max_steps=VALUE"),
        (("eval", BASE, "my.tsv"), "Questions are passed as --tsv my.tsv"),
    ],
)
def test_a_mistake_in_the_command_line_itself_is_explained(monkeypatch, capsys, words, advice):
    monkeypatch.setattr(sys, "argv", ["vcsd", *words])
    with pytest.raises(SystemExit) as stop:
        app.main()
    shown = capsys.readouterr().err
    assert stop.value.code == 2, shown
    assert advice in " ".join(shown.replace("\u2502", " ").split()), shown


def _offline(name):
    raise OSError(f"{name} cannot be reached")
