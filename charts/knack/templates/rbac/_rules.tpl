{{- /*
Who may do what, as the process table of ARCHITECTURE.md says. The port that parses tenants' bodies (hub) holds none of
the reconciler's rights; the gateway holds none at all.
*/}}

{{- /* Controller, where Skills and SkillRuntimes are. The admission policy controller-configmaps says which ConfigMaps. */}}
{{- define "knack.rules.controller" -}}
- apiGroups: [knack.dev]
  resources: [skills, skillruntimes]
  verbs: [get, list, watch]
- apiGroups: [knack.dev]
  resources: [skills/status, skillruntimes/status]
  verbs: [patch]
# Skills may name any ConfigMap of their namespace as their source.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, delete]
# What sidecars trust, in the namespaces that ask for them.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [knack-ca]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- if ne (include "knack.injectionDelivery" .) "None" }}
# Which pods ask for the sidecar and have none, or an older one. They come whole: no metadata has the sidecar's image.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
{{- if .Values.injection.rollStale }}
# Restarts of workloads whose pods have an older sidecar: it reads the workloads of namespaces that ask. The admission policy controller-workloads says what of them it changes.
- apiGroups: [apps]
  resources: [deployments, statefulsets, daemonsets]
  verbs: [list, patch]
{{- end }}
{{- end }}
{{- end }}

{{- /* Controller, where code runs: what fences the sandboxes in. */}}
{{- define "knack.rules.controllerRuntime" -}}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, update]
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [get, create, update, delete]
{{- end }}

{{- /* Hub, where Skills and SkillRuntimes are. */}}
{{- define "knack.rules.hub" -}}
- apiGroups: [knack.dev]
  resources: [skills, skillruntimes]
  verbs: [get, list, watch]
# The artifacts of Skills. RBAC knows no labels, so the right reaches all ConfigMaps of these namespaces.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
# Events for Skills whose ConfigMaps differ from their status.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{- /* Hub, where code runs. Pods are made by Jobs only. The admission policies hub-* say which Jobs, pods and Leases. */}}
{{- define "knack.rules.hubRuntime" -}}
- apiGroups: [knack.dev]
  resources: [skillruntimes/status]
  verbs: [patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, create, patch, delete]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update]
# Failures are reported by Events, and those of kubelet and scheduler say why a pod did not start.
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
# Nothing runs behind a fence that is gone. The controller makes them, and looks once a minute.
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch]
{{- end }}

{{- /*
Its own namespace: the leader's Lease, and the hub's certificate and its authority. A create by POST cannot be bound to a
name; one by server-side apply can, since it carries the name.
*/}}
{{- define "knack.rules.controllerRelease" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [knack-controller]
  verbs: [get, update]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [knack-root, knack-hub-tls, knack-hub-journal{{ if .Values.registry.enabled }}, knack-registry-tls{{ end }}{{ if include "knack.injectionBy" (dict "root" . "delivery" "Webhook") }}, knack-webhook-tls{{ end }}]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [knack-hub-ca{{ if .Values.registry.enabled }}, knack-registry-ca{{ end }}]
  verbs: [get, create, patch]
# When skills were used last, as the hub notes it.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [knack-skill-uses]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- if .Values.packages.repository }}
# What builders say of environments of packages.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [knack-packages]
  verbs: [get, list, watch]
{{- end }}
{{- end }}

{{- /* Controller, in the whole cluster whatever it serves. */}}
{{- define "knack.rules.controllerCluster" -}}
# Selectors of SkillRuntimes and Skills name namespaces by their labels.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
# Whether another release of Knack manages the same namespaces: two would overwrite each other for ever.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [knack-controller]
  verbs: [list]
# Whether it is one, or a Lease of that name that somebody else made; and whether the hub refuses the ServiceAccount of a sidecar.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- with include "knack.trustBundle" . }}
# What sidecars trust, for all namespaces. The admission policy controller-trustbundle says what it writes.
- apiGroups: [certificates.k8s.io]
  resources: [clustertrustbundles]
  resourceNames: [{{ . }}]
  verbs: [get, create, patch]
{{- end }}
{{- if include "knack.injectionBy" (dict "root" . "delivery" "Webhook") }}
# caBundle of the webhook that injects sidecars.
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations]
  resourceNames: [{{ include "knack.clusterName" (dict "root" . "part" "injection") }}]
  verbs: [get, patch]
{{- end }}
{{- end }}

{{- /* Hub, in its own namespace: which replicas there are. Runtimes are spread over them. */}}
{{- define "knack.rules.hubRelease" -}}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
# When skills were used last, for the controller. The chart makes the object.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [knack-skill-uses]
  verbs: [get, patch]
{{- if .Values.packages.repository }}
# What builders say of environments of packages.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [knack-packages]
  verbs: [get, list, watch]
{{- end }}
{{- end }}

{{- /* Builds, where Skills and SkillRuntimes are: what declares packages. No right to any Secret. */}}
{{- define "knack.rules.packages" -}}
- apiGroups: [knack.dev]
  resources: [skills, skillruntimes]
  verbs: [get, list, watch]
# The artifacts of Skills. RBAC knows no labels, so the right reaches all ConfigMaps of these namespaces.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
# Events for Skills whose ConfigMaps differ from their status.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{- define "knack.rules.packagesCluster" -}}
# Selectors of SkillRuntimes and Skills name namespaces by their labels.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- end }}

{{- /* Builds, in the namespace of builders: whoever makes Jobs there can mount its Secrets, so nothing else is there. */}}
{{- define "knack.rules.packagesBuilds" -}}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create]
{{- end }}

{{- define "knack.rules.packagesRelease" -}}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [knack-packages]
  verbs: [get, list, watch, create, patch]
# Which environments the hub may run. Nobody gives a right that he does not have, hence `use`.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles]
  resourceNames: [knack-environments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [knack.dev]
  resources: [environments]
  verbs: [use]
{{- end }}

{{- /* Registry, where Skills are. The admission policies registry-* say which Skills and ConfigMaps it writes. */}}
{{- define "knack.rules.registry" -}}
- apiGroups: [knack.dev]
  resources: [skills]
  verbs: [get, list, watch, create, update, delete]
# Content of Skills. RBAC knows no labels, so the right reaches all ConfigMaps of these namespaces.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, create, patch, delete]
{{- end }}

{{- define "knack.rules.registryCluster" -}}
# Who calls, and what the caller may do to Skills.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
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

{{- /*
The hub asks the API server whether the gateway may: this is an answer, not a right to call the API. A gateway that knows its
clients asks for each of them, and sees what the client's namespace sees; one without client authentication shows every skill to all clients.
Arguments: runtime, clientAuth.
*/}}
{{- define "knack.rules.gateway" -}}
- apiGroups: [knack.dev]
  resources: [skillruntimes]
  resourceNames: [{{ .runtime }}]
  verbs: [use, {{ ternary "use-all" "use-for" (eq .clientAuth "none") }}]
{{- end }}

{{- /* A Role or ClusterRole with its binding to one ServiceAccount. Arguments: root, name, namespace ("" for the cluster), component, rules, annotations. */}}
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
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
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

{{- /*
What one ServiceAccount may in every namespace where code runs: one ClusterRole, bound there. Arguments: root, name, namespaces,
component, rules.
*/}}
{{- define "knack.grantIn" -}}
{{- $arguments := . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels:
    {{- include "knack.labels" (dict "root" .root "component" .component) | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
{{- range .namespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $arguments.name }}
  namespace: {{ . }}
  labels:
    {{- include "knack.labels" (dict "root" $arguments.root "component" $arguments.component) | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $arguments.name }}}
subjects:
  - {kind: ServiceAccount, name: knack-{{ $arguments.component }}, namespace: {{ $arguments.root.Release.Namespace }}}
{{- end }}
{{- end }}
