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

{{- /* The name of an image, at the mirror if there is one. Argument: root, name. */}}
{{- define "knack.mirrored" -}}
{{- $home := "ghcr.io/knack-dev/" -}}
{{- if and .root.Values.image.registry (hasPrefix $home .name) -}}
{{ .root.Values.image.registry }}/{{ trimPrefix $home .name }}
{{- else -}}
{{ .name }}
{{- end -}}
{{- end }}

{{- define "knack.image" -}}
{{- include "knack.imageOf" (dict "root" . "image" .Values.image "tag" .Values.image.tag) -}}
{{- end }}

{{- /* The image of gateways. Its tag is that of the other image unless it has one of its own: they are released together. */}}
{{- define "knack.gatewayImage" -}}
{{- include "knack.imageOf" (dict "root" . "image" .Values.gatewayImage "tag" (.Values.gatewayImage.tag | default .Values.image.tag)) -}}
{{- end }}

{{- /* An image by digest, else by tag, else of the chart's version. Argument: root, image (repository, digest), tag. */}}
{{- define "knack.imageOf" -}}
{{- $name := include "knack.mirrored" (dict "root" .root "name" .image.repository) -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else -}}
{{ $name }}:{{ .tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* The image of a SkillRuntime without one of its own. */}}
{{- define "knack.sandboxImage" -}}
{{- include "knack.mirrored" (dict "root" . "name" .Values.sandbox.images.python) -}}
{{- end }}

{{- /* Repositories of sandbox images that builders pull with their Secret, one per line. */}}
{{- define "knack.baseRepositories" -}}
{{- $names := .Values.admissionPolicy.imageAllowList }}
{{- if not $names }}
{{- $names = .Values.packages.baseRepositories | default list }}
{{- range $image := .Values.sandbox.images }}
{{- $names = append $names (regexReplaceAll "(:[^:/@]+)?(@.*)?$" (include "knack.mirrored" (dict "root" $ "name" $image)) "") }}
{{- end }}
{{- end }}
{{- join "\n" (uniq $names) -}}
{{- end }}

{{- /* The image that brings the runner; empty without one. */}}
{{- define "knack.runnerImage" -}}
{{- include "knack.mirrored" (dict "root" . "name" .Values.sandbox.runnerImage) -}}
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

{{- /* The namespaces that this release manages, sorted and joined by commas; * for all. */}}
{{- define "knack.scope" -}}
{{- if .Values.watchNamespaces -}}
{{- concat .Values.watchNamespaces (compact (splitList "\n" (include "knack.runtimeNamespaces" .))) | uniq | sortAlpha | join "," -}}
{{- else -}}*{{- end -}}
{{- end }}

{{- /*
Fails if another release manages the same namespaces: both controllers would overwrite each other's work for ever. Helm sees
the cluster only where it installs; controllers that meet in another way refuse by themselves.
*/}}
{{- define "knack.refuseRivals" -}}
{{- $own := splitList "," (include "knack.scope" .) -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- with (.metadata.annotations | default dict) | dig "knack.dev/scope" "" -}}
{{- if and (eq (get $labels "app.kubernetes.io/name") "knack") (ne (get $labels "app.kubernetes.io/instance") $.Release.Name) -}}
{{- $other := splitList "," . -}}
{{- range $other -}}
{{- if or (eq . "*") (has "*" $own) (has . $own) -}}
{{- fail (printf "the release %s of Knack is already in this cluster and manages %s: two releases would overwrite each other's status. Uninstall it, or give each release its own watchNamespaces" (get $labels "app.kubernetes.io/instance") (ternary "all namespaces" (printf "namespace %s" .) (eq . "*"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* The namespaces whose Skills the gateway of the cluster serves, in words. */}}
{{- define "knack.whoWrites" -}}
{{- $selector := .Values.defaultRuntime.spec | dig "skillSelector" "namespaceSelector" dict -}}
{{- if .Values.gateway.runtime -}}the namespaces that {{ .Values.gateway.runtime }} selects
{{- else if $selector -}}the namespaces that defaultRuntime.spec.skillSelector selects
{{- else if .Values.watchNamespaces -}}{{ join ", " .Values.watchNamespaces }}
{{- else -}}any namespace{{- end -}}
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
{{- with .settings.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* What a Deployment says before its containers, alike for every component. Arguments: root, component. */}}
{{- define "knack.deployment" -}}
{{- $settings := index .root.Values .component }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: knack-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "knack.labels" . | nindent 4 }}
spec:
  replicas: {{ $settings.replicas }}
  {{- with .strategy | default $settings.strategy }}
  strategy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "knack.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- with omit $settings.podLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- include "knack.labels" . | nindent 8 }}
      {{- with $settings.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: knack-{{ .component }}
      enableServiceLinks: false
      securityContext:
        {{- include "knack.podSecurity" .root | nindent 8 }}
      {{- include "knack.scheduling" (dict "root" .root "settings" $settings) | nindent 6 }}
{{- end }}

{{- /* Where a component listens, on any address of its pod. Argument: root, port. */}}
{{- define "knack.listen" -}}
{{ .root.Values.listenAddress }}:{{ .port }}
{{- end }}

{{- define "knack.sandboxClass" -}}
{{- include "knack.clusterName" (dict "root" . "part" "sandboxes") }}
{{- end }}

{{- define "knack.podSecurity" -}}
runAsNonRoot: true
seccompProfile: {type: RuntimeDefault}
{{- with .Values.podSecurityContext }}
{{ toYaml . }}
{{- end }}
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

{{- /*
Blocks of 1 MiB and more are given back to the system when they are free. Without a word the C library raises this bound to the
largest block that was ever freed, and then keeps as much in every thread's heap: a few large bodies would stay for ever.
*/}}
{{- define "knack.memory" -}}
- name: MALLOC_MMAP_THRESHOLD_
  value: "1048576"
{{- end }}

{{- /* Authorities of the installation's own: argument, mount and volume of a component; nothing without them. */}}
{{- define "knack.caArg" -}}
{{- with .Values.caBundle.configMap }}{{ if .name }}- --ca-file=/etc/knack/authorities/{{ .key }}{{ end }}{{ end -}}
{{- end }}
{{- define "knack.caMount" -}}
{{- if .Values.caBundle.configMap.name }}- {name: authorities, mountPath: /etc/knack/authorities, readOnly: true}{{ end -}}
{{- end }}
{{- define "knack.caVolume" -}}
{{- with .Values.caBundle.configMap }}
{{- if .name }}
- name: authorities
  configMap:
    name: {{ .name }}
    items:
      - {key: {{ .key }}, path: {{ .key }}}
{{- end }}
{{- end }}
{{- end }}

{{- /* Whether the registry keeps a history of executions: true or nothing. */}}
{{- define "knack.history" -}}
{{- if and .Values.registry.enabled .Values.registry.history.enabled }}true{{ end -}}
{{- end }}

{{- /* Whether the registry keeps files of gateways' clients: true or nothing. */}}
{{- define "knack.files" -}}
{{- if and .Values.registry.enabled .Values.registry.files.enabled }}true{{ end -}}
{{- end }}

{{- /* Where gateways reach the registry. */}}
{{- define "knack.registryUrl" -}}
https://knack-registry.{{ .Release.Namespace }}.svc:8444
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

{{- /*
Ports of name servers, for rules of egress. A NetworkPolicy sees the port of the pod, not of its Service: CoreDNS listens on 53, the
name servers of OpenShift on 5353.
*/}}
{{- define "knack.dnsPorts" -}}
- {protocol: UDP, port: 53}
- {protocol: TCP, port: 53}
- {protocol: UDP, port: 5353}
- {protocol: TCP, port: 5353}
{{- end }}

{{- /* Ports of the catalog that the registry installs skills from, each once, with spaces between; nothing without one. */}}
{{- define "knack.catalogPorts" -}}
{{- $ports := list }}
{{- with .Values.registry.catalog }}
{{- if .name }}
{{- range list .url .filesUrl }}
{{- /* The catalogs' own addresses are https. */}}
{{- $ports = append $ports (regexFind "[0-9]+$" (regexFind ":[0-9]+$" (urlParse .).host) | default (hasPrefix "http:" . | ternary "80" "443")) }}
{{- end }}
{{- end }}
{{- end }}
{{- $ports | uniq | join " " -}}
{{- end }}
