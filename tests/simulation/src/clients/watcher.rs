//! A watcher: single streams from all kinds of starts, in all forms, with and without bookmarks,
//! read slowly or dropped in the middle. W4 and W11, where they concern the time.

use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use crate::checker::{Form, Notice, Start};
use crate::resources::{Selection, is_varied};

/// How a stream is read.
#[derive(Clone, Copy)]
struct Manner {
    form: Form,
    bookmarks: bool,
    /// The pause between two frames.
    pause: Duration,
    /// When the client goes away.
    leaves: Instant,
}

/// Opens streams until the run is over.
pub(super) async fn run(mut client: Client) {
    while !client.setting.phase.is_over() {
        client.wander(4);
        let selection = Selection::draw(&mut client.rng);
        let (start, parameters) = draw_start(&mut client);
        let is_state = matches!(start, Start::State { .. });
        let pause = match client.rng.u8(..3) {
            0 => Duration::from_millis(client.rng.u64(1..3000)),
            _ => Duration::ZERO,
        };
        let stays = Duration::from_millis(client.rng.u64(1..90_000));
        // Without bookmarks nothing ends the initial state.
        let bookmarks = is_state || client.rng.bool();
        let leaves = Instant::now() + stays;
        let form = match is_varied() {
            true => Form::draw(&mut client.rng, selection.resource),
            false => Form::Json,
        };
        let manner = Manner { form, bookmarks, pause, leaves };
        watch(&mut client, &selection, start, &parameters, manner).await;
        client.pause(Duration::from_secs(2)).await;
    }
}

/// Draws a start, and returns the parameters of the request.
fn draw_start(client: &mut Client) -> (Start, String) {
    let now = client.setting.checker.now().revision;
    let rng = &mut client.rng;
    let after = |revision: u64| (Start::After(revision), format!("resourceVersion={revision}"));
    let from = |version: &str, sends_state: bool| {
        format!("sendInitialEvents={sends_state}&resourceVersionMatch=NotOlderThan{version}")
    };
    let state = |consistent, least| Start::State { consistent, least };
    let kind = match is_varied() {
        true => rng.u8(..12),
        false => [0, 1, 2, 3, 4, 5, 11][usize::from(rng.u8(..7))],
    };
    match kind {
        0 => after(now),
        1 => after(now + rng.u64(1..10)),
        2 => after(now.saturating_sub(rng.u64(1..50)).max(1)),
        3 => after(now.saturating_sub(rng.u64(50..2000)).max(1)),
        4 => (state(false, 0), "resourceVersion=0".to_owned()),
        5 => (state(true, 0), String::new()),
        6 => (state(false, 0), from("&resourceVersion=0", true)),
        7 => (state(false, now), from(&format!("&resourceVersion={now}"), true)),
        8 => (Start::Now { consistent: true }, from("", false)),
        9 => (Start::Now { consistent: false }, from("&resourceVersion=0", false)),
        10 => (Start::After(now), from(&format!("&resourceVersion={now}"), false)),
        _ => (state(true, 0), from("", true)),
    }
}

async fn watch(
    client: &mut Client,
    selection: &Selection,
    start: Start,
    parameters: &str,
    manner: Manner,
) {
    let checker = client.setting.checker.clone();
    let seconds = client.rng.u32(1..120);
    let mut options = format!("watch=true&timeoutSeconds={seconds}");
    if manner.bookmarks {
        options.push_str("&allowWatchBookmarks=true");
    }
    let path = selection.path(&format!("{options}&{parameters}"));
    let sent = checker.send(client.caller.target(), selection, manner.form);
    let mut frames = match client.caller.open(&path, manner.form).await {
        Ok(frames) => frames,
        Err(why) => return client.trace_failure(&path, &why),
    };
    client.trace(&path, frames.status, &frames.cache, &bytes::Bytes::new());
    if frames.status != 200 {
        return super::reader::refused(client, &path, frames.status, true);
    }
    let target = client.caller.target().to_owned();
    let mut check = checker.stream(&target, (selection, manner.form), start, sent, &frames);
    // W2: what a client held at its start, and all events since, give the state that is claimed.
    let mut store = match start {
        Start::After(after) if manner.form == Form::Json && after <= sent.begun.revision => {
            Some(checker.store_at(selection, sent.begun.epoch, after))
        }
        _ => None,
    };
    let due = Instant::now() + DELAY_MAX;
    let ends = due + Duration::from_secs(seconds.into());
    let is_prompt = manner.pause.is_zero() && frames.is_hit();
    loop {
        let lasts_until = if check.is_complete() { ends } else { ends.min(due) };
        let until = if is_prompt { manner.leaves.min(lasts_until) } else { manner.leaves };
        let line = match tokio::time::timeout_at(until, frames.next()).await {
            Err(_) if until < manner.leaves => return overdue(client, &path, check.is_complete()),
            // The client goes away.
            Err(_) => return,
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return client.trace_failure(&path, "the end"),
            Ok(Err(why)) => return client.trace_failure(&path, &why),
        };
        client.trace("event", 0, "", &line);
        match checker.frame(&mut check, &line) {
            Some(Notice::Error(410)) => {
                if let Start::After(after) = start {
                    checker.expired(&target, selection, after);
                }
                return;
            }
            None | Some(Notice::Error(_)) => return,
            Some(Notice::Bookmark(revision, _)) if !manner.bookmarks => {
                let what = format!("{path}: a bookmark at {revision} that was not asked for");
                checker.violated("W7", &what);
            }
            Some(Notice::Bookmark(revision, _)) => {
                if let Some(store) = &store {
                    checker.store(&target, selection, sent.begun, revision, store);
                }
            }
            Some(Notice::Put { key, bytes, .. }) => {
                store.as_mut().map(|store| store.insert(key, bytes));
            }
            Some(Notice::Deleted { key, .. }) => {
                store.as_mut().map(|store| store.remove(&key));
            }
        }
        if client.setting.phase.is_over() {
            return;
        }
        tokio::time::sleep(manner.pause).await;
    }
}

/// W4: the initial state ends soon. W11: a watch ends after its `timeoutSeconds`.
fn overdue(client: &Client, path: &str, is_complete: bool) {
    let (guarantee, what) = match is_complete {
        true => ("W11", "outlives its timeoutSeconds"),
        false => ("W4", "does not come to the end of its initial state"),
    };
    client.setting.checker.violated(guarantee, &format!("{path} {what}"));
}

/// How much later than promised a frame or an end may come.
const DELAY_MAX: Duration = Duration::from_secs(10);
