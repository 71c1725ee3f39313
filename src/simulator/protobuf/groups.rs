//! Field tables of the named groups (`schema` describes the notation). `disruptedPods` of a
//! PodDisruptionBudget is left out: it is a map of times that nothing in the simulator writes.

/// One message per line.
pub(super) const GROUPS: &str = "\
Deployment metadata=1:ObjectMeta spec=2:DeploymentSpec status=3:DeploymentStatus
DeploymentSpec replicas=1:?i selector=2:?LabelSelector! template=3:PodTemplateSpec strategy=4:DeploymentStrategy minReadySeconds=5:i revisionHistoryLimit=6:?i paused=7:b progressDeadlineSeconds=9:?i
DeploymentStrategy type=1 rollingUpdate=2:?RollingUpdateDeployment
RollingUpdateDeployment maxUnavailable=1:?ios maxSurge=2:?ios
DeploymentStatus observedGeneration=1:i replicas=2:i updatedReplicas=3:i readyReplicas=7:i availableReplicas=4:i unavailableReplicas=5:i terminatingReplicas=9:?i conditions=6:DeploymentCondition* collisionCount=8:?i
DeploymentCondition type=1:s! status=2:s! lastUpdateTime=6:time lastTransitionTime=7:time reason=4 message=5
ReplicaSet metadata=1:ObjectMeta spec=2:ReplicaSetSpec status=3:ReplicaSetStatus
ReplicaSetSpec replicas=1:?i minReadySeconds=4:i selector=2:?LabelSelector! template=3:PodTemplateSpec
ReplicaSetStatus replicas=1:i! fullyLabeledReplicas=2:i readyReplicas=4:i availableReplicas=5:i terminatingReplicas=7:?i observedGeneration=3:i conditions=6:ReplicaSetCondition*
ReplicaSetCondition type=1:s! status=2:s! lastTransitionTime=3:time reason=4 message=5
StatefulSet metadata=1:ObjectMeta spec=2:StatefulSetSpec status=3:StatefulSetStatus
StatefulSetSpec replicas=1:?i selector=2:?LabelSelector! template=3:PodTemplateSpec volumeClaimTemplates=4:PersistentVolumeClaim* serviceName=5:s! podManagementPolicy=6 updateStrategy=7:StatefulSetUpdateStrategy revisionHistoryLimit=8:?i minReadySeconds=9:i persistentVolumeClaimRetentionPolicy=10:?StatefulSetPersistentVolumeClaimRetentionPolicy ordinals=11:?StatefulSetOrdinals
StatefulSetUpdateStrategy type=1 rollingUpdate=2:?RollingUpdateStatefulSetStrategy
RollingUpdateStatefulSetStrategy partition=1:?i maxUnavailable=2:?ios
StatefulSetPersistentVolumeClaimRetentionPolicy whenDeleted=1 whenScaled=2
StatefulSetOrdinals start=1:i!
StatefulSetStatus observedGeneration=1:i replicas=2:i! readyReplicas=3:i currentReplicas=4:i updatedReplicas=5:i currentRevision=6 updateRevision=7 collisionCount=9:?i conditions=10:StatefulSetCondition* availableReplicas=11:i!
StatefulSetCondition type=1:s! status=2:s! lastTransitionTime=3:time reason=4 message=5
DaemonSet metadata=1:ObjectMeta spec=2:DaemonSetSpec status=3:DaemonSetStatus
DaemonSetSpec selector=1:?LabelSelector! template=2:PodTemplateSpec updateStrategy=3:DaemonSetUpdateStrategy minReadySeconds=4:i revisionHistoryLimit=6:?i
DaemonSetUpdateStrategy type=1 rollingUpdate=2:?RollingUpdateDaemonSet
RollingUpdateDaemonSet maxUnavailable=1:?ios maxSurge=2:?ios
DaemonSetStatus currentNumberScheduled=1:i! numberMisscheduled=2:i! desiredNumberScheduled=3:i! numberReady=4:i! observedGeneration=5:i updatedNumberScheduled=6:i numberAvailable=7:i numberUnavailable=8:i collisionCount=9:?i conditions=10:DaemonSetCondition*
DaemonSetCondition type=1:s! status=2:s! lastTransitionTime=3:time reason=4 message=5
ControllerRevision metadata=1:ObjectMeta data=2:raw revision=3:i!
Job metadata=1:ObjectMeta spec=2:JobSpec status=3:JobStatus
JobSpec parallelism=1:?i completions=2:?i activeDeadlineSeconds=3:?i podFailurePolicy=11:?PodFailurePolicy successPolicy=16:?SuccessPolicy backoffLimit=7:?i backoffLimitPerIndex=12:?i maxFailedIndexes=13:?i selector=4:?LabelSelector manualSelector=5:?b template=6:PodTemplateSpec ttlSecondsAfterFinished=8:?i completionMode=9:?s suspend=10:?b podReplacementPolicy=14:?s managedBy=15:?s
PodFailurePolicy rules=1:PodFailurePolicyRule*!
PodFailurePolicyRule action=1:s! onExitCodes=2:?PodFailurePolicyOnExitCodesRequirement onPodConditions=3:PodFailurePolicyOnPodConditionsPattern*
PodFailurePolicyOnExitCodesRequirement containerName=1:?s operator=2:s! values=3:i*!
PodFailurePolicyOnPodConditionsPattern type=1:s! status=2:s!
SuccessPolicy rules=1:SuccessPolicyRule*!
SuccessPolicyRule succeededIndexes=1:?s succeededCount=2:?i
JobStatus conditions=1:JobCondition* startTime=2:?time completionTime=3:?time active=4:i succeeded=5:i failed=6:i terminating=11:?i completedIndexes=7 failedIndexes=10:?s uncountedTerminatedPods=8:?UncountedTerminatedPods ready=9:?i
JobCondition type=1:s! status=2:s! lastProbeTime=3:time lastTransitionTime=4:time reason=5 message=6
UncountedTerminatedPods succeeded=1:s* failed=2:s*
CronJob metadata=1:ObjectMeta spec=2:CronJobSpec status=3:CronJobStatus
CronJobSpec schedule=1:s! timeZone=8:?s startingDeadlineSeconds=2:?i concurrencyPolicy=3 suspend=4:?b jobTemplate=5:JobTemplateSpec successfulJobsHistoryLimit=6:?i failedJobsHistoryLimit=7:?i
JobTemplateSpec metadata=1:ObjectMeta spec=2:JobSpec
CronJobStatus active=1:ObjectReference* lastScheduleTime=4:?time lastSuccessfulTime=5:?time
Scale metadata=1:ObjectMeta spec=2:ScaleSpec status=3:ScaleStatus
ScaleSpec replicas=1:i
ScaleStatus replicas=1:i! selector=2
HorizontalPodAutoscaler metadata=1:ObjectMeta spec=2:HorizontalPodAutoscalerSpec status=3:HorizontalPodAutoscalerStatus
HorizontalPodAutoscalerSpec scaleTargetRef=1:CrossVersionObjectReference minReplicas=2:?i maxReplicas=3:i! metrics=4:MetricSpec* behavior=5:?HorizontalPodAutoscalerBehavior
CrossVersionObjectReference kind=1:s! name=2:s! apiVersion=3
MetricSpec type=1:s! object=2:?ObjectMetricSource pods=3:?PodsMetricSource resource=4:?ResourceMetricSource containerResource=7:?ContainerResourceMetricSource external=5:?ExternalMetricSource
ObjectMetricSource describedObject=1:CrossVersionObjectReference target=2:MetricTarget metric=3:MetricIdentifier
MetricTarget type=1:s! value=2:?quantity averageValue=3:?quantity averageUtilization=4:?i
MetricIdentifier name=1:s! selector=2:?LabelSelector
PodsMetricSource metric=1:MetricIdentifier target=2:MetricTarget
ResourceMetricSource name=1:s! target=2:MetricTarget
ContainerResourceMetricSource name=1:s! target=2:MetricTarget container=3:s!
ExternalMetricSource metric=1:MetricIdentifier target=2:MetricTarget
HorizontalPodAutoscalerBehavior scaleUp=1:?HPAScalingRules scaleDown=2:?HPAScalingRules
HPAScalingRules stabilizationWindowSeconds=3:?i selectPolicy=1:?s policies=2:HPAScalingPolicy* tolerance=4:?quantity
HPAScalingPolicy type=1:s! value=2:i! periodSeconds=3:i!
HorizontalPodAutoscalerStatus observedGeneration=1:?i lastScaleTime=2:?time currentReplicas=3:i desiredReplicas=4:i! currentMetrics=5:MetricStatus*! conditions=6:HorizontalPodAutoscalerCondition*
MetricStatus type=1:s! object=2:?ObjectMetricStatus pods=3:?PodsMetricStatus resource=4:?ResourceMetricStatus containerResource=7:?ContainerResourceMetricStatus external=5:?ExternalMetricStatus
ObjectMetricStatus metric=1:MetricIdentifier current=2:MetricValueStatus describedObject=3:CrossVersionObjectReference
MetricValueStatus value=1:?quantity averageValue=2:?quantity averageUtilization=3:?i
PodsMetricStatus metric=1:MetricIdentifier current=2:MetricValueStatus
ResourceMetricStatus name=1:s! current=2:MetricValueStatus
ContainerResourceMetricStatus name=1:s! current=2:MetricValueStatus container=3:s!
ExternalMetricStatus metric=1:MetricIdentifier current=2:MetricValueStatus
HorizontalPodAutoscalerCondition type=1:s! status=2:s! lastTransitionTime=3:time reason=4 message=5
Ingress metadata=1:ObjectMeta spec=2:IngressSpec status=3:IngressStatus
IngressSpec ingressClassName=4:?s defaultBackend=1:?IngressBackend tls=2:IngressTLS* rules=3:IngressRule*
IngressBackend service=4:?IngressServiceBackend resource=3:?TypedLocalObjectReference
IngressServiceBackend name=1:s! port=2:ServiceBackendPort
ServiceBackendPort name=1 number=2:i
IngressTLS hosts=1:s* secretName=2
IngressRule host=1 _=2:^IngressRuleValue
IngressRuleValue http=1:?HTTPIngressRuleValue
HTTPIngressRuleValue paths=1:HTTPIngressPath*!
HTTPIngressPath path=1 pathType=3:?s! backend=2:IngressBackend
IngressStatus loadBalancer=1:IngressLoadBalancerStatus
IngressLoadBalancerStatus ingress=1:IngressLoadBalancerIngress*
IngressLoadBalancerIngress ip=1 hostname=2 ports=4:IngressPortStatus*
IngressPortStatus port=1:i! protocol=2:s! error=3:?s
IngressClass metadata=1:ObjectMeta spec=2:IngressClassSpec
IngressClassSpec controller=1 parameters=2:?IngressClassParametersReference
IngressClassParametersReference apiGroup=1:?s kind=2:s! name=3:s! scope=4:?s! namespace=5:?s
NetworkPolicy metadata=1:ObjectMeta spec=2:NetworkPolicySpec
NetworkPolicySpec podSelector=1:LabelSelector ingress=2:NetworkPolicyIngressRule* egress=3:NetworkPolicyEgressRule* policyTypes=4:s*
NetworkPolicyIngressRule ports=1:NetworkPolicyPort* from=2:NetworkPolicyPeer*
NetworkPolicyPort protocol=1:?s port=2:?ios endPort=3:?i
NetworkPolicyPeer podSelector=1:?LabelSelector namespaceSelector=2:?LabelSelector ipBlock=3:?IPBlock
IPBlock cidr=1:s! except=2:s*
NetworkPolicyEgressRule ports=1:NetworkPolicyPort* to=2:NetworkPolicyPeer*
PodDisruptionBudget metadata=1:ObjectMeta spec=2:PodDisruptionBudgetSpec status=3:PodDisruptionBudgetStatus
PodDisruptionBudgetSpec minAvailable=1:?ios selector=2:?LabelSelector maxUnavailable=3:?ios unhealthyPodEvictionPolicy=4:?s
PodDisruptionBudgetStatus observedGeneration=1:i disruptionsAllowed=3:i! currentHealthy=4:i! desiredHealthy=5:i! expectedPods=6:i! conditions=7:Condition*
Role metadata=1:ObjectMeta rules=2:PolicyRule*!
PolicyRule verbs=1:s*! apiGroups=2:s* resources=3:s* resourceNames=4:s* nonResourceURLs=5:s*
ClusterRole metadata=1:ObjectMeta rules=2:PolicyRule*! aggregationRule=3:?AggregationRule
AggregationRule clusterRoleSelectors=1:LabelSelector*
RoleBinding metadata=1:ObjectMeta subjects=2:Subject* roleRef=3:RoleRef
Subject kind=1:s! apiGroup=2 name=3:s! namespace=4
RoleRef apiGroup=1:s! kind=2:s! name=3:s!
ClusterRoleBinding metadata=1:ObjectMeta subjects=2:Subject* roleRef=3:RoleRef
StorageClass metadata=1:ObjectMeta provisioner=2:s! parameters=3:map reclaimPolicy=4:?s mountOptions=5:s* allowVolumeExpansion=6:?b volumeBindingMode=7:?s allowedTopologies=8:TopologySelectorTerm*
TopologySelectorTerm matchLabelExpressions=1:TopologySelectorLabelRequirement*
TopologySelectorLabelRequirement key=1:s! values=2:s*!
CSINode metadata=1:ObjectMeta spec=2:CSINodeSpec
CSINodeSpec drivers=1:CSINodeDriver*!
CSINodeDriver name=1:s! nodeID=2:s! topologyKeys=3:s*! allocatable=4:?VolumeNodeResources
VolumeNodeResources count=1:?i
MutatingWebhookConfiguration metadata=1:ObjectMeta webhooks=2:MutatingWebhook*
MutatingWebhook name=1:s! clientConfig=2:WebhookClientConfig rules=3:RuleWithOperations* failurePolicy=4:?s matchPolicy=9:?s namespaceSelector=5:?LabelSelector objectSelector=11:?LabelSelector sideEffects=6:?s! timeoutSeconds=7:?i admissionReviewVersions=8:s*! reinvocationPolicy=10:?s matchConditions=12:MatchCondition*
WebhookClientConfig url=3:?s service=1:?ServiceReference caBundle=2:y
ServiceReference namespace=1:s! name=2:s! path=3:?s port=4:?i
RuleWithOperations operations=1:s* _=2:^Rule
Rule apiGroups=1:s* apiVersions=2:s* resources=3:s* scope=4:?s
MatchCondition name=1:s! expression=2:s!
ValidatingWebhookConfiguration metadata=1:ObjectMeta webhooks=2:ValidatingWebhook*
ValidatingWebhook name=1:s! clientConfig=2:WebhookClientConfig rules=3:RuleWithOperations* failurePolicy=4:?s matchPolicy=9:?s namespaceSelector=5:?LabelSelector objectSelector=10:?LabelSelector sideEffects=6:?s! timeoutSeconds=7:?i admissionReviewVersions=8:s*! matchConditions=11:MatchCondition*
PriorityClass metadata=1:ObjectMeta value=2:i! globalDefault=3:b description=4 preemptionPolicy=5:?s
Lease metadata=1:ObjectMeta spec=2:LeaseSpec
LeaseSpec holderIdentity=1:?s leaseDurationSeconds=2:?i acquireTime=3:?microtime renewTime=4:?microtime leaseTransitions=5:?i strategy=6:?s preferredHolder=7:?s
EndpointSlice metadata=1:ObjectMeta addressType=4:s! endpoints=2:Endpoint*! ports=3:discovery.EndpointPort*!
Endpoint addresses=1:s*! conditions=2:EndpointConditions hostname=3:?s targetRef=4:?ObjectReference deprecatedTopology=5:map nodeName=6:?s zone=7:?s hints=8:?EndpointHints
EndpointConditions ready=1:?b serving=2:?b terminating=3:?b
EndpointHints forZones=1:ForZone* forNodes=2:ForNode*
ForZone name=1:s!
ForNode name=1:s!
discovery.EndpointPort name=1:?s protocol=2:?s port=3:?i appProtocol=4:?s
APIService metadata=1:ObjectMeta spec=2:APIServiceSpec status=3:APIServiceStatus
APIServiceSpec service=1:?apiregistration.ServiceReference group=2 version=3 insecureSkipTLSVerify=4:b caBundle=5:y groupPriorityMinimum=7:i! versionPriority=8:i!
apiregistration.ServiceReference namespace=1 name=2 port=3:?i
APIServiceStatus conditions=1:APIServiceCondition*
APIServiceCondition type=1:s! status=2:s! lastTransitionTime=3:time reason=4 message=5
TokenReview metadata=1:ObjectMeta spec=2:TokenReviewSpec status=3:TokenReviewStatus
TokenReviewSpec token=1 audiences=2:s*
TokenReviewStatus authenticated=1:b user=2:UserInfo audiences=4:s* error=3
UserInfo username=1 uid=2 groups=3:s* extra=4:emap
SelfSubjectReview metadata=1:ObjectMeta status=2:SelfSubjectReviewStatus
SelfSubjectReviewStatus userInfo=1:UserInfo
SelfSubjectAccessReview metadata=1:ObjectMeta spec=2:SelfSubjectAccessReviewSpec status=3:SubjectAccessReviewStatus
SelfSubjectAccessReviewSpec resourceAttributes=1:?ResourceAttributes nonResourceAttributes=2:?NonResourceAttributes
ResourceAttributes namespace=1 verb=2 group=3 version=4 resource=5 subresource=6 name=7 fieldSelector=8:?FieldSelectorAttributes labelSelector=9:?LabelSelectorAttributes
FieldSelectorAttributes rawSelector=1 requirements=2:FieldSelectorRequirement*
FieldSelectorRequirement key=1:s! operator=2:s! values=3:s*
LabelSelectorAttributes rawSelector=1 requirements=2:LabelSelectorRequirement*
NonResourceAttributes path=1 verb=2
SubjectAccessReviewStatus allowed=1:b! denied=4:b reason=2 evaluationError=3
SubjectAccessReview metadata=1:ObjectMeta spec=2:SubjectAccessReviewSpec status=3:SubjectAccessReviewStatus
SubjectAccessReviewSpec resourceAttributes=1:?ResourceAttributes nonResourceAttributes=2:?NonResourceAttributes user=3 groups=4:s* extra=5:emap uid=6
LocalSubjectAccessReview metadata=1:ObjectMeta spec=2:SubjectAccessReviewSpec status=3:SubjectAccessReviewStatus
SelfSubjectRulesReview metadata=1:ObjectMeta spec=2:SelfSubjectRulesReviewSpec status=3:SubjectRulesReviewStatus
SelfSubjectRulesReviewSpec namespace=1
SubjectRulesReviewStatus resourceRules=1:ResourceRule*! nonResourceRules=2:NonResourceRule*! incomplete=3:b! evaluationError=4
ResourceRule verbs=1:s*! apiGroups=2:s* resources=3:s* resourceNames=4:s*
NonResourceRule verbs=1:s*! nonResourceURLs=2:s*
";
