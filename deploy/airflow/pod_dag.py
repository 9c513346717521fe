"""A day of texts in, a folder of vectors out: the daily script in a pod for each day.

The way of Composer, whose workers have no clone of this repository; see deploy/cron/README.md.
"""

from pathlib import Path

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from bert_embed_days import DAY, daily_dag

with daily_dag("bert_embed_pod") as dag:
    KubernetesPodOperator(
        task_id="embed",
        pod_template_file=str(Path(__file__).with_name("bert_embed_pod.yaml")),
        arguments=["/etc/bert-embed/settings.sh", DAY],
        on_finish_action="delete_succeeded_pod",
    )
