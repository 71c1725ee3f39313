{{/* What the objects are called. */}}
{{- define "weir.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "weir" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-weir" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "weir.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "weir.fullname" .) -}}
{{- end -}}

{{/* The labels that never change, by which the pods are selected. */}}
{{- define "weir.selectorLabels" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The values' labels of the pods. */}}
{{- define "weir.podLabels" -}}
{{- $fixed := include "weir.selectorLabels" . | fromYaml -}}
{{- range $name, $_ := .Values.podLabels -}}
{{- if hasKey $fixed $name -}}
{{- fail (printf "podLabels: %s is a label by which the chart selects the pods" $name) -}}
{{- end -}}
{{- end -}}
{{- toYaml (.Values.podLabels | default dict) -}}
{{- end -}}

{{- define "weir.labels" -}}
{{ include "weir.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "weir.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* A quantity such as 4Gi, or a number, in bytes. */}}
{{- define "weir.bytes" -}}
{{- $text := kindIs "string" . | ternary . (toString (int64 .)) -}}
{{- if not (regexMatch "^[0-9]+(\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$" $text) -}}
{{- fail (printf "expected a quantity such as 512Mi or 4Gi, not %q" $text) -}}
{{- end -}}
{{- $number := regexFind "^[0-9]+(\\.[0-9]+)?" $text -}}
{{- $unit := trimPrefix $number $text -}}
{{- $units := dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- mulf (float64 $number) (float64 (get $units $unit)) | int64 -}}
{{- end -}}

{{/*
The settings that a running Weir takes over: x-live in values.schema.json. tests/deploy/chart.py
compares both.
*/}}
{{- define "weir.liveSettings" -}}
- cache.consistentLists
- cache.dropManagedFields
- cache.exclude
- cache.include
- cache.maxStaleness
- cache.onRelist
- cache.resourceBytesMax
- cache.totalBytesMax
- cache.verify
- cache.warm
- flowControl.rules
- logging.filter
- logging.slowRequest
- server.allowedHosts
- server.shutdownDelay
- server.shutdownTimeout
- tracing.samplingRatePerMillion
{{- end -}}

{{/* The settings of a part of the configuration that need a restart, each on a line: PATH=JSON. */}}
{{- define "weir.restartSettings" -}}
{{- $live := .live -}}
{{- $prefix := .prefix -}}
{{- range $name, $value := .part -}}
{{- $path := printf "%s%s" $prefix $name -}}
{{- if not (has $path $live) -}}
{{- if kindIs "map" $value -}}
{{- include "weir.restartSettings" (dict "part" $value "prefix" (printf "%s." $path) "live" $live) -}}
{{- else -}}
{{- printf "%s=%s\n" $path (toJson $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A hash that changes, and so replaces the pods, with each setting that needs a restart. */}}
{{- define "weir.checksum" -}}
{{- $config := include "weir.config" . | fromYaml -}}
{{- $live := include "weir.liveSettings" . | fromYamlArray -}}
{{- include "weir.restartSettings" (dict "part" $config "prefix" "" "live" $live) | sha256sum -}}
{{- end -}}

{{/* Weir's configuration: .Values.config, with what the chart knows better. */}}
{{- define "weir.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $server := $config.server | default dict -}}
{{- $cache := $config.cache | default dict -}}
{{- $admin := $config.admin | default dict -}}
{{- $_ := set $config "apiVersion" "weir.dev/v1alpha1" -}}
{{- $_ := set $config "kind" "WeirConfiguration" -}}
{{- $files := dict "certificateFile" "/etc/weir/tls/tls.crt" "privateKeyFile" "/etc/weir/tls/tls.key" -}}
{{- $address := .Values.listenAddress | default "0.0.0.0" -}}
{{- $listener := dict "listen" (printf "https://%s:6440" $address) "certificate" $files -}}
{{- with .Values.proxyProtocol.trustedNetworks -}}
{{- $_ := set $listener "proxyProtocol" (dict "trustedNetworks" .) -}}
{{- end -}}
{{- $_ := set $server "listeners" (list $listener) -}}
{{- $_ := set $admin "listen" (printf "%s:6441" $address) -}}
{{- $memory := dig "limits" "memory" "" .Values.resources -}}
{{- if $memory -}}
{{- $limit := include "weir.bytes" $memory | int64 -}}
{{- $mi := 1048576 -}}
{{- $request := dig "requests" "memory" "0" .Values.resources -}}
{{- if gt (include "weir.bytes" $request | int64) $limit -}}
{{- fail (printf "resources.requests.memory (%v) is more than resources.limits.memory (%v)" $request $memory) -}}
{{- end -}}
{{- $total := $cache.totalBytesMax | default (printf "%dMi" (div (mul $limit 40) (mul 100 $mi))) -}}
{{- $_ := set $cache "totalBytesMax" $total -}}
{{- if not $cache.resourceBytesMax -}}
{{- $half := div (include "weir.bytes" $total | int64) (mul 2 $mi) -}}
{{- $_ := set $cache "resourceBytesMax" (printf "%dMi" $half) -}}
{{- end -}}
{{- if gt (include "weir.bytes" $cache.resourceBytesMax | int64) (include "weir.bytes" $total | int64) -}}
{{- fail (printf "cache.resourceBytesMax (%v) is more than cache.totalBytesMax (%v), which is 40 %% of resources.limits.memory (%v) unless it is set" $cache.resourceBytesMax $total $memory) -}}
{{- end -}}
{{- $responses := printf "%dMi" (min 256 (div $limit (mul 8 $mi))) -}}
{{- $caches := include "weir.bytes" $cache.totalBytesMax | int64 -}}
{{- $sum := add $caches (div $caches 32) (include "weir.bytes" $responses | int64) -}}
{{- if gt (mul $sum 100) (mul $limit 70) -}}
{{- fail (printf "cache.totalBytesMax, compressed segments (a thirty-second of it) and the memory of unread responses add up to %d MiB, more than 70 %% of resources.limits.memory (%v)" (div $sum $mi) $memory) -}}
{{- end -}}
{{- end -}}
{{- if (.Values.frontProxy).secretName -}}
{{- $authentication := $config.authentication -}}
{{- if or $authentication.frontProxy $authentication.impersonate -}}
{{- fail "frontProxy.secretName excludes config.authentication.frontProxy and config.authentication.impersonate" -}}
{{- end -}}
{{- $files := dict "certificateFile" "/etc/weir/front-proxy/tls.crt" "privateKeyFile" "/etc/weir/front-proxy/tls.key" -}}
{{- $_ := set $authentication "frontProxy" $files -}}
{{- end -}}
{{- $_ := set $config "server" $server -}}
{{- $_ := set $config "admin" $admin -}}
{{- if $cache }}{{ $_ := set $config "cache" $cache }}{{ end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The values' mounts, each of a volume of extraVolumes. */}}
{{- define "weir.extraVolumeMounts" -}}
{{- $volumes := list -}}
{{- range .Values.extraVolumes }}{{ $volumes = append $volumes .name }}{{ end -}}
{{- range .Values.extraVolumeMounts -}}
{{- if not (has .name $volumes) -}}
{{- fail (printf "extraVolumeMounts: extraVolumes has no volume %q" .name) -}}
{{- end -}}
{{- end -}}
{{- toYaml (.Values.extraVolumeMounts | default list) -}}
{{- end -}}

{{/* A duration such as 30s, 1.5m or 1h30m in milliseconds, as src/config/units.rs reads it. */}}
{{- define "weir.milliseconds" -}}
{{- $text := toString . -}}
{{- if not (regexMatch "^(0|(([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(h|ms|m|s|us|ns))+)$" $text) -}}
{{- fail (printf "expected a duration such as 30s, 5m or 1h30m, not %q" $text) -}}
{{- end -}}
{{- $units := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 "us" 0.001 "ns" 0.000001 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" $text -1 -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $unit := trimPrefix $number . -}}
{{- $sum = addf $sum (mulf (float64 $number) (float64 (get $units $unit))) -}}
{{- end -}}
{{- ceil $sum | int64 -}}
{{- end -}}

{{/* Fails if the kubelet would kill a pod before it has drained. The defaults are a gateway's. */}}
{{- define "weir.gracePeriod" -}}
{{- $server := .Values.config.server | default dict -}}
{{- $delay := dig "shutdownDelay" "10s" $server -}}
{{- $timeout := dig "shutdownTimeout" "15s" $server -}}
{{- $drain := add (include "weir.milliseconds" $delay) (include "weir.milliseconds" $timeout) -}}
{{- $grace := int64 .Values.terminationGracePeriodSeconds -}}
{{- if le (mul $grace 1000) $drain -}}
{{- fail (printf "terminationGracePeriodSeconds (%d) must exceed server.shutdownDelay (%v) and server.shutdownTimeout (%v) together" $grace $delay $timeout) -}}
{{- end -}}
{{- $grace -}}
{{- end -}}
