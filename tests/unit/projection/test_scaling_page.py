from pathlib import Path

import scaling_table

PAGE = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text(encoding="utf-8")


def test_the_tables_of_the_page_are_those_that_the_command_prints():
    for table in (scaling_table.by_card(), scaling_table.by_machine(), scaling_table.by_count()):
        assert "\n".join(table) in PAGE
