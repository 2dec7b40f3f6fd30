{{/* Names, labels and images. */}}

{{- define "gateway.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* 46 characters at most: what is added must fit 63, and 52 for a StatefulSet ("-redis"). */}}
{{- define "gateway.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 46 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 46 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 46 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of an object: called with (list $ "component"). */}}
{{- define "gateway.labels" -}}
{{- $root := first . -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_") }}
{{ include "gateway.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: {{ include "gateway.name" $root }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of a pod: without the chart's version, so that a new chart alone replaces no pods. */}}
{{- define "gateway.podLabels" -}}
{{- $root := first . -}}
{{ include "gateway.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: {{ include "gateway.name" $root }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Those that never change: a selector cannot be changed. */}}
{{- define "gateway.selector" -}}
{{- $root := first . -}}
app.kubernetes.io/name: {{ include "gateway.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end -}}

{{/* An image: called with (list $ the image's values, the usual tag). */}}
{{- define "gateway.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $global := $root.Values.global | default dict -}}
{{- $registry := $image.registry | default $global.imageRegistry -}}
{{- with $registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest -}}
@{{ $image.digest }}
{{- else -}}
:{{ $image.tag | default (index . 2) }}
{{- end -}}
{{- end -}}

{{- define "gateway.ownImage" -}}
{{- include "gateway.image" (list . .Values.image .Chart.AppVersion) -}}
{{- end -}}

{{- define "gateway.pullSecrets" -}}
{{- $global := .Values.global | default dict -}}
{{- with concat .Values.imagePullSecrets ($global.imagePullSecrets | default list) }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gateway.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "gateway.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* "HOST:PORT", an IPv6 host in brackets: called with (list host port). */}}
{{- define "gateway.address" -}}
{{- $host := first . -}}
{{- if contains ":" $host }}[{{ $host }}]{{ else }}{{ $host }}{{ end }}:{{ int (last .) }}
{{- end -}}

{{/* Host names of the admin service, separated by spaces. */}}
{{- define "gateway.adminHosts" -}}
{{- $service := printf "%s-admin" (include "gateway.fullname" .) -}}
{{- $namespace := .Release.Namespace -}}
{{- $own := list $service (printf "%s.%s" $service $namespace) (printf "%s.%s.svc" $service $namespace) (printf "%s.%s.svc.cluster.local" $service $namespace) -}}
{{- concat $own .Values.admin.hosts | uniq | join " " -}}
{{- end -}}

{{/* "true" if there is more than one pod. */}}
{{- define "gateway.isMany" -}}
{{- $pods := .Values.autoscaling.enabled | ternary .Values.autoscaling.minReplicas .Values.replicas -}}
{{- if gt (int $pods) 1 }}true{{ end -}}
{{- end -}}

{{/* "true" if there may be more than one pod at some time. */}}
{{- define "gateway.mayBeMany" -}}
{{- $pods := .Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas .Values.replicas -}}
{{- if gt (int $pods) 1 }}true{{ end -}}
{{- end -}}

{{/* Fails with a sentence if the cluster lacks a kind: called with (list $ group-version value). */}}
{{- define "gateway.needsApi" -}}
{{- $root := index . 0 -}}
{{- $api := index . 1 -}}
{{- if and $root.Values.apiCheck (not ($root.Capabilities.APIVersions.Has $api)) -}}
{{- fail (printf "%s: the cluster does not have %s. Install what brings it, or set apiCheck: false to render it all the same." (index . 2) $api) -}}
{{- end -}}
{{- end -}}
