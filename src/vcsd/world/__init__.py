"""The offline world: pictures of coloured shapes, and questions about them.

parameters   every number that shapes an experiment, in one place
scenes       the contents of pictures;   render   draws them
questions    the kinds of questions and their answers; seven suites of test questions; training prompts

The tiny models that are taught in this world are in `vcsd.bases`.
"""
