{{/* Objects come from the files of kustomize (files/), as parsed YAML, and are changed before they are printed. */}}

{{/* The documents of a file, as JSON in {"documents": [...]}. Argument: root, file. */}}
{{- define "dramaturg.documents" -}}
{{- $documents := list -}}
{{- range splitList "\n---\n" (.root.Files.Get .file | trimPrefix "---\n") -}}
{{- $documents = append $documents (fromYaml .) -}}
{{- end -}}
{{- toJson (dict "documents" $documents) -}}
{{- end -}}

{{/* Prints an object in the release's namespace. Argument: root, object. */}}
{{- define "dramaturg.print" -}}
{{- $metadata := .object.metadata -}}
{{- $labels := dict "app.kubernetes.io/managed-by" .root.Release.Service "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version) -}}
{{- $_ := set $metadata "namespace" .root.Release.Namespace -}}
{{- $_ := set $metadata "labels" (merge $labels (default dict $metadata.labels)) -}}
---
{{ toYaml .object }}
{{ end -}}

{{/* Prints the documents of a file. Argument: root, file. */}}
{{- define "dramaturg.file" -}}
{{- $root := .root -}}
{{- range (fromJson (include "dramaturg.documents" .)).documents }}
{{ include "dramaturg.print" (dict "root" $root "object" .) }}
{{- end -}}
{{- end -}}

{{/* Merges a list by a key as kustomize does. Arguments: into, patch (objects that hold the list), list, key. */}}
{{- define "dramaturg.list" -}}
{{- $key := .key -}}
{{- $changes := dict -}}
{{- range (default list (get .patch .list)) -}}{{- $_ := set $changes (get . $key) . -}}{{- end -}}
{{- $merged := list -}}
{{- $present := dict -}}
{{- range (default list (get .into .list)) -}}
{{- $name := get . $key -}}
{{- $_ := set $present $name true -}}
{{- $change := default . (get $changes $name) -}}
{{- if ne (toString (get $change "$patch")) "delete" -}}{{- $merged = append $merged $change -}}{{- end -}}
{{- end -}}
{{- range (default list (get .patch .list)) -}}
{{- if and (not (hasKey $present (get . $key))) (ne (toString (get . "$patch")) "delete") -}}{{- $merged = append $merged . -}}{{- end -}}
{{- end -}}
{{- if or $merged (hasKey .into .list) -}}{{- $_ := set .into .list $merged -}}{{- end -}}
{{- end -}}

{{/* Merges a patch of a Deployment or Job into it, as kustomize does. Arguments: into, patch. */}}
{{- define "dramaturg.patch" -}}
{{- $pod := .into.spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- with .patch.spec.template.spec -}}
{{- range $field, $value := omit . "containers" "volumes" -}}{{- $_ := set $pod $field $value -}}{{- end -}}
{{- include "dramaturg.list" (dict "into" $pod "patch" . "list" "volumes" "key" "name") -}}
{{- range .containers -}}
{{- range $field, $value := omit . "name" "env" "ports" "volumeMounts" "resources" -}}{{- $_ := set $container $field $value -}}{{- end -}}
{{- include "dramaturg.list" (dict "into" $container "patch" . "list" "env" "key" "name") -}}
{{- include "dramaturg.list" (dict "into" $container "patch" . "list" "ports" "key" "name") -}}
{{- include "dramaturg.list" (dict "into" $container "patch" . "list" "volumeMounts" "key" "mountPath") -}}
{{- with .resources -}}{{- $_ := set $container "resources" (mergeOverwrite (deepCopy $container.resources) .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A value of an environment variable. Values come as floats, whose exponents the services do not read. Argument: the value. */}}
{{- define "dramaturg.variable" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}{{- printf "%.0f" . -}}{{- else -}}{{- toString . -}}{{- end -}}
{{- end -}}

{{/* The keys of a TOML table with the given name, nested tables with their full names. Arguments: name, table. */}}
{{- define "dramaturg.table" -}}
{{- regexReplaceAll "(?m)^(\\s*\\[+)" (toToml .table) (printf "${1}%s." .name) -}}
{{- end -}}

{{/* The reference of an image. Arguments: root, name. */}}
{{- define "dramaturg.image" -}}
{{- $image := get .root.Values.images .name | required (printf "images.%s is missing" .name) -}}
{{- $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag }}{{ end }}
{{- end -}}

{{/* What all pods have in common, after every patch. Arguments: root, object. */}}
{{- define "dramaturg.pod" -}}
{{- $pod := .object.spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- with .root.Values.imagePullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- range $field, $value := .root.Values.scheduling -}}{{- if $value -}}{{- $_ := set $pod $field $value -}}{{- end -}}{{- end -}}
{{- with .root.Values.cpuLimit -}}{{- $_ := set $container.resources.limits "cpu" . -}}{{- end -}}
{{- if .root.Values.assignedUids -}}{{- $_ := set $pod "securityContext" (omit $pod.securityContext "runAsUser" "runAsGroup" "fsGroup") -}}{{- end -}}
{{- end -}}

{{/* The patch of mutual TLS, with the trust domain and the group that reads the certificates. */}}
{{- define "dramaturg.mtls" -}}
{{- if and .Values.tls.enabled .Values.assignedUids (not .Values.tls.fsGroup) -}}
{{- fail "tls with assignedUids requires tls.fsGroup, the group id of the namespace" -}}
{{- end -}}
{{- $group := .Values.tls.fsGroup | default 65532 | int64 | toString | quote -}}
{{- .Files.Get "files/components/mtls/deployment.yaml" | replace "cluster.local" .Values.tls.trustDomain | replace "\"65532\"" $group -}}
{{- end -}}
