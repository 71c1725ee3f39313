//! A writer: it creates, replaces and deletes objects, and reads what it wrote.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::Client;
use crate::checker::{Form, ReadAt, ReadOperation};
use crate::resources::{RESOURCES, Selection};

/// Writes until it is calm.
pub(super) async fn run(mut client: Client) {
    while !client.setting.phase.is_calm() {
        client.pause(WRITE_INTERVAL).await;
        client.setting.phase.until_writes().await;
        let resource = &RESOURCES[client.rng.usize(..RESOURCES.len())];
        let object = resource.object(&mut client.rng);
        let word = |pointer: &str| {
            object.pointer(pointer).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
        };
        let (namespace, name) = (word("/metadata/namespace"), word("/metadata/name"));
        let collection = format!("{}/namespaces/{namespace}/{}", resource.root, resource.plural);
        let one = format!("{collection}/{name}");
        let body = Bytes::from(object.to_string());
        let (method, path, body) = match client.rng.u8(..3) {
            0 => (Method::POST, &collection, body),
            1 => (Method::PUT, &one, body),
            _ => (Method::DELETE, &one, Bytes::new()),
        };
        let what = format!("{method} {path}");
        let begun = client.setting.checker.now();
        let created = (method == Method::POST).then(|| object.clone());
        match client.caller.call(method, path, body).await {
            Ok(answer) => {
                client.trace(&what, answer.status, &answer.cache, &answer.body);
                let key = format!("{namespace}/{name}");
                if let Some(created) = created {
                    client.setting.checker.created(begun, resource, (&key, &created), &answer);
                }
            }
            Err(why) => {
                client.trace_failure(&what, &why);
                continue;
            }
        }
        // Its own write may be read through another Weir.
        client.wander(2);
        let selection = Selection::every_object(resource);
        let operation = ReadOperation {
            target: client.caller.target().to_owned(),
            selection,
            read_at: ReadAt::Latest,
            form: Form::Json,
            begun: client.setting.checker.now(),
            floor: 0,
        };
        if let Ok(answer) = client.caller.get(&one).await {
            client.trace(&one, answer.status, &answer.cache, &answer.body);
            if matches!(answer.status, 200 | 404) {
                client.setting.checker.get(&operation, &format!("{namespace}/{name}"), &answer);
            }
        }
    }
}

const WRITE_INTERVAL: Duration = Duration::from_secs(4);
