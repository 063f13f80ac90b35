"""The pre-check: before training, how much does the image matter, and how much could training gain?

diagnosis.py        answers and statistics of a model on some examples, without training
calibration.py      how well each statistic predicted the gain of training over the bases of the offline world
diagnosis_page.py   the page, and the terminal's table
"""
