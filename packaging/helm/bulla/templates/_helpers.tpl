{{- define "bulla.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "bulla.selector" -}}
app.kubernetes.io/name: bulla
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bulla.labels" -}}
{{ include "bulla.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "bulla.host" -}}
{{ include "bulla.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}
