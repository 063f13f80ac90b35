"""The pages that `vcsd reproduce` writes about its experiments: tables, plots, claims."""
