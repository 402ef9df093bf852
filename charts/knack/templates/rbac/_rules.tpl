{{- /*
Who may do what, as the process table of ARCHITECTURE.md says. The port that parses tenants' bodies (hub) holds none of
the reconciler's rights; the gateway holds none at all.
*/}}

{{- /* Controller, where Skills and SkillRuntimes are. */}}
{{- define "knack.rules.controller" -}}
- apiGroups: [knack.dev]
  resources: [skills, skillruntimes]
  verbs: [get, list, watch]
- apiGroups: [knack.dev]
  resources: [skills/status, skillruntimes/status]
  verbs: [get, patch, update]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch, update]
{{- end }}

{{- /* Controller, where code runs: what fences the sandboxes in. */}}
{{- define "knack.rules.controllerRuntime" -}}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [get, create, update, delete]
# Which revisions of a Skill live executions use: those are not pruned.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list]
{{- end }}

{{- /* Hub, where Skills and SkillRuntimes are. */}}
{{- define "knack.rules.hub" -}}
- apiGroups: [knack.dev]
  resources: [skills, skillruntimes]
  verbs: [get, list, watch]
- apiGroups: [knack.dev]
  resources: [skillruntimes/status]
  verbs: [get, patch, update]
# The artifacts of Skills. RBAC knows no labels, so the right reaches all ConfigMaps of these namespaces.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
{{- end }}

{{- /* Hub, where code runs. Pods are made by Jobs only. */}}
{{- define "knack.rules.hubRuntime" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, create, patch, update, delete]
# Failures are told by Events, and the kubelet's and scheduler's say why a pod did not start.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [list]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]
  resources: [pods/attach]
  verbs: [get, create]
{{- end }}

{{- /* Its own namespace: the leader's Lease, and the hub's certificate and its authority. A create cannot be bound to a name. */}}
{{- define "knack.rules.controllerRelease" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, create, patch, update]
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [knack-hub-tls]
  verbs: [get, patch, update]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [knack-hub-ca]
  verbs: [get, patch, update]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{- define "knack.rules.hubCluster" -}}
# Who calls, and whether the caller may use a runtime.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- end }}

{{- /* The hub asks the API server whether the gateway may: this is an answer, not a right to call the API. */}}
{{- define "knack.rules.gateway" -}}
- apiGroups: [knack.dev]
  resources: [skillruntimes]
  resourceNames: [{{ . }}]
  verbs: [use, use-all]
{{- end }}

{{- /* A Role or ClusterRole with its binding to one ServiceAccount. Arguments: root, name, namespace ("" for the cluster), component, rules. */}}
{{- define "knack.grant" -}}
{{- $prefix := ternary "Cluster" "" (empty .namespace) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}Role
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "knack.labels" (dict "root" .root "component" .component) | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}RoleBinding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "knack.labels" (dict "root" .root "component" .component) | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $prefix }}Role, name: {{ .name }}}
subjects:
  - {kind: ServiceAccount, name: knack-{{ .component }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}
