"""Rows, images and prompts from a stranger: an example or a counted skip each, and their neighbours do not suffer."""

import csv
import io
import json

import pytest
from PIL import Image

from attacker import dumped, mutated, mutated_bytes, rng_of, text, value
from tiny_examples import picture
from tiny_processor import build_processor
from vcsd.data import Skips, Stream, load_examples
from vcsd.data.columns import FIELDS
from vcsd.data.skips import REASONS
from vcsd.errors import ConfigError, DataError
from vcsd.models.encode import encode
from vcsd.monitor.lines import read_lines
from vcsd.types import Example
from vcsd.views import VIEWS
from vcsd.views.original import load_image

NUM_FILES, ROWS_PER_FILE = 500, 16
NUM_TABLES, NUM_IMAGES, NUM_PROMPTS = 700, 1500, 700

GOOD = {"id": "good", "prompt": "How many cubes?", "images": ["images/a.png"]}
MESSAGES = [
    {"role": "system", "content": "Look."},
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "How many?"}]},
]
ROWS = (
    {"id": "a", "prompt": "How many?", "images": ["images/a.png"], "answer": "7", "boxes": [[0, 0, 4, 4]]},
    {"id": "a", "question": "Is <image> like <image>?", "images": ["images/a.png", {"path": "images/b.png"}]},
    {"id": 7, "prompt": MESSAGES, "image": "images/a.png", "demonstration": "So.", "feedback": "No."},
)
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "ICO", "TGA", "EPS", "PCX", "PDF", "ICNS", "DDS")


@pytest.fixture
def folder(tmp_path):
    """A data folder with two pictures, a way out of it, and a picture outside."""
    data = tmp_path / "data"
    (data / "images").mkdir(parents=True)
    for name in "ab":
        picture(8, 6).save(data / "images" / f"{name}.png")
    picture(8, 6).save(tmp_path / "secret.png")
    (data / "images" / "out.png").symlink_to(tmp_path / "secret.png")
    (data / "out").symlink_to(tmp_path)
    return data


def hostile_row(rng, number, share_of_own_ids=0.01):
    row = mutated(rng, dict(rng.choice(ROWS)), rate=rng.choice((0.005, 0.02, 0.1)))
    if not isinstance(row, dict):
        return row
    if rng.random() > share_of_own_ids:  # ids must be unique, or the whole file is refused
        row["id"] = f"{number} {row.get('id')}"
    if rng.random() < 0.1:
        row["images"] = rng.choice(("out/secret.png", "images/out.png", "../secret.png", str(value(rng)), text(rng)))
    if rng.random() < 0.1:
        row[rng.choice(list(FIELDS))] = value(rng)
    return row


def check_example(example, folder):
    """What every part of the package relies on."""
    assert isinstance(example, Example)
    example.id.encode()
    json.dumps(example.prompt).encode()
    for message in example.prompt:
        for part in message["content"]:
            assert part.keys() == ({"type", "text"} if part["type"] == "text" else {"type"})
            part.get("text", "").encode()
    for image in example.images:
        if not isinstance(image, Image.Image):
            assert image.resolve().is_relative_to(folder.resolve()), image


def check_skip(error):
    """A skipped row has a reason to count by and a short explanation."""
    assert error.reason in REASONS
    assert len(error.message) < 2000


def read_rows(tally, source, folder, number):
    """Read every row; one bad row must not hide the good one."""
    seen = 0
    for index in range(len(source)):
        with tally.case(f"file {number}, row {index}"):
            try:
                example = source[index]
            except DataError as error:
                check_skip(error)
                raise
            check_example(example, folder)
            seen += example.id == "good"
            tally.note("example")
    assert seen == 1


def test_a_hostile_row_is_skipped_with_a_reason_or_read(tally, folder):
    for number in range(NUM_FILES):
        rng = rng_of("jsonl", number)
        rows = [GOOD, *(hostile_row(rng, index) for index in range(ROWS_PER_FILE))]
        lines = [dumped(row).encode("utf-8", "surrogatepass") for row in rows]
        lines[1:] = [
            mutated_bytes(rng, line).replace(b"\n", b" ") if rng.random() < 0.05 else line for line in lines[1:]
        ]
        (folder / "train.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        try:
            source = load_examples(folder / "train.jsonl")
        except ConfigError as error:
            tally.note("file refused: an id twice" if "repeat the id" in str(error) else pytest.fail(str(error)))
            continue
        assert source.fingerprint() == load_examples(folder / "train.jsonl").fingerprint()
        read_rows(tally, source, folder, number)


def test_a_stream_gives_its_good_rows_and_lists_each_skip_once(tally, folder):
    """Skips are counted and listed, and a step gets the good rows."""
    for number in range(100):
        rng = rng_of("stream", number)
        rows = [{**GOOD, "id": f"good {index}"} for index in range(4)]
        rows += [hostile_row(rng, index, 0) for index in range(12)]
        (folder / "train.jsonl").write_bytes("\n".join(map(dumped, rows)).encode())
        (folder / "skipped.jsonl").unlink(missing_ok=True)
        with tally.case(rows):
            skips = Skips(folder / "skipped.jsonl", min_rows=1000)
            source = load_examples(folder / "train.jsonl")
            taken = Stream(source, seed=number, skips=skips).take(0, 4)
            assert len(set(taken.ids)) == 4
            assert taken.cursor == skips.num_seen == 4 + skips.num_skipped
            assert [line["position"] for line in read_lines(folder / "skipped.jsonl")] == sorted(
                line["position"] for line in read_lines(folder / "skipped.jsonl")
            )
            assert len(list(read_lines(folder / "skipped.jsonl"))) == skips.num_skipped
            tally.note("4 examples")


def test_each_row_of_a_damaged_table_is_an_example_or_a_skip(tally, folder):
    """Whole files: CSV, TSV and Parquet with hostile cells, and any bytes under any name."""
    for number in range(NUM_TABLES):
        rng = rng_of("tables", number)
        rows = [row for index in range(4) if isinstance(row := hostile_row(rng, index), dict)]
        name = rng.choice(("a.csv", "a.tsv", "a.csv", "a.parquet", "a.jsonl"))
        content = table_bytes(rng, name, [GOOD, *rows])
        (folder / name).write_bytes(mutated_bytes(rng, content) if rng.random() < 0.4 else content)
        with tally.case(rows):
            source = load_examples(
                folder / name, multi_image=rng.choice((None, "drop")), instruction=rng.choice((None, " ?"))
            )
            source.content_hash()
            for index in range(len(source)):
                try:
                    check_example(source[index], folder)
                except DataError as error:
                    check_skip(error)
            tally.note("read")


def table_bytes(rng, name, rows):
    columns = ["id", "prompt", "images", "boxes", "answer"]
    cells = [[row.get(column) for column in columns] for row in rows]
    texts = [[cell if isinstance(cell, str) else dumped(cell) for cell in row] for row in cells]
    if name.endswith(".jsonl"):
        return "\n".join(map(dumped, rows)).encode()
    if name.endswith(".parquet"):
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        encoded = [[cell.encode("utf-8", "replace").decode() for cell in row] for row in texts]
        written = io.BytesIO()
        columns = dict(zip(columns, map(list, zip(*encoded, strict=True)), strict=True))
        parquet.write_table(pyarrow.table(columns), written)
        return written.getvalue()
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter="\t" if name.endswith(".tsv") else ",")
    writer.writerows([columns, *texts])
    return written.getvalue().encode("utf-8", "surrogatepass")


def test_a_damaged_image_is_refused_or_plain_rgb(tally, folder):
    """A file is a picture in RGB or a broken image; the process survives it."""
    whole = {}
    for name in FORMATS:
        written = io.BytesIO()
        picture(33, 17).save(written, name)
        whole[name] = written.getvalue()
    for number in range(NUM_IMAGES):
        rng = rng_of("images", number)
        content = whole[rng.choice(FORMATS)]
        for _ in range(rng.choice((0, 1, 1, 1, 4))):
            content = mutated_bytes(rng, content)
        (folder / "x.png").write_bytes(content)
        with tally.case(content):
            image = load_image("a", folder / "x.png")
            assert (image.mode, image.info) == ("RGB", {"file": str(folder / "x.png")})
            image.tobytes()
            tally.note("picture")


def test_a_hostile_prompt_is_refused_or_encoded_with_its_images(tally, folder):
    """Examples that were read can be shown under each view and encoded, or are skipped for a reason."""
    processor = build_processor("qwen3_vl", max_pixels=32 * 32)
    for number in range(NUM_PROMPTS):
        rng = rng_of("prompts", number)
        row = mutated(rng, dict(rng.choice(ROWS)), rate=0.01)
        (folder / "train.jsonl").write_text(dumped(GOOD | {"images": []}) + "\n" + dumped(row) + "\n")
        with tally.case(row):
            example = load_examples(folder / "train.jsonl")[1]
            shown = VIEWS[rng.choice(list(VIEWS))](example)
            encoded = encode(processor, shown, max_tokens=4000)
            assert 0 < len(encoded) <= 4000
            assert encoded.num_images == len(shown.images)
            tally.note("encoded")
