"""A day of texts in, a folder of vectors out, each day once: the daily run as Airflow DAGs.

Airflow starts embed_daily.sh and judges its exit code; the pipeline lives in its own environment,
and nothing of it is imported here. See docs/schedule.md.
"""

import os
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import DAG, BaseOperator, Context, CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowException, AirflowFailException

# Read by whatever parses the file, so not Airflow Variables, each of which would ask the database.
FIRST_DAY = os.environ.get("BERT_EMBED_FIRST_DAY", "2026-01-01")
TIME_ZONE = os.environ.get("BERT_EMBED_TIME_ZONE", "UTC")

DAY = "{{ logical_date.astimezone(dag.timezone) | ds }}"
DATAFLOW = (
    "--runner=DataflowRunner",
    "--project={{ var.json.bert_embed_dataflow.project }}",
    "--region={{ var.json.bert_embed_dataflow.region }}",
    "--temp_location={{ var.json.bert_embed_dataflow.temp_location }}",
    "--sdk_container_image={{ var.json.bert_embed_dataflow.image }}",
    "--sdk_location=container",
    "--job_name=bert-embed-{day}",  # Dataflow refuses a second job of this name while one runs
)
MEANINGS = {
    1: "the job failed; it continues where it stopped",
    2: "the settings are wrong, or the day's input changed since it was embedded",
    3: "the day is done, but more records were rejected than --max_rejected allows",
    66: "the day has no input yet",
    69: "a day before is not finished",
    75: "another run holds the lock",
    130: "the run was interrupted; it continues where it stopped",
}
# The same command would end the same way: a person has to look, another try is no use.
FINAL = (2, 3)


class EmbedDay(BaseOperator):
    """Embeds a day; a retry continues the same run in the same folder.

    Attributes:
        flags: Of `embed`, behind those of the settings.
    """

    template_fields = ("command",)

    def __init__(self, *, flags: tuple[str, ...] = (), **kwargs) -> None:
        super().__init__(**kwargs)
        script = "{{ var.value.bert_embed_home }}/deploy/cron/embed_daily.sh"
        settings = "{{ var.value.bert_embed_settings }}"
        self.command = [script, "--stdout", settings, DAY, "--", *flags]
        self.hook = SubprocessHook()

    def execute(self, context: Context) -> None:
        """Runs the script.

        Raises:
            AirflowFailException: Only a person can mend it, it is not tried again.
            AirflowException: The next try may do better.
        """
        code = self.hook.run_command(self.command).exit_code
        if code == 0:
            return
        error = AirflowFailException if code in FINAL else AirflowException
        raise error(f"exit code {code}: {MEANINGS.get(code, 'see the log')}")

    def on_kill(self) -> None:
        """Interrupts the run, which keeps its finished blocks."""
        self.hook.send_sigterm()


def daily_dag(name: str, flags: tuple[str, ...] = ()) -> DAG:
    """A run for each day that is over, one after the other."""
    zone = ZoneInfo(TIME_ZONE)
    with DAG(
        name,
        description="Embeds each day's new texts",
        # The logical date is then the day that is over, not the moment after it.
        schedule=CronDataIntervalTimetable("0 0 * * *", timezone=TIME_ZONE),
        start_date=datetime.fromisoformat(FIRST_DAY).replace(tzinfo=zone),
        catchup=True,  # a day that was missed is embedded, in its turn
        max_active_runs=1,
        tags=["bert-embed"],
    ) as dag:
        EmbedDay(
            task_id="embed",
            flags=flags,
            # A day skips what the days before have, which must be complete by then.
            depends_on_past=True,
            retries=8,
            retry_delay=timedelta(minutes=15),
            execution_timeout=timedelta(hours=20),
        )
    return dag


daily = daily_dag("bert_embed_daily")
dataflow = daily_dag("bert_embed_dataflow", DATAFLOW)
