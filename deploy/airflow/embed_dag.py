"""A day of texts in, a folder of vectors out, each day once: the daily run as Airflow DAGs.

Airflow starts embed_daily.sh and judges its exit code; the pipeline lives in its own environment,
and nothing of it is imported here. See deploy/cron/README.md.
"""

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from bert_embed_days import DAY, daily_dag

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
    3: "the day is refused: more records were rejected than --max_rejected allows",
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


with daily_dag("bert_embed_daily") as daily:
    EmbedDay(task_id="embed")

with daily_dag("bert_embed_dataflow") as dataflow:
    EmbedDay(task_id="embed", flags=DATAFLOW)
