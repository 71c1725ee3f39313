//! Protobuf request bodies of the few types that `kubectl create` and `kubectl auth` send so.
//!
//! Decoded into JSON by a table of field names and numbers (the `generated.proto` files of k8s.io/api). What the table
//! does not name is skipped. Answers are never protobuf.

use base64::Engine;
use serde_json::{Map, Value, json};

/// Decodes a body in Kubernetes' envelope; `None` if it is not one, or of a kind that the table lacks.
pub(super) fn decode(body: &[u8]) -> Option<Value> {
    let fields = fields(body.strip_prefix(b"k8s\0")?)?;
    let get = |number| fields.iter().find(|field| field.number == number).map(|field| field.bytes);
    let type_meta = self::fields(get(1)?)?;
    let word = |number| {
        let found = type_meta.iter().find(|field| field.number == number)?;
        std::str::from_utf8(found.bytes).ok()
    };
    let (api_version, kind) = (word(1)?, word(2)?);
    let mut object = message(kind, get(2)?)?;
    let mut whole = Map::new();
    whole.insert("kind".to_owned(), kind.into());
    whole.insert("apiVersion".to_owned(), api_version.into());
    whole.append(&mut object);
    Some(Value::Object(whole))
}

/// A field as it stands on the wire.
struct Field<'a> {
    number: u64,
    /// The value of a varint.
    value: u64,
    /// The value of a length-delimited field.
    bytes: &'a [u8],
}

fn message(name: &str, bytes: &[u8]) -> Option<Map<String, Value>> {
    let line = SCHEMA.lines().find(|line| line.split(' ').next() == Some(name))?;
    let mut object = Map::new();
    for field in fields(bytes)? {
        let known = line.split(' ').skip(1).find_map(|word| {
            let (field_name, rest) = word.split_once('=')?;
            let (number, kind) = rest.split_once(':').unwrap_or((rest, "s"));
            (number.parse() == Ok(field.number)).then_some((field_name, kind))
        });
        if let Some((field_name, kind)) = known {
            set(&mut object, field_name, kind, &field)?;
        }
    }
    Some(object)
}

fn set(object: &mut Map<String, Value>, name: &str, kind: &str, field: &Field<'_>) -> Option<()> {
    let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let text = || std::str::from_utf8(field.bytes).ok().map(str::to_owned);
    if let Some(element) = kind.strip_suffix('*') {
        let value =
            if element == "s" { text()?.into() } else { message(element, field.bytes)?.into() };
        let list = object.entry(name.to_owned()).or_insert_with(|| json!([]));
        list.as_array_mut()?.push(value);
        return Some(());
    }
    let value = match kind {
        "s" => Value::from(text()?),
        "i" | "p" => Value::from(field.value.cast_signed()),
        "b" => Value::from(field.value != 0),
        "map" | "bmap" => {
            let pair = fields(field.bytes)?;
            let part = |number| {
                let found = pair.iter().find(|field| field.number == number);
                found.map_or(&[][..], |field| field.bytes)
            };
            let key = String::from_utf8(part(1).to_vec()).ok()?;
            let value = match kind {
                "map" => String::from_utf8(part(2).to_vec()).ok()?,
                _ => base64(part(2)),
            };
            let map = object.entry(name.to_owned()).or_insert_with(|| json!({}));
            map.as_object_mut()?.insert(key, value.into());
            return Some(());
        }
        "ios" => {
            let parts = fields(field.bytes)?;
            let part = |number| parts.iter().find(|field| field.number == number);
            match part(1).map(|field| field.value) {
                Some(1) => Value::from(std::str::from_utf8(part(3)?.bytes).ok()?),
                _ => Value::from(part(2).map_or(0, |field| field.value)),
            }
        }
        "quantity" => {
            let found = fields(field.bytes)?;
            Value::from(std::str::from_utf8(found.first()?.bytes).ok()?)
        }
        "time" => {
            let found = fields(field.bytes)?;
            let Some(seconds) = found.first() else { return Some(()) };
            Value::from(jiff::Timestamp::from_second(seconds.value.cast_signed()).ok()?.to_string())
        }
        other => Value::Object(message(other, field.bytes)?),
    };
    // Go writes every field that is no pointer, empty or not; JSON leaves the empty ones out.
    let empty = match &value {
        Value::String(text) => text.is_empty(),
        Value::Number(number) => kind == "i" && number.as_i64() == Some(0),
        Value::Bool(_) | Value::Null | Value::Array(_) => false,
        Value::Object(map) => map.is_empty() && name == "metadata",
    };
    if !empty {
        object.insert(name.to_owned(), value);
    }
    Some(())
}

fn fields(mut bytes: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let mut field = Field { number: tag >> 3, value: 0, bytes: &[] };
        match tag & 7 {
            0 => field.value = varint(&mut bytes)?,
            1 => bytes = bytes.split_at_checked(8)?.1,
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                (field.bytes, bytes) = bytes.split_at_checked(length)?;
            }
            5 => bytes = bytes.split_at_checked(4)?.1,
            _ => return None,
        }
        found.push(field);
    }
    Some(found)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A message a line: its name, then its fields as `name=number:type`, where the type is a string if none is given,
/// `i` an integer, `p` one behind a pointer (whose zero counts), `b` a boolean, `ios` an IntOrString.
const SCHEMA: &str = "\
ObjectMeta name=1 generateName=2 namespace=3 resourceVersion=6 labels=11:map annotations=12:map finalizers=14:s*
ConfigMap metadata=1:ObjectMeta data=2:map binaryData=3:bmap immutable=4:b
Secret metadata=1:ObjectMeta data=2:bmap type=3 stringData=4:map immutable=5:b
Namespace metadata=1:ObjectMeta
ServiceAccount metadata=1:ObjectMeta
Service metadata=1:ObjectMeta spec=2:ServiceSpec
ServiceSpec ports=1:ServicePort* selector=2:map clusterIP=3 type=4 externalIPs=5:s* sessionAffinity=7 externalName=10
ServicePort name=1 protocol=2 port=3:i targetPort=4:ios nodePort=5:i
Deployment metadata=1:ObjectMeta spec=2:DeploymentSpec
DeploymentSpec replicas=1:p selector=2:LabelSelector template=3:PodTemplateSpec strategy=4:DeploymentStrategy minReadySeconds=5:i revisionHistoryLimit=6:p progressDeadlineSeconds=9:p
DeploymentStrategy type=1
LabelSelector matchLabels=1:map
PodTemplateSpec metadata=1:ObjectMeta spec=2:PodSpec
PodSpec containers=2:Container* restartPolicy=3 terminationGracePeriodSeconds=4:p dnsPolicy=6 nodeSelector=7:map serviceAccountName=8 nodeName=10 schedulerName=19 initContainers=20:Container*
Pod metadata=1:ObjectMeta spec=2:PodSpec
Container name=1 image=2 command=3:s* args=4:s* workingDir=5 ports=6:ContainerPort* env=7:EnvVar* imagePullPolicy=14
ContainerPort name=1 hostPort=2:i containerPort=3:i protocol=4
EnvVar name=1 value=2
Job metadata=1:ObjectMeta spec=2:JobSpec
JobSpec parallelism=1:p completions=2:p activeDeadlineSeconds=3:p template=6:PodTemplateSpec backoffLimit=7:p
CronJob metadata=1:ObjectMeta spec=2:CronJobSpec
CronJobSpec schedule=1 concurrencyPolicy=3 suspend=4:b jobTemplate=5:JobTemplateSpec
JobTemplateSpec metadata=1:ObjectMeta spec=2:JobSpec
Role metadata=1:ObjectMeta rules=2:PolicyRule*
ClusterRole metadata=1:ObjectMeta rules=2:PolicyRule*
PolicyRule verbs=1:s* apiGroups=2:s* resources=3:s* resourceNames=4:s* nonResourceURLs=5:s*
RoleBinding metadata=1:ObjectMeta subjects=2:Subject* roleRef=3:RoleRef
ClusterRoleBinding metadata=1:ObjectMeta subjects=2:Subject* roleRef=3:RoleRef
Subject kind=1 apiGroup=2 name=3 namespace=4
RoleRef apiGroup=1 kind=2 name=3
PriorityClass metadata=1:ObjectMeta value=2:i globalDefault=3:b description=4 preemptionPolicy=5
ResourceQuota metadata=1:ObjectMeta
Lease metadata=1:ObjectMeta spec=2:LeaseSpec
LeaseSpec holderIdentity=1 leaseDurationSeconds=2:p leaseTransitions=5:p
SelfSubjectReview metadata=1:ObjectMeta
SelfSubjectAccessReview metadata=1:ObjectMeta spec=2:AccessReviewSpec
SubjectAccessReview metadata=1:ObjectMeta spec=2:AccessReviewSpec
LocalSubjectAccessReview metadata=1:ObjectMeta spec=2:AccessReviewSpec
AccessReviewSpec resourceAttributes=1:ResourceAttributes nonResourceAttributes=2:NonResourceAttributes user=3 groups=4:s* uid=6
ResourceAttributes namespace=1 verb=2 group=3 version=4 resource=5 subresource=6 name=7
NonResourceAttributes path=1 verb=2
SelfSubjectRulesReview metadata=1:ObjectMeta spec=2:RulesReviewSpec
RulesReviewSpec namespace=1
TokenReview metadata=1:ObjectMeta spec=2:TokenReviewSpec
TokenReviewSpec token=1 audiences=2:s*
DeleteOptions gracePeriodSeconds=1:p preconditions=2:Preconditions propagationPolicy=4 dryRun=5:s*
Preconditions uid=1 resourceVersion=2
";

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn decodes_a_config_map_as_go_writes_it() {
        let mut meta = b"\x0a\x01a\x12\x00\x1a\x00\x22\x00".to_vec();
        meta.extend(b"\x5a\x06\x0a\x01k\x12\x01v\x38\x00");
        let mut raw = vec![0x0a, u8::try_from(meta.len()).unwrap()];
        raw.extend(&meta);
        raw.extend(b"\x12\x06\x0a\x01x\x12\x011");
        let mut body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap".to_vec();
        body.extend([0x12, u8::try_from(raw.len()).unwrap()]);
        body.extend(&raw);
        body.extend(b"\x1a\x00\x22\x00");
        let expected = json!({"kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "a", "labels": {"k": "v"}}, "data": {"x": "1"}});
        assert_eq!(super::decode(&body), Some(expected));
        assert_eq!(super::decode(b"k8s\0\xff"), None);
    }
}
