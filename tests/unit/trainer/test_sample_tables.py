"""Services of `report_to` get a table of samples with pictures, offline; without them nothing is sent."""

import json
import os
import subprocess
import sys

import pytest
from PIL import Image

from tiny_processor import build_processor
from tiny_step import make_trainer
from vcsd.errors import ConfigError
from vcsd.monitor import Watch
from vcsd.trainer.sample_tables import COLUMNS, SampleTables, to_table, to_tensorboard


class Service:
    """What W&B and trackio have in common."""

    def __init__(self):
        self.logged = []

    Image = staticmethod(lambda image: ("image", image.size))
    Table = staticmethod(lambda columns, data: {"columns": columns, "data": data})

    def log(self, values):
        self.logged.append(values)


def train(folder, *, report_to="none", callback=None):
    watch = Watch(folder, build_processor().tokenizer, max_steps=2)
    arguments = {"max_steps": 2, "save_strategy": "no", "report_to": report_to, "logging_steps": 1}
    trainer = make_trainer(folder, monitors=[watch], arguments=arguments)
    if callback is not None:
        trainer.add_callback(callback)
    trainer.add_callback(SampleTables(trainer, watch, folder))
    with watch:
        trainer.train()
    return watch


def test_the_samples_of_a_step_are_sent_once_with_pictures_and_contrast(tmp_path):
    from transformers import TrainerCallback

    callback = TrainerCallback()
    callback._wandb = service = Service()
    watch = train(tmp_path, callback=callback)
    (sent,) = service.logged
    assert sent["train/global_step"] == 1
    assert sent["samples"]["columns"] == list(COLUMNS)
    rows = sent["samples"]["data"]
    assert [row[1] for row in rows] == [record["example_id"] for record in watch.latest_samples]
    for row, record in zip(rows, watch.latest_samples, strict=True):
        assert row[2][0] == "image"
        assert row[4] == record["response"]
        assert row[6] == pytest.approx(sum(record["contrast"]) / len(record["contrast"]))


def test_a_service_that_fails_does_not_stop_the_run(tmp_path, caplog):
    from transformers import TrainerCallback

    callback = TrainerCallback()
    callback._trackio = object()
    train(tmp_path, callback=callback)
    assert "The samples of step 1 could not be logged." in caplog.text


def test_a_service_that_cannot_start_is_an_error_of_the_user(tmp_path):
    from transformers import TrainerCallback, integrations

    class WandbCallback(TrainerCallback):
        __module__ = f"{integrations.__name__}.integration_utils"

        def on_train_begin(self, args, state, control, **kwargs):
            self.setup()

        def setup(self):
            raise OSError("No API key configured.\nUse `wandb login` to log in.")

    said = "WandbCallback cannot start: No API key configured. Use `wandb login` to log in. Fix that, or set"
    with pytest.raises(ConfigError, match=f"^args.report_to: {said} args.report_to to none.$"):
        train(tmp_path, callback=WandbCallback())


def test_an_error_after_the_start_is_not_blamed_on_a_service(tmp_path):
    from transformers import TrainerCallback

    class Failing(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            raise OSError("something else")

    with pytest.raises(OSError, match="something else"):
        train(tmp_path, callback=Failing())


def test_a_sample_without_a_picture_or_a_contrast_has_empty_cells():
    service = Service()
    to_table(service, [[1, "a", None, "q", "r", "", None]], 1)
    assert service.logged[0]["samples"]["data"] == [[1, "a", None, "q", "r", "", None]]


@pytest.mark.filterwarnings("default")
def test_tensorboard_files_hold_the_table_and_the_pictures(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="tensorboard is not installed")
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    writer = tensorboard.SummaryWriter(tmp_path)
    red = Image.new("RGB", (8, 6), "red")
    to_tensorboard(writer, [[3, "a", red, "What | is it?", "<b>It</b> is red", "red", 0.5]], 3)
    writer.close()
    events = reading.EventAccumulator(str(tmp_path)).Reload()
    (text,) = events.Tensors("samples/table/text_summary")
    table = text.tensor_proto.string_val[0].decode()
    assert r"| 3 | a | What \| is it? | &lt;b&gt;It&lt;/b&gt; is red | red | 0.5000 |" in table
    (picture,) = events.Images("samples/1")
    assert (picture.width, picture.height, picture.step) == (8, 6, 3)


@pytest.mark.filterwarnings("default")
def test_tensorboard_gets_every_number_of_the_metrics_file_and_the_samples(tmp_path):
    pytest.importorskip("torch.utils.tensorboard", reason="tensorboard is not installed")
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train(tmp_path, report_to="tensorboard")
    (file,) = tmp_path.rglob("events.out.*")
    events = reading.EventAccumulator(str(file.parent)).Reload()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    names = [name for name in records[0] if name not in ("step", "is_taken", "examples")]
    assert len(names) > 15
    for name in names:
        shown = {one.step: one.value for one in events.Scalars(f"train/{name}")}
        assert shown == pytest.approx({record["step"]: record[name] for record in records}, abs=1e-4, rel=1e-6), name
    assert events.Tags()["images"] == ["samples/1", "samples/2", "samples/3"]


OFFLINE = """
import socket, sys
from pathlib import Path
def refuse(self, address, *rest):
    host = address[0] if isinstance(address, tuple) else address
    if isinstance(address, tuple) and host not in ("127.0.0.1", "localhost", "::1"):
        raise OSError(f"a connection to {address}")
    return connect(self, address, *rest)
connect, socket.socket.connect = socket.socket.connect, refuse
sys.path[:0] = sys.argv[3:]
from test_sample_tables import train
train(Path(sys.argv[1]), report_to=sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.parametrize("service", ["wandb", "trackio"])
def test_wandb_and_trackio_take_the_table_offline(tmp_path, service):
    pytest.importorskip(service, reason=f"{service} is not installed")
    local = {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "WANDB_DATA_DIR": str(tmp_path),
        "TRACKIO_DIR": str(tmp_path / "trackio"),
    }
    here = os.path.dirname(__file__)  # noqa: PTH120
    paths = [here, os.path.abspath(os.path.join(here, *[os.pardir] * 3))]  # noqa: PTH100, PTH118
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, str(tmp_path / "run"), service, *paths],
        env={**os.environ, **local, "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "could not be logged" not in done.stderr
    if service == "wandb":
        (table,) = tmp_path.glob("wandb/offline-run-*/files/media/table/samples_*.table.json")
        content = json.loads(table.read_text())
        assert content["columns"] == list(COLUMNS)
        assert len(content["data"]) == 3
        assert {row[2] for row in content["data"]} == {
            "Image"
        }  # this file names the type; an artifact holds the pixels
    else:
        assert [path for path in (tmp_path / "trackio").rglob("*.png") if path.stat().st_size]
