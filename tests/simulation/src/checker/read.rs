//! Lists and reads of one object: L0, LN, LC, LP, G0, GC.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Checker, Inner};
use crate::caller::Answer;
use crate::resources::Selection;
use crate::write_log::{Epoch, Moment, Version};

/// What a read asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadAt {
    /// `resourceVersion=0`.
    Any,
    /// `resourceVersion=N`.
    NotOlderThan(u64),
    /// No resourceVersion.
    Latest,
}

/// A read that a client has sent.
pub(crate) struct ReadOperation {
    pub(crate) target: String,
    pub(crate) selection: Selection,
    pub(crate) read_at: ReadAt,
    /// When it was sent.
    pub(crate) begun: Moment,
    /// What the target's cache had shown by then.
    pub(crate) floor: u64,
}

/// The pages of a list so far.
#[derive(Default)]
pub(crate) struct Walk {
    /// The resourceVersion of all pages, and the epoch, once they are known.
    revision: Option<u64>,
    /// How many objects came before.
    offset: usize,
}

#[derive(Deserialize)]
struct ListBody<'a> {
    metadata: ListMetadata,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(default, rename = "continue")]
    token: String,
    remaining_item_count: Option<usize>,
}

/// What a list says about itself.
pub(crate) struct ListInfo {
    pub(crate) revision: u64,
    pub(crate) token: String,
    /// The epoch that it shows.
    pub(crate) epoch: usize,
}

impl Checker {
    /// Checks one page of a list, which may be the only one. Returns what it says about itself, or
    /// `None` if it cannot be used.
    pub(crate) fn list(
        &self,
        operation: &ReadOperation,
        walk: &mut Walk,
        answer: &Answer,
    ) -> Option<ListInfo> {
        let mut inner = self.0.lock();
        let path = operation.selection.path("");
        let Ok(list) = serde_json::from_slice::<ListBody<'_>>(&answer.body) else {
            inner.violated("L0", format!("{path}: no list: {}", answer.text()));
            return None;
        };
        let Ok(revision) = list.metadata.resource_version.parse::<u64>() else {
            inner.violated("L0", format!("{path}: no resourceVersion"));
            return None;
        };
        let ended = inner.write_log.now();
        let mut problems = Vec::new();
        let mut shown = None;
        for epoch in inner.write_log.candidates(operation.begun) {
            let state = inner.write_log.epoch(epoch).state(&operation.selection, revision);
            match page_problem(operation, &state, walk, &list, revision) {
                None => {
                    shown = Some(epoch);
                    break;
                }
                Some(problem) => problems.push(problem),
            }
        }
        let guarantee = operation.guarantee(walk);
        inner.checked(guarantee);
        // The token of a page from before a restore means something else after it.
        if shown.is_none() && walk.offset > 0 && ended.epoch != operation.begun.epoch {
            return None;
        }
        let Some(epoch) = shown else {
            let problem =
                format!("{path} from {} at {revision}: {}", operation.target, problems.join("; "));
            inner.violated(guarantee, problem);
            return None;
        };
        if walk.offset == 0 {
            inner.check_bounds(guarantee, operation, epoch, revision, ended);
        }
        if answer.is_hit() && list.metadata.token.is_empty() && walk.offset == 0 {
            inner.raise_floor(&operation.target, operation.selection.resource, epoch, revision);
        }
        walk.revision = Some(revision);
        walk.offset += list.items.len();
        Some(ListInfo { revision, token: list.metadata.token, epoch })
    }

    /// Checks a GET of one object, whose answer is 200 or 404.
    pub(crate) fn get(&self, operation: &ReadOperation, key: &str, answer: &Answer) {
        let mut inner = self.0.lock();
        let guarantee = if operation.read_at == ReadAt::Latest { "GC" } else { "G0" };
        inner.checked(guarantee);
        let ended = inner.write_log.now();
        let mut problem = String::new();
        for epoch in inner.write_log.candidates(operation.begun) {
            let from = match operation.read_at {
                // Within another epoch the revisions of before mean nothing.
                _ if epoch != operation.begun.epoch => 0,
                ReadAt::Latest => operation.begun.revision,
                ReadAt::NotOlderThan(revision) => revision.max(operation.floor),
                ReadAt::Any => operation.floor,
            };
            let until = if epoch == ended.epoch { ended.revision } else { u64::MAX };
            let of = inner.write_log.epoch(epoch);
            match shown_between(of, operation, key, answer, from, until) {
                Ok(()) => return,
                Err(text) => problem = text,
            }
        }
        let what = format!("{key} from {}: {problem}", operation.target);
        inner.violated(guarantee, what);
    }
}

impl ReadOperation {
    fn guarantee(&self, walk: &Walk) -> &'static str {
        match self.read_at {
            _ if walk.offset > 0 => "LP",
            ReadAt::Any => "L0",
            ReadAt::NotOlderThan(_) => "LN",
            ReadAt::Latest => "LC",
        }
    }
}

impl Inner {
    /// Checks that the resourceVersion of a list is as new as was asked for, and not of the future.
    fn check_bounds(
        &mut self,
        guarantee: &'static str,
        operation: &ReadOperation,
        epoch: usize,
        revision: u64,
        ended: Moment,
    ) {
        let path = operation.selection.path("");
        if epoch == ended.epoch && revision > ended.revision {
            self.violated(guarantee, format!("{path}: {revision} is in the future"));
        }
        if epoch != operation.begun.epoch {
            return;
        }
        let least = match operation.read_at {
            ReadAt::Any => 0,
            ReadAt::NotOlderThan(revision) => revision,
            ReadAt::Latest => operation.begun.revision,
        };
        let what = format!("{path} from {}: {revision}", operation.target);
        if revision < least {
            self.violated(guarantee, format!("{what} is older than {least}, which was asked for"));
        }
        if revision < operation.floor {
            let floor = operation.floor;
            self.violated("F", format!("{what} is older than {floor}, which this cache had shown"));
        }
    }
}

/// Returns what is wrong with a page, if it is a page of this state.
fn page_problem(
    operation: &ReadOperation,
    state: &[&Version],
    walk: &Walk,
    list: &ListBody<'_>,
    revision: u64,
) -> Option<String> {
    if walk.revision.is_some_and(|first| first != revision) {
        return Some(format!("the walk began at {:?}", walk.revision));
    }
    let rest = state.get(walk.offset..).unwrap_or_default();
    for (item, version) in list.items.iter().zip(rest) {
        let wanted = operation.selection.resource.item(&version.json);
        if item.get().as_bytes() != wanted {
            let wanted = String::from_utf8_lossy(&wanted).into_owned();
            return Some(format!("an item is {}, and not {wanted}", item.get()));
        }
    }
    if list.items.len() > rest.len() {
        return Some(format!("{} objects instead of {}", list.items.len(), rest.len()));
    }
    let left = rest.len() - list.items.len();
    if list.metadata.token.is_empty() && left > 0 {
        return Some(format!("{left} objects are missing at the end"));
    }
    let remaining = list.metadata.remaining_item_count;
    if remaining.is_some_and(|remaining| remaining != left) {
        return Some(format!("remainingItemCount is {remaining:?}, and {left} are left"));
    }
    None
}

/// Whether an answer shows an object, or its absence, as it was at some revision in a range.
fn shown_between(
    epoch: &Epoch,
    operation: &ReadOperation,
    key: &str,
    answer: &Answer,
    from: u64,
    until: u64,
) -> Result<(), String> {
    let Some(log) = epoch.log(operation.selection.resource) else {
        return if answer.status == 404 { Ok(()) } else { Err("no such object".to_owned()) };
    };
    // The body of a response ends with a newline, an object in a list or an event does not.
    let body = answer.body.strip_suffix(b"\n").unwrap_or(&answer.body);
    let mut at = from;
    loop {
        let version = log.version(key, at).filter(|version| !version.deleted);
        let matches = match version {
            Some(version) => answer.status == 200 && *body == *version.json,
            None => answer.status == 404,
        };
        if matches {
            return Ok(());
        }
        match log.next_write(key, at) {
            Some(next) if next <= until => at = next,
            _ => break,
        }
    }
    let text = answer.text();
    Err(format!("status {} shows no state between {from} and {until}: {text}", answer.status))
}
