//! An informer, as client-go's: a list or a watch-list, then a watch from where it ended, for ever.
//!
//! It keeps the objects that it received. Whenever the stream claims a resourceVersion, these must
//! be the state there (W2). In the end it must have a stream, and the latest state (C1).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Client, Setting};
use crate::checker::{Form, Notice, ReadAt, ReadOperation, Start, Walk};
use crate::resources::Selection;

/// An informer that runs.
pub(crate) struct Informer {
    pub(crate) name: String,
    pub(crate) progress: Arc<Mutex<Progress>>,
}

/// How far an informer is.
pub(crate) struct Progress {
    pub(crate) selection: Selection,
    /// The objects that it received, by key.
    pub(crate) store: BTreeMap<String, Box<[u8]>>,
    /// Whether a stream is open, and the initial state is complete.
    pub(crate) is_running: bool,
    /// Since when no stream is open.
    pub(crate) stopped: Option<Instant>,
    /// When its stream was opened, or got its initial state.
    pub(crate) opened: Instant,
    /// The resourceVersion from which it would resume.
    pub(crate) place: u64,
    /// The host whose cache its stream comes from, while one is open.
    pub(crate) target: Option<String>,
    /// The first epoch of the write log of which it can hold something.
    epoch: usize,
    /// Whether that came from an API server, without a cache that knows it.
    is_forwarded: bool,
    /// The API server has no watch-lists.
    is_rejected: bool,
}

/// Where the next stream begins, or why there must be a list first.
enum Next {
    List,
    Watch(u64),
}

impl Informer {
    /// Starts an informer.
    pub(crate) fn spawn(
        setting: &Setting,
        number: usize,
        mut rng: fastrand::Rng,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let selection = Selection::draw(&mut rng);
        let progress = Progress {
            selection: selection.clone(),
            store: BTreeMap::new(),
            is_running: false,
            stopped: Some(Instant::now()),
            opened: Instant::now(),
            place: 0,
            target: None,
            epoch: 0,
            is_forwarded: false,
            is_rejected: false,
        };
        let name = format!("informer-{number}");
        let progress = Arc::new(Mutex::new(progress));
        let client = Client::new(setting, name.clone(), rng);
        let task = tokio::spawn(run(client, selection, Arc::clone(&progress)));
        (Self { name, progress }, task)
    }
}

async fn run(mut client: Client, selection: Selection, progress: Arc<Mutex<Progress>>) {
    let mut streams_list = client.rng.bool();
    let mut next = Next::List;
    let mut failures = 0_u32;
    while !client.setting.phase.is_over() {
        let begun = Instant::now();
        let went_on = match next {
            Next::List if streams_list => stream(&mut client, &selection, &progress, None).await,
            Next::List => list(&mut client, &selection, &progress).await,
            Next::Watch(from) => stream(&mut client, &selection, &progress, Some(from)).await,
        };
        {
            let mut progress = progress.lock();
            progress.is_running = false;
            progress.target = None;
            progress.stopped.get_or_insert_with(Instant::now);
        }
        // A stream that was open for a while has not failed.
        failures = match &went_on {
            Ok(_) => 0,
            Err(_) if begun.elapsed() > Duration::from_secs(5) => 1,
            Err(_) => failures + 1,
        };
        if went_on.is_ok() && begun.elapsed() < Duration::from_secs(1) {
            client.pause(Duration::from_millis(500)).await;
        }
        match went_on {
            Ok(place) | Err(Some(place)) => next = place,
            Err(None) => {}
        }
        // Its API server has no watch-lists.
        streams_list &= !progress.lock().is_rejected;
        if failures > 0 {
            client.wander(10);
            let mean = BACKOFF_MIN * 2_u32.pow(failures.min(6) - 1);
            client.pause(mean.min(BACKOFF_MAX)).await;
        }
    }
}

/// Lists. `Err` holds where to go on, if that changes.
async fn list(
    client: &mut Client,
    selection: &Selection,
    progress: &Mutex<Progress>,
) -> Result<Next, Option<Next>> {
    let checker = client.setting.checker.clone();
    let operation = ReadOperation {
        target: client.caller.target().to_owned(),
        selection: selection.clone(),
        read_at: if client.rng.bool() { ReadAt::Any } else { ReadAt::Latest },
        form: Form::Json,
        begun: checker.now(),
        floor: checker.floor(client.caller.target(), selection, Form::Json),
    };
    let parameters = if operation.read_at == ReadAt::Any { "resourceVersion=0" } else { "" };
    let path = selection.path(parameters);
    let answer = match client.caller.get(&path).await {
        Ok(answer) => answer,
        Err(why) => {
            client.trace_failure(&path, &why);
            return Err(None);
        }
    };
    client.trace(&path, answer.status, &answer.cache, &answer.body);
    if answer.status != 200 {
        return Err(None);
    }
    let info = checker.list(&operation, &mut Walk::default(), &answer).ok_or(None)?;
    let mut progress = progress.lock();
    progress.store = checker.store_at(selection, info.epoch, info.revision);
    progress.epoch = info.epoch;
    progress.is_forwarded = !answer.is_hit();
    Ok(Next::Watch(info.revision))
}

/// Watches from a resourceVersion, or with the state first, until the stream ends.
async fn stream(
    client: &mut Client,
    selection: &Selection,
    progress: &Mutex<Progress>,
    from: Option<u64>,
) -> Result<Next, Option<Next>> {
    let checker = client.setting.checker.clone();
    let epoch = progress.lock().epoch;
    let is_forwarded = progress.lock().is_forwarded;
    let target = client.caller.target().to_owned();
    let is_lost = || from.is_some() && checker.is_lost_unnoticed(&target, epoch, is_forwarded);
    if is_lost() {
        return Err(Some(Next::List));
    }
    let seconds = client.rng.u32(30..300);
    let start = from.map_or(Start::State { consistent: true, least: 0 }, Start::After);
    let parameters = match from {
        Some(from) => format!("resourceVersion={from}"),
        None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
    };
    let options =
        format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&{parameters}");
    let path = selection.path(&options);
    let sent = checker.send(client.caller.target(), selection, Form::Json);
    let mut frames = match client.caller.open(&path, Form::Json).await {
        Ok(frames) => frames,
        Err(why) => {
            client.trace_failure(&path, &why);
            return Err(None);
        }
    };
    client.trace(&path, frames.status, &frames.cache, &bytes::Bytes::new());
    match frames.status {
        200 => {}
        410 => {
            if let Some(from) = from {
                checker.expired(&target, selection, from);
            }
            return Err(Some(Next::List));
        }
        400 | 422 => {
            progress.lock().is_rejected = true;
            return Err(None);
        }
        _ => return Err(None),
    }
    // The history can have been lost while the request was on its way.
    if is_lost() {
        return Err(Some(Next::List));
    }
    let is_hit = frames.is_hit();
    let mut check = checker.stream(&target, (selection, Form::Json), start, sent, &frames);
    progress.lock().target = is_hit.then(|| target.clone());
    let mut place = from;
    let mut initial = BTreeMap::new();
    let (opened, mut is_silent) = (Instant::now(), true);
    if let Some(from) = from {
        let mut progress = progress.lock();
        progress.place = from;
        progress.run();
    }
    loop {
        // Nothing has come of the cache's own history yet.
        let is_of_list = place == from;
        let line = tokio::select! {
            biased;
            () = until(|| {
                let is_over = client.setting.phase.is_over();
                is_over || (is_of_list && is_lost()) || check.owes_bookmark()
            }) => None,
            line = frames.next() => Some(line),
        };
        checker.overdue(&mut check);
        let Some(line) = line else {
            if client.setting.phase.is_over() || (is_of_list && is_lost()) {
                return Ok(Next::List);
            }
            continue;
        };
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => {
                client.trace_failure(&path, "the end");
                if is_silent && opened.elapsed() < Duration::from_secs(1) {
                    super::ended_at_once(client, &path);
                } else if is_hit
                    && opened.elapsed() + END_TOLERANCE < Duration::from_secs(seconds.into())
                {
                    super::ended_early(client, &path);
                }
                return place.map(Next::Watch).ok_or(None);
            }
            Err(why) => {
                client.trace_failure(&path, &why);
                return Err(place.map(Next::Watch));
            }
        };
        client.trace("event", 0, "", &line);
        is_silent = false;
        let notice = checker.frame(&mut check, &line).ok_or(None)?;
        let mut progress_now = progress.lock();
        let epoch = std::mem::replace(&mut progress_now.epoch, check.first_epoch());
        let is_known = check.is_complete() && epoch == check.first_epoch();
        if is_known {
            checker.same_uid(&check, &notice, &progress_now.store);
        }
        progress_now.is_forwarded = !is_hit;
        match notice {
            Notice::Put { key, bytes, revision, .. } => {
                if check.is_complete() {
                    progress_now.store.insert(key, bytes);
                    place = Some(revision);
                    progress_now.place = revision;
                    checker.resumable(&check, revision, &progress_now.store);
                } else {
                    initial.insert(key, bytes);
                }
            }
            Notice::Deleted { key, revision, .. } => {
                progress_now.store.remove(&key);
                place = Some(revision);
                progress_now.place = revision;
                checker.resumable(&check, revision, &progress_now.store);
            }
            Notice::Bookmark(revision, is_end) => {
                if is_end {
                    progress_now.store = std::mem::take(&mut initial);
                    progress_now.run();
                }
                place = Some(revision);
                progress_now.place = revision;
                let store = &progress_now.store;
                checker.store(client.caller.target(), selection, sent.begun, revision, store);
            }
            Notice::Error(code) => {
                if let (410, Some(from)) = (code, from) {
                    checker.expired(&target, selection, from);
                }
                let next = if code == 410 { Some(Next::List) } else { place.map(Next::Watch) };
                return Err(next);
            }
        }
    }
}

impl Progress {
    /// Notes that a stream is open, and the initial state complete.
    fn run(&mut self) {
        self.is_running = true;
        self.stopped = None;
        self.opened = Instant::now();
    }
}

/// Returns when the condition holds. Asks once a second.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// How much before its `timeoutSeconds` a watch may end.
const END_TOLERANCE: Duration = Duration::from_secs(1);
/// client-go's reflector waits 0.8 s at first, and at most 30 s.
const BACKOFF_MIN: Duration = Duration::from_millis(800);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
