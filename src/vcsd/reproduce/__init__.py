"""Reproduce the paper's tables and figures in the offline world, with several seeds.

experiments.py         the runs behind each table, as data
base_folders.py        the base models;   training_prompts.py   the world's training prompts as files
exam.py                the seven suites as an exam;   contrast_measures.py   measures of the contrast itself
cell.py                one run;   cell_result.py   its result;   runners.py   what it does
pool.py                many runs in parallel
results.py             results by experiment;   paired_runs.py   their statistics
journal.py             the commands that made them, and how long they took
pages/                 tables, plots, claims and provenance as Markdown
"""
