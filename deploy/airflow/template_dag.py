"""A day of texts in, a folder of vectors out: a Flex Template on Dataflow for each day.

Airflow launches the template and waits without a worker of its own; see deploy/cron/README.md.
"""

from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from bert_embed_days import DATE, DAY, daily_dag

# The Airflow Variable: project, region, template, and what a launch takes: parameters, environment.
SETTINGS = "var.json.bert_embed_template"


def for_day(parameters: dict[str, str], day: str) -> dict[str, str]:
    """Puts the date where `{day}` stands in a template's parameters, which are all strings."""
    return {name: value.replace("{day}", day) for name, value in parameters.items()}


# The parameters are one map of the Variable, which must stay a map.
with daily_dag(
    "bert_embed_template",
    render_template_as_native_obj=True,
    user_defined_macros={"for_day": for_day},
) as dag:
    DataflowStartFlexTemplateOperator(
        task_id="embed",
        project_id=f"{{{{ {SETTINGS}.project }}}}",
        location=f"{{{{ {SETTINGS}.region }}}}",
        body={
            "launchParameter": {
                # Dataflow refuses a second job of this name while one runs.
                "jobName": f"bert-embed-{DAY}",
                "containerSpecGcsPath": f"{{{{ {SETTINGS}.template }}}}",
                "parameters": f"{{{{ for_day({SETTINGS}.parameters, {DATE}) }}}}",
                "environment": f"{{{{ {SETTINGS}.environment }}}}",
            }
        },
        append_job_name=False,
        deferrable=True,
    )
