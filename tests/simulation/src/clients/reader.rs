//! A reader: lists at every kind of resourceVersion, in pages, and single objects.

use std::time::Duration;

use super::Client;
use crate::checker::{Form, ReadAt, ReadOperation, Walk};
use crate::resources::{NAMESPACES, Selection, is_varied};

/// Reads until the run is over.
pub(super) async fn run(mut client: Client) {
    let mut seen = 0;
    while !client.setting.phase.is_over() {
        client.pause(READ_INTERVAL).await;
        client.wander(20);
        let selection = Selection::draw(&mut client.rng);
        let now = client.setting.checker.now().revision;
        let read_at = match client.rng.u8(..4) {
            0 => ReadAt::Any,
            // A client that has just written knows this revision, and a cache may not have it yet.
            1 if is_varied() && client.rng.bool() => ReadAt::NotOlderThan(now),
            1 if seen > 0 => ReadAt::NotOlderThan(seen),
            2 if seen > 0 => ReadAt::Exactly(seen),
            _ => ReadAt::Latest,
        };
        let checker = client.setting.checker.clone();
        let is_get = client.rng.u8(..4) == 0;
        let form = match is_get && !is_varied() {
            true => Form::Json,
            false => Form::draw(&mut client.rng, selection.resource),
        };
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
    let (in_pages, parameters) = draw_parameters(client, operation);
    let limit = client.rng.u8(1..8);
    let mut walk = Walk::default();
    let mut token = String::new();
    loop {
        let page = match (in_pages, token.as_str()) {
            (false, "") => parameters.clone(),
            (true, "") if parameters.is_empty() => format!("limit={limit}"),
            (true, "") => format!("limit={limit}&{parameters}"),
            // The limit was ignored, or it is a bug.
            (false, token) => format!("continue={token}"),
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

/// Draws whether a list is in pages, and returns the other parameters of its first page. Some read
/// the same without a match as with one.
fn draw_parameters(client: &mut Client, operation: &ReadOperation) -> (bool, String) {
    if !is_varied() {
        let in_pages = operation.read_at == ReadAt::Latest && client.rng.bool();
        return (in_pages, operation.read_at.parameters());
    }
    let one_in = if operation.read_at == ReadAt::Latest { 2 } else { 5 };
    let in_pages = client.rng.u8(..one_in) == 0;
    let (read_at, parameters) = (operation.read_at, operation.read_at.parameters());
    let is_short = client.rng.bool();
    let parameters = match read_at {
        // A page at N of a single object is the latest, and is left out.
        ReadAt::Exactly(revision) if in_pages && is_short && operation.selection.name.is_none() => {
            format!("resourceVersion={revision}")
        }
        ReadAt::NotOlderThan(_) | ReadAt::Any if in_pages || is_short => {
            format!("{parameters}&resourceVersionMatch=NotOlderThan")
        }
        _ => parameters,
    };
    (in_pages, parameters)
}

/// Reads one object, which may not exist.
async fn get(client: &mut Client, operation: ReadOperation) {
    let resource = operation.selection.resource;
    let drawn = NAMESPACES[client.rng.usize(..NAMESPACES.len())];
    let name = format!("{}-{}", resource.plural, client.rng.usize(..14));
    // An older state differs most likely in what was written last.
    let reads_last = is_varied() && client.rng.bool();
    let last = reads_last.then(|| client.setting.checker.last_written(resource)).flatten();
    let (namespace, name) = last.unwrap_or((drawn, name));
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
    match client.caller.get_as(&path, operation.form.accept_one()).await {
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
