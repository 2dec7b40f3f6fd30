{{/* Values that cannot work together: each fails the render with a sentence. */}}
{{- define "gateway.checks" -}}
{{- include "gateway.checkStore" . -}}
{{- include "gateway.checkPods" . -}}
{{- include "gateway.checkExposure" . -}}
{{- include "gateway.checkPolicies" . -}}
{{- include "gateway.checkMonitors" . -}}
{{- include "gateway.checkSecrets" . -}}
{{- include "gateway.checkWebhooks" . -}}
{{- end -}}

{{- define "gateway.checkStore" -}}
{{- $external := .Values.externalRedis -}}
{{- $url := $external.url -}}
{{- if and .Values.redis.enabled (or $url $external.existingSecret $external.password) -}}
{{- fail "redis.enabled: there is an externalRedis as well. Remove one of them." -}}
{{- end -}}
{{- if and $url $external.existingSecret $external.secretKeys.url -}}
{{- fail "externalRedis.secretKeys.url: there is externalRedis.url as well. Remove one of them." -}}
{{- end -}}
{{- if and $external.existingSecret $external.password -}}
{{- fail "externalRedis.password: there is externalRedis.existingSecret as well. Remove one of them." -}}
{{- end -}}
{{- if and (or $external.existingSecret $external.password) (ne (include "gateway.storeKind" .) "external") -}}
{{- fail "externalRedis: there is a password but no URL. Set externalRedis.url, or externalRedis.secretKeys.url to the entry's name." -}}
{{- end -}}
{{- if regexMatch "://[^@/]*:[^@/]*@" $url -}}
{{- fail "externalRedis.url: there is a password in it, which others could read. Put it into a secret, and set externalRedis.existingSecret to its name." -}}
{{- end -}}
{{- if and $url (not (regexMatch "^(rediss?(\\+sentinel|\\+cluster)?://.+|unix:///.+|memory://)$" $url)) -}}
{{- fail "externalRedis.url: expected redis://, rediss://, redis+sentinel://, redis+cluster://, unix:// or memory://." -}}
{{- end -}}
{{- if and (regexMatch "^rediss?\\+sentinel://" $url) (not (regexMatch "^rediss?\\+sentinel://[^/]+/[^/]+" $url)) -}}
{{- fail "externalRedis.url: it names no service of the Sentinels; expected redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB." -}}
{{- end -}}
{{- if and .Values.redis.enabled (regexMatch "(?m)^\\s*(requirepass|masterauth|user)\\s" .Values.redis.config) -}}
{{- fail "redis.config: a password there is stored where others may read it. Put it into a secret, and set redis.existingSecret to its name." -}}
{{- end -}}
{{- if and (regexMatch "^memory://" $url) (gt (int .Values.workers) 1) -}}
{{- fail "workers: memory:// is inside one process, and each worker would count separately. Set workers: 1, or use a Redis." -}}
{{- end -}}
{{- if and $external.certificateSecret (ne (include "gateway.storeKind" .) "external") -}}
{{- fail "externalRedis.certificateSecret: there is no URL of a Redis. Set externalRedis.url, or externalRedis.secretKeys.url to the entry's name." -}}
{{- end -}}
{{- if and $external.certificateSecret $url (not (hasPrefix "rediss" $url)) -}}
{{- fail "externalRedis.certificateSecret: the URL is not of TLS. Use one that begins with rediss." -}}
{{- end -}}
{{- with $external.ca -}}
{{- if and .secret .configMap -}}
{{- fail "externalRedis.ca: there are a secret and a configMap. Remove one of them." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gateway.checkPods" -}}
{{- $scaling := .Values.autoscaling -}}
{{- if and (include "gateway.mayBeMany" .) (include "gateway.storeIsLocal" .) -}}
{{- fail (printf "%s: pods without a shared Redis would count separately, and have different keys. Set externalRedis.url or redis.enabled, or use one pod." ($scaling.enabled | ternary "autoscaling.maxReplicas" "replicas")) -}}
{{- end -}}
{{- if $scaling.enabled -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas: it is more than maxReplicas." -}}
{{- end -}}
{{- if not (or $scaling.cpuUtilization $scaling.requestsPerSecond $scaling.metrics) -}}
{{- fail "autoscaling: there is no metric to scale by. Set cpuUtilization, requestsPerSecond or metrics." -}}
{{- end -}}
{{- if and $scaling.cpuUtilization (not (dig "requests" "cpu" "" .Values.resources)) -}}
{{- fail "autoscaling.cpuUtilization: it is a percentage of resources.requests.cpu, which is not set. Set it, or cpuUtilization: 0." -}}
{{- end -}}
{{- end -}}
{{- if include "gateway.isMany" . -}}
{{- include "gateway.checkBudget" (list "podDisruptionBudget" .Values.podDisruptionBudget ($scaling.enabled | ternary $scaling.minReplicas .Values.replicas)) -}}
{{- end -}}
{{- if le (int .Values.terminationGracePeriodSeconds) (int .Values.preStopSeconds) -}}
{{- fail "terminationGracePeriodSeconds: the pod would be killed before the end of preStopSeconds. Set more." -}}
{{- end -}}
{{- if eq (int .Values.listen.port) (int .Values.admin.port) -}}
{{- fail "admin.port: clients use this port (listen.port). Set another." -}}
{{- end -}}
{{- include "gateway.checkRedirect" . -}}
{{- end -}}

{{/* A disruption budget: called with (list "its value" budget "the least number of pods"). */}}
{{- define "gateway.checkBudget" -}}
{{- $name := index . 0 -}}
{{- $budget := index . 1 -}}
{{- if $budget.enabled -}}
{{- if and (eq (toString $budget.minAvailable) "") (eq (toString $budget.maxUnavailable) "") -}}
{{- fail (printf "%s: set minAvailable or maxUnavailable." $name) -}}
{{- end -}}
{{- if or (and (regexMatch "^[0-9]+$" (toString $budget.minAvailable)) (ge (int $budget.minAvailable) (int (last .)))) (eq (toString $budget.minAvailable) "100%") -}}
{{- fail (printf "%s.minAvailable: no pod could ever be evicted, and no node drained. Set less than the number of pods." $name) -}}
{{- end -}}
{{- if and (eq (toString $budget.minAvailable) "") (has (toString $budget.maxUnavailable) (list "0" "0%")) -}}
{{- fail (printf "%s.maxUnavailable: with 0 no pod could ever be evicted, and no node drained. Set 1 or more." $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gateway.checkRedirect" -}}
{{- with int .Values.listen.httpPort -}}
{{- if has . (list (int $.Values.listen.port) (int $.Values.admin.port)) -}}
{{- fail "listen.httpPort: another listener uses this port (listen.port or admin.port). Set another." -}}
{{- end -}}
{{- if eq (int $.Values.service.httpPort) (int $.Values.service.port) -}}
{{- fail "service.httpPort: clients use this port for https (service.port). Set service.port: 443, or another." -}}
{{- end -}}
{{- if not (or $.Values.tls.existingSecret $.Values.policies.existingConfigMap $.Values.policies.files) -}}
{{- fail "listen.httpPort: there is no TLS that requests could be redirected to. Set tls.existingSecret, or tls in policies." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gateway.checkExposure" -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.hosts: an ingress needs a host. Add one." -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- fail "httpRoute.parentRefs: a route needs a Gateway. Add one." -}}
{{- end -}}
{{- if and (ne .Values.admin.service.type "ClusterIP") (not .Values.admin.service.allowExposure) -}}
{{- fail (printf "admin.service.type: as %s the console and the metrics could be reached from outside the cluster%s. Use kubectl port-forward, or set admin.service.allowExposure: true if that is intended." .Values.admin.service.type (empty .Values.admin.tls.existingSecret | ternary ", in clear text" "")) -}}
{{- end -}}
{{- if and .Values.admin.proxy.tls (not .Values.admin.proxy.trusted) -}}
{{- fail "admin.proxy.tls: there is no proxy. Set admin.proxy.trusted to the ingress's addresses." -}}
{{- end -}}
{{- if and (eq .Values.service.type "ClusterIP") .Values.service.externalTrafficPolicy -}}
{{- fail "service.externalTrafficPolicy: only for the types NodePort and LoadBalancer." -}}
{{- end -}}
{{- if and (eq .Values.service.type "ClusterIP") .Values.service.nodePort -}}
{{- fail "service.nodePort: only for the types NodePort and LoadBalancer." -}}
{{- end -}}
{{- end -}}

{{- define "gateway.checkPolicies" -}}
{{- $policies := .Values.policies -}}
{{- if and $policies.existingConfigMap (or $policies.files $policies.upstream $policies.mcpUpstream) -}}
{{- fail "policies.existingConfigMap: policies.files, policies.upstream and policies.mcpUpstream have no effect beside it. Remove them, or the ConfigMap." -}}
{{- end -}}
{{- if and (or $policies.upstream $policies.mcpUpstream) (hasKey $policies.files "upstreams.yaml") -}}
{{- fail "policies.upstream: there is upstreams.yaml in policies.files as well. Remove one of them." -}}
{{- end -}}
{{- end -}}

{{- define "gateway.checkMonitors" -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
{{- fail "podMonitor.enabled: there is a serviceMonitor as well, and each pod would be scraped twice. Remove one of them." -}}
{{- end -}}
{{- end -}}

{{- define "gateway.checkSecrets" -}}
{{- range concat .Values.extraEnv .Values.webhooks.deployment.extraEnv -}}
{{- if and .value (has .name (list "GATEWAY_ADMIN_TOKEN" "GATEWAY_STORE_PASSWORD" "GATEWAY_SENTINEL_PASSWORD" "GATEWAY_WEBHOOK_KEY")) -}}
{{- fail (printf "extraEnv: %s is there in clear text. Put it into a secret, and set admin.existingSecret, externalRedis.existingSecret or webhooks.existingSecret to its name." .name) -}}
{{- end -}}
{{- end -}}
{{- range concat .Values.extraArgs .Values.webhooks.deployment.extraArgs -}}
{{- if regexMatch "://[^@/]*:[^@/]*@" . -}}
{{- fail "extraArgs: there is a password in a URL, which others could read. Put it into a secret." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gateway.checkWebhooks" -}}
{{- $webhooks := .Values.webhooks -}}
{{- if and $webhooks.key $webhooks.existingSecret -}}
{{- fail "webhooks.key: there is webhooks.existingSecret as well. Remove one of them." -}}
{{- end -}}
{{- if and $webhooks.key (lt (len $webhooks.key) 32) -}}
{{- fail (printf "webhooks.key: it has %d characters; expected 32 or more, for example from: openssl rand -base64 32." (len $webhooks.key)) -}}
{{- end -}}
{{- if $webhooks.deployment.enabled -}}
{{- include "gateway.checkCouriers" . -}}
{{- end -}}
{{- end -}}

{{- define "gateway.checkCouriers" -}}
{{- $couriers := .Values.webhooks.deployment -}}
{{- if include "gateway.storeIsLocal" . -}}
{{- fail "webhooks.deployment.enabled: couriers in pods of their own need a Redis that they share with the gateway. Set externalRedis.url or redis.enabled, or leave the couriers in the gateway's pods." -}}
{{- end -}}
{{- if eq (int $couriers.port) (int .Values.admin.port) -}}
{{- fail "webhooks.deployment.port: the admin listener uses this port (admin.port). Set another." -}}
{{- end -}}
{{- if eq (int $couriers.port) (int .Values.admin.service.port) -}}
{{- fail "webhooks.deployment.port: the service has this port for the admin listener (admin.service.port). Set another." -}}
{{- end -}}
{{- if le (int $couriers.terminationGracePeriodSeconds) (int .Values.preStopSeconds) -}}
{{- fail "webhooks.deployment.terminationGracePeriodSeconds: the pod would be killed before the end of preStopSeconds. Set more." -}}
{{- end -}}
{{- $scaling := $couriers.autoscaling -}}
{{- if $scaling.enabled -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail "webhooks.deployment.autoscaling.minReplicas: it is more than maxReplicas." -}}
{{- end -}}
{{- if not (or $scaling.queueDepth $scaling.metrics) -}}
{{- fail "webhooks.deployment.autoscaling: there is no metric to scale by. Set queueDepth or metrics." -}}
{{- end -}}
{{- end -}}
{{- $least := $scaling.enabled | ternary $scaling.minReplicas $couriers.replicas -}}
{{- if include "gateway.areManyCouriers" . -}}
{{- include "gateway.checkBudget" (list "webhooks.deployment.podDisruptionBudget" $couriers.podDisruptionBudget $least) -}}
{{- end -}}
{{- end -}}
