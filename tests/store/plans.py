"""What a database plans for what it is asked."""

from __future__ import annotations

from django.db import connection


class plans:
    """The plan of each SELECT in the block, as text."""

    def __init__(self) -> None:
        self.asked = []

    def __enter__(self):
        def note(execute, sql, params, many, context):
            if sql.startswith("SELECT"):
                self.asked.append((sql, params))
            return execute(sql, params, many, context)

        self._noting = connection.execute_wrapper(note)
        self._noting.__enter__()
        return self

    def __exit__(self, *error):
        self._noting.__exit__(*error)
        explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
        self.texts = []
        with connection.cursor() as cursor:
            for sql, params in self.asked:
                cursor.execute(f"{explain} {sql}", params)
                told = [self._taken(row, cursor.description) for row in cursor.fetchall()]
                self.texts.append("\n".join(map(str, told)))

    @staticmethod
    def _taken(row, columns):
        """A line of the plan; MariaDB names indexes, too, that it does not take."""
        return [value for value, column in zip(row, columns, strict=True) if column[0] != "possible_keys"]


def analyze(*tables: str) -> None:
    """Let the database look at what is in them."""
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"ANALYZE {'TABLE ' if connection.vendor == 'mysql' else ''}{table}")
