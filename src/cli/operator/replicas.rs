//! Asks one or several replicas of a Weir, all at once. Those that do not answer are named, and the
//! others are shown.

use futures_util::future::join_all;
use serde_json::Value;

use crate::cli::operator::ask::AdminUrl;
use crate::cli::operator::merge::merged;

/// The answers of the replicas.
#[derive(Debug)]
pub(super) struct Replicas {
    /// One for each kind.
    pub(super) answers: Vec<Value>,
    /// Which replicas answered, for people; empty where only one was asked.
    pub(super) note: String,
    /// Why others did not answer.
    pub(super) failed: Vec<anyhow::Error>,
}

/// Reads kinds of the API. Fails if no replica answers.
pub(super) async fn ask(
    urls: &[AdminUrl],
    kinds: &[&str],
    limit: usize,
) -> anyhow::Result<Replicas> {
    let asked = urls.iter().map(|url| url.kinds(kinds, limit));
    let mut answered = Vec::new();
    let mut failed = Vec::new();
    for result in join_all(asked).await {
        match result {
            Ok(answers) => answered.push(answers),
            Err(error) => failed.push(error),
        }
    }
    if answered.is_empty()
        && let Some(error) = failed.pop()
    {
        return Err(error);
    }
    let answered = one_of_each(answered);
    let names: Vec<_> = answered.iter().map(|answers| instance_of(answers)).collect();
    let mut note = String::new();
    if urls.len() > 1 {
        note = format!("\nAnswered: {}.\n", names.join(", "));
        for error in &failed {
            note.push_str(&format!("No answer: {error:#}\n"));
        }
    }
    let mut by_kind: Vec<Vec<Value>> = kinds.iter().map(|_| Vec::new()).collect();
    for answers in answered {
        for (of_kind, answer) in by_kind.iter_mut().zip(answers) {
            of_kind.push(answer);
        }
    }
    let merge = |(kind, answers): (&&str, Vec<Value>)| merged(kind, answers);
    Ok(Replicas { answers: kinds.iter().zip(by_kind).map(merge).collect(), note, failed })
}

/// Drops the answers of a replica that another URL reached already: its costs would count twice.
fn one_of_each(answered: Vec<Vec<Value>>) -> Vec<Vec<Value>> {
    let mut kept: Vec<Vec<Value>> = Vec::new();
    for answers in answered {
        let process = process_of(&answers);
        let is_known =
            process.is_some() && kept.iter().any(|kept_answer| process_of(kept_answer) == process);
        if !is_known {
            kept.push(answers);
        }
    }
    kept
}

/// What tells processes apart: several on one host have its name, but began at other times.
fn process_of(answers: &[Value]) -> Option<(&str, u64)> {
    answers.iter().find_map(|answer| {
        let instance = answer.get("instance")?.as_str()?;
        Some((instance, answer.get("uptimeSeconds")?.as_u64()?))
    })
}

/// The name of a replica: its host's, which is the pod's.
fn instance_of(answers: &[Value]) -> &str {
    let name = answers.iter().find_map(|answer| answer.get("instance")?.as_str());
    name.unwrap_or("(unnamed)")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_replica_with_two_urls_counts_once() {
        let answers = |instance: &str, uptime: u64| {
            vec![Value::Null, json!({"instance": instance, "uptimeSeconds": uptime})]
        };
        let unnamed = || vec![json!({})];
        let every_answer =
            vec![answers("a", 5), answers("b", 5), answers("a", 5), answers("a", 9), unnamed()];
        let kept = one_of_each(every_answer.into_iter().chain([unnamed()]).collect());
        let expected = [answers("a", 5), answers("b", 5), answers("a", 9), unnamed(), unnamed()];
        assert_eq!(kept, expected);
    }
}
