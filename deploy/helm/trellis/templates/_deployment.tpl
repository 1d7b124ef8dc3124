{{/* The Deployment of one role. Called with a dict: root, role (what the node does), part (its name), node (its values). */}}
{{- define "trellis.deployment" -}}
{{- $values := .root.Values -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "trellis.name" .root }}-{{ .part }}
  labels:
    {{- include "trellis.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .part }}
spec:
  {{- if not (and (eq .part "api") .node.autoscaling.enabled) }}
  replicas: {{ .node.replicas }}
  {{- end }}
  # A start that migrates for long is no failed roll-out.
  progressDeadlineSeconds: {{ add $values.startup.seconds 600 }}
  # A new node is ready before an old one goes: the database is migrated by the first one that starts.
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  selector:
    matchLabels:
      {{- include "trellis.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .part }}
  template:
    metadata:
      labels:
        {{- include "trellis.labels" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .part }}
      {{- if .node.podAnnotations }}
      annotations:
        {{- toYaml .node.podAnnotations | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "trellis.serviceAccount" .root }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      # The delay, the time of requests in flight, the 5 s in which the parts stop, and as much again.
      terminationGracePeriodSeconds: {{ add $values.drain.delaySeconds $values.drain.seconds 10 }}
      {{- if $values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml $values.imagePullSecrets | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: trellis
          image: "{{ $values.image.repository }}{{ if $values.image.digest }}@{{ $values.image.digest }}{{ else }}:{{ default .root.Chart.AppVersion $values.image.tag }}{{ end }}"
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args: ["start"]
          env:
            - name: TRELLIS_ROLE
              value: {{ .role }}
            - name: BASE_URL
              value: {{ required "baseUrl is required" $values.baseUrl | quote }}
            - name: TRELLIS_DRAIN_DELAY_SECONDS
              value: {{ $values.drain.delaySeconds | toString | quote }}
            - name: TRELLIS_DRAIN_SECONDS
              value: {{ $values.drain.seconds | toString | quote }}
            {{- if $values.trustedProxies }}
            - name: TRELLIS_TRUSTED_PROXIES
              value: {{ join "," $values.trustedProxies | quote }}
            {{- end }}
            {{- range $name, $value := $values.settings }}
            - name: {{ $name }}
              value: {{ $value | quote }}
            {{- end }}
          envFrom:
            - secretRef:
                name: {{ required "existingSecret is required" $values.existingSecret }}
          ports:
            - name: http
              containerPort: 3003
          # It listens once the database is migrated, which may take long after an upgrade.
          startupProbe:
            httpGet:
              path: /health
              port: http
            periodSeconds: 2
            failureThreshold: {{ div $values.startup.seconds 2 }}
          livenessProbe:
            httpGet:
              path: /health
              port: http
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet:
              path: /ready
              port: http
            periodSeconds: 2
            timeoutSeconds: 5
            failureThreshold: 2
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: ["ALL"]
          resources:
            {{- toYaml .node.resources | nindent 12 }}
          volumeMounts:
            - name: data
              mountPath: /data
            - name: tmp
              mountPath: /tmp
            {{- with $values.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      # Nothing in it outlives a pod: everything is in the database.
      volumes:
        - name: data
          emptyDir: {}
        - name: tmp
          emptyDir: {}
        {{- with $values.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .node.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .node.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .node.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .node.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}

{{/* A PodDisruptionBudget. Called with a dict: root, part, node. */}}
{{- define "trellis.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "trellis.name" .root }}-{{ .part }}
  labels:
    {{- include "trellis.labels" .root | nindent 4 }}
spec:
  maxUnavailable: {{ .node.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "trellis.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .part }}
{{- end -}}
