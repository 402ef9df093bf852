{{- /*
The parts that every ValidatingAdmissionPolicy of this chart shares. Each judges what one of the release's own
ServiceAccounts writes, in every namespace: requests of everybody else are never refused.
*/}}

{{- /* Everything before `variables` and `validations`. Arguments: root, part, component, group, version, resource, operations,
       paramKind ("" for none), objectSelector ("" for none). */}}
{{- define "knack.policy" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ include "knack.clusterName" (dict "root" .root "part" .part) }}
  labels:
    {{- include "knack.labels" (dict "root" .root "component" .component) | nindent 4 }}
spec:
  failurePolicy: Fail
  {{- with .paramKind }}
  paramKind: {{ . }}
  {{- end }}
  matchConstraints:
    resourceRules:
      - apiGroups: [{{ .group | quote }}]
        apiVersions: [{{ .version }}]
        operations: [{{ join ", " .operations }}]
        resources: [{{ .resource }}]
    {{- with .objectSelector }}
    objectSelector: {{ . }}
    {{- end }}
  matchConditions:
    - name: by-the-{{ .component }}
      expression: request.userInfo.username == 'system:serviceaccount:{{ .root.Release.Namespace }}:knack-{{ .component }}'
{{- end }}

{{- /* Binds a policy in every namespace. Arguments: root, part, component, paramRef ("" for none). */}}
{{- define "knack.policyBinding" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ include "knack.clusterName" (dict "root" .root "part" .part) }}
  labels:
    {{- include "knack.labels" (dict "root" .root "component" .component) | nindent 4 }}
spec:
  policyName: {{ include "knack.clusterName" (dict "root" .root "part" .part) }}
  validationActions: [Deny, Audit]
  {{- with .paramRef }}
  paramRef: {{ . }}
  {{- end }}
{{- end }}

{{- /* Whether every key of a CEL value is one of a list; the value may be of any type. Arguments: value, keys (a JSON list). */}}
{{- define "knack.celKeys" -}}
dyn({{ .value }}).all(field, field in {{ .keys }})
{{- end }}

{{- /* The keys of a CEL value that are not on a list, as text. */}}
{{- define "knack.celOtherKeys" -}}
dyn({{ .value }}).filter(field, !(field in {{ .keys }})).map(field, string(field)).join(', ')
{{- end }}

{{- /* Fields that the pod of a sandbox may have; a rule of the policy says what may stand in each. */}}
{{- define "knack.sandboxPodFields" -}}
{{- $fields := list "activeDeadlineSeconds" "affinity" "automountServiceAccountToken" "containers" "dnsConfig" "dnsPolicy" "enableServiceLinks" "hostUsers" "imagePullSecrets" "nodeSelector" "priorityClassName" "readinessGates" "restartPolicy" "runtimeClassName" "schedulerName" "securityContext" "serviceAccount" "serviceAccountName" "terminationGracePeriodSeconds" "tolerations" "topologySpreadConstraints" "volumes" -}}
{{- concat $fields .Values.admissionPolicy.extraPodFields | uniq | sortAlpha | toJson | replace "\"" "'" -}}
{{- end }}

{{- define "knack.sandboxContainerFields" -}}
['args', 'command', 'env', 'image', 'imagePullPolicy', 'name', 'resizePolicy', 'resources', 'securityContext', 'stdin', 'stdinOnce', 'terminationMessagePath', 'terminationMessagePolicy', 'tty', 'volumeMounts']
{{- end }}
