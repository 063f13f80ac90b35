"""Reproduction: every table and figure of the paper put to the test in the synthetic world, with several seeds.

experiments.py   which runs stand behind which table: data
bases.py         base models;   prompts.py   the world's training prompts as files
exam.py          the seven suites, asked of a model;   measure.py   the contrast itself
cell.py          one run and its result;   runners.py   what it does;   pool.py   many of them side by side
statistics.py    what a few seeds can say
results.py       results by experiment;   journal.py   the commands that made them, and how long they took
tables.py, details.py, plots.py, claims.py, index.py, pages.py   what is made of them;   provenance.py   from what
"""
