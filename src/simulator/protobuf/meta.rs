//! Field tables of `k8s.io/apimachinery` meta/v1 (`schema` describes the notation).

/// One message per line.
pub(super) const META: &str = "\
ObjectMeta name=1 generateName=2 namespace=3 selfLink=4 uid=5 resourceVersion=6 generation=7:i creationTimestamp=8:time- deletionTimestamp=9:?time deletionGracePeriodSeconds=10:?i labels=11:map annotations=12:map ownerReferences=13:OwnerReference* finalizers=14:s* managedFields=17:ManagedFieldsEntry*
OwnerReference apiVersion=5:s! kind=1:s! name=3:s! uid=4:s! controller=6:?b blockOwnerDeletion=7:?b
ManagedFieldsEntry manager=1 operation=2 apiVersion=3 time=4:?time fieldsType=6 fieldsV1=7:?raw subresource=8
ListMeta selfLink=1 resourceVersion=2 continue=3 remainingItemCount=4:?i shardInfo=5:?ShardInfo
ShardInfo selector=1:s!
Status metadata=1:ListMeta status=2 message=3 reason=4 details=5:?StatusDetails code=6:i
StatusDetails name=1 group=2 kind=3 uid=6 causes=4:StatusCause* retryAfterSeconds=5:i
StatusCause reason=1 message=2 field=3
PartialObjectMetadata metadata=1:ObjectMeta
DeleteOptions gracePeriodSeconds=1:?i preconditions=2:?Preconditions orphanDependents=3:?b propagationPolicy=4:?s dryRun=5:s* ignoreStoreReadErrorWithClusterBreakingPotential=6:?b
Preconditions uid=1:?s resourceVersion=2:?s
LabelSelector matchLabels=1:map matchExpressions=2:LabelSelectorRequirement*
LabelSelectorRequirement key=1:s! operator=2:s! values=3:s*
";
