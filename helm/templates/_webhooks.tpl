{{/* Couriers: in the gateway's pods, in pods of their own, or none. */}}

{{- define "gateway.couriers" -}}
{{- include "gateway.fullname" . }}-couriers
{{- end -}}

{{- define "gateway.webhookSecret" -}}
{{- include "gateway.fullname" . }}-webhooks
{{- end -}}

{{/* How many there are in each pod of the gateway. None with memory://, which no other process can use. */}}
{{- define "gateway.couriersInPod" -}}
{{- if or .Values.webhooks.deployment.enabled (hasPrefix "memory://" .Values.externalRedis.url) -}}
0
{{- else -}}
{{- int .Values.webhooks.couriers -}}
{{- end -}}
{{- end -}}

{{/* "true" if there are couriers anywhere: they and the gateways then need the webhook key. */}}
{{- define "gateway.hasWebhooks" -}}
{{- if or .Values.webhooks.deployment.enabled (ne (include "gateway.couriersInPod" .) "0") }}true{{ end -}}
{{- end -}}

{{- define "gateway.courierUrl" -}}
http://{{ include "gateway.couriers" . }}:{{ int .Values.webhooks.deployment.port }}
{{- end -}}

{{- define "gateway.courierAccount" -}}
{{- $account := .Values.webhooks.deployment.serviceAccount -}}
{{- $account.name | default ($account.create | ternary (include "gateway.couriers" .) "default") -}}
{{- end -}}

{{/* The values for "gateway.placement" of the couriers' pods: the gateway's, with some of their own. */}}
{{- define "gateway.courierPlacement" -}}
{{- $own := .Values.webhooks.deployment -}}
{{- $values := pick .Values "priorityClassName" "runtimeClassName" "schedulerName" "hostAliases" "dnsPolicy" "dnsConfig" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" -}}
{{- $_ := set $values $key (index $own $key | default (index $.Values $key)) -}}
{{- end -}}
{{- include "gateway.placement" (dict "Values" $values) -}}
{{- end -}}

{{/* "true" if there is more than one pod of couriers. */}}
{{- define "gateway.areManyCouriers" -}}
{{- with .Values.webhooks.deployment -}}
{{- if gt (int (.autoscaling.enabled | ternary .autoscaling.minReplicas .replicas)) 1 }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* The ports of the external Redis: those that are given, those of its URL, or the usual ones. */}}
{{- define "gateway.redisPorts" -}}
{{- $hosts := regexReplaceAll "^[a-z+]*://([^@/]*@)?([^/]*).*$" .Values.externalRedis.url "${2}" -}}
{{- $found := list -}}
{{- range regexFindAll ":[0-9]+(,|$)" $hosts -1 -}}
{{- $found = append $found (int (trimAll ":," .)) -}}
{{- end -}}
{{- if or (not $found) (contains "+sentinel" .Values.externalRedis.url) -}}
{{- /* Sentinels name the servers, which usually have the usual port. */ -}}
{{- $found = concat $found (list 6379 26379) -}}
{{- end -}}
{{- .Values.webhooks.deployment.networkPolicy.redisPorts | default $found | uniq | toJson -}}
{{- end -}}
