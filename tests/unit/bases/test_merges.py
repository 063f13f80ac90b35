"""Merges: every word they were learned from becomes one token, even if it shares letters with other words."""

from tokenizers import Tokenizer, models

from vcsd.bases.merges import learn_merges


def pieces(words, text):
    """What a tokenizer with the merges of the words makes of a text."""
    merges = learn_merges(words)
    tokens = dict.fromkeys([*sorted(set("".join(words) + text)), *("".join(merge) for merge in merges)])
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return Tokenizer(models.BPE(vocab=vocabulary, merges=merges)).encode(text).tokens


def test_words_that_share_letters_stay_whole():
    words = ["red", "are", "here", "there", "read", "banana", "aaaa", "aaa", "nana", "a"]
    for word in words:
        assert pieces(words, word) == [word]


def test_the_pair_that_most_words_have_comes_first():
    """By hand: t-h is in three words, h-e in two of them and then th-e too."""
    assert learn_merges(["the", "then", "this"])[:2] == [("t", "h"), ("th", "e")]


def test_merges_do_not_depend_on_the_order_of_the_words():
    assert learn_merges(["ring", "red", "ring", "are"]) == learn_merges(["are", "red", "ring"])


def test_a_word_that_was_not_learnt_falls_into_pieces_of_others():
    assert pieces(["red", "ring"], "redring") == ["red", "ring"]
    assert pieces(["red", "ring"], "gnir") == list("gnir")
