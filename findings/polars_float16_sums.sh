#!/usr/bin/env bash
# polars 2.1.0: sums of float16, the number type in which many embeddings and token weights are stored.
#
# One would guess that a sum is the same whether all rows are summed or one group that holds all rows, eager, streaming
# or by SQL; and that it is as good as the mean, which is the sum divided by the number of rows.
#
# Seen: `select(sum)`, `sum().over(group)` and `dot` add in a wider type and round at the end. `group_by(...).agg(sum)`, SQL's
# GROUP BY, `list.sum` and `arr.sum` add in float16, where 2,048 + 1 is 2,048: the sum of 5,000 ones is 2,048. Means are right
# in all of them. So a squared length, a dot product of rows (`(a * b).arr.sum()`) or the weights of a term by document are
# wrong without a word, and their means are not.
#
# For users of float16 outputs: cast to Float32 before you sum in groups, lists or arrays.
#
# Exits 0 while it is so, 1 when it has changed. Needs Python 3.11 to 3.13 and a package index.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet polars==2.1.0 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PROGRAM'
import sys

import numpy as np
import polars as pl

ROWS = 5000  # float16 has this number
ones = np.ones(ROWS, np.float16)
column = pl.DataFrame({"group": [1] * ROWS, "x": ones})
array = pl.DataFrame({"x": ones[np.newaxis]})  # one row
listed = array.select(pl.col("x").arr.to_list())
total, mean, x = pl.col("x").sum(), pl.col("x").mean(), pl.col("x")
by_group = column.lazy().group_by("group").agg(total, mean.alias("mean"))
sql = pl.SQLContext(t=column).execute("SELECT sum(x) AS x FROM t GROUP BY t.group", eager=True)
seen = {
    "select": column.select(total).item(),
    "over": column.select(total.over("group"))["x"][0],
    "dot": column.select(x.dot(x)).item(),
    "group_by": by_group.collect()["x"].item(),
    "group_by, streaming": by_group.collect(engine="streaming")["x"].item(),
    "SQL": sql["x"].item(),
    "list.sum": listed.select(x.list.sum()).item(),
    "arr.sum": array.select(x.arr.sum()).item(),
    "mean by group": by_group.collect()["mean"].item(),
    "arr.mean": array.select(x.arr.mean()).item(),
}
print(*seen.items(), sep="\n")
wrong = {"group_by", "group_by, streaming", "SQL", "list.sum", "arr.sum"}
sys.exit(
    any(value != (1 if "mean" in name else 2048 if name in wrong else ROWS) for name, value in seen.items())
)
PROGRAM
