//! A guest: a user of a gateway who asks for everything, and may read little (A1).

use std::time::Duration;

use super::Client;
use crate::checker::Form;
use crate::guests;
use crate::resources::{NAMESPACES, Selection};

/// Asks until the run is over.
pub(super) async fn run(mut client: Client, number: usize) {
    while !client.setting.phase.is_over() {
        client.pause(INTERVAL).await;
        client.wander(10);
        let mut selection = Selection::draw(&mut client.rng);
        let verb = ["get", "list", "watch"][client.rng.usize(..3)];
        if verb == "get" {
            selection = Selection { name: None, label: None, node: None, ..selection };
            selection.namespace.get_or_insert(NAMESPACES[client.rng.usize(..NAMESPACES.len())]);
        }
        let at = ["", "resourceVersion=0"][client.rng.usize(..2)];
        let path = path(&mut client, &selection, verb, at);
        let status = match verb {
            "watch" => client.caller.open(&path, Form::Json).await.map(|frames| frames.status),
            _ => client.caller.get(&path).await.map(|answer| answer.status),
        };
        let status = match status {
            Ok(status) => status,
            Err(why) => {
                client.trace_failure(&path, &why);
                continue;
            }
        };
        client.trace(&path, status, "", &bytes::Bytes::new());
        let may = guests::allows(number, verb, selection.resource, selection.namespace);
        check(&client, &path, status, may);
    }
}

/// A1: a guest is shown nothing but what it may read, not even what does not exist, and is refused
/// nothing of that while nothing fails.
fn check(client: &Client, path: &str, status: u16, may: bool) {
    let checker = &client.setting.checker;
    checker.checked("A1");
    let (name, target) = (&client.name, client.caller.target());
    if !may && matches!(status, 200 | 404) {
        checker.violated("A1", &format!("{path} from {target} shows {name} what it may not read"));
    }
    if may && status == 403 && client.setting.phase.is_settled() {
        checker.violated("A1", &format!("{path} from {target} is refused to {name}, who may"));
    }
}

fn path(client: &mut Client, selection: &Selection, verb: &str, at: &str) -> String {
    match verb {
        "watch" => selection.path(&["watch=true", at].join("&")),
        "list" => selection.path(at),
        _ => {
            let name = format!("{}-{}", selection.resource.plural, client.rng.usize(..14));
            let query = if at.is_empty() { String::new() } else { format!("?{at}") };
            format!("{}/{name}{query}", selection.path(""))
        }
    }
}

const INTERVAL: Duration = Duration::from_secs(3);
