{{/* The store: an external Redis, the bundled one, or none. */}}

{{/* "external", "bundled" or "private": a Redis that each pod starts for itself. */}}
{{- define "gateway.storeKind" -}}
{{- $external := .Values.externalRedis -}}
{{- if or $external.url (and $external.existingSecret $external.secretKeys.url) -}}
external
{{- else if .Values.redis.enabled -}}
bundled
{{- else -}}
private
{{- end -}}
{{- end -}}

{{/* The URL, if it is not secret. */}}
{{- define "gateway.storeUrl" -}}
{{- if eq (include "gateway.storeKind" .) "bundled" -}}
redis://{{ include "gateway.fullname" . }}-redis:6379/0
{{- else -}}
{{- .Values.externalRedis.url -}}
{{- end -}}
{{- end -}}

{{/* "true" if the store is inside a pod. */}}
{{- define "gateway.storeIsLocal" -}}
{{- if or (eq (include "gateway.storeKind" .) "private") (regexMatch "^(memory|unix)://" .Values.externalRedis.url) }}true{{ end -}}
{{- end -}}

{{/* The secret that has the store's password; empty: there is none. */}}
{{- define "gateway.storeSecret" -}}
{{- $kind := include "gateway.storeKind" . -}}
{{- if eq $kind "bundled" -}}
{{- .Values.redis.existingSecret | default (printf "%s-redis" (include "gateway.fullname" .)) -}}
{{- else if eq $kind "external" -}}
{{- if .Values.externalRedis.existingSecret -}}
{{- .Values.externalRedis.existingSecret -}}
{{- else if .Values.externalRedis.password -}}
{{- include "gateway.fullname" . }}-store
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The entry of that secret that is the password; empty: none. */}}
{{- define "gateway.storePasswordKey" -}}
{{- $kind := include "gateway.storeKind" . -}}
{{- if eq $kind "bundled" -}}
{{- empty .Values.redis.existingSecret | ternary "password" .Values.redis.secretKey -}}
{{- else if eq $kind "external" -}}
{{- if .Values.externalRedis.existingSecret -}}
{{- .Values.externalRedis.secretKeys.password -}}
{{- else if .Values.externalRedis.password -}}
password
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The entry of that secret that is the Sentinels' password; empty: none. */}}
{{- define "gateway.sentinelPasswordKey" -}}
{{- if and (eq (include "gateway.storeKind" .) "external") .Values.externalRedis.existingSecret -}}
{{- .Values.externalRedis.secretKeys.sentinelPassword -}}
{{- end -}}
{{- end -}}

{{/* "true" where authorities are given for the certificates of the store. */}}
{{- define "gateway.hasCa" -}}
{{- with .Values.externalRedis.ca }}{{ if or .secret .configMap }}true{{ end }}{{ end -}}
{{- end -}}

{{/*
A secret's entry that was made once and is kept: called with (list $ secret entry). What the
cluster has is taken; a render that cannot ask it (helm template) makes a new one each time.
*/}}
{{- define "gateway.keptSecret" -}}
{{- $root := index . 0 -}}
{{- $found := lookup "v1" "Secret" $root.Release.Namespace (index . 1) | default dict -}}
{{- $data := $found.data | default dict -}}
{{- index $data (index . 2) | default (randAlphaNum 40 | b64enc) -}}
{{- end -}}

{{/* The bundled Redis keeps what it is told, and evicts nothing: the keys are in it. */}}
{{- define "gateway.redisConfig" -}}
dir /data
appendonly yes
appendfsync everysec
save ""
maxmemory {{ .Values.redis.maxmemory }}
maxmemory-policy noeviction
{{- with .Values.redis.config }}
{{ . }}
{{- end }}
{{- end -}}
