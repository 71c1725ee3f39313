//! Which objects are accepted.

use serde_json::{Value, json};

use super::*;
use crate::level::PriorityLevel;
use crate::plan::{flow_schemas, priority_levels};

/// Returns a valid object after a change of its specification.
fn changed(change: impl FnOnce(&mut Value)) -> Result<FlowSchema, InvalidObject> {
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": "l"},
        "matchingPrecedence": 5,
        "distinguisherMethod": {"type": "ByNamespace"},
        "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "jane"}}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"],
                "namespaces": ["*"]}],
            "nonResourceRules": null,
        }],
    });
    change(&mut spec);
    FlowSchema::parse(json!({"metadata": {"name": "a"}, "spec": spec}).to_string().as_bytes())
}

#[test]
fn all_built_in_objects_are_valid() {
    assert_eq!(flow_schemas().len(), 11);
    assert_eq!(priority_levels().len(), 8);
}

#[test]
fn an_object_has_the_defaults_of_kube_apiserver() {
    assert_eq!(changed(|_| {}).unwrap().distinguisher, Some(Distinguisher::ByNamespace));
    let schema = changed(|spec| {
        spec.as_object_mut().unwrap().remove("matchingPrecedence");
        spec["distinguisherMethod"] = Value::Null;
    });
    let schema = schema.unwrap();
    assert_eq!((schema.precedence, schema.distinguisher), (1_000, None));
}

#[test]
fn what_kube_apiserver_rejects_is_not_used() {
    let fields: [(&str, &str, Value); 14] = [
        ("", "matchingPrecedence", json!(10_001)),
        ("", "matchingPrecedence", json!(-1)),
        ("", "matchingPrecedence", json!(1)),
        ("", "priorityLevelConfiguration", json!({})),
        ("", "distinguisherMethod", json!({"type": "ByVerb"})),
        ("/rules/0", "subjects", json!([])),
        ("/rules/0", "subjects", json!([{"kind": "User", "group": {"name": "a"}}])),
        ("/rules/0", "subjects", json!([{"kind": "Robot", "user": {"name": "a"}}])),
        ("/rules/0", "resourceRules", json!([])),
        ("/rules/0/resourceRules/0", "verbs", json!(["get", "*"])),
        ("/rules/0/resourceRules/0", "verbs", json!(["fly"])),
        ("/rules/0/resourceRules/0", "namespaces", json!([])),
        ("/rules/0/resourceRules/0", "resources", json!([])),
        ("/rules/0", "nonResourceRules", json!([{"verbs": ["get"], "nonResourceURLs": ["/a*"]}])),
    ];
    for (parent, field, value) in fields {
        let result = changed(|spec| spec.pointer_mut(parent).unwrap()[field] = value.clone());
        assert!(matches!(result, Err(InvalidObject::Rejected { .. })), "{field}: {value}");
    }
    assert!(matches!(FlowSchema::parse(b"[]"), Err(InvalidObject::Malformed(_))));
    let unnamed = json!({"metadata": {}, "spec": {}}).to_string();
    assert!(FlowSchema::parse(unnamed.as_bytes()).is_err());
}

#[test]
fn a_level_has_the_part_of_its_type_and_valid_numbers() {
    let level = |name: &str, spec: Value| {
        let object = json!({"metadata": {"name": name}, "spec": spec}).to_string();
        PriorityLevel::parse(object.as_bytes())
            .map(|level| (level.shares, level.queuing.map(|queuing| queuing.hand_size)))
    };
    let queue = |queuing: Value| {
        json!({"type": "Limited", "limited":
            {"limitResponse": {"type": "Queue", "queuing": queuing}}})
    };
    let reject = |shares: i32, lendable: i32| {
        json!({"type": "Limited", "limited": {"nominalConcurrencyShares": shares,
            "lendablePercent": lendable, "limitResponse": {"type": "Reject"}}})
    };
    assert_eq!(level("a", queue(json!({}))), Ok((30, Some(8))));
    assert_eq!(level("a", queue(json!({"queues": 128, "handSize": 6}))), Ok((30, Some(6))));
    assert_eq!(level("a", reject(5, 0)), Ok((5, None)));
    assert_eq!(level("exempt", json!({"type": "Exempt"})), Ok((0, None)));
    for (name, spec) in [
        ("a", queue(json!({"queues": 4, "handSize": 5}))),
        ("a", queue(json!({"queues": 1024, "handSize": 7}))),
        ("a", queue(json!({"queues": 10_000_001, "handSize": 1}))),
        ("a", queue(Value::Null)),
        ("a", reject(-1, 0)),
        ("a", reject(1, 101)),
        ("a", json!({"type": "Exempt"})),
        ("exempt", reject(1, 0)),
        ("a", json!({"type": "Limited"})),
        ("a", json!({"type": "Other"})),
    ] {
        assert!(level(name, spec.clone()).is_err(), "{spec}");
    }
}
