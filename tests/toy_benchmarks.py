"""Small stand-ins for the seven benchmarks, as VLMEvalKit's TSVs and as their authors' Parquet files.

write_tsvs(folder)      <name>.tsv for each of the seven
write_parquets(folder)  the same questions in the published Parquet layouts
"""

import base64
import io
from pathlib import Path

from PIL import Image

MATH_HINT = "Hint: Please answer the question {} at the end.\nQuestion: {}"
TASKS = ("Counting", "Jigsaw", "Relative_Depth")


def image_bytes(shade: int, size: tuple[int, int] = (40, 36), kind: str = "PNG") -> bytes:
    """A small picture; another shade is another picture."""
    image = Image.new("RGB", size, (shade % 256, 255 - shade % 256, 90))
    image.paste((250, 240, 230), (4, 4, 12 + shade % 20, 20))
    written = io.BytesIO()
    image.save(written, kind)
    return written.getvalue()


def coded(shade: int, **how: object) -> str:
    return base64.b64encode(image_bytes(shade, **how)).decode()


def write_tsv(path: Path, rows: list[dict[str, str]]) -> Path:
    """Cells with tabs, quotes or line breaks are quoted, as pandas does."""
    columns = list(dict.fromkeys(name for row in rows for name in row))

    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in '\t"\n') else text

    lines = ["\t".join(columns), *("\t".join(cell(row.get(name, "")) for name in columns) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _choice(index: int, answer: str, options: str, **more: str) -> dict[str, str]:
    letters = dict(zip("ABCD", options.split("|"), strict=False))
    return {"index": str(index), "question": f"What is it, {index}?", **letters, "answer": answer, **more}


def blink() -> list[dict[str, str]]:
    rows = [
        _choice(0, "A", "red|green", category=TASKS[0]),
        _choice(1, "C", "one|two|three", category=TASKS[1]),
        _choice(2, "B", "left|right", category=TASKS[2]),
        _choice(3, "D", "a|b|c|d", category=TASKS[0]),
    ]
    images = [coded(0), str([coded(10), coded(20)]), "0", str([coded(n) for n in (30, 40, 50, 60)])]
    return [{**row, "image": image} for row, image in zip(rows, images, strict=True)]


def mmstar() -> list[dict[str, str]]:
    l2 = ("math: geometry", "science: biology")
    return [
        {
            **_choice(n, "ABCD"[n % 4], "w|x|y|z", category=("math", "science & technology")[n % 2]),
            "l2-category": l2[n % 2],
            "image": coded(n),
        }
        for n in range(6)
    ]


def vstar() -> list[dict[str, str]]:
    kinds = (("direct_attributes", "red|blue|white|black"), ("relative_position", "left|right"))
    return [
        {**_choice(n, "AB"[n % 2], kinds[n % 2][1], category=kinds[n % 2][0]), "image": coded(n + 100)}
        for n in range(5)
    ]


def hrbench(first: int) -> list[dict[str, str]]:
    rows = []
    for sample in range(2):
        options = ["north", "south", "east", "west"]
        for cycle in range(4):
            turned = options[cycle:] + options[:cycle]
            row = _choice(4 * sample + cycle, "ABCD"[turned.index("north")], "|".join(turned))
            row |= {"question": f"Where is sign {sample}?", "category": ("single", "cross")[sample]}
            rows.append({**row, "cycle_category": str(cycle), "image": coded(first + sample, kind="JPEG")})
    return rows


def hallusionbench() -> list[dict[str, str]]:
    names = ["VD_figure_1_0_1_0", "VD_figure_2_0_2_0", "VD_figure_1_0_1_1", "VS_chart_1_3_1_0", "VS_chart_2_3_2_0"]
    golds = ["Yes", "No", "No", "Yes", "No"]
    return [
        {
            "index": name,
            "image": coded(n + 5),
            "question": 'Is "A" larger than "B"?' if n == 0 else f"Is line {n} longer?",
            "answer": gold,
            "category": name[:2],
            "l2-category": "_".join(name.split("_")[:2]),
        }
        for n, (name, gold) in enumerate(zip(names, golds, strict=True))
    ]


def mathvista() -> list[dict[str, str]]:
    letter = "and provide the correct option letter, e.g., A, B, C, D,"
    asked = [
        (MATH_HINT.format(letter, "Which?\nChoices:\n(A) 2\n(B) 5"), "5", "multi_choice", "text", ["2", "5"], "B"),
        (MATH_HINT.format("requiring an integer answer", "How many?"), "0", "free_form", "integer", [], ""),
        (
            *(MATH_HINT.format("requiring a floating-point number with two decimal places", "How long?"), "1.20"),
            *("free_form", "float", [], ""),
        ),
        (MATH_HINT.format("requiring a Python list", "Which ones?"), "[1, 2]", "free_form", "list", [], ""),
    ]
    return [
        {
            **{"index": str(n + 1), "image": coded(n + 7), "question": question, "answer": answer},
            **{"question_type": kind, "answer_type": answer_type, "choices": str(choices), "answer_option": option},
            **{"task": "textbook question answering", "skills": "['algebraic reasoning', 'geometry reasoning']"},
        }
        for n, (question, answer, kind, answer_type, choices, option) in enumerate(asked)
    ]


ROWS = {
    "BLINK": blink(),
    "MMStar": mmstar(),
    "VStarBench": vstar(),
    "MathVista_MINI": mathvista(),
    "HRBench4K": hrbench(30),
    "HRBench8K": hrbench(60),
    "HallusionBench": hallusionbench(),
}


def write_tsvs(folder: Path) -> Path:
    """All seven."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in ROWS.items():
        write_tsv(folder / f"{name}.tsv", rows)
    return folder


def _stored(cell: str) -> dict[str, object]:
    return {"bytes": base64.b64decode(cell), "path": None}


def _inside(row: dict[str, str], mark: str) -> str:
    return mark.join(f"{letter}: {row[letter]}" for letter in "ABCD" if letter in row)


def parquet_rows() -> dict[str, list[dict[str, object]]]:
    """Path under the data folder -> rows."""
    blink_rows = []
    for row in ROWS["BLINK"]:
        cell = ROWS["BLINK"][0]["image"] if row["image"] == "0" else row["image"]
        images = [_stored(each.strip(" '")) for each in cell.strip("[]").split(",")]
        blink_rows.append(
            {
                **{"idx": f"val_{row['category']}_{row['index']}", "sub_task": row["category"]},
                **{"question": row["question"], "choices": [row[letter] for letter in "ABCD" if letter in row]},
                **{"answer": f"({row['answer']})", "prompt": "p", "explanation": None},
                **{f"image_{n + 1}": images[n] if n < len(images) else None for n in range(4)},
            }
        )
    mmstar_rows = [
        {
            **{"index": int(row["index"]), "answer": row["answer"], "category": row["category"]},
            **{"question": f"{row['question']}\nOptions: {_inside(row, ', ')}", "l2_category": row["l2-category"]},
            **{"image": _stored(row["image"]), "meta_info": {"source": "s"}},
        }
        for row in ROWS["MMStar"]
    ]
    tail = "\nAnswer with the option's letter from the given choices directly."
    vstar_rows = [
        {
            **{"question_id": int(row["index"]), "category": row["category"], "label": row["answer"]},
            "text": row["question"] + "".join(f"\n({x}) {row[x]}" for x in "ABCD" if x in row) + tail,
            "image": _stored(row["image"]),
        }
        for row in ROWS["VStarBench"]
    ]
    hall_rows = []
    for row in ROWS["HallusionBench"]:
        names = ("category", "subcategory", "visual_input", "set_id", "figure_id", "question_id")
        ids = dict(zip(names, row["index"].split("_"), strict=True))
        gold = str(int(row["answer"] == "Yes"))
        hall_rows.append({**ids, "question": row["question"], "gt_answer": gold, "image": _stored(row["image"])})
    math_rows = [
        {
            **{"pid": row["index"], "question": "bare", "query": row["question"], "answer": row["answer"]},
            **{"choices": ["2", "5"] if row["answer_option"] else None, "unit": None, "image": "images/1.jpg"},
            **{"precision": 2.0 if row["answer_type"] == "float" else None, "question_type": row["question_type"]},
            **{"answer_type": row["answer_type"], "decoded_image": _stored(row["image"])},
            "metadata": {"task": row["task"], "skills": ["algebraic reasoning", "geometry reasoning"]},
        }
        for row in ROWS["MathVista_MINI"]
    ]
    sharp = {size: [{**row, "index": int(row["index"])} for row in ROWS[f"HRBench{size}K"]] for size in (4, 8)}
    return {
        **{f"BLINK/{task}/val-0.parquet": [r for r in blink_rows if r["sub_task"] == task] for task in TASKS},
        "MMStar/mmstar.parquet": mmstar_rows,
        "VStarBench/test-0.parquet": vstar_rows,
        "HallusionBench/image-0.parquet": hall_rows,
        "MathVista/data/testmini-0.parquet": math_rows,
        "HR-Bench/hr_bench_4k.parquet": sharp[4],
        "HR-Bench/hr_bench_8k.parquet": sharp[8],
    }


def write_parquets(folder: Path, row_group_size: int = 2) -> Path:
    """All seven, in row groups of few rows."""
    import pyarrow as pa
    from pyarrow import parquet

    for name, rows in parquet_rows().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.Table.from_pylist(rows), folder / name, row_group_size=row_group_size)
    return folder
