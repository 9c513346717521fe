provider "google" {
  project = "my-project"
}

module "bert_embed" {
  source        = "../.."
  project       = "my-project"
  region        = "us-central1"
  input_buckets = ["my-bucket"]
  image_tag     = "" # after the first `make dataflow DO=template`: the tag that it printed
  parameters = {
    input       = "gs://my-bucket/texts/{date:%Y/%m/%d}/*.jsonl"
    output      = "gs://my-project-bert-embed-vectors/{date:%Y/%m/%d}"
    text_column = "body"
    id_column   = "id"
  }
}

output "variables_env" {
  value = module.bert_embed.variables_env
}
