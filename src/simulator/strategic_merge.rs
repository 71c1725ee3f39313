//! Strategic merge patches: like JSON merge patches, but lists of objects are merged by a key.
//!
//! The upstream reads the key from its Go types. This module knows it for the common lists by their
//! name, which is exact for the patches of `kubectl apply`, `set image`, `label` and the like.
//! `$setElementOrder` and `$retainKeys` only matter for order and for unions, and are ignored.

use serde_json::{Map, Value};

/// Merges a patch into a value.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") {
        *target = Value::Object(without_directives(patch));
        return;
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, change) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            remove_values(target, list, change);
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        match change {
            Value::Null => drop(target.shift_remove(name)),
            Value::Object(inner)
                if inner.get("$patch").and_then(Value::as_str) == Some("delete") =>
            {
                drop(target.shift_remove(name));
            }
            Value::Array(changes) => merge_list(target, name, changes),
            other => merge(target.entry(name.clone()).or_insert(Value::Null), other),
        }
    }
}

fn merge_list(target: &mut Map<String, Value>, name: &str, changes: &[Value]) {
    let directive =
        |change: &Value| change.get("$patch").and_then(Value::as_str).map(str::to_owned);
    let replaced = changes.iter().any(|change| directive(change).as_deref() == Some("replace"));
    let Some(keys) = merge_keys(name).filter(|_| !replaced) else {
        let kept = changes.iter().filter(|change| directive(change).is_none()).cloned().collect();
        // Finalizers and a few other lists are sets of values. A patch adds to them.
        if SETS.contains(&name) {
            add_values(target, name, kept);
        } else {
            target.insert(name.to_owned(), Value::Array(kept));
        }
        return;
    };
    let list = target.entry(name.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Value::Array(list) = list else { return };
    for change in changes {
        let key = keys.iter().find(|key| change.get(**key).is_some());
        let same = |element: &Value| key.is_some_and(|key| element.get(*key) == change.get(*key));
        if directive(change).as_deref() == Some("delete") {
            list.retain(|element| !same(element));
            continue;
        }
        match list.iter_mut().find(|element| same(element)) {
            Some(element) => merge(element, change),
            None => {
                let mut added = Value::Null;
                merge(&mut added, change);
                list.push(added);
            }
        }
    }
}

/// Returns the possible merge keys of a list; the first that an element has applies.
fn merge_keys(list: &str) -> Option<&'static [&'static str]> {
    Some(match list {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "secrets" => &["name"],
        "volumeMounts" => &["mountPath"],
        "volumeDevices" => &["devicePath"],
        "ports" => &["containerPort", "port"],
        "hostAliases" => &["ip"],
        "topologySpreadConstraints" => &["topologyKey"],
        "conditions" | "addresses" => &["type"],
        "ownerReferences" => &["uid"],
        "podIPs" | "hostIPs" => &["ip"],
        "taints" => &["key"],
        "webhooks" => &["name"],
        _ => return None,
    })
}

/// The lists of scalar values that are merged as sets.
const SETS: [&str; 1] = ["finalizers"];

fn add_values(target: &mut Map<String, Value>, name: &str, values: Vec<Value>) {
    let list = target.entry(name.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(list) = list else { return };
    for value in values {
        if !list.contains(&value) {
            list.push(value);
        }
    }
}

fn remove_values(target: &mut Map<String, Value>, name: &str, values: &Value) {
    let (Some(Value::Array(list)), Some(values)) = (target.get_mut(name), values.as_array()) else {
        return;
    };
    list.retain(|value| !values.contains(value));
}

fn without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    let kept = map.iter().filter(|(name, _)| !name.starts_with('$'));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::merge;

    #[test]
    fn merges_lists_by_their_key_and_deletes_by_directive() {
        let mut object = json!({"spec": {"containers": [
            {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]},
            {"name": "b", "image": "b:1"}], "tolerations": [{"key": "k"}]},
            "metadata": {"finalizers": ["x"], "labels": {"l": "1", "m": "2"}}});
        let patch = json!({"spec": {
            "$setElementOrder/containers": [{"name": "a"}],
            "containers": [
                {"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}]},
                {"name": "b", "$patch": "delete"}, {"name": "c", "image": "c:1"}],
            "tolerations": []},
            "metadata": {"finalizers": ["y"], "labels": {"l": null}}});
        merge(&mut object, &patch);
        let expected = json!({"spec": {"containers": [
            {"name": "a", "image": "a:2",
                "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "c", "image": "c:1"}], "tolerations": []},
            "metadata": {"finalizers": ["x", "y"], "labels": {"m": "2"}}});
        assert_eq!(object, expected);
    }
}
