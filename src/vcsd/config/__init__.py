"""Recipes: parse YAML and overrides into one typed tree."""

from vcsd.config.recipe import Recipe, build_recipe, load_recipe

__all__ = ["Recipe", "build_recipe", "load_recipe"]
