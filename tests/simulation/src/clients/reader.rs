//! A reader: lists at every kind of resourceVersion, in pages, and single objects.

use std::time::Duration;

use super::Client;
use crate::checker::{Form, ReadAt, ReadOperation, Walk};
use crate::resources::{NAMESPACES, Selection};

/// Reads until the run is over.
pub(super) async fn run(mut client: Client) {
    let mut seen = 0;
    while !client.setting.phase.is_over() {
        client.pause(READ_INTERVAL).await;
        client.wander(20);
        let selection = Selection::draw(&mut client.rng);
        let read_at = match client.rng.u8(..4) {
            0 => ReadAt::Any,
            1 if seen > 0 => ReadAt::NotOlderThan(seen),
            2 if seen > 0 => ReadAt::Exactly(seen),
            _ => ReadAt::Latest,
        };
        let checker = client.setting.checker.clone();
        let is_get = client.rng.u8(..4) == 0;
        let form = if is_get { Form::Json } else { draw_form(&mut client.rng, &selection) };
        let operation = ReadOperation {
            target: client.caller.target().to_owned(),
            floor: checker.floor(client.caller.target(), &selection, form),
            form,
            selection,
            read_at,
            begun: checker.now(),
        };
        if is_get {
            get(&mut client, operation).await;
        } else if let Some(revision) = list(&mut client, &operation).await {
            seen = revision;
        }
    }
}

/// Lists, in pages if the resourceVersion allows it. Returns the list's resourceVersion.
async fn list(client: &mut Client, operation: &ReadOperation) -> Option<u64> {
    let parameters = operation.read_at.parameters();
    let in_pages = operation.read_at == ReadAt::Latest && client.rng.bool();
    let limit = client.rng.u8(1..8);
    let mut walk = Walk::default();
    let mut token = String::new();
    loop {
        let page = match (in_pages, token.as_str()) {
            (false, _) => parameters.clone(),
            (true, "") => format!("limit={limit}"),
            (true, token) => format!("limit={limit}&continue={token}"),
        };
        let path = operation.selection.path(&page);
        let answer = match client.caller.get_as(&path, operation.form.accept()).await {
            Ok(answer) => answer,
            Err(why) => {
                client.trace_failure(&path, &why);
                return None;
            }
        };
        client.trace(&path, answer.status, &answer.cache, &answer.body);
        if answer.status != 200 {
            let may_expire = matches!(operation.read_at, ReadAt::Exactly(_)) || !token.is_empty();
            refused(client, &path, answer.status, may_expire);
            return None;
        }
        let has_defaults = !operation.selection.resource.has_protobuf();
        if has_defaults && answer.is_hit() && !in_pages && operation.form == Form::Json {
            client.setting.checker.one_definition(&path, &answer);
        }
        let info = client.setting.checker.list(operation, &mut walk, &answer)?;
        token = info.token;
        if token.is_empty() || client.setting.phase.is_over() {
            return Some(info.revision);
        }
        client.pause(Duration::from_millis(200)).await;
    }
}

/// Reads one object, which may not exist.
async fn get(client: &mut Client, operation: ReadOperation) {
    let resource = operation.selection.resource;
    let namespace = NAMESPACES[client.rng.usize(..NAMESPACES.len())];
    let name = format!("{}-{}", resource.plural, client.rng.usize(..14));
    let read_at = match operation.read_at {
        // A GET has no exact resourceVersion.
        ReadAt::Exactly(_) => ReadAt::Latest,
        read_at => read_at,
    };
    let parameters = read_at.parameters();
    let selection = Selection { namespace: Some(namespace), ..operation.selection };
    let floor = client.setting.checker.floor(&operation.target, &selection, operation.form);
    let operation = ReadOperation { read_at, selection, floor, ..operation };
    let query = if parameters.is_empty() { String::new() } else { format!("?{parameters}") };
    let path =
        format!("{}/namespaces/{namespace}/{}/{name}{query}", resource.root, resource.plural);
    match client.caller.get(&path).await {
        Ok(answer) => {
            client.trace(&path, answer.status, &answer.cache, &answer.body);
            match answer.status {
                200 | 404 => {
                    client.setting.checker.get(&operation, &format!("{namespace}/{name}"), &answer);
                }
                status => refused(client, &path, status, false),
            }
        }
        Err(why) => client.trace_failure(&path, &why),
    }
}

/// Judges a status other than success: some are allowed while things break, none when it is calm.
pub(super) fn refused(client: &Client, path: &str, status: u16, may_expire: bool) {
    let is_expired = status == 410 && may_expire;
    // A resourceVersion of another epoch is too large for this one.
    let is_too_large = matches!(status, 504 | 500) && path.contains("resourceVersion=");
    if client.setting.phase.is_settled() && !is_expired && !is_too_large {
        client.setting.checker.violated("C1", &format!("{path} is refused with {status}"));
    }
}

fn draw_form(rng: &mut fastrand::Rng, selection: &Selection) -> Form {
    match rng.u8(..6) {
        0 => Form::Metadata,
        1 if selection.resource.has_protobuf() => Form::Protobuf,
        _ => Form::Json,
    }
}

impl ReadAt {
    fn parameters(self) -> String {
        match self {
            Self::Any => "resourceVersion=0".to_owned(),
            Self::NotOlderThan(revision) => format!("resourceVersion={revision}"),
            Self::Exactly(revision) => {
                format!("resourceVersion={revision}&resourceVersionMatch=Exact")
            }
            Self::Latest => String::new(),
        }
    }
}

const READ_INTERVAL: Duration = Duration::from_secs(2);
