{{/* Settings that work but look like mistakes: a list of sentences, for NOTES.txt. */}}
{{- define "gateway.warnings" -}}
{{- $found := list -}}
{{- $kind := include "gateway.storeKind" . -}}
{{- if eq $kind "private" -}}
{{- $found = append $found "There is no Redis: keys and counters are in the pod only, and are lost when it is replaced. Set externalRedis.url, or redis.enabled to get started." -}}
{{- else if regexMatch "^memory://" .Values.externalRedis.url -}}
{{- $found = append $found "memory:// keeps keys and counters in the process: they are lost when it ends, and no command or console can reach them." -}}
{{- end -}}
{{- if .Values.externalRedis.password -}}
{{- $found = append $found "externalRedis.password is stored with the release, which others may read. Put it into a secret, and set externalRedis.existingSecret to its name." -}}
{{- end -}}
{{- if and (eq $kind "bundled") (not .Values.redis.persistence.enabled) -}}
{{- $found = append $found "The bundled Redis has no volume: keys and counters are lost when its pod is replaced." -}}
{{- end -}}
{{- if and (eq $kind "external") (hasPrefix "redis" .Values.externalRedis.url) (not (hasPrefix "rediss" .Values.externalRedis.url)) (include "gateway.storePasswordKey" .) -}}
{{- $found = append $found "The password of Redis is sent over the network in clear text: use rediss:// for TLS." -}}
{{- end -}}
{{- if ne .Values.admin.service.type "ClusterIP" -}}
{{- $found = append $found (printf "The admin service is exposed: every client that reaches it can read the metrics, and try tokens for the console%s." (empty .Values.admin.tls.existingSecret | ternary " in clear text" "")) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (not .Values.autoscaling.cpuUtilization) (not (dig "requests" "cpu" "" .Values.resources)) -}}
{{- $found = append $found "Pods are scaled without a CPU request (resources.requests.cpu): a node may have too little CPU for them." -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled .Values.autoscaling.requestsPerSecond (not (.Capabilities.APIVersions.Has "custom.metrics.k8s.io/v1beta1")) -}}
{{- $found = append $found (printf "No adapter in the cluster provides the metric %s: install one, or autoscaling ignores the metric." .Values.autoscaling.requestsMetric) -}}
{{- end -}}
{{- $found = concat $found (include "gateway.policyWarnings" . | fromYamlArray) (include "gateway.webhookWarnings" . | fromYamlArray) -}}
{{- $couriers := int (include "gateway.couriersInPod" .) -}}
{{- $needed := add 53 (mul 40 (int .Values.workers)) (mul 58 $couriers) -}}
{{- $limit := dig "limits" "memory" "" .Values.resources | toString -}}
{{- if and (regexMatch "^[0-9]+Mi$" $limit) (lt (int (trimSuffix "Mi" $limit)) (int (add $needed 32))) -}}
{{- $found = append $found (printf "%s of memory is too little for workers: %d and couriers: %d, which take some %d MB at rest." $limit (int .Values.workers) $couriers (int $needed)) -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (or .Values.serviceMonitor.enabled .Values.podMonitor.enabled) (not .Values.networkPolicy.admins) -}}
{{- $found = append $found "networkPolicy.admins is empty: a Prometheus in another namespace cannot scrape the pods." -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Warnings about the policies, if the chart has them. */}}
{{- define "gateway.policyWarnings" -}}
{{- $found := list -}}
{{- if .Values.policies.existingConfigMap -}}
{{- if .Values.tls.existingSecret -}}
{{- $found = append $found "tls.existingSecret: the policies in your ConfigMap need tls: {certificate: /etc/gateway/tls/tls.crt, key: /etc/gateway/tls/tls.key}." -}}
{{- end -}}
{{- with include "gateway.adminPolicy" . | fromYaml -}}
{{- $found = append $found (printf "admin: the policies in your ConfigMap need %s." (toJson .)) -}}
{{- end -}}
{{- else -}}
{{- $settings := dict -}}
{{- range $_, $text := include "gateway.policyFiles" . | fromYaml -}}
{{- $settings = merge $settings (fromYaml $text) -}}
{{- end -}}
{{- if contains "http://127.0.0.1:9000" (toJson $settings.upstreams) -}}
{{- $found = append $found "Requests are forwarded to http://127.0.0.1:9000, where nothing listens: set policies.upstream to the address of your API." -}}
{{- end -}}
{{- $behind := or .Values.ingress.enabled .Values.httpRoute.enabled (and (eq .Values.service.type "LoadBalancer") (ne .Values.service.externalTrafficPolicy "Local")) -}}
{{- if and $behind (not $settings.trusted_proxies) -}}
{{- $found = append $found "Requests arrive through a proxy that is not in trusted_proxies of gateway.yaml: limits per address and the logs see its address for all clients." -}}
{{- end -}}
{{- $drain := dig "timeouts" "drain" "30s" $settings | toString -}}
{{- if and (regexMatch "^[0-9]+s$" $drain) (lt (int .Values.terminationGracePeriodSeconds) (int (add (int (trimSuffix "s" $drain)) (int .Values.preStopSeconds) 5))) -}}
{{- $found = append $found (printf "terminationGracePeriodSeconds: %d is less than preStopSeconds, timeouts.drain (%s) and 5 more: requests in progress may be cut off." (int .Values.terminationGracePeriodSeconds) $drain) -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Warnings about webhooks and their couriers. */}}
{{- define "gateway.webhookWarnings" -}}
{{- $found := list -}}
{{- $couriers := .Values.webhooks.deployment -}}
{{- if and .Values.webhooks.key (include "gateway.hasWebhooks" .) -}}
{{- $found = append $found "webhooks.key is stored with the release, which others may read. Put it into a secret, and set webhooks.existingSecret to its name." -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.egress.enabled (ne (include "gateway.couriersInPod" .) "0") -}}
{{- $found = append $found "networkPolicy.egress: the couriers in the gateway's pods reach only the receivers of webhooks that networkPolicy.egress.rules allows. Add a rule for them, set webhooks.deployment.enabled, or webhooks.couriers: 0." -}}
{{- end -}}
{{- if and $couriers.enabled $couriers.autoscaling.enabled $couriers.autoscaling.queueDepth (not (.Capabilities.APIVersions.Has "external.metrics.k8s.io/v1beta1")) -}}
{{- $found = append $found (printf "No adapter in the cluster provides the external metric %s: install one, or webhooks.deployment.autoscaling ignores the metric." $couriers.autoscaling.queueMetric) -}}
{{- end -}}
{{- if and $couriers.enabled (lt (int $couriers.terminationGracePeriodSeconds) (int (add 16 .Values.preStopSeconds 5))) -}}
{{- $found = append $found (printf "webhooks.deployment.terminationGracePeriodSeconds: %d is less than preStopSeconds, 16 for attempts and 5 more: deliveries in progress may be made twice." (int $couriers.terminationGracePeriodSeconds)) -}}
{{- end -}}
{{- if and $couriers.enabled $couriers.networkPolicy.enabled (or .Values.serviceMonitor.enabled .Values.podMonitor.enabled) (not .Values.networkPolicy.admins) (not .Values.networkPolicy.enabled) -}}
{{- $found = append $found "networkPolicy.admins is empty: a Prometheus in another namespace cannot scrape the couriers, which have a network policy of their own (webhooks.deployment.networkPolicy)." -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}
