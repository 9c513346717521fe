#!/usr/bin/env bash
# dataflow.sh submit|template|launch FILE [--print]
#   submit    builds the workers' image if it is not there, and submits the job that FILE describes
#   template  builds the image of a Flex Template, and writes the template to BUCKET
#   launch    starts a job from that template
#   --print   shows the commands and runs none
set -euo pipefail
cd "$(dirname "$0")/../.."

die() { echo "dataflow.sh: $*" >&2; exit 2; }

show_and_run() {
  printf '%q ' "$@"
  echo
  [[ -n $print ]] || "$@"
}

read_variables() {
  [[ -f $1 ]] || die "$1 is not there: copy deploy/dataflow/variables.env.example to it and fill it in"
  local name value
  while IFS='=' read -r name value; do
    [[ -z $name || $name == \#* ]] && continue
    [[ $name =~ ^(PROJECT|REGION|BUCKET|REPOSITORY|INPUT|OUTPUT|ACCELERATOR|MODEL|MAX_WORKERS|SERVICE_ACCOUNT|SUBNETWORK|FLAGS|BUILD|TAG)$ ]] \
      || die "$1: $name is none of the variables of variables.env.example"
    [[ $value != *[\"\']* ]] || die "$1: $name has quotes, leave them out: its value is all behind the ="
    printf -v "$name" '%s' "$value"
  done < "$1"
  for name in PROJECT REGION BUCKET REPOSITORY INPUT OUTPUT; do
    [[ -n ${!name} ]] || die "$1: $name is empty"
  done
}

choose_image() { # worker|template
  case $ACCELERATOR in
    "") device=cpu ;;
    v5e | v6e) device=tpu ;;
    t4 | l4 | a100 | a100-80gb | h100) device=gpu ;;
    *) die "ACCELERATOR $ACCELERATOR is none of t4, l4, a100, a100-80gb, h100, v5e, v6e" ;;
  esac
  tpu_type=v5litepod-1
  [[ $ACCELERATOR != v6e ]] || tpu_type=v6e-1
  target=$1
  name=bert-embed-$device
  [[ $ACCELERATOR != v6e ]] || name+=-v6e
  template=$BUCKET/templates/$name.json
  [[ $target == worker ]] || name+=-template
  image=$REPOSITORY/$name:${TAG:-$(git describe --always --dirty)}
}

build_image() {
  if [[ -z $print && $image != *-dirty ]] \
    && gcloud artifacts docker images describe "$image" --project "$PROJECT" > /dev/null 2>&1; then
    echo "$image is there"
    return
  fi
  if [[ $BUILD == docker ]]; then
    show_and_run docker build --platform linux/amd64 --file deploy/docker/Dockerfile \
      --build-arg "DEVICE=$device" --build-arg "TPU_TYPE=$tpu_type" --target "$target" --tag "$image" .
    show_and_run docker push "$image"
  else
    show_and_run gcloud builds submit --project "$PROJECT" --config deploy/docker/cloudbuild.yaml \
      --substitutions "_IMAGE=$image,_DEVICE=$device,_TPU_TYPE=$tpu_type,_TARGET=$target" .
  fi
}

submit() {
  choose_image worker
  build_image
  local flags=(--input "$INPUT" --output "$OUTPUT" --runner DataflowRunner --project "$PROJECT"
    --region "$REGION" --temp_location "$BUCKET/tmp" --sdk_container_image "$image")
  [[ -z $ACCELERATOR ]] || flags+=(--accelerator "$ACCELERATOR")
  [[ -z $MODEL ]] || flags+=(--model "$MODEL")
  [[ -z $MAX_WORKERS ]] || flags+=(--max_num_workers "$MAX_WORKERS")
  [[ -z $SERVICE_ACCOUNT ]] || flags+=(--service_account_email "$SERVICE_ACCOUNT")
  [[ -z $SUBNETWORK ]] || flags+=(--subnetwork "$SUBNETWORK" --no_use_public_ips)
  local more
  read -r -a more <<< "$FLAGS"
  show_and_run "${PYTHON:-.venv/bin/python}" -m pipeline embed "${flags[@]}" "${more[@]}"
}

write_template() {
  choose_image template
  build_image
  show_and_run gcloud dataflow flex-template build "$template" \
    --project "$PROJECT" --image "$image" --sdk-language PYTHON \
    --metadata-file deploy/dataflow/metadata.json
}

# A launcher takes only the parameters that the template's metadata lists.
add_parameters() {
  local words word name
  read -r -a words <<< "$FLAGS"
  while ((${#words[@]})); do
    word=${words[0]}
    words=("${words[@]:1}")
    [[ $word == --?* ]] || die "FLAGS: $word is no flag"
    name=${word#--}
    name=${name%%=*}
    grep -q "\"name\": \"$name\"" deploy/dataflow/metadata.json \
      || die "FLAGS: --$name is no parameter of the template; see deploy/dataflow/metadata.json"
    if [[ $word == *=* ]]; then
      parameters+=";$name=${word#*=}"
    elif ((${#words[@]})) && [[ ${words[0]} != --* ]]; then
      parameters+=";$name=${words[0]}"
      words=("${words[@]:1}")
    else
      die "FLAGS: --$name has no value, which a template's parameter needs"
    fi
  done
}

launch() {
  choose_image template
  local parameters="input=$INPUT;output=$OUTPUT;sdk_container_image=$image"
  [[ -z $ACCELERATOR ]] || parameters+=";accelerator=$ACCELERATOR"
  [[ -z $MODEL ]] || parameters+=";model=$MODEL"
  add_parameters
  local flags=(--project "$PROJECT" --region "$REGION" --temp-location "$BUCKET/tmp")
  flags+=(--template-file-gcs-location "$template")
  [[ -z $MAX_WORKERS ]] || flags+=(--max-workers "$MAX_WORKERS")
  [[ -z $SERVICE_ACCOUNT ]] || flags+=(--service-account-email "$SERVICE_ACCOUNT")
  [[ -z $SUBNETWORK ]] || flags+=(--subnetwork "$SUBNETWORK" --disable-public-ips)
  show_and_run gcloud dataflow flex-template run bert-embed "${flags[@]}" --parameters "^;^$parameters"
}

[[ $# -ge 2 ]] || die "give submit, template or launch, and the file of variables"
print=${3:-}
[[ -z $print || $print == --print ]] || die "$print is not --print"
PROJECT='' REGION='' BUCKET='' REPOSITORY='' INPUT='' OUTPUT=''
ACCELERATOR='' MODEL='' MAX_WORKERS='' SERVICE_ACCOUNT='' SUBNETWORK='' FLAGS='' BUILD=cloud TAG=''
read_variables "$2"
case $1 in
  submit) submit ;;
  template) write_template ;;
  launch) launch ;;
  *) die "submit, template or launch, not $1" ;;
esac
