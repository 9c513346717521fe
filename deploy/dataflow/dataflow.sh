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

trimmed() {
  local text=${1#"${1%%[![:space:]]*}"}
  printf '%s' "${text%"${text##*[![:space:]]}"}"
}

read_variables() {
  [[ -f $1 ]] || die "$1 is not there: copy deploy/dataflow/variables.env.example to it and fill it in"
  local name value examples=()
  # The last line may have no end, lines of Windows end in CRLF, and blanks around a value are none of it.
  while IFS='=' read -r name value || [[ -n $name ]]; do
    name=$(trimmed "$name") value=$(trimmed "$value")
    [[ -z $name || $name == \#* ]] && continue
    [[ $name =~ ^(PROJECT|REGION|BUCKET|REPOSITORY|INPUT|OUTPUT|ACCELERATOR|MODEL|MAX_WORKERS|SERVICE_ACCOUNT|SUBNETWORK|FLAGS|BUILD|BUILD_ACCOUNT|TAG)$ ]] \
      || die "$1: $name is none of the variables of variables.env.example"
    [[ $value != *[\"\']* ]] || die "$1: $name has quotes, leave them out: its value is all behind the ="
    printf -v "$name" '%s' "$value"
  done < "$1"
  for name in PROJECT REGION BUCKET REPOSITORY INPUT OUTPUT; do
    [[ -n ${!name} ]] || die "$1: $name is empty"
    [[ ${!name} != my-project && /${!name}/ != */my-project/* && /${!name}/ != */my-bucket/* ]] \
      || examples+=("$name has the example's value ${!name},")
  done
  [[ ${#examples[@]} == 0 ]] || die "$1: ${examples[*]} give your own"
  [[ $BUCKET == gs://?* ]] || die "$1: BUCKET $BUCKET does not begin with gs://"
  [[ -z $MAX_WORKERS || $MAX_WORKERS =~ ^[1-9][0-9]*$ ]] || die "$1: MAX_WORKERS $MAX_WORKERS is no number above 0"
  [[ -z $BUILD || $BUILD == cloud || $BUILD == docker ]] || die "$1: BUILD $BUILD is none of cloud, docker"
  local path=${REPOSITORY#*/}
  [[ ${path%%/*} == "$PROJECT" ]] \
    || die "$1: REPOSITORY is in the project ${path%%/*}, PROJECT is $PROJECT: give one project"
}

# The commit; with a digest of all files where they differ from it.
state_of_tree() {
  local commit
  commit=$(git rev-parse --short=12 HEAD) || die "this is no clone of git: give a TAG"
  if [[ -n $(git status --porcelain) ]]; then
    commit+=-$(git ls-files -z --cached --others --exclude-standard \
      | xargs -0 sha256sum 2> /dev/null | sha256sum | cut -c 1-12)
  fi
  echo "$commit"
}

choose_image() { # worker|template
  local known="t4, l4, a100, a100-80gb, h100, v5e, v6e, t4-2, l4-2, a100-2, a100-80gb-2, h100-2, t4-4, l4-4, a100-4,"
  known+=" a100-80gb-4, h100-4, v5e-4, v6e-4, l4-8, a100-8, a100-80gb-8, h100-8, v5e-8, v6e-8"
  [[ -z $ACCELERATOR || ", $known, " == *", ${ACCELERATOR%-1}, "* ]] || die "ACCELERATOR $ACCELERATOR is none of $known"
  case $ACCELERATOR in
    "") device=cpu ;;
    v*) device=tpu ;;
    *) device=gpu ;;
  esac
  target=$1
  name=bert-embed-$device
  local tag
  # Workers need the Python of the command that submits, which reads it off the tag.
  minor=$("${PYTHON:-.venv/bin/python}" -c 'import sys; print(sys.version_info.minor)') \
    || die "${PYTHON:-.venv/bin/python} does not run: make install"
  tag=${TAG#"py3$minor-"}
  [[ ! $tag =~ ^py3[0-9]+- ]] || die "TAG $TAG is of another Python than ${PYTHON:-.venv/bin/python}, which is 3.$minor"
  tag=py3$minor-${tag:-$(state_of_tree)} # so that a launcher never starts workers of another version
  template=$BUCKET/templates/$name-$tag.json
  [[ $target == worker ]] || name+=-template
  image=$REPOSITORY/$name:$tag
}

build_image() {
  if [[ -z $print ]]; then
    local answer
    if answer=$(gcloud artifacts docker images describe "$image" --project "$PROJECT" 2>&1); then
      echo "$image is there"
      return
    fi
    [[ $answer == *"Image not found"* ]] || die "gcloud cannot say whether $image is there: $answer"
  fi
  if [[ $BUILD == docker ]]; then
    show_and_run env DOCKER_BUILDKIT=1 docker build --platform linux/amd64 --file deploy/docker/Dockerfile \
      --build-arg "DEVICE=$device" --build-arg "PYTHON_MINOR=$minor" --target "$target" --tag "$image" .
    show_and_run docker push "$image"
  else
    local account=()
    [[ -z $BUILD_ACCOUNT ]] || account=(--service-account "projects/$PROJECT/serviceAccounts/$BUILD_ACCOUNT")
    show_and_run gcloud builds submit --project "$PROJECT" --region "$REGION" "${account[@]}" \
      --gcs-source-staging-dir "$BUCKET/tmp/build" --config deploy/docker/cloudbuild.yaml \
      --substitutions "_IMAGE=$image,_CACHE=${image%:*}:cache-py3$minor,_DEVICE=$device,_PYTHON_MINOR=$minor,_TARGET=$target" .
  fi
}

submit() {
  choose_image worker
  local flags=(--input "$INPUT" --output "$OUTPUT" --runner DataflowRunner --project "$PROJECT"
    --region "$REGION" --temp_location "$BUCKET/tmp" --sdk_container_image "$image")
  [[ -z $ACCELERATOR ]] || flags+=(--accelerator "$ACCELERATOR")
  [[ -z $MODEL ]] || flags+=(--model "$MODEL")
  [[ -z $MAX_WORKERS ]] || flags+=(--max_num_workers "$MAX_WORKERS")
  [[ -z $SERVICE_ACCOUNT ]] || flags+=(--service_account_email "$SERVICE_ACCOUNT")
  [[ -z $SUBNETWORK ]] || flags+=(--subnetwork "$SUBNETWORK" --no_use_public_ips)
  local more
  read -r -a more <<< "$FLAGS"
  local embed=("${PYTHON:-.venv/bin/python}" -m bert_embed embed "${flags[@]}" "${more[@]}")
  # What it refuses it refuses before an image is built.
  [[ -n $print ]] || "${embed[@]}" --dry_run > /dev/null
  build_image
  show_and_run "${embed[@]}"
}

write_template() {
  choose_image template
  build_image
  show_and_run gcloud dataflow flex-template build "$template" \
    --project "$PROJECT" --image "$image" --sdk-language PYTHON \
    --metadata-file deploy/dataflow/metadata.json
}

# What gcloud takes itself; the rest are parameters, of which a launcher takes those of the metadata.
add_flag() { # name value
  case $1 in
    job_name) job_name=$2 ;;
    machine_type) flags+=(--worker-machine-type "$2") ;;
    max_num_workers) flags+=(--max-workers "$2") ;;
    labels) flags+=(--additional-user-labels "$2") ;;
    experiments) flags+=(--additional-experiments "$2") ;;
    worker_zone | num_workers | network | subnetwork | staging_location | dataflow_kms_key | flexrs_goal | service_account_email)
      flags+=("--${1//_/-}" "$2")
      ;;
    *)
      grep -q "\"name\": \"$1\"" deploy/dataflow/metadata.json \
        || die "FLAGS: --$1 is no parameter of the template; see deploy/dataflow/metadata.json"
      parameters+=("$1=$2")
      ;;
  esac
}

add_flags() {
  local words word name
  read -r -a words <<< "$FLAGS"
  while ((${#words[@]})); do
    word=${words[0]}
    words=("${words[@]:1}")
    [[ $word == --?* ]] || die "FLAGS: $word is no flag"
    name=${word#--}
    name=${name%%=*}
    if [[ $word == *=* ]]; then
      add_flag "$name" "${word#*=}"
    elif ((${#words[@]})) && [[ ${words[0]} != --* ]]; then
      add_flag "$name" "${words[0]}"
      words=("${words[@]:1}")
    elif grep -A 5 "\"name\": \"${name#no_}\"" deploy/dataflow/metadata.json | grep -q BOOLEAN; then
      add_flag "${name#no_}" "$([[ $name == no_* ]] && echo false || echo true)"
    else
      die "FLAGS: --$name has no value, which a template's parameter needs"
    fi
  done
}

# gcloud separates parameters by what stands between the carets, which no value may have.
joined() {
  local separator all
  for separator in ';' '|' '~' '@@' ';;;'; do
    [[ "$*" == *"$separator"* ]] && continue
    all=$(printf "${separator}%s" "$@")
    echo "^$separator^${all#"$separator"}"
    return
  done
  die "FLAGS has every character that could separate parameters (; | ~ @@)"
}

launch() {
  choose_image template
  # While a job runs, a second one of its output and day is refused.
  local job_name
  job_name=bert-embed-$(printf '%s %s' "$INPUT" "$OUTPUT" | sha256sum | cut -c 1-8)-$(date -u +%Y%m%d)
  local parameters=("sdk_container_image=$image" "input=$INPUT" "output=$OUTPUT")
  # The same launch again, after midnight, too, is of the same day.
  [[ "$INPUT $OUTPUT $FLAGS" != *"{"* ]] || parameters+=("today=$(date -u +%F)")
  [[ -z $ACCELERATOR ]] || parameters+=("accelerator=$ACCELERATOR")
  [[ -z $MODEL ]] || parameters+=("model=$MODEL")
  local flags=(--project "$PROJECT" --region "$REGION" --temp-location "$BUCKET/tmp")
  flags+=(--template-file-gcs-location "$template" --launcher-machine-type n2-standard-4)
  [[ -z $MAX_WORKERS ]] || flags+=(--max-workers "$MAX_WORKERS")
  [[ -z $SERVICE_ACCOUNT ]] || flags+=(--service-account-email "$SERVICE_ACCOUNT")
  [[ -z $SUBNETWORK ]] || flags+=(--subnetwork "$SUBNETWORK" --disable-public-ips)
  add_flags
  show_and_run gcloud dataflow flex-template run "$job_name" "${flags[@]}" \
    --parameters "$(joined "${parameters[@]}")"
}

[[ $# -ge 2 ]] || die "give submit, template or launch, and the file of variables"
[[ $1 =~ ^(submit|template|launch)$ ]] || die "submit, template or launch, not $1"
print=${3:-}
[[ -z $print || $print == --print ]] || die "$print is not --print"
PROJECT='' REGION='' BUCKET='' REPOSITORY='' INPUT='' OUTPUT=''
ACCELERATOR='' MODEL='' MAX_WORKERS='' SERVICE_ACCOUNT='' SUBNETWORK='' FLAGS='' BUILD=cloud BUILD_ACCOUNT='' TAG=''
read_variables "$2"
case $1 in
  submit) submit ;;
  template) write_template ;;
  launch) launch ;;
esac
