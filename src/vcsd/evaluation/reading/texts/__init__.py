"""What a text does, whatever kind of value it states: it declares, corrects, refuses, repeats the question."""
