{{/* What the gateway's pods, the check of the policies and the test have in common. */}}

{{- define "gateway.policies" -}}
{{- .Values.policies.existingConfigMap | default (printf "%s-policies" (include "gateway.fullname" .)) -}}
{{- end -}}

{{/* The policy files, a map from names to texts: the shipped ones, replaced by those of the values. */}}
{{- define "gateway.policyFiles" -}}
{{- $files := dict -}}
{{- range $path, $_ := .Files.Glob "files/policies/*.yaml" -}}
{{- $_ := set $files (base $path) ($.Files.Get $path) -}}
{{- end -}}
{{- if or .Values.policies.upstream .Values.policies.mcpUpstream -}}
{{- $api := .Values.policies.upstream | default "http://127.0.0.1:9000" | quote -}}
{{- $mcp := .Values.policies.mcpUpstream | default "http://127.0.0.1:9100" | quote -}}
{{- $_ := set $files "upstreams.yaml" (printf "upstreams:\n  api: {servers: [%s]}\n  mcp: {servers: [%s]}\n" $api $mcp) -}}
{{- end -}}
{{- with .Values.tls.existingSecret -}}
{{- $_ := set $files "chart-tls.yaml" "tls: {certificate: /etc/gateway/tls/tls.crt, key: /etc/gateway/tls/tls.key}\n" -}}
{{- end -}}
{{- with include "gateway.adminPolicy" . -}}
{{- $_ := set $files "chart-admin.yaml" . -}}
{{- end -}}
{{- range $name, $text := .Values.policies.files -}}
{{- if $text -}}
{{- $_ := set $files $name $text -}}
{{- else -}}
{{- $_ := unset $files $name -}}
{{- end -}}
{{- end -}}
{{- toYaml $files -}}
{{- end -}}

{{/* The settings of the admin listener that the policies need; empty: none. */}}
{{- define "gateway.adminPolicy" -}}
{{- $settings := dict -}}
{{- with .Values.admin.tls.existingSecret -}}
{{- $_ := set $settings "admin_tls" (dict "certificate" "/etc/gateway/admin-tls/tls.crt" "key" "/etc/gateway/admin-tls/tls.key") -}}
{{- end -}}
{{- with .Values.admin.proxy -}}
{{- if .trusted -}}
{{- $_ := set $settings "admin_proxy" (dict "trusted" .trusted "tls" .tls) -}}
{{- end -}}
{{- end -}}
{{- if $settings -}}
{{- toYaml $settings }}
{{ end -}}
{{- end -}}

{{- define "gateway.adminScheme" -}}
{{- empty .Values.admin.tls.existingSecret | ternary "http" "https" -}}
{{- end -}}

{{/* Volumes with files that policies may name: called with (list $ the ConfigMap's name). */}}
{{- define "gateway.policyVolumes" -}}
{{- $root := first . -}}
- name: policies
  configMap:
    name: {{ last . }}
{{- with $root.Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with $root.Values.admin.tls.existingSecret }}
- name: admin-tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with $root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Whole folders, never by subPath: that would not get changes of the ConfigMap. */}}
{{- define "gateway.policyMounts" -}}
- name: policies
  mountPath: /etc/gateway/policies
  readOnly: true
{{- if .Values.tls.existingSecret }}
- name: tls
  mountPath: /etc/gateway/tls
  readOnly: true
{{- end }}
{{- if .Values.admin.tls.existingSecret }}
- name: admin-tls
  mountPath: /etc/gateway/admin-tls
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Passwords, tokens and keys as files, which no other process's environment shows: called with
(list $ "component"). Couriers need no admin token.
*/}}
{{- define "gateway.secretVolume" -}}
{{- $component := last . -}}
{{- with first . -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- if eq $component "gateway" }}
      - secret:
          name: {{ .Values.admin.existingSecret | default (printf "%s-admin" (include "gateway.fullname" .)) }}
          items:
            - {key: {{ empty .Values.admin.existingSecret | ternary "token" .Values.admin.secretKey | quote }}, path: admin-token}
      {{- end }}
      {{- if include "gateway.hasWebhooks" . }}
      - secret:
          name: {{ .Values.webhooks.existingSecret | default (include "gateway.webhookSecret" .) }}
          items:
            - {key: {{ empty .Values.webhooks.existingSecret | ternary "webhook-key" .Values.webhooks.secretKey | quote }}, path: webhook-key}
      {{- end }}
      {{- $secret := include "gateway.storeSecret" . }}
      {{- with include "gateway.storePasswordKey" . }}
      - secret:
          name: {{ $secret }}
          items:
            - {key: {{ . | quote }}, path: store-password}
      {{- end }}
      {{- with include "gateway.sentinelPasswordKey" . }}
      - secret:
          name: {{ $secret }}
          items:
            - {key: {{ . | quote }}, path: sentinel-password}
      {{- end }}
      {{- if include "gateway.hasCa" . }}
      {{- with .Values.externalRedis.ca }}
      - {{ empty .secret | ternary "configMap" "secret" }}:
          name: {{ .secret | default .configMap }}
          items:
            - {key: {{ .key | quote }}, path: ca.crt}
      {{- end }}
      {{- end }}
      {{- with .Values.externalRedis.certificateSecret }}
      - secret:
          name: {{ . }}
          items:
            - {key: tls.crt, path: store.crt}
            - {key: tls.key, path: store.key}
      {{- end }}
{{- end -}}
{{- end -}}

{{/*
Settings as variables, not arguments: so `kubectl exec … gateway keys create` means the same store
as the gateway that runs there.
*/}}
{{- define "gateway.env" -}}
- {name: GATEWAY_POLICIES, value: /etc/gateway/policies}
- {name: GATEWAY_LISTEN, value: {{ include "gateway.address" (list .Values.listen.host .Values.listen.port) | quote }}}
- {name: GATEWAY_ADMIN, value: {{ include "gateway.address" (list .Values.listen.host .Values.admin.port) | quote }}}
- {name: GATEWAY_ADMIN_HOST, value: {{ include "gateway.adminHosts" . | quote }}}
- {name: GATEWAY_ADMIN_TOKEN_FILE, value: /run/secrets/gateway/admin-token}
- {name: GATEWAY_DATA, value: /data/gateway}
- {name: GATEWAY_WORKERS, value: {{ int .Values.workers | quote }}}
- {name: GATEWAY_COURIERS, value: {{ include "gateway.couriersInPod" . | quote }}}
{{- if .Values.webhooks.deployment.enabled }}
- {name: GATEWAY_COURIER_URL, value: {{ include "gateway.courierUrl" . | quote }}}
{{- end }}
- {name: GATEWAY_ACCESS_LOG, value: {{ .Values.logs.access | ternary "-" "off" | quote }}}
- {name: GATEWAY_LOG_LEVEL, value: {{ .Values.logs.level }}}
{{- with .Values.listen.httpPort }}
- {name: GATEWAY_LISTEN_HTTP, value: {{ include "gateway.address" (list $.Values.listen.host .) | quote }}}
{{- end }}
{{ include "gateway.storeEnv" . }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The variables of the couriers' pods. */}}
{{- define "gateway.courierEnv" -}}
{{- $couriers := .Values.webhooks.deployment -}}
- {name: GATEWAY_POLICIES, value: /etc/gateway/policies}
- {name: GATEWAY_LISTEN, value: {{ include "gateway.address" (list .Values.listen.host $couriers.port) | quote }}}
- {name: GATEWAY_ADMIN, value: {{ include "gateway.address" (list .Values.listen.host .Values.admin.port) | quote }}}
- {name: GATEWAY_DATA, value: /data/gateway}
- {name: GATEWAY_COURIERS, value: {{ int $couriers.couriers | quote }}}
- {name: GATEWAY_LOG_LEVEL, value: {{ .Values.logs.level }}}
{{ include "gateway.storeEnv" . }}
{{- with $couriers.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The store, and the secrets that all on it share. */}}
{{- define "gateway.storeEnv" -}}
{{- if include "gateway.hasWebhooks" . -}}
- {name: GATEWAY_WEBHOOK_KEY_FILE, value: /run/secrets/gateway/webhook-key}
{{- end }}
{{- $external := .Values.externalRedis }}
{{- if include "gateway.storeUrl" . }}
- {name: GATEWAY_STORE, value: {{ include "gateway.storeUrl" . | quote }}}
{{- else if eq (include "gateway.storeKind" .) "external" }}
- name: GATEWAY_STORE
  valueFrom:
    secretKeyRef: {name: {{ $external.existingSecret }}, key: {{ $external.secretKeys.url | quote }}}
{{- end }}
{{- if include "gateway.storePasswordKey" . }}
- {name: GATEWAY_STORE_PASSWORD_FILE, value: /run/secrets/gateway/store-password}
{{- end }}
{{- if include "gateway.sentinelPasswordKey" . }}
- {name: GATEWAY_SENTINEL_PASSWORD_FILE, value: /run/secrets/gateway/sentinel-password}
{{- end }}
{{- if include "gateway.hasCa" . }}
- {name: SSL_CERT_FILE, value: /run/secrets/gateway/ca.crt}
{{- end }}
{{- if .Values.externalRedis.certificateSecret }}
- {name: GATEWAY_STORE_CERTIFICATE, value: /run/secrets/gateway/store.crt}
- {name: GATEWAY_STORE_CERTIFICATE_KEY, value: /run/secrets/gateway/store.key}
{{- end }}
{{- end -}}

{{/* A probe of the admin listener: called with (list $ path settings). */}}
{{- define "gateway.probe" -}}
httpGet:
  path: {{ index . 1 }}
  port: admin
  {{- if (first .).Values.admin.tls.existingSecret }}
  scheme: HTTPS
  {{- end }}
{{- with last . }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Annotations of pods: called with (list $ their own). Inline secrets are read at the start only. */}}
{{- define "gateway.podAnnotations" -}}
{{- $root := first . -}}
{{- $found := dict -}}
{{- with $root.Values.externalRedis.password -}}
{{- $_ := set $found "checksum/store" (sha256sum .) -}}
{{- end -}}
{{- with $root.Values.webhooks.key -}}
{{- $_ := set $found "checksum/webhooks" (sha256sum .) -}}
{{- end -}}
{{- with merge (deepCopy (last .)) $found -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{/* The pause before SIGTERM, in which the cluster stops sending requests. */}}
{{- define "gateway.lifecycle" -}}
{{- if .Values.lifecycle -}}
lifecycle:
  {{- toYaml .Values.lifecycle | nindent 2 }}
{{- else if .Values.preStopSeconds -}}
lifecycle:
  preStop:
    exec:
      command: [sleep, {{ int .Values.preStopSeconds | quote }}]
{{- end -}}
{{- end -}}

{{/* Spread of the pods of a component: called with (list $ "component"). */}}
{{- define "gateway.spread" -}}
{{- $own := dict "labelSelector" (dict "matchLabels" (include "gateway.selector" . | fromYaml)) "matchLabelKeys" (list "pod-template-hash") -}}
{{- with (first .).Values.topologySpreadConstraints -}}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml (hasKey . "labelSelector" | ternary . (merge (deepCopy .) $own)) | nindent 4 | trim }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* Scheduling of pods, and their DNS. */}}
{{- define "gateway.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.schedulerName }}
schedulerName: {{ . }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
