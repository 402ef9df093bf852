{{- /* The SkillRuntime of sidecars whose pod names none; empty if there is none. */}}
{{- define "knack.injectionRuntime" -}}
{{- .Values.injection.runtime | default (include "knack.defaultRuntime" .) | default .Values.gateway.runtime -}}
{{- end }}

{{- /* How pods get the sidecar: Policy, Webhook, or None. Auto asks the API server, which `helm template` does not see. */}}
{{- define "knack.injectionDelivery" -}}
{{- $wanted := .Values.injection.delivery -}}
{{- if and (ne $wanted "None") (not (include "knack.injectionRuntime" .)) -}}
{{- if ne $wanted "Auto" }}{{ fail "injection.runtime: name a SkillRuntime as namespace/name, or enable defaultRuntime" }}{{ end -}}
None
{{- else if ne $wanted "Auto" -}}
{{ $wanted }}
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
Policy
{{- else -}}
Webhook
{{- end -}}
{{- end }}

{{- /*
The deliveries that are made: the one that is wanted, and the other one beside it in the upgrade that changes from one to the
other. A policy is in force about a second after it is made, and a webhook when the controller has its certificate; what is
there already stays until the next upgrade. A pod that has the sidecar gets no second one. Helm sees the cluster only where it installs.
*/}}
{{- define "knack.injectionDeliveries" -}}
{{- $wanted := include "knack.injectionDelivery" . -}}
{{- $name := include "knack.clusterName" (dict "root" . "part" "injection") -}}
{{- $policy := dict -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- $policy = lookup "admissionregistration.k8s.io/v1" "MutatingAdmissionPolicy" "" $name -}}
{{- end -}}
{{- $webhook := lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" $name -}}
{{- $called := false -}}
{{- range ($webhook | default dict).webhooks }}{{ if .clientConfig.caBundle }}{{ $called = true }}{{ end }}{{ end -}}
{{- $wanted -}}
{{- if and (eq $wanted "Policy") $webhook (not $policy) }} Webhook{{ end -}}
{{- if and (eq $wanted "Webhook") $policy (not $called) }} Policy{{ end -}}
{{- end }}

{{- /* Whether a delivery is made: true or nothing. Arguments: root, delivery. */}}
{{- define "knack.injectionBy" -}}
{{- if has .delivery (splitList " " (include "knack.injectionDeliveries" .root)) }}true{{ end -}}
{{- end }}

{{- /* Conditions under which a pod is left alone, for policy and webhook. */}}
{{- define "knack.injectionConditions" -}}
# An API server refuses a mirror that is not as its kubelet made it.
- name: not-the-mirror-of-a-static-pod
  expression: "!('kubernetes.io/config.mirror' in object.metadata.?annotations.orValue({}))"
- name: not-there-yet
  expression: "!(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, c.name == 'knack-gateway')"
{{- end }}

{{- /* The ClusterTrustBundle with the hub's authorities; empty: ConfigMaps. Helm sees what is served only where it installs: a pod with a
       volume of a kind that is not served is refused. */}}
{{- define "knack.trustBundle" -}}
{{- if eq .Values.injection.authorities "ClusterTrustBundle" -}}
{{- $served := or (.Capabilities.APIVersions.Has "certificates.k8s.io/v1/ClusterTrustBundle") (.Capabilities.APIVersions.Has "certificates.k8s.io/v1beta1/ClusterTrustBundle") -}}
{{- if and (not $served) (lookup "v1" "Namespace" "" "kube-system") -}}
{{- fail "injection.authorities: the API server serves no ClusterTrustBundle (Kubernetes 1.37, or its feature gate); set ConfigMap" -}}
{{- end -}}
{{ include "knack.clusterName" (dict "root" . "part" "hub-ca") }}
{{- end -}}
{{- end }}

{{- /* A quantity of the schema's form as a number. */}}
{{- define "knack.quantity" -}}
{{- $units := dict "m" 0.001 "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 -}}
{{- $unit := regexFind "[A-Za-z]*$" (toString .) -}}
{{- mulf (trimSuffix $unit (toString .) | float64) (get $units $unit) -}}
{{- end }}

{{- /* An API server refuses pods whose requests are above their limits: every pod that asks for the sidecar would be. */}}
{{- define "knack.refuseRequestsAboveLimits" -}}
{{- $resources := .Values.injection.resources -}}
{{- range $name := list "cpu" "memory" "ephemeral-storage" -}}
{{- $request := get $resources.requests $name -}}
{{- $limit := get $resources.limits $name -}}
{{- if and (hasKey $resources.requests $name) (hasKey $resources.limits $name) (gt (include "knack.quantity" $request | float64) (include "knack.quantity" $limit | float64)) -}}
{{- fail (printf "injection.resources: the request of %s (%v) is above its limit (%v)" $name $request $limit) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* With less memory no container starts, and with less storage a kubelet evicts the pod. A memory limit of 0 is none, one of storage is not. */}}
{{- define "knack.refuseSmallLimits" -}}
{{- range $name, $limit := pick .Values.injection.resources.limits "memory" "ephemeral-storage" -}}
{{- $least := get (dict "memory" "6Mi" "ephemeral-storage" "1Mi") $name -}}
{{- $number := include "knack.quantity" $limit | float64 -}}
{{- $none := and (eq $name "memory") (eq $number 0.0) -}}
{{- if and (not $none) (lt $number (include "knack.quantity" $least | float64)) -}}
{{- fail (printf "injection.resources: the limit of %s (%v) is below %s, the minimum for a sidecar" $name $limit $least) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* What is injected: the parameters of crates/injection, whose parameters.yaml is this with the defaults. */}}
{{- define "knack.injectionParameters" -}}
{{- include "knack.refuseSmallLimits" . -}}
{{- include "knack.refuseRequestsAboveLimits" . -}}
container:
  name: knack-gateway
  {{- /* In quotes, the first of the text: docs/kubernetes.md has a replacement of kustomize that finds it by them. */}}
  image: {{ include "knack.gatewayImage" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  restartPolicy: Always
  env:
    - {name: KNACK_LISTEN, value: "127.0.0.1:4141"}
    - {name: KNACK_METRICS_LISTEN, value: "127.0.0.1:4142"}
    - {name: KNACK_HUB, value: "https://knack-hub.{{ .Release.Namespace }}.svc:8443"}
    - {name: KNACK_HUB_CA, value: /etc/knack/ca/ca.crt}
    {{- if .Values.registry.enabled }}
    - {name: KNACK_REGISTRY, value: {{ include "knack.registryUrl" . | quote }}}
    {{- end }}
    {{- if include "knack.history" . }}
    - {name: KNACK_HISTORY, value: {{ include "knack.registryUrl" . | quote }}}
    {{- end }}
    {{- if include "knack.files" . }}
    - {name: KNACK_FILES_REGISTRY, value: {{ include "knack.registryUrl" . | quote }}}
    {{- end }}
    {{- if .Values.injection.mcp.enabled }}
    - {name: KNACK_MCP, value: "true"}
    {{- end }}
    - {name: KNACK_TOKEN_FILE, value: /var/run/secrets/kubernetes.io/serviceaccount/token}
    - {name: KNACK_CATALOG_DIR, value: /tmp/catalog}
    - {name: KNACK_DEFAULT_RUNTIME, value: {{ include "knack.injectionRuntime" . }}}
    - {name: KNACK_START_WAIT_SECONDS, value: "0"}
    - {name: KNACK_SHUTDOWN_PAUSE_SECONDS, value: "0"}
    - {name: KNACK_DRAIN_SECONDS, value: "600"}
    - {name: MALLOC_MMAP_THRESHOLD_, value: "1048576"}
    {{- with .Values.injection.logLevel }}
    - {name: KNACK_LOG, value: {{ . | quote }}}
    {{- end }}
  envFrom:
    - configMapRef: {name: knack-sidecar, optional: true}
  startupProbe:
    exec: {command: [/usr/bin/knack-gateway, health]}
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: 120
  livenessProbe:
    exec: {command: [/usr/bin/knack-gateway, health]}
    periodSeconds: 20
    timeoutSeconds: 10
    failureThreshold: 3
  securityContext:
    allowPrivilegeEscalation: false
    capabilities: {drop: [ALL]}
    readOnlyRootFilesystem: true
    runAsNonRoot: true
    {{- with .Values.openshift.enabled | ternary 0 .Values.injection.runAsUser }}
    runAsUser: {{ . | int64 }}
    runAsGroup: {{ . | int64 }}
    {{- end }}
    seccompProfile: {type: RuntimeDefault}
  volumeMounts:
    # Over the place of the API token, which the API server would mount otherwise.
    - {name: knack-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
    - {name: knack-ca, mountPath: /etc/knack/ca, readOnly: true}
    - {name: knack-files, mountPath: /tmp}
resources:
  requests: {{ toJson .Values.injection.resources.requests }}
  limits: {{ toJson .Values.injection.resources.limits }}
volumes:
  - name: knack-token
    projected:
      sources:
        - serviceAccountToken: {audience: knack, expirationSeconds: 3600, path: token}
  - name: knack-ca
    {{- with include "knack.trustBundle" . }}
    projected:
      sources:
        - clusterTrustBundle: {name: {{ . }}, optional: true, path: ca.crt}
    {{- else }}
    configMap: {name: knack-ca, optional: true}
    {{- end }}
  - name: knack-files
    emptyDir: {sizeLimit: 704Mi}
imagePullSecrets: {{ toJson (.Values.injection.imagePullSecrets | default list) }}
ports: [4141, 4142]
apis:
  - {name: openai, url: "http://127.0.0.1:4141/v1", variables: [OPENAI_BASE_URL, OPENAI_API_BASE], upstream: KNACK_UPSTREAM_OPENAI}
  - {name: anthropic, url: "http://127.0.0.1:4141", variables: [ANTHROPIC_BASE_URL, ANTHROPIC_API_URL], upstream: KNACK_UPSTREAM_ANTHROPIC}
  - {name: gemini, url: "http://127.0.0.1:4141", variables: [GOOGLE_GEMINI_BASE_URL], upstream: KNACK_UPSTREAM_GEMINI}
{{- end }}

{{- /* Plain YAML as a CEL literal: in a map or list of mixed values each must be dyn(). */}}
{{- define "knack.cel" -}}
{{- if kindIs "map" . }}{{ $map := . }}{
  {{- range $i, $key := keys . | sortAlpha }}{{ if $i }}, {{ end }}{{ toJson $key }}: dyn({{ include "knack.cel" (get $map $key) }}){{ end }}}
{{- else if kindIs "slice" . }}[
  {{- range $i, $item := . }}{{ if $i }}, {{ end }}dyn({{ include "knack.cel" $item }}){{ end }}]
{{- else }}{{ toJson . }}{{ end }}
{{- end }}

{{- /* The namespaces whose pods may get the sidecar, as matchExpressions: never those of Kubernetes, and never our own. */}}
{{- define "knack.injectionNamespaces" -}}
- {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-public, kube-node-lease, {{ .Release.Namespace }}]}
{{- with .Values.watchNamespaces }}
- {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
{{- end }}
{{- end }}

{{- /* A base URL that the gateway takes as an upstream, hosts in Punycode, of which it may not, base URLs of the sidecar and of
       programs in the pod, and the name of a SkillRuntime: the patterns of crates/injection. */}}
{{- define "knack.baseUrl" -}}
^https?://(\[(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,5}(:[0-9a-fA-F]{1,4}){1,2}|([0-9a-fA-F]{1,4}:){1,4}(:[0-9a-fA-F]{1,4}){1,3}|([0-9a-fA-F]{1,4}:){1,3}(:[0-9a-fA-F]{1,4}){1,4}|([0-9a-fA-F]{1,4}:){1,2}(:[0-9a-fA-F]{1,4}){1,5}|[0-9a-fA-F]{1,4}:(:[0-9a-fA-F]{1,4}){1,6}|:(:[0-9a-fA-F]{1,4}){1,7}|::)\]|(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}|([A-Za-z0-9][A-Za-z0-9-]*\.)*([A-Za-z][A-Za-z0-9-]*|[0-9]+[A-WYZa-wyz-][A-Za-z0-9-]*)\.?)(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?(/[A-Za-z0-9._~/-]*)?$
{{- end }}
{{- define "knack.punycode" -}}
^https?://([^/]*\.)?[xX][nN]--
{{- end }}
{{- define "knack.ownUrl" -}}
(?i)^http://(127\.0\.0\.1|0\.0\.0\.0|localhost\.?|\[::1\]):4141(/v1)?/*$
{{- end }}
{{- define "knack.podUrl" -}}
(?i)^https?://(127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}|0\.0\.0\.0|localhost\.?|\[::1\])([:/]|$)
{{- end }}
{{- define "knack.runtimeName" -}}
^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$
{{- end }}

{{- /* Pods that ask for the sidecar themselves. Knack's sandboxes never do. */}}
{{- define "knack.injectionMatch.pods" -}}
namespaceSelector:
  matchExpressions:
    {{- include "knack.injectionNamespaces" . | nindent 4 }}
objectSelector:
  matchExpressions:
    - {key: knack.dev/inject, operator: In, values: [enabled]}
    - {key: knack.dev/role, operator: NotIn, values: [sandbox]}
{{- end }}

{{- /* Pods of namespaces that ask for all of theirs. */}}
{{- define "knack.injectionMatch.namespaces" -}}
namespaceSelector:
  matchExpressions:
    - {key: knack.dev/inject, operator: In, values: [enabled]}
    {{- include "knack.injectionNamespaces" . | nindent 4 }}
objectSelector:
  matchExpressions:
    - {key: knack.dev/inject, operator: NotIn, values: [enabled, disabled]}
    - {key: knack.dev/role, operator: NotIn, values: [sandbox]}
{{- end }}
