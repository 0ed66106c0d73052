{{/* The labels of every object. Arguments: root, name, component. */}}
{{- define "dramaturg.labels" -}}
app.kubernetes.io/part-of: dramaturg
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- with .name }}
app.kubernetes.io/name: {{ . }}
{{- end }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- if not .pod }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The metadata of an object. Arguments: root, name, and optionally for (the service that it is of), component. */}}
{{- define "dramaturg.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "dramaturg.labels" (dict "root" .root "name" .for "component" .component) | nindent 2 }}
{{- end -}}

{{/* The reference of an image. Arguments: root, torch. */}}
{{- define "dramaturg.image" -}}
{{- $image := ternary .root.Values.torchImage .root.Values.image (default false .torch) -}}
{{- with .root.Values.global.imageRegistry }}{{ . }}/{{ end }}{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end -}}

{{/* The security context of every pod. */}}
{{- define "dramaturg.podSecurity" -}}
runAsNonRoot: true
{{- if not .Values.assignedUids }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "dramaturg.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "dramaturg.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The rule of a policy that lets names be asked for. */}}
{{- define "dramaturg.names" -}}
- to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}
      podSelector: {matchLabels: {k8s-app: kube-dns}}
  ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
{{- end -}}

{{/* Where runs and completions are: postgres or sqlite. */}}
{{- define "dramaturg.store" -}}
{{- .Values.store.type | default (ternary "sqlite" "postgres" (eq .Values.size "single")) -}}
{{- end -}}

{{/* The variables of a database. Arguments: root, names (of the variables with its address), application (who connects), secret. */}}
{{- define "dramaturg.database" -}}
{{- $store := .root.Values.store -}}
{{- range .names }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ $.secret | default $store.urlSecret.name }}, key: {{ $store.urlSecret.key }}}}
{{- end }}
- {name: PGAPPNAME, value: {{ .application }}}
{{- if $store.caSecret.name }}
# The certificate of the database must be valid for its host name.
- {name: PGSSLMODE, value: verify-full}
- {name: PGSSLROOTCERT, value: /etc/dramaturg/store/ca.crt}
{{- end }}
{{- end -}}

{{/* The volume with the certificate of a pod. */}}
{{- define "dramaturg.certificate" -}}
{{- if and .Values.assignedUids (not .Values.tls.fsGroup) }}{{ fail "tls with assignedUids requires tls.fsGroup, the group id of the namespace" }}{{ end -}}
- name: tls
  csi:
    driver: csi.cert-manager.io
    readOnly: true
    volumeAttributes:
      csi.cert-manager.io/issuer-name: dramaturg
      csi.cert-manager.io/dns-names: ${SERVICE_ACCOUNT_NAME},${SERVICE_ACCOUNT_NAME}.${POD_NAMESPACE},${SERVICE_ACCOUNT_NAME}.${POD_NAMESPACE}.svc,${SERVICE_ACCOUNT_NAME}.${POD_NAMESPACE}.svc.{{ .Values.tls.clusterDomain }}
      csi.cert-manager.io/uri-sans: spiffe://{{ .Values.tls.trustDomain }}/ns/${POD_NAMESPACE}/sa/${SERVICE_ACCOUNT_NAME}
      csi.cert-manager.io/key-usages: digital signature,server auth,client auth
      csi.cert-manager.io/key-algorithm: ECDSA
      csi.cert-manager.io/key-size: "256"
      csi.cert-manager.io/duration: 24h
      csi.cert-manager.io/renew-before: 8h
      csi.cert-manager.io/fs-group: {{ .Values.tls.fsGroup | default 65532 | int64 | toString | quote }}
{{- end -}}
