"""What the DAGs of this folder share: a run for each day that is over, one after the other.

Copy it into the DAGs folder beside them.
"""

import os
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from airflow.sdk import DAG, CronDataIntervalTimetable

# Read by whatever parses the file, so not Airflow Variables, each of which would ask the database.
FIRST_DAY = os.environ.get("BERT_EMBED_FIRST_DAY")
TIME_ZONE = os.environ.get("BERT_EMBED_TIME_ZONE", "UTC")

DATE = "logical_date.astimezone(dag.timezone) | ds"  # of the day, for Jinja
DAY = f"{{{{ {DATE} }}}}"


if not FIRST_DAY:  # a default would start a job for each day since then
    raise ValueError("BERT_EMBED_FIRST_DAY is not set: give the first day to embed, as 2026-01-02")


def daily_dag(name: str, **settings: Any) -> DAG:
    """A DAG with a run for each day since FIRST_DAY; `settings` are Airflow's own of a DAG."""
    return DAG(
        name,
        description="Embeds each day's new texts",
        # The logical date is then the day that is over, not the moment after it.
        schedule=CronDataIntervalTimetable("0 0 * * *", timezone=TIME_ZONE),
        start_date=datetime.fromisoformat(FIRST_DAY).replace(tzinfo=ZoneInfo(TIME_ZONE)),
        catchup=True,  # a day that was missed is embedded, in its turn
        max_active_runs=1,
        tags=["bert-embed"],
        default_args={
            # A day skips what the days before have, which must be complete by then: so it is tried
            # for a week, at last every six hours, and the days after it wait.
            "depends_on_past": True,
            "retries": 32,
            "retry_delay": timedelta(minutes=15),
            "retry_exponential_backoff": 2,
            "max_retry_delay": timedelta(hours=6),
        },
        **settings,
    )
