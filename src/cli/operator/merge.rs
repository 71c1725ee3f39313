//! The answers of several replicas as one: costs of one client are added, all else is shown with
//! the replica that it is of.
//!
//! Each replica knows the clients that are connected to it. A client with connections to several
//! is one client here, as its requests are one cost for the API server. A merged document has
//! `instances`, the replicas that it is of.

use serde_json::{Map, Value, json};

use crate::flow::cost::weight_of;
use crate::flow::doctor::{Finding, Weight};

/// Merges the answers of one kind. There is at least one.
pub(super) fn merged(kind: &str, answers: Vec<Value>) -> Value {
    let answers = match <[Value; 1]>::try_from(answers) {
        Ok([answer]) => return answer,
        Err(several) => several,
    };
    let instances: Vec<_> = answers.iter().filter_map(|answer| answer.get("instance")).collect();
    let content = match kind {
        "clients" => ("windows", windows(&answers)),
        "findings" => ("items", findings(&answers)),
        "overview" => {
            ("items", answers.iter().filter(|answer| !answer.is_null()).cloned().collect())
        }
        _ => ("items", with_instances(kind, &answers)),
    };
    let (field, content) = content;
    let kind = answers.iter().find_map(|answer| answer.get("kind"));
    json!({ "apiVersion": "weir.dev/v1alpha1", "kind": kind, "instances": instances, field: content })
}

/// Returns the findings of all: costs are added, and of the texts those of the costliest stay.
fn findings(answers: &[Value]) -> Value {
    let mut items: Vec<_> = items(answers, "items").filter_map(Value::as_object).collect();
    items.sort_by(|one, other| order(other).total_cmp(&order(one)));
    let mut merged: Vec<Map<String, Value>> = Vec::new();
    for item in items {
        let is_same = |merged_item: &&mut Map<String, Value>| {
            FINDING_KEY.iter().all(|field| merged_item.get(*field) == item.get(*field))
        };
        match merged.iter_mut().find(is_same) {
            None => merged.push(item.clone()),
            Some(merged_item) => {
                add(merged_item, item);
                if rank(item) > rank(merged_item)
                    && let Some(weight) = item.get("weight")
                {
                    merged_item.insert("weight".to_owned(), weight.clone());
                }
                merged_item.insert("cost".to_owned(), cost_text(merged_item).into());
            }
        }
    }
    merged.sort_by(|one, other| {
        rank(other).cmp(&rank(one)).then(order(other).total_cmp(&order(one)))
    });
    merged.into_iter().map(Value::from).collect()
}

/// The weight of a finding.
fn rank(item: &Map<String, Value>) -> Weight {
    let weight = item.get("weight").and_then(Value::as_str).unwrap_or_default();
    Weight::ALL.into_iter().find(|candidate| candidate.as_str() == weight).unwrap_or(Weight::Info)
}

/// The order of findings of one weight, as each replica has it.
fn order(item: &Map<String, Value>) -> f64 {
    Finding::order(number(item.get("upstreamCores")), number(item.get("bytesPerSecond")))
}

/// Writes the cost as `/api/findings` does.
fn cost_text(item: &Map<String, Value>) -> String {
    let cost = |field| number(item.get(field));
    Finding::cost_text(cost("upstreamCores"), cost("cpuCores"), cost("bytesPerSecond"))
}

/// Returns the windows of clients: those of the same length are one.
fn windows(answers: &[Value]) -> Value {
    let mut merged: Vec<Map<String, Value>> = Vec::new();
    for window in items(answers, "windows") {
        let Value::Object(window) = window else { continue };
        let merged_window = merged
            .iter_mut()
            .find(|merged_window| merged_window.get("seconds") == window.get("seconds"));
        let Some(merged_window) = merged_window else {
            merged.push(window.clone());
            continue;
        };
        for (field, value) in window {
            match (merged_window.get_mut(field), value) {
                (Some(Value::Object(sum)), Value::Object(other)) => add(sum, other),
                (Some(Value::Array(clients)), Value::Array(other_clients)) => {
                    add_clients(clients, other_clients)
                }
                _ => {}
            }
        }
    }
    for window in &mut merged {
        let total = window.get("all").and_then(Value::as_object).map_or(0.0, weight);
        for clients in window.values_mut().filter_map(Value::as_array_mut) {
            for client in clients.iter_mut().filter_map(Value::as_object_mut) {
                let share = weight(client) / total.max(f64::MIN_POSITIVE);
                client.insert("share".to_owned(), share.into());
            }
            clients.sort_by(|one, other| {
                number(other.get("share")).total_cmp(&number(one.get("share")))
            });
        }
    }
    merged.into_iter().map(Value::from).collect()
}

/// The weight by which each replica orders clients (`flow::cost`).
fn weight(rates: &Map<String, Value>) -> f64 {
    let rate = |field| number(rates.get(field));
    weight_of(rate("upstreamSeats"), rate("cpuCores"), rate("requestsPerSecond"))
}

/// Entries with the same texts (user, agent, resource and verb) are one client.
fn add_clients(clients: &mut Vec<Value>, other_clients: &[Value]) {
    for other in other_clients {
        match clients.iter_mut().find(|client| texts(client).eq(texts(other))) {
            None => clients.push(other.clone()),
            Some(client) => {
                if let (Some(sum), Some(other)) = (client.as_object_mut(), other.as_object()) {
                    add(sum, other);
                }
            }
        }
    }
}

fn texts(client: &Value) -> impl Iterator<Item = (&String, &Value)> {
    client.as_object().into_iter().flatten().filter(|(_, value)| value.is_string())
}

/// Adds the numbers of another object.
fn add(sum: &mut Map<String, Value>, other: &Map<String, Value>) {
    for (field, value) in other {
        if let (Some(Value::Number(one)), Value::Number(other)) = (sum.get(field), value) {
            let [one, other] = [one, other].map(|value| value.as_f64().unwrap_or_default());
            sum.insert(field.clone(), (one + other).into());
        }
    }
}

/// Returns the items of all, each with the replica that it is of, in the order of each answer.
fn with_instances(kind: &str, answers: &[Value]) -> Value {
    let mut items_of_all = Vec::new();
    for answer in answers {
        let instance = answer.get("instance").cloned().unwrap_or_default();
        for item in items(std::slice::from_ref(answer), "items") {
            let mut item = item.clone();
            if let Some(fields) = item.as_object_mut() {
                fields.insert("instance".to_owned(), instance.clone());
            }
            items_of_all.push(item);
        }
    }
    let rate = |item: &Value| number(item.get("perSecondOfMinute"));
    match kind {
        // The times of all have one form and one zone, so their texts have their order.
        "events" => items_of_all.sort_by(|one, other| time(other).cmp(time(one))),
        "reasons" => items_of_all.sort_by(|one, other| rate(other).total_cmp(&rate(one))),
        _ => {}
    }
    items_of_all.into()
}

fn time(item: &Value) -> &str {
    item.get("time").and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(answers: &'a [Value], field: &'a str) -> impl Iterator<Item = &'a Value> {
    answers.iter().filter_map(move |answer| answer.get(field)).filter_map(Value::as_array).flatten()
}

fn number(value: Option<&Value>) -> f64 {
    value.and_then(Value::as_f64).unwrap_or_default()
}

/// What a finding is about.
const FINDING_KEY: [&str; 4] = ["rule", "user", "userAgent", "resource"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_one_replica_stays() {
        let answer = json!({"instance": "a", "items": [1]});
        assert_eq!(merged("caches", vec![answer.clone()]), answer);
    }

    #[test]
    fn findings_of_one_client_are_one_with_the_sum_of_costs() {
        let finding = |user: &str, weight: &str, cores: f64, evidence: &str| {
            json!({"rule": "poll-list", "weight": weight, "user": user, "userAgent": "x",
                "resource": "pods", "evidence": evidence, "upstreamCores": cores,
                "cpuCores": 0.001, "bytesPerSecond": 600_000.0})
        };
        let answers = vec![
            json!({"kind": "FindingList", "instance": "a", "items": [
                finding("jane", "warning", 0.01, "little"), finding("joe", "warning", 0.02, "")]}),
            json!({"kind": "FindingList", "instance": "b", "items": [
                finding("jane", "critical", 0.03, "much")]}),
        ];
        let merged = merged("findings", answers);
        assert_eq!(merged["kind"], "FindingList");
        assert_eq!(merged["instances"], json!(["a", "b"]));
        assert_eq!(merged["items"].as_array().unwrap().len(), 2);
        let jane = &merged["items"][0];
        assert_eq!((&jane["weight"], &jane["evidence"]), (&json!("critical"), &json!("much")));
        let cost = "about 40 mCPU on the API server, 2.0 mCPU in Weir, 1.2 MB/s";
        assert_eq!(jane["cost"], cost);
    }

    #[test]
    fn rates_of_one_client_are_added_and_shares_are_of_all() {
        let window = |user: &str, seats: f64| {
            json!({"seconds": 60, "all": {"upstreamSeats": seats + 1.0},
                "actions": [{"user": user, "verb": "list", "share": 0.9, "upstreamSeats": seats},
                    {"user": "joe", "verb": "get", "share": 0.1, "upstreamSeats": 1.0}]})
        };
        let answers = vec![
            json!({"instance": "a", "windows": [window("joe", 2.0)]}),
            json!({"instance": "b", "windows": [window("jane", 4.0)]}),
        ];
        let merged = merged("clients", answers);
        let actions = merged["windows"][0]["actions"].as_array().unwrap();
        let seats: Vec<_> = actions
            .iter()
            .map(|client| (client["user"].as_str().unwrap(), client["upstreamSeats"].as_f64()))
            .collect();
        assert_eq!(seats, [("jane", Some(4.0)), ("joe", Some(2.0)), ("joe", Some(2.0))]);
        assert_eq!(actions[0]["share"], 0.5);
    }

    #[test]
    fn caches_have_their_replica() {
        let answer =
            |instance: &str| json!({"instance": instance, "items": [{"resource": "pods"}]});
        let merged = merged("caches", vec![answer("a"), answer("b")]);
        assert_eq!(merged["items"][1], json!({"resource": "pods", "instance": "b"}));
    }

    #[test]
    fn events_and_reasons_of_all_replicas_are_in_one_order() {
        let answers = |field: &str, values: [Value; 4]| {
            let [one, two, three, four] = values.map(|value| json!({ field: value }));
            vec![
                json!({"instance": "a", "items": [one, two]}),
                json!({"instance": "b", "items": [three, four]}),
            ]
        };
        let order = |merged: Value| -> Vec<String> {
            let items = merged["items"].as_array().unwrap();
            items.iter().map(|item| item["instance"].as_str().unwrap().to_owned()).collect()
        };
        let times = ["03:00.000Z", "01:00.000Z", "04:00.000Z", "02:00.000Z"];
        let times = times.map(|second| Value::from(format!("2026-01-01T00:{second}")));
        assert_eq!(order(merged("events", answers("time", times))), ["b", "a", "b", "a"]);
        let rates = [5.0, 0.5, 4.0, 0.25].map(Value::from);
        let rates = answers("perSecondOfMinute", rates);
        assert_eq!(order(merged("reasons", rates)), ["a", "b", "a", "b"]);
    }
}
