//! A watcher: single streams from all kinds of starts, with and without bookmarks, read slowly or
//! dropped in the middle.

use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use crate::checker::{Notice, Start};
use crate::resources::Selection;

/// How a stream is read.
#[derive(Clone, Copy)]
struct Manner {
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
        watch(&mut client, &selection, start, &parameters, Manner { bookmarks, pause, leaves })
            .await;
        client.pause(Duration::from_secs(2)).await;
    }
}

/// Draws a start, and returns the parameters of the request.
fn draw_start(client: &mut Client) -> (Start, String) {
    let now = client.setting.checker.now().revision;
    let rng = &mut client.rng;
    let after = |revision: u64| (Start::After(revision), format!("resourceVersion={revision}"));
    match rng.u8(..7) {
        0 => after(now),
        1 => after(now + rng.u64(1..10)),
        2 => after(now.saturating_sub(rng.u64(1..50)).max(1)),
        3 => after(now.saturating_sub(rng.u64(50..2000)).max(1)),
        4 => (Start::State { consistent: false }, "resourceVersion=0".to_owned()),
        5 => (Start::State { consistent: true }, String::new()),
        _ => {
            let parameters = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
            (Start::State { consistent: true }, parameters.to_owned())
        }
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
    let mut options = format!("watch=true&timeoutSeconds={}", client.rng.u32(1..120));
    if manner.bookmarks {
        options.push_str("&allowWatchBookmarks=true");
    }
    let path = selection.path(&format!("{options}&{parameters}"));
    let sent = checker.send(client.caller.target(), selection);
    let mut frames = match client.caller.open(&path).await {
        Ok(frames) => frames,
        Err(why) => return client.trace_failure(&path, &why),
    };
    client.trace(&path, frames.status, &frames.cache, &bytes::Bytes::new());
    if frames.status != 200 {
        return super::reader::refused(client, &path, frames.status, true);
    }
    let is_hit = frames.cache.starts_with("hit");
    let mut check = checker.stream(client.caller.target(), selection, start, sent, is_hit);
    loop {
        let next = tokio::time::timeout_at(manner.leaves, frames.next()).await;
        let line = match next {
            // The client goes away.
            Err(_) => return,
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return client.trace_failure(&path, "the end"),
            Ok(Err(why)) => return client.trace_failure(&path, &why),
        };
        client.trace("event", 0, "", &line);
        match checker.frame(&mut check, &line) {
            None | Some(Notice::Error(_)) => return,
            Some(Notice::Bookmark(revision, _)) if !manner.bookmarks => {
                let what = format!("{path}: a bookmark at {revision} that was not asked for");
                checker.violated("W7", &what);
            }
            Some(_) => {}
        }
        if client.setting.phase.is_over() {
            return;
        }
        tokio::time::sleep(manner.pause).await;
    }
}
