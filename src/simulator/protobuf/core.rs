//! Field tables of the core group (`schema` describes the notation). In-tree volume plugins that
//! were removed are left out: no pod of the simulator has them, and the encoder rejects an object
//! that does instead of truncating it.

/// One message per line.
pub(super) const CORE: &str = "\
Pod metadata=1:ObjectMeta spec=2:PodSpec status=3:PodStatus
PodSpec volumes=1:Volume* initContainers=20:Container* containers=2:Container*! ephemeralContainers=34:EphemeralContainer* restartPolicy=3 terminationGracePeriodSeconds=4:?i activeDeadlineSeconds=5:?i dnsPolicy=6 nodeSelector=7:map serviceAccountName=8 serviceAccount=9 automountServiceAccountToken=21:?b nodeName=10 hostNetwork=11:b hostPID=12:b hostIPC=13:b shareProcessNamespace=27:?b securityContext=14:?PodSecurityContext imagePullSecrets=15:LocalObjectReference* hostname=16 subdomain=17 affinity=18:?Affinity schedulerName=19 tolerations=22:Toleration* hostAliases=23:HostAlias* priorityClassName=24 priority=25:?i dnsConfig=26:?PodDNSConfig readinessGates=28:PodReadinessGate* runtimeClassName=29:?s enableServiceLinks=30:?b preemptionPolicy=31:?s overhead=32:qmap topologySpreadConstraints=33:TopologySpreadConstraint* setHostnameAsFQDN=35:?b os=36:?PodOS hostUsers=37:?b schedulingGates=38:PodSchedulingGate* resourceClaims=39:PodResourceClaim* resources=40:?ResourceRequirements hostnameOverride=41:?s schedulingGroup=43:?PodSchedulingGroup
Volume name=1:s! _=2:^VolumeSource
VolumeSource hostPath=1:?HostPathVolumeSource emptyDir=2:?EmptyDirVolumeSource secret=6:?SecretVolumeSource nfs=7:?NFSVolumeSource iscsi=8:?ISCSIVolumeSource persistentVolumeClaim=10:?PersistentVolumeClaimVolumeSource downwardAPI=16:?DownwardAPIVolumeSource configMap=19:?ConfigMapVolumeSource projected=26:?ProjectedVolumeSource csi=28:?CSIVolumeSource ephemeral=29:?EphemeralVolumeSource image=30:?ImageVolumeSource
HostPathVolumeSource path=1:s! type=2:?s
EmptyDirVolumeSource medium=1 sizeLimit=2:?quantity
SecretVolumeSource secretName=1 items=2:KeyToPath* defaultMode=3:?i optional=4:?b
KeyToPath key=1:s! path=2:s! mode=3:?i
NFSVolumeSource server=1:s! path=2:s! readOnly=3:b
ISCSIVolumeSource targetPortal=1:s! iqn=2:s! lun=3:i! iscsiInterface=4 fsType=5 readOnly=6:b portals=7:s* chapAuthDiscovery=8:b chapAuthSession=11:b secretRef=10:?LocalObjectReference initiatorName=12:?s
LocalObjectReference name=1
PersistentVolumeClaimVolumeSource claimName=1:s! readOnly=2:b
DownwardAPIVolumeSource items=1:DownwardAPIVolumeFile* defaultMode=2:?i
DownwardAPIVolumeFile path=1:s! fieldRef=2:?ObjectFieldSelector resourceFieldRef=3:?ResourceFieldSelector mode=4:?i
ObjectFieldSelector apiVersion=1 fieldPath=2:s!
ResourceFieldSelector containerName=1 resource=2:s! divisor=3:quantity
ConfigMapVolumeSource _=1:^LocalObjectReference items=2:KeyToPath* defaultMode=3:?i optional=4:?b
ProjectedVolumeSource sources=1:VolumeProjection*! defaultMode=2:?i
VolumeProjection secret=1:?SecretProjection downwardAPI=2:?DownwardAPIProjection configMap=3:?ConfigMapProjection serviceAccountToken=4:?ServiceAccountTokenProjection clusterTrustBundle=5:?ClusterTrustBundleProjection podCertificate=6:?PodCertificateProjection
SecretProjection _=1:^LocalObjectReference items=2:KeyToPath* optional=4:?b
DownwardAPIProjection items=1:DownwardAPIVolumeFile*
ConfigMapProjection _=1:^LocalObjectReference items=2:KeyToPath* optional=4:?b
ServiceAccountTokenProjection audience=1 expirationSeconds=2:?i path=3:s!
ClusterTrustBundleProjection name=1:?s signerName=2:?s labelSelector=3:?LabelSelector optional=5:?b path=4:s!
PodCertificateProjection signerName=1 keyType=2 maxExpirationSeconds=3:?i credentialBundlePath=4 keyPath=5 certificateChainPath=6 userAnnotations=7:map
CSIVolumeSource driver=1:s! readOnly=2:?b fsType=3:?s volumeAttributes=4:map nodePublishSecretRef=5:?LocalObjectReference
EphemeralVolumeSource volumeClaimTemplate=1:?PersistentVolumeClaimTemplate
PersistentVolumeClaimTemplate metadata=1:ObjectMeta spec=2:PersistentVolumeClaimSpec
PersistentVolumeClaimSpec accessModes=1:s* selector=4:?LabelSelector resources=2:VolumeResourceRequirements volumeName=3 storageClassName=5:?s volumeMode=6:?s dataSource=7:?TypedLocalObjectReference dataSourceRef=8:?TypedObjectReference volumeAttributesClassName=9:?s
VolumeResourceRequirements limits=1:qmap requests=2:qmap
TypedLocalObjectReference apiGroup=1:?s! kind=2:s! name=3:s!
TypedObjectReference apiGroup=1:?s! kind=2:s! name=3:s! namespace=4:?s
ImageVolumeSource reference=1 pullPolicy=2
Container name=1:s! image=2 command=3:s* args=4:s* workingDir=5 ports=6:ContainerPort* envFrom=19:EnvFromSource* env=7:EnvVar* resources=8:ResourceRequirements resizePolicy=23:ContainerResizePolicy* restartPolicy=24:?s restartPolicyRules=25:ContainerRestartRule* volumeMounts=9:VolumeMount* volumeDevices=21:VolumeDevice* livenessProbe=10:?Probe readinessProbe=11:?Probe startupProbe=22:?Probe lifecycle=12:?Lifecycle terminationMessagePath=13 terminationMessagePolicy=20 imagePullPolicy=14 securityContext=15:?SecurityContext stdin=16:b stdinOnce=17:b tty=18:b
ContainerPort name=1 hostPort=2:i containerPort=3:i! protocol=4 hostIP=5
EnvFromSource prefix=1 configMapRef=2:?ConfigMapEnvSource secretRef=3:?SecretEnvSource
ConfigMapEnvSource _=1:^LocalObjectReference optional=2:?b
SecretEnvSource _=1:^LocalObjectReference optional=2:?b
EnvVar name=1:s! value=2 valueFrom=3:?EnvVarSource
EnvVarSource fieldRef=1:?ObjectFieldSelector resourceFieldRef=2:?ResourceFieldSelector configMapKeyRef=3:?ConfigMapKeySelector secretKeyRef=4:?SecretKeySelector fileKeyRef=5:?FileKeySelector
ConfigMapKeySelector _=1:^LocalObjectReference key=2:s! optional=3:?b
SecretKeySelector _=1:^LocalObjectReference key=2:s! optional=3:?b
FileKeySelector volumeName=1:s! path=2:s! key=3:s! optional=4:?b
ResourceRequirements limits=1:qmap requests=2:qmap claims=3:ResourceClaim*
ResourceClaim name=1:s! request=2
ContainerResizePolicy resourceName=1:s! restartPolicy=2:s!
ContainerRestartRule action=1 exitCodes=2:?ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes operator=1 values=2:i*
VolumeMount name=1:s! readOnly=2:b recursiveReadOnly=7:?s mountPath=3:s! subPath=4 mountPropagation=5:?s subPathExpr=6
VolumeDevice name=1:s! devicePath=2:s!
Probe _=1:^ProbeHandler initialDelaySeconds=2:i timeoutSeconds=3:i periodSeconds=4:i successThreshold=5:i failureThreshold=6:i terminationGracePeriodSeconds=7:?i
ProbeHandler exec=1:?ExecAction httpGet=2:?HTTPGetAction tcpSocket=3:?TCPSocketAction grpc=4:?GRPCAction
ExecAction command=1:s*
HTTPGetAction path=1 port=2:ios host=3 scheme=4 httpHeaders=5:HTTPHeader*
HTTPHeader name=1:s! value=2:s!
TCPSocketAction port=1:ios host=2
GRPCAction port=1:i! service=2:?s!
Lifecycle postStart=1:?LifecycleHandler preStop=2:?LifecycleHandler stopSignal=3:?s
LifecycleHandler exec=1:?ExecAction httpGet=2:?HTTPGetAction tcpSocket=3:?TCPSocketAction sleep=4:?SleepAction
SleepAction seconds=1:i!
SecurityContext capabilities=1:?Capabilities privileged=2:?b seLinuxOptions=3:?SELinuxOptions windowsOptions=10:?WindowsSecurityContextOptions runAsUser=4:?i runAsGroup=8:?i runAsNonRoot=5:?b readOnlyRootFilesystem=6:?b allowPrivilegeEscalation=7:?b procMount=9:?s seccompProfile=11:?SeccompProfile appArmorProfile=12:?AppArmorProfile
Capabilities add=1:s* drop=2:s*
SELinuxOptions user=1 role=2 type=3 level=4
WindowsSecurityContextOptions gmsaCredentialSpecName=1:?s gmsaCredentialSpec=2:?s runAsUserName=3:?s hostProcess=4:?b
SeccompProfile type=1:s! localhostProfile=2:?s
AppArmorProfile type=1:s! localhostProfile=2:?s
EphemeralContainer _=1:^EphemeralContainerCommon targetContainerName=2
EphemeralContainerCommon name=1:s! image=2 command=3:s* args=4:s* workingDir=5 ports=6:ContainerPort* envFrom=19:EnvFromSource* env=7:EnvVar* resources=8:ResourceRequirements resizePolicy=23:ContainerResizePolicy* restartPolicy=24:?s restartPolicyRules=25:ContainerRestartRule* volumeMounts=9:VolumeMount* volumeDevices=21:VolumeDevice* livenessProbe=10:?Probe readinessProbe=11:?Probe startupProbe=22:?Probe lifecycle=12:?Lifecycle terminationMessagePath=13 terminationMessagePolicy=20 imagePullPolicy=14 securityContext=15:?SecurityContext stdin=16:b stdinOnce=17:b tty=18:b
PodSecurityContext seLinuxOptions=1:?SELinuxOptions windowsOptions=8:?WindowsSecurityContextOptions runAsUser=2:?i runAsGroup=6:?i runAsNonRoot=3:?b supplementalGroups=4:i* supplementalGroupsPolicy=12:?s fsGroup=5:?i sysctls=7:Sysctl* fsGroupChangePolicy=9:?s seccompProfile=10:?SeccompProfile appArmorProfile=11:?AppArmorProfile seLinuxChangePolicy=13:?s
Sysctl name=1:s! value=2:s!
Affinity nodeAffinity=1:?NodeAffinity podAffinity=2:?PodAffinity podAntiAffinity=3:?PodAntiAffinity
NodeAffinity requiredDuringSchedulingIgnoredDuringExecution=1:?NodeSelector preferredDuringSchedulingIgnoredDuringExecution=2:PreferredSchedulingTerm*
NodeSelector nodeSelectorTerms=1:NodeSelectorTerm*!
NodeSelectorTerm matchExpressions=1:NodeSelectorRequirement* matchFields=2:NodeSelectorRequirement*
NodeSelectorRequirement key=1:s! operator=2:s! values=3:s*
PreferredSchedulingTerm weight=1:i! preference=2:NodeSelectorTerm
PodAffinity requiredDuringSchedulingIgnoredDuringExecution=1:PodAffinityTerm* preferredDuringSchedulingIgnoredDuringExecution=2:WeightedPodAffinityTerm*
PodAffinityTerm labelSelector=1:?LabelSelector namespaces=2:s* topologyKey=3:s! namespaceSelector=4:?LabelSelector matchLabelKeys=5:s* mismatchLabelKeys=6:s*
WeightedPodAffinityTerm weight=1:i! podAffinityTerm=2:PodAffinityTerm
PodAntiAffinity requiredDuringSchedulingIgnoredDuringExecution=1:PodAffinityTerm* preferredDuringSchedulingIgnoredDuringExecution=2:WeightedPodAffinityTerm*
Toleration key=1 operator=2 value=3 effect=4 tolerationSeconds=5:?i
HostAlias ip=1:s! hostnames=2:s*
PodDNSConfig nameservers=1:s* searches=2:s* options=3:PodDNSConfigOption*
PodDNSConfigOption name=1 value=2:?s
PodReadinessGate conditionType=1:s!
TopologySpreadConstraint maxSkew=1:i! topologyKey=2:s! whenUnsatisfiable=3:s! labelSelector=4:?LabelSelector minDomains=5:?i nodeAffinityPolicy=6:?s nodeTaintsPolicy=7:?s matchLabelKeys=8:s*
PodOS name=1:s!
PodSchedulingGate name=1:s!
PodResourceClaim name=1:s! resourceClaimName=3:?s resourceClaimTemplateName=4:?s
PodSchedulingGroup podGroupName=1:?s
PodStatus observedGeneration=17:i phase=1 conditions=2:PodCondition* message=3 reason=4 nominatedNodeName=11 hostIP=5 hostIPs=16:HostIP* podIP=6 podIPs=12:PodIP* startTime=7:?time initContainerStatuses=10:ContainerStatus* containerStatuses=8:ContainerStatus* qosClass=9 ephemeralContainerStatuses=13:ContainerStatus* resize=14 resourceClaimStatuses=15:PodResourceClaimStatus* extendedResourceClaimStatus=18:?PodExtendedResourceClaimStatus allocatedResources=19:qmap resources=20:?ResourceRequirements nodeAllocatableResourceClaimStatuses=21:NodeAllocatableResourceClaimStatus*
PodCondition type=1:s! observedGeneration=7:i status=2:s! lastProbeTime=3:time lastTransitionTime=4:time reason=5 message=6
HostIP ip=1:s!
PodIP ip=1:s!
ContainerStatus name=1:s! state=2:ContainerState lastState=3:ContainerState ready=4:b! restartCount=5:i! image=6:s! imageID=7:s! containerID=8 started=9:?b allocatedResources=10:qmap resources=11:?ResourceRequirements volumeMounts=12:VolumeMountStatus* user=13:?ContainerUser allocatedResourcesStatus=14:ResourceStatus* stopSignal=15:?s
ContainerState waiting=1:?ContainerStateWaiting running=2:?ContainerStateRunning terminated=3:?ContainerStateTerminated
ContainerStateWaiting reason=1 message=2
ContainerStateRunning startedAt=1:time
ContainerStateTerminated exitCode=1:i! signal=2:i reason=3 message=4 startedAt=5:time finishedAt=6:time containerID=7
VolumeMountStatus name=1:s! mountPath=2:s! readOnly=3:b recursiveReadOnly=4:?s volumeStatus=5:?VolumeStatus
VolumeStatus image=1:?ImageVolumeStatus
ImageVolumeStatus imageRef=1
ContainerUser linux=1:?LinuxContainerUser
LinuxContainerUser uid=1:i! gid=2:i! supplementalGroups=3:i*
ResourceStatus name=1:s! resources=2:ResourceHealth*
ResourceHealth resourceID=1:s! health=2 message=6:?s
PodResourceClaimStatus name=1:s! resourceClaimName=2:?s
PodExtendedResourceClaimStatus requestMappings=1:ContainerExtendedResourceRequest*! resourceClaimName=2:s!
ContainerExtendedResourceRequest containerName=1:s! resourceName=2:s! requestName=3:s!
NodeAllocatableResourceClaimStatus resourceClaimName=1:s! containers=2:s* resources=3:qmap!
PodTemplate metadata=1:ObjectMeta template=2:PodTemplateSpec
PodTemplateSpec metadata=1:ObjectMeta spec=2:PodSpec
Node metadata=1:ObjectMeta spec=2:NodeSpec status=3:NodeStatus
NodeSpec podCIDR=1 podCIDRs=7:s* providerID=3 unschedulable=4:b taints=5:Taint* configSource=6:?NodeConfigSource externalID=2
Taint key=1:s! value=2 effect=3:s! timeAdded=4:?time
NodeConfigSource configMap=2:?ConfigMapNodeConfigSource
ConfigMapNodeConfigSource namespace=1:s! name=2:s! uid=3 resourceVersion=4 kubeletConfigKey=5:s!
NodeStatus capacity=1:qmap allocatable=2:qmap phase=3 conditions=4:NodeCondition* addresses=5:NodeAddress* daemonEndpoints=6:NodeDaemonEndpoints nodeInfo=7:NodeSystemInfo images=8:ContainerImage* volumesInUse=9:s* volumesAttached=10:AttachedVolume* config=11:?NodeConfigStatus runtimeHandlers=12:NodeRuntimeHandler* features=13:?NodeFeatures declaredFeatures=14:s*
NodeCondition type=1:s! status=2:s! lastHeartbeatTime=3:time lastTransitionTime=4:time reason=5 message=6
NodeAddress type=1:s! address=2:s!
NodeDaemonEndpoints kubeletEndpoint=1:DaemonEndpoint
DaemonEndpoint Port=1:i!
NodeSystemInfo machineID=1:s! systemUUID=2:s! bootID=3:s! kernelVersion=4:s! osImage=5:s! containerRuntimeVersion=6:s! kubeletVersion=7:s! kubeProxyVersion=8:s! operatingSystem=9:s! architecture=10:s! swap=11:?NodeSwapStatus
NodeSwapStatus capacity=1:?i
ContainerImage names=1:s*! sizeBytes=2:i
AttachedVolume name=1:s! devicePath=2:s!
NodeConfigStatus assigned=1:?NodeConfigSource active=2:?NodeConfigSource lastKnownGood=3:?NodeConfigSource error=4
NodeRuntimeHandler name=1:s! features=2:?NodeRuntimeHandlerFeatures
NodeRuntimeHandlerFeatures recursiveReadOnlyMounts=1:?b userNamespaces=2:?b
NodeFeatures supplementalGroupsPolicy=1:?b
Namespace metadata=1:ObjectMeta spec=2:NamespaceSpec status=3:NamespaceStatus
NamespaceSpec finalizers=1:s*
NamespaceStatus phase=1 conditions=2:NamespaceCondition*
NamespaceCondition type=1:s! status=2:s! lastTransitionTime=4:time reason=5 message=6
ConfigMap metadata=1:ObjectMeta immutable=4:?b data=2:map binaryData=3:bmap
Secret metadata=1:ObjectMeta immutable=5:?b data=2:bmap stringData=4:map type=3
ServiceAccount metadata=1:ObjectMeta secrets=2:ObjectReference* imagePullSecrets=3:LocalObjectReference* automountServiceAccountToken=4:?b
ObjectReference kind=1 namespace=2 name=3 uid=4 apiVersion=5 resourceVersion=6 fieldPath=7
Service metadata=1:ObjectMeta spec=2:ServiceSpec status=3:ServiceStatus
ServiceSpec ports=1:ServicePort* selector=2:map clusterIP=3 clusterIPs=18:s* type=4 externalIPs=5:s* sessionAffinity=7 loadBalancerIP=8 loadBalancerSourceRanges=9:s* externalName=10 externalTrafficPolicy=11 healthCheckNodePort=12:i publishNotReadyAddresses=13:b sessionAffinityConfig=14:?SessionAffinityConfig ipFamilies=19:s* ipFamilyPolicy=17:?s allocateLoadBalancerNodePorts=20:?b loadBalancerClass=21:?s internalTrafficPolicy=22:?s trafficDistribution=23:?s
ServicePort name=1 protocol=2 appProtocol=6:?s port=3:i! targetPort=4:ios nodePort=5:i
SessionAffinityConfig clientIP=1:?ClientIPConfig
ClientIPConfig timeoutSeconds=1:?i
ServiceStatus loadBalancer=1:LoadBalancerStatus conditions=2:Condition*
LoadBalancerStatus ingress=1:LoadBalancerIngress*
LoadBalancerIngress ip=1 hostname=2 ipMode=3:?s ports=4:PortStatus*
PortStatus port=1:i! protocol=2:s! error=3:?s
Condition type=1:s! status=2:s! observedGeneration=3:i lastTransitionTime=4:time reason=5:s! message=6:s!
Endpoints metadata=1:ObjectMeta subsets=2:EndpointSubset*
EndpointSubset addresses=1:EndpointAddress* notReadyAddresses=2:EndpointAddress* ports=3:EndpointPort*
EndpointAddress ip=1:s! hostname=3 nodeName=4:?s targetRef=2:?ObjectReference
EndpointPort name=1 port=2:i! protocol=3 appProtocol=4:?s
Event metadata=1:ObjectMeta involvedObject=2:ObjectReference reason=3 message=4 source=5:EventSource firstTimestamp=6:time lastTimestamp=7:time count=8:i type=9 eventTime=10:microtime series=11:?EventSeries action=12 related=13:?ObjectReference reportingComponent=14:s! reportingInstance=15:s!
EventSource component=1 host=2
EventSeries count=1:i lastObservedTime=2:microtime
LimitRange metadata=1:ObjectMeta spec=2:LimitRangeSpec
LimitRangeSpec limits=1:LimitRangeItem*!
LimitRangeItem type=1:s! max=2:qmap min=3:qmap default=4:qmap defaultRequest=5:qmap maxLimitRequestRatio=6:qmap
ResourceQuota metadata=1:ObjectMeta spec=2:ResourceQuotaSpec status=3:ResourceQuotaStatus
ResourceQuotaSpec hard=1:qmap scopes=2:s* scopeSelector=3:?ScopeSelector
ScopeSelector matchExpressions=1:ScopedResourceSelectorRequirement*
ScopedResourceSelectorRequirement scopeName=1:s! operator=2:s! values=3:s*
ResourceQuotaStatus hard=1:qmap used=2:qmap
ReplicationController metadata=1:ObjectMeta spec=2:ReplicationControllerSpec status=3:ReplicationControllerStatus
ReplicationControllerSpec replicas=1:?i minReadySeconds=4:i selector=2:map template=3:?PodTemplateSpec
ReplicationControllerStatus replicas=1:i! fullyLabeledReplicas=2:i readyReplicas=4:i availableReplicas=5:i observedGeneration=3:i conditions=6:ReplicationControllerCondition*
ReplicationControllerCondition type=1:s! status=2:s! lastTransitionTime=3:time reason=4 message=5
PersistentVolumeClaim metadata=1:ObjectMeta spec=2:PersistentVolumeClaimSpec status=3:PersistentVolumeClaimStatus
PersistentVolumeClaimStatus phase=1 accessModes=2:s* capacity=3:qmap conditions=4:PersistentVolumeClaimCondition* allocatedResources=5:qmap allocatedResourceStatuses=7:map currentVolumeAttributesClassName=8:?s modifyVolumeStatus=9:?ModifyVolumeStatus
PersistentVolumeClaimCondition type=1:s! status=2:s! lastProbeTime=3:time lastTransitionTime=4:time reason=5 message=6
ModifyVolumeStatus targetVolumeAttributesClassName=1 status=2:s!
PersistentVolume metadata=1:ObjectMeta spec=2:PersistentVolumeSpec status=3:PersistentVolumeStatus
PersistentVolumeSpec capacity=1:qmap _=2:^PersistentVolumeSource accessModes=3:s* claimRef=4:?ObjectReference persistentVolumeReclaimPolicy=5 storageClassName=6 mountOptions=7:s* volumeMode=8:?s nodeAffinity=9:?VolumeNodeAffinity volumeAttributesClassName=10:?s
PersistentVolumeSource hostPath=3:?HostPathVolumeSource nfs=5:?NFSVolumeSource iscsi=7:?ISCSIPersistentVolumeSource local=20:?LocalVolumeSource csi=22:?CSIPersistentVolumeSource
ISCSIPersistentVolumeSource targetPortal=1:s! iqn=2:s! lun=3:i! iscsiInterface=4 fsType=5 readOnly=6:b portals=7:s* chapAuthDiscovery=8:b chapAuthSession=11:b secretRef=10:?SecretReference initiatorName=12:?s
SecretReference name=1 namespace=2
LocalVolumeSource path=1:s! fsType=2:?s
CSIPersistentVolumeSource driver=1:s! volumeHandle=2:s! readOnly=3:b fsType=4 volumeAttributes=5:map controllerPublishSecretRef=6:?SecretReference nodeStageSecretRef=7:?SecretReference nodePublishSecretRef=8:?SecretReference controllerExpandSecretRef=9:?SecretReference nodeExpandSecretRef=10:?SecretReference
VolumeNodeAffinity required=1:?NodeSelector
PersistentVolumeStatus phase=1 message=2 reason=3 lastPhaseTransitionTime=4:?time
Binding metadata=1:ObjectMeta target=2:ObjectReference
";
