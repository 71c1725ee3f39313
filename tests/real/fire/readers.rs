//! Clients that read: lists and GETs of all kinds, and watches that begin with the present state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::client::{Bound, Client};
use super::frames::{Frame, Frames};
use super::informer::{INITIAL, digest};
use super::objects::Scope;
use super::report::{Listed, Outcome, Start};

/// Lists and gets until it is aborted.
pub(super) async fn read(mut client: Client, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let scopes = Scope::every_scope();
    let mut last = vec![1; scopes.len()];
    loop {
        let n = rng.usize(..scopes.len());
        let (scope, newest) = (scopes[n], last[n]);
        let (query, bound, kind) = match rng.u8(..7) {
            0 | 1 => ("resourceVersion=0".to_owned(), Bound::Any, "list at 0"),
            2 => (String::new(), Bound::Consistent, "consistent list"),
            3 => {
                (format!("resourceVersion={newest}"), Bound::NotOlderThan(newest), "list not older")
            }
            4 => {
                pages(&mut client, scope).await;
                continue;
            }
            5 => {
                get(&mut client, scope, &mut rng).await;
                continue;
            }
            _ => {
                let query = format!("resourceVersion={newest}&resourceVersionMatch=NotOlderThan");
                (query, Bound::NotOlderThan(newest), "list not older")
            }
        };
        if let Ok(state) = client.list(scope, &query, bound, kind).await {
            client.remember(scope, &state);
            last[n] = state.resource_version;
            let what = format!("{kind} of {scope}");
            let (at, digest) = (state.resource_version, digest(&state.objects));
            let history = state.history;
            client.world.report.listed(Listed { scope, at, digest, history, what });
        } else if newest > 1 && rng.u8(..4) == 0 {
            // A resourceVersion of a lost history may never come.
            last[n] = 1;
        }
        pause(&mut rng, INTERVAL).await;
    }
}

/// Lists in pages, which are of one state together.
async fn pages(client: &mut Client, scope: Scope) {
    let mut objects = std::collections::BTreeMap::new();
    let (mut token, mut at, mut history) = (String::new(), None, None);
    let number = client.world.reference.number();
    loop {
        let (query, bound) = match at {
            None => ("limit=40".to_owned(), Bound::Consistent),
            Some(_) => (format!("limit=40&continue={token}"), Bound::Any),
        };
        let listed = client.list(scope, &query, bound, "page").await;
        let Ok(state) = listed else { return };
        if at.is_some_and(|at| at != state.resource_version) {
            client.violation(&format!("pages of {scope} at {at:?}, {}", state.resource_version));
        }
        history = history.or(state.history);
        at = Some(state.resource_version);
        objects.extend(state.objects);
        token = state.continue_token;
        if token.is_empty() {
            break;
        }
    }
    // A token does not name its cluster.
    if client.world.reference.number() != number {
        return;
    }
    let what = format!("pages of {scope}");
    let (at, digest) = (at.unwrap_or(0), digest(&objects));
    client.world.report.listed(Listed { scope, at, digest, history, what });
}

async fn get(client: &mut Client, scope: Scope, rng: &mut Rng) {
    let Some(namespace) = scope.namespace else { return };
    let key = format!("{}/{namespace}/o{}", scope.resource, rng.u32(..NAMES)).into();
    let at_zero = rng.bool();
    let query = if at_zero { "resourceVersion=0" } else { "" };
    client.get(scope, &key, query, if at_zero { "get at 0" } else { "get" }).await;
    pause(rng, INTERVAL).await;
}

/// Begins watches with the present state, until it is aborted.
pub(super) async fn start(mut client: Client, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let scopes = Scope::every_scope();
    loop {
        let scope = scopes[rng.usize(..scopes.len())];
        let before = client.world.reference.newest(scope.resource);
        let began = Instant::now();
        let path = format!("{}?{INITIAL}&timeoutSeconds=30", scope.path());
        let outcome = match client.open(&path, "consistent start").await {
            Err(status) => Outcome::Failed(status),
            Ok(answered) => {
                let frames = Frames::new(scope.resource, answered.response);
                match initial(frames).await {
                    Err(code) => Outcome::Failed(code),
                    Ok((objects, at)) => {
                        let what = format!("a consistent start of {scope}");
                        client.check_bound(before, scope, at, Bound::Consistent, &what);
                        client.check_answer(scope.resource, at, answered.cached, &what);
                        let digest = digest(&objects);
                        let history = client.history_of(before, Bound::Consistent);
                        client.world.report.listed(Listed { scope, at, digest, history, what });
                        if answered.cached { Outcome::Cached } else { Outcome::Forwarded }
                    }
                }
            }
        };
        client.world.report.started(Start { began, took: began.elapsed(), outcome });
        pause(&mut rng, INTERVAL * 2).await;
    }
}

type Objects = std::collections::BTreeMap<Arc<str>, u64>;

async fn initial(mut frames: Frames) -> Result<(Objects, u64), u16> {
    let mut objects = Objects::new();
    let initial_state = async {
        loop {
            match frames.next().await {
                Some(Frame::Event(change)) => objects.insert(change.key, change.revision),
                Some(Frame::Bookmark { at, ends_initial: true }) => return Ok(at),
                Some(Frame::Bookmark { .. }) => None,
                Some(Frame::Error(code)) => return Err(code),
                None => return Err(0),
            };
        }
    };
    let at =
        tokio::time::timeout(Duration::from_secs(40), initial_state).await.unwrap_or(Err(0))?;
    Ok((objects, at))
}

async fn pause(rng: &mut Rng, longest: Duration) {
    tokio::time::sleep(longest.mul_f64(rng.f64())).await;
}

/// How many names of objects the writers use in a namespace.
pub(super) const NAMES: u32 = 120;
const INTERVAL: Duration = Duration::from_millis(500);
