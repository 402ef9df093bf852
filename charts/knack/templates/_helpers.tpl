{{- /* Names of namespaced objects are fixed: the binary, the certificates and the docs use them. One release per namespace. */}}

{{- /* Name of cluster-scoped objects: carries the release, so that two releases live side by side. Argument: root, part. */}}
{{- define "knack.clusterName" -}}
{{- $base := ternary .root.Release.Name (printf "%s-knack" .root.Release.Name) (contains "knack" .root.Release.Name) -}}
{{- printf "%s-%s" $base .part -}}
{{- end }}

{{- /* Labels that select a component's pods. Argument: root, component. */}}
{{- define "knack.selectorLabels" -}}
app.kubernetes.io/name: knack
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* Labels of every object. Argument: root, component. */}}
{{- define "knack.labels" -}}
{{ include "knack.selectorLabels" . }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "knack.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* namespace/name of the cluster default; empty without one. */}}
{{- define "knack.defaultRuntime" -}}
{{- with .Values.defaultRuntime }}{{ if .enabled }}{{ .namespace }}/{{ .name }}{{ end }}{{ end -}}
{{- end }}

{{- /* Every namespace in which code may run, one per line. */}}
{{- define "knack.runtimeNamespaces" -}}
{{- $all := .Values.runtimeNamespaces -}}
{{- if .Values.defaultRuntime.enabled -}}
{{- $all = prepend $all .Values.defaultRuntime.namespace -}}
{{- end -}}
{{- join "\n" (uniq $all) -}}
{{- end }}

{{- /* namespace/name that the gateway serves. */}}
{{- define "knack.gatewayRuntime" -}}
{{- .Values.gateway.runtime | default (include "knack.defaultRuntime" .) | required "gateway.runtime: name a SkillRuntime as namespace/name, or enable defaultRuntime" -}}
{{- end }}

{{- /* Settings of a Deployment's pod that every component shares. Argument: root, settings. */}}
{{- define "knack.scheduling" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .settings.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .settings.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "knack.sandboxClass" -}}
{{- include "knack.clusterName" (dict "root" . "part" "sandboxes") }}
{{- end }}

{{- define "knack.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "knack.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Who a pod is, for leases, Events and the addresses that replicas tell each other. */}}
{{- /* The collector of traces, as environment variables; nothing without one. */ -}}
{{- define "knack.telemetry" -}}
{{- with .Values.monitoring.otlpEndpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{- define "knack.identity" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}

{{- define "knack.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end }}
