"""Repetition and language drift, on texts that show where the lines are."""

# ruff: noqa: RUF001  letters that look alike are the subject here
import sys
import unicodedata

import pytest

from vcsd.monitor.response_text import MIN_PHRASES, NGRAM, TAIL_TOKENS, has_drifted, is_repetitive, script_of, scripts

SHORTEST = MIN_PHRASES + NGRAM - 1


def test_half_the_phrases_repeated_is_repetitive_and_one_less_is_not():
    fresh = list(range(100, 100 + 40))  # 40 tokens: 35 phrases, none of them repeated
    # The first round of the loop is new, and so are the phrases that reach from one part into the next.
    loop = [1] * 48
    tokens = fresh + loop
    num_phrases = len(tokens) - NGRAM + 1
    num_repeated = len(loop) - NGRAM
    assert (num_phrases, num_repeated) == (83, 42)
    assert is_repetitive(tokens)
    assert not is_repetitive([99, *fresh, *loop[:-1]])


def test_a_loop_at_the_end_of_a_long_sound_answer_is_seen():
    sound = list(range(1000, 2000))
    assert is_repetitive(sound + [1, 2, 3] * (TAIL_TOKENS // 3))
    assert not is_repetitive([1, 2, 3] * (TAIL_TOKENS // 3) + sound)


def test_a_tail_that_copies_the_beginning_is_repetitive():
    sound = list(range(1000, 1600))
    assert is_repetitive(sound + sound[:TAIL_TOKENS])


def test_an_answer_too_short_to_judge_is_not_repetitive():
    assert not is_repetitive([1] * (SHORTEST - 1))
    assert is_repetitive([1] * SHORTEST)
    assert not is_repetitive([])


def test_counting_is_not_repetition():
    assert not is_repetitive([token for number in range(100) for token in (7, number + 1000, 8, 9)])


@pytest.mark.parametrize(
    ("text", "drifts"),
    [
        ("The area is 7 cm², so α = 30°.", False),
        ("x ∈ ℝ, 𝑥 ≤ ∞, ½ + ∑ — “quoted”…", False),
        ("naïve café Größe", False),
        ("The 面积 is 7.", True),
        ("Ответ: 7", True),
        ("答え", True),
        ("답은 7", True),
        ("الجواب 7", True),
        ("", False),
    ],
)
def test_a_letter_of_another_script_than_the_english_prompts_is_drift(text, drifts):
    assert has_drifted(text, scripts("How large is triangle ABC?")) is drifts


def test_a_chinese_prompt_allows_chinese_and_the_scripts_it_shows():
    prompt = scripts("如图，△ABC 的面积是多少？")
    assert prompt == {"HAN", "LATIN"}
    assert not has_drifted("三角形 ABC 的面积是 7。", prompt)
    assert has_drifted("三角形の面積", prompt)


def test_the_first_word_of_a_letters_name_is_its_script_but_for_a_few_signs():
    regex = pytest.importorskip("regex")
    expected = {"HAN": "Han", "KANA": "Hiragana}\\p{Script=Katakana"}
    wrong = []
    for code in range(sys.maxunicode + 1):
        script = script_of(chr(code)) if unicodedata.name(chr(code), "") else None
        if script in ("LATIN", "CYRILLIC", "HAN", "KANA", "HANGUL", "ARABIC", "HEBREW", "DEVANAGARI", "THAI"):
            pattern = f"[\\p{{Script={expected.get(script, script.title())}}}]"
            if not regex.match(pattern, chr(code)):
                wrong.append(chr(code))
    # KATAKANA and ARABIC letters of several scripts.
    assert len(wrong) < 10
