//! The writes of one epoch as a stream shows them, one after the other.

use super::frame::{Frame, ShownObject};
use crate::resources::Selection;
use crate::write_log::{Epoch, Log, Version};

/// An epoch that the stream may show.
#[derive(Clone)]
pub(super) struct Candidate {
    pub(super) epoch: usize,
    /// The stream begins after this revision, which may be in the future.
    pub(super) after: u64,
    /// The index of the next write in the log.
    pub(super) next: usize,
    /// Until its first frame the stream may begin after any revision up to this one.
    pub(super) skips_to: u64,
}

impl Candidate {
    pub(super) fn new(epoch: usize, log: Option<&Log>, after: u64) -> Self {
        let next = log.map_or(0, |log| next_after(log, after));
        Self { epoch, after, next, skips_to: 0 }
    }

    /// Checks that the selected writes up to a revision are this one event, or none.
    pub(super) fn check(
        &mut self,
        epoch: &Epoch,
        selection: &Selection,
        mut frame: Option<(&Frame, u64)>,
        until: u64,
    ) -> Result<(), String> {
        let Some(log) = epoch.log(selection.resource) else { return Ok(()) };
        if until > epoch.revision {
            return Err(format!("{until} is in the future"));
        }
        let skips_to = std::mem::take(&mut self.skips_to);
        while let Some(write) = log.writes.get(self.next).filter(|write| write.revision <= until) {
            let index = self.next;
            self.next += 1;
            if write.revision <= self.after {
                continue;
            }
            let Some(expected) = expected(log, index, selection) else { continue };
            match frame {
                Some((next_frame, revision)) if revision == write.revision => {
                    frame = None;
                    expected.check(selection, next_frame)?;
                }
                _ if write.revision <= skips_to => {}
                _ => {
                    let (key, revision) = (&write.key, write.revision);
                    return Err(format!("{} of {key} at {revision} is missing", expected.r#type));
                }
            }
        }
        match frame {
            None => Ok(()),
            Some((frame, revision)) => {
                Err(format!("no write gives {} at {revision}", frame.r#type))
            }
        }
    }
}

/// The event of a write.
struct Expected<'a> {
    r#type: &'static str,
    /// The object, which has the revision of the write even where it is an earlier state.
    version: &'a Version,
    revision: u64,
}

impl Expected<'_> {
    fn check(&self, selection: &Selection, frame: &Frame) -> Result<(), String> {
        if frame.r#type != self.r#type {
            return Err(format!("{} instead of {}", frame.r#type, self.r#type));
        }
        if frame.object.is(selection.resource, self.version, self.revision) {
            return Ok(());
        }
        let text = match &frame.object {
            ShownObject::Json(object) => String::from_utf8_lossy(object).into_owned(),
            _ => format!("{:?}", frame.notice),
        };
        Err(format!("another object: {text}"))
    }
}

/// Returns the event that a write gives under a selection.
fn expected<'a>(log: &'a Log, index: usize, selection: &Selection) -> Option<Expected<'a>> {
    let write = log.writes.get(index)?;
    let before = log.before(index).filter(|before| selection.matches(before));
    let after = (!write.deleted && selection.matches(write)).then_some(write);
    let (r#type, version) = match (before, after) {
        (None, None) => return None,
        (None, Some(after)) => ("ADDED", after),
        (Some(_), Some(after)) => ("MODIFIED", after),
        (Some(_), None) if write.deleted => ("DELETED", write),
        (Some(before), None) => ("DELETED", before),
    };
    Some(Expected { r#type, version, revision: write.revision })
}

pub(super) fn next_after(log: &Log, revision: u64) -> usize {
    log.writes.partition_point(|write| write.revision <= revision)
}
