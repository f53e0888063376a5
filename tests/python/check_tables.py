"""Opens tables with DuckDB and polars by the obvious query, with no option: FILE... in CSV or Parquet.

Every file is one table; both see the same columns and rows; a column whose name ends in a unit holds numbers.
"""

import re
import sys

import duckdb
import polars

NUMBERS = re.compile(r"(_ns|_bps|_pps|_share|_bytes|_ks|_mean|packets|lost)$")


def main(paths):
    for path in paths:
        relation = duckdb.sql(f"SELECT * FROM '{path}'")
        rows = duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall()[0][0]
        frame = polars.read_csv(path) if path.endswith(".csv") else polars.read_parquet(path)
        assert rows > 0 and frame.shape == (rows, len(relation.columns)), (path, rows, frame.shape)
        assert frame.columns == relation.columns, (path, frame.columns, relation.columns)
        kinds = dict(zip(relation.columns, map(str, relation.types)))
        for name in filter(NUMBERS.search, frame.columns):
            values = frame[name].drop_nulls()
            # Where nothing is known nothing tells the type.
            if len(values):
                assert values.dtype.is_numeric(), (path, name, values.dtype)
                assert kinds[name] in ("BIGINT", "DOUBLE", "HUGEINT", "UBIGINT"), (path, name, kinds[name])
                most = duckdb.sql(f'SELECT max("{name}") FROM \'{path}\'').fetchall()[0][0]
                assert abs(float(most) - float(values.max())) <= 1e-9 * abs(float(most)), (path, name)
    print(f"{len(paths)} tables open")


if __name__ == "__main__":
    main(sys.argv[1:])
