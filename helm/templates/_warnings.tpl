{{/* What works and may not be meant: a list of sentences, for NOTES.txt. */}}
{{- define "gateway.warnings" -}}
{{- $found := list -}}
{{- $kind := include "gateway.storeKind" . -}}
{{- if eq $kind "private" -}}
{{- $found = append $found "There is no Redis: the pod keeps keys and counts to itself, and they are gone when it is replaced. Set externalRedis.url, or redis.enabled for a try." -}}
{{- else if regexMatch "^memory://" .Values.externalRedis.url -}}
{{- $found = append $found "memory:// keeps keys and counts in the process: they are gone when it ends, and no command or console reaches them." -}}
{{- end -}}
{{- if .Values.externalRedis.password -}}
{{- $found = append $found "externalRedis.password is kept with the release, which many may read. Put it into a secret and name that in externalRedis.existingSecret." -}}
{{- end -}}
{{- if and (eq $kind "bundled") (not .Values.redis.persistence.enabled) -}}
{{- $found = append $found "The bundled Redis has no volume: keys and counts are gone when its pod is replaced." -}}
{{- end -}}
{{- if and (eq $kind "external") (hasPrefix "redis" .Values.externalRedis.url) (not (hasPrefix "rediss" .Values.externalRedis.url)) (include "gateway.storePasswordKey" .) -}}
{{- $found = append $found "The password of Redis crosses the network in clear text: rediss:// in place of redis:// is TLS." -}}
{{- end -}}
{{- if ne .Values.admin.service.type "ClusterIP" -}}
{{- $found = append $found (printf "The admin service is exposed: whoever reaches it sees the metrics, and may try tokens for the console%s." (empty .Values.admin.tls.existingSecret | ternary " in clear text" "")) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (not .Values.autoscaling.cpuUtilization) (not (dig "requests" "cpu" "" .Values.resources)) -}}
{{- $found = append $found "Pods are scaled and ask for no CPU (resources.requests.cpu): a node may have none left for them." -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled .Values.autoscaling.requestsPerSecond (not (.Capabilities.APIVersions.Has "custom.metrics.k8s.io/v1beta1")) -}}
{{- $found = append $found (printf "Nothing in the cluster answers for the metric %s yet: install an adapter, or autoscaling does without it." .Values.autoscaling.requestsMetric) -}}
{{- end -}}
{{- $found = concat $found (include "gateway.policyWarnings" . | fromYamlArray) -}}
{{- $needed := add 53 (mul 40 (int .Values.workers)) -}}
{{- $limit := dig "limits" "memory" "" .Values.resources | toString -}}
{{- if and (regexMatch "^[0-9]+Mi$" $limit) (lt (int (trimSuffix "Mi" $limit)) (int (add $needed 32))) -}}
{{- $found = append $found (printf "%s of memory is little for workers: %d, which take some %d MB at rest." $limit (int .Values.workers) (int $needed)) -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (or .Values.serviceMonitor.enabled .Values.podMonitor.enabled) (not .Values.networkPolicy.admins) -}}
{{- $found = append $found "networkPolicy.admins is empty: a Prometheus in another namespace cannot scrape the pods." -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Those about the policies, where the chart has them. */}}
{{- define "gateway.policyWarnings" -}}
{{- $found := list -}}
{{- if .Values.policies.existingConfigMap -}}
{{- if .Values.tls.existingSecret -}}
{{- $found = append $found "tls.existingSecret: the policies in your ConfigMap have to say tls: {certificate: /etc/gateway/tls/tls.crt, key: /etc/gateway/tls/tls.key}." -}}
{{- end -}}
{{- with include "gateway.adminPolicy" . | fromYaml -}}
{{- $found = append $found (printf "admin: the policies in your ConfigMap have to say %s." (toJson .)) -}}
{{- end -}}
{{- else -}}
{{- $settings := dict -}}
{{- range $_, $text := include "gateway.policyFiles" . | fromYaml -}}
{{- $settings = merge $settings (fromYaml $text) -}}
{{- end -}}
{{- if contains "http://127.0.0.1:9000" (toJson $settings.upstreams) -}}
{{- $found = append $found "Requests are sent on to http://127.0.0.1:9000, where nobody is: set policies.upstream to the address of your API." -}}
{{- end -}}
{{- $behind := or .Values.ingress.enabled .Values.httpRoute.enabled (and (eq .Values.service.type "LoadBalancer") (ne .Values.service.externalTrafficPolicy "Local")) -}}
{{- if and $behind (not $settings.trusted_proxies) -}}
{{- $found = append $found "Requests come in through a proxy that trusted_proxies of gateway.yaml does not name: all callers seem to have its address, for limits per address and in the logs." -}}
{{- end -}}
{{- $drain := dig "timeouts" "drain" "30s" $settings | toString -}}
{{- if and (regexMatch "^[0-9]+s$" $drain) (lt (int .Values.terminationGracePeriodSeconds) (int (add (int (trimSuffix "s" $drain)) (int .Values.preStopSeconds) 5))) -}}
{{- $found = append $found (printf "terminationGracePeriodSeconds: %d is less than preStopSeconds, timeouts.drain (%s) and 5 more: what is under way may be cut off." (int .Values.terminationGracePeriodSeconds) $drain) -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}
