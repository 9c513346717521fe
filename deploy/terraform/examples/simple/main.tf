provider "google" {
  project = "my-project"
}

module "bert_embed" {
  source        = "../.." # deploy/terraform; of a copy elsewhere, the path to it
  project       = "my-project"
  region        = "us-central1"
  input_buckets = ["my-bucket"]
  # dataset     = "vectors" # creates the dataset, for output_format bigquery
  image_tag = "" # after the first `make dataflow DO=template`: the tag that it printed
  parameters = {
    input       = "gs://my-bucket/texts/{date:%Y/%m/%d}/*.jsonl"
    output      = "gs://my-project-bert-embed-vectors/{date:%Y/%m/%d}"
    text_column = "body"
    id_column   = "id"
    # The second day on, when the table is there: append what it does not have.
    # output_format = "bigquery"
    # output_table  = "my-project:vectors.news"
    # skip_existing = "my-project:vectors.news"
  }
}

output "variables_env" {
  value = module.bert_embed.variables_env
}
