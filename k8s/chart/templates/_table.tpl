{{/* The services. `settings` are lines of their tables, `group` is the Deployment that serves them in the size `standard`; `roles` are those of judges. */}}
{{- define "dramaturg.table" -}}
gateway:
  contract: dramaturg.api.evaluation.v1.EvaluationService
  stores: [DRAMATURG_RUNS_URL]
  calls: []
  # Two processes that read datasets and two that compute reports may take 1.5 GiB besides their code
  # (DRAMATURG_RUNS_DATASET_MEMORY_BYTES, DRAMATURG_GATEWAY_WORKER_PROCESSES, DRAMATURG_GATEWAY_WORKER_MEMORY_BYTES).
  # The kernel ends them first. Datasets are copied to files when they are read: two at once, each of at most
  # DRAMATURG_RUNS_MAX_UPLOAD_BYTES (1 GiB).
  resources:
    requests: {cpu: 250m, memory: {{ ternary "640Mi" "384Mi" (eq .Values.size "single") }}, ephemeral-storage: 64Mi}
    limits: {memory: {{ ternary "3Gi" "2Gi" (eq .Values.size "single") }}, ephemeral-storage: 3Gi}
  temporary: 2560Mi
  # Calls drain first, then the samples of runs (DRAMATURG_RUNS_DRAIN_TIMEOUT_SECONDS, 20).
  graceSeconds: 100
generation:
  contract: dramaturg.api.generation.v1.GenerationService
  stores: [DRAMATURG_GENERATION_LEDGER_URL]
  calls: []
  resources: {requests: {cpu: 250m, memory: 256Mi}, limits: {memory: 1Gi}}
  roles: [author, edges]
embedding:
  contract: dramaturg.api.embedding.v1.EmbeddingService
  calls: []
  settings: [preload = true]
  resources: {requests: {cpu: "1", memory: 384Mi}, limits: {memory: 1Gi}}
  roles: [embedding]
  judge: built-in
{{- range $group, $judges := dict "agents" (list "synthesize" "critic" "execute" "commonsense") "judging" (list "script-judge" "pair-judge" "rating-judge" "rubric-judge" "challenge-judge" "rule-judge") }}
{{- range $judges }}
{{ . }}:
  contract: dramaturg.api.{{ get (dict "synthesize" "agents.v1.SynthesizeService" "pair-judge" "judging.v1.PairJudgeService" "rating-judge" "judging.v1.RatingJudgeService" "challenge-judge" "judging.v1.ChallengeJudgeService") . | default "judging.v1.JudgeService" }}
  group: {{ $group }}
  calls: {{ ternary "[]" "[generation]" (eq . "rule-judge") }}
  {{- if eq . "rule-judge" }}
  judge: built-in
  {{- end }}
  {{- if or (eq $group "agents") (eq . "rubric-judge") }}
  offline: {{ ternary "[embedding]" "[]" (eq $group "agents") }}
  {{- end }}
  roles: [{{ . }}]
{{- end }}
{{- end }}
roles:
  contract: dramaturg.api.roles.v1.RoleService
  calls: [generation, embedding]
  roles: [roles]
graph:
  contract: dramaturg.api.graph.v1.GraphService
  calls: []
  # Otherwise there are half as many as the node has processors. A solver takes a processor while it works.
  settings: [solvers = 2]
  resources: {requests: {cpu: "1", memory: 384Mi}, limits: {memory: 1Gi}}
  roles: [graph]
  judge: built-in
alignment:
  contract: dramaturg.api.alignment.v1.AlignmentService
  calls: [embedding]
  roles: [alignment]
  judge: built-in
# The output of `dramaturg research graphs train` is in the folder `edges` of the volume `edge-model`.
edges:
  enabled: false
  contract: dramaturg.api.generation.v1.EdgeService
  calls: []
  torch: true
  settings: ['model_dir = "/models/edges"', preload = true]
  resources: {requests: {cpu: "1", memory: 1Gi}, limits: {memory: 3Gi}}
  # A model that is not in the folder must not be looked for on the web.
  extraEnv: [{name: HF_HUB_OFFLINE, value: "1"}]
  extraVolumes: [{name: model, persistentVolumeClaim: {claimName: edge-model, readOnly: true}}]
  extraVolumeMounts: [{name: model, mountPath: /models, readOnly: true}]
  roles: [edges]
  judge: trained
{{- end -}}

{{/*
The Deployments as JSON: {deployments: [{name, row, members, judges, port}]}. A group has the keys of `services` with its
own name. Its members listen on the ports from 50061 on.
*/}}
{{- define "dramaturg.deployments" -}}
{{- $root := . -}}
{{- $values := .Values -}}
{{- $found := list -}}
{{- $groups := dict -}}
{{- $base := dict "enabled" true "image" "" "calls" list "resources" (dict "requests" (dict "cpu" "100m" "memory" "192Mi" "ephemeral-storage" "64Mi") "limits" (dict "memory" "512Mi" "ephemeral-storage" "256Mi")) "temporary" "64Mi" "graceSeconds" 75 "stores" list -}}
{{- $table := include "dramaturg.table" . | fromYaml -}}
{{- range $name, $own := $values.services -}}
{{- if not (or (hasKey $table $name) (has $name (list "agents" "judging"))) -}}
{{- if not (and $own.contract $own.image) }}{{ fail (printf "services.%s is none of this chart's: one of your own has `contract` and `image`" $name) }}{{ end -}}
{{- $_ := set $table $name dict -}}
{{- end -}}
{{- end -}}
{{- range $name, $built := $table -}}
{{- $own := default dict (get $values.services $name) -}}
{{- $row := mergeOverwrite (deepCopy $base) (deepCopy $built) (deepCopy $values.defaults) (deepCopy $own) -}}
{{- range list "extraEnv" "extraEnvFrom" "extraVolumes" "extraVolumeMounts" "extraInitContainers" -}}
{{- $_ := set $row . (concat (get $built . | default list) (get $values.defaults . | default list) (get $own . | default list)) -}}
{{- end -}}
{{- $settings := default list $built.settings -}}
{{- if and (eq $values.backend "offline") (hasKey $row "offline") -}}
{{- $_ := set $row "calls" $row.offline -}}
{{- $_ := set $row "judge" "offline" -}}
{{- $settings = list "backend = \"offline\"" -}}
{{- end -}}
{{- if and (hasKey $own "callsModels") (not $own.callsModels) -}}{{- $_ := set $row "calls" (without $row.calls "generation") -}}{{- end -}}
{{- if ne $values.size "single" -}}
{{- range $row.calls -}}{{- $settings = append $settings (printf "%s_target = \"%s:50051\"" . .) -}}{{- end -}}
{{- end -}}
{{- $text := "" -}}
{{- if eq $name "gateway" -}}
{{- $text = "# The judges are files of the ConfigMap `judges`.\n[gateway]\njudges_dir = \"/etc/dramaturg/judges\"\n" -}}
{{- with $values.quotas -}}{{- $text = printf "%s\n%s" $text (toToml (dict "quotas" .)) -}}{{- end -}}
{{- else if eq $name "generation" -}}
{{- $keyed := dict "name" "openai" "kind" "chat" "api_key_file" "/etc/dramaturg/providers/openai" -}}
{{- range $values.providers | default (ternary list (list $keyed) (eq $values.backend "offline")) -}}
{{- /* One table after the other, in the order of the values; without the headers and the indent of those around it. */ -}}
{{- $provider := dict "generation" (dict "providers" (dict .name (omit . "name"))) | toToml -}}
{{- $provider = trimPrefix "[generation]\n  [generation.providers]\n" $provider | printf "\n%s" | replace "\n    " "\n" -}}
{{- $text = printf "%s%s" $text (trimPrefix "\n" $provider) -}}
{{- end -}}
{{- else if $settings -}}
{{- $text = printf "[%s]\n%s\n" $name (join "\n" $settings) -}}
{{- end -}}
{{- $_ := set $row "text" ($own.configuration | default $text) -}}
{{- $apart := or (eq $values.size "separate") $row.separate $row.image -}}
{{- $one := dict "name" $name "row" $row "members" (list $name) "judges" (list $name) "port" 50051 -}}
{{- if and (eq $values.size "single") (not $apart) -}}
{{- if $row.enabled -}}{{- $_ := set $groups "gateway" (append (get $groups "gateway" | default list) $one) -}}{{- end -}}
{{- else if and $row.group (eq $values.size "standard") -}}
{{- /* A member that is apart keeps its port, so that those of the others stay. */ -}}
{{- $_ := set $one "apart" (or $apart (not $row.enabled)) -}}
{{- $_ := set $groups $row.group (append (get $groups $row.group | default list) $one) -}}
{{- if and $apart $row.enabled -}}{{- $found = append $found (omit $one "apart") -}}{{- end -}}
{{- else if $row.enabled -}}
{{- $found = append $found $one -}}
{{- end -}}
{{- end -}}
{{- range $name, $ones := $groups -}}
{{- $own := default dict (get $values.services $name) -}}
{{- $row := dict -}}
{{- $members := list -}}{{- $judges := list -}}{{- $texts := list -}}{{- $calls := list -}}{{- $stores := list -}}
{{- range $ones -}}
{{- $members = append $members .name -}}
{{- if not .apart -}}
{{- $judges = append $judges .name -}}
{{- if or (not $row) (eq .name $name) -}}{{- $row = deepCopy .row -}}{{- end -}}
{{- end -}}
{{- with .row.text -}}{{- $texts = append $texts . -}}{{- end -}}
{{- $calls = concat $calls .row.calls | uniq -}}
{{- $stores = concat $stores .row.stores -}}
{{- end -}}
{{- if $judges -}}
{{- if eq $name "gateway" -}}
{{- $_ := set $row "stores" $stores -}}
{{- else -}}
{{- $row = mergeOverwrite (deepCopy $base) (deepCopy $values.defaults) (deepCopy (omit $own "configuration")) (dict "contract" "dramaturg.api.judging.v1.JudgeService" "calls" $calls) -}}
{{- end -}}
{{- $_ := set $row "text" ($own.configuration | default (join "\n" $texts)) -}}
{{- $found = append $found (dict "name" $name "row" $row "members" $members "judges" $judges "port" (ternary 50051 50061 (eq $name "gateway"))) -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "deployments" $found) -}}
{{- end -}}
